"""Rules over the numbers that size SGLang's adapter slots."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import format_adapters, launch_defect
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

DEFAULT_SLOTS = 8
"""`--max-loras-per-batch` where it is not given; one of them is for requests without adapter."""


def num_slots(subject: LaunchSubject) -> int:
    """Return `--max-loras-per-batch`."""
    slots = subject.launch.integer("--max-loras-per-batch")
    return DEFAULT_SLOTS if slots is None else slots


@LAUNCH_RULES.rule(
    "SGL101",
    "max-loras-per-batch-below-one",
    Severity.ERROR,
    engine=Engine.SGLANG,
    stage=Stage.SERVER_ARGS,
)
def check_max_loras_per_batch_below_one(subject: LaunchSubject) -> Iterator[Defect]:
    """`--max-loras-per-batch` is below 1.

    *What it checks*: the number of adapter slots, with or without LoRA enabled.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: give the number of adapters that one batch may use, plus one for requests without.
    """
    slots = subject.launch.integer("--max-loras-per-batch")
    if slots is not None and slots < 1:
        wanted = str(len(subject.launch.adapters) + 1)
        yield launch_defect(
            subject.launch,
            f"`--max-loras-per-batch` is {slots}, expected at least 1",
            subject.at("--max-loras-per-batch"),
            options={"--max-loras-per-batch": wanted},
        )


@LAUNCH_RULES.rule(
    "SGL102",
    "max-loaded-loras-below-batch",
    Severity.ERROR,
    engine=Engine.SGLANG,
    stage=Stage.SERVER_ARGS,
)
def check_max_loaded_loras_below_batch(subject: LaunchSubject) -> Iterator[Defect]:
    """`--max-loaded-loras` is smaller than `--max-loras-per-batch`.

    *What it checks*: the adapters kept in CPU memory against the slots, which are 8 where
    `--max-loras-per-batch` is not given.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: raise `--max-loaded-loras`, or lower `--max-loras-per-batch` (which also saves
    memory).
    """
    loaded = subject.launch.integer("--max-loaded-loras")
    if not subject.lora_enabled or loaded is None or loaded >= num_slots(subject):
        return
    given = subject.launch.use("--max-loras-per-batch")
    yield launch_defect(
        subject.launch,
        f"`--max-loaded-loras` is {loaded}, expected at least `--max-loras-per-batch`, which is "
        + (f"{num_slots(subject)}" if given else f"{DEFAULT_SLOTS} where it is not given"),
        subject.at("--max-loaded-loras"),
        options={"--max-loaded-loras": str(num_slots(subject))},
    )


@LAUNCH_RULES.rule(
    "SGL103",
    "more-adapters-than-loaded",
    Severity.ERROR,
    engine=Engine.SGLANG,
    stage=Stage.SERVER_ARGS,
)
def check_more_adapters_than_loaded(subject: LaunchSubject) -> Iterator[Defect]:
    """`--lora-paths` names more adapters than `--max-loaded-loras` allows.

    *What it checks*: the number of start-up adapters against `--max-loaded-loras`, if that is
    given.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: raise `--max-loaded-loras`, or leave it out: then there is no limit.
    """
    loaded = subject.launch.integer("--max-loaded-loras")
    count = sum(ref.at_startup for ref in subject.launch.adapters)
    if loaded is not None and count > loaded:
        yield launch_defect(
            subject.launch,
            f"`--lora-paths` names {count} adapters, `--max-loaded-loras` is {loaded}, "
            f"expected at least {count}",
            subject.at("--max-loaded-loras"),
            options={"--max-loaded-loras": str(count)},
        )


@LAUNCH_RULES.rule("SGL104", "rank-above-pool-rank", Severity.ERROR, engine=Engine.SGLANG)
def check_rank_above_pool_rank(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter's rank is larger than the server's.

    *What it checks*: `r` in each adapter's config against `--max-lora-rank`; where that is not
    given, the adapters that are added with `--lora` against the largest `r` in `--lora-paths`.

    *Why it matters*: an adapter of `--lora-paths` is accepted, and the scheduler fails at the first
    request that uses it. An adapter that is loaded later is refused.

    *How to fix*: give a `--max-lora-rank` of at least the adapter's rank.
    """
    limit = subject.launch.integer("--max-lora-rank")
    shown = f"`--max-lora-rank` {limit}"
    if limit is None:
        ranks = [adapter.config.rank for adapter in subject.startup_adapters]
        if not ranks or len(ranks) < sum(ref.at_startup for ref in subject.launch.adapters):
            return
        limit = max(ranks)
        shown = f"{limit}, the largest rank in `--lora-paths`"
    for at_startup in (True, False):
        above = [
            adapter
            for adapter in subject.adapters
            if adapter.ref.at_startup is at_startup and adapter.config.rank > limit
        ]
        if not above or not subject.lora_enabled:
            continue
        rank = max(adapter.config.rank for adapter in above)
        effect = "the scheduler fails at its first request" if at_startup else "it is refused"
        yield launch_defect(
            subject.launch,
            f"{format_adapters(above)} {'has' if len(above) == 1 else 'have'} rank {rank}, "
            f"expected at most {shown}: {effect}",
            subject.at("--max-lora-rank"),
            options={"--max-lora-rank": str(rank)},
            stage=Stage.FIRST_USE if at_startup else Stage.DYNAMIC_LOAD,
        )


@LAUNCH_RULES.rule(
    "SGL105", "too-many-pinned", Severity.ERROR, engine=Engine.SGLANG, stage=Stage.STARTUP
)
def check_too_many_pinned(subject: LaunchSubject) -> Iterator[Defect]:
    """More adapters are pinned than there are slots to pin.

    *What it checks*: the adapters with `"pinned": true` in `--lora-paths` against
    `--max-loras-per-batch` minus one.

    *Why it matters*: SGLang refuses to start: one slot has to stay free for all other requests.

    *How to fix*: raise `--max-loras-per-batch`, or pin fewer adapters.
    """
    pinned = [ref for ref in subject.launch.adapters if ref.at_startup and ref.pinned]
    room = num_slots(subject) - 1
    if len(pinned) > max(room, 0):
        wanted = str(len(pinned) + 1)
        yield launch_defect(
            subject.launch,
            f"{len(pinned)} {'adapter is' if len(pinned) == 1 else 'adapters are'} pinned "
            f"({format_names([ref.name for ref in pinned])}), expected at most {max(room, 0)}: "
            f"one slot of `--max-loras-per-batch` {num_slots(subject)} stays free",
            pinned[0].location,
            options={"--max-loras-per-batch": wanted},
        )
