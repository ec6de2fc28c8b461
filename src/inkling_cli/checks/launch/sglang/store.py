"""Rules over the adapters that an SGLang server keeps, loads and drops while it runs."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.options.table import parse_number
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.limits import num_slots
from inkling_cli.checks.launch.sglang.parallel import attention_groups, size_of
from inkling_cli.checks.launch.sglang.pool import needed_targets, pool_targets
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_ERROR, _SGLANG, _STAGE = Severity.ERROR, Engine.SGLANG, Stage.SERVER_ARGS
_LOADED, _SLOTS, _RANK = "--max-loaded-loras", "--max-loras-per-batch", "--max-lora-rank"
_MIB = 2**20


@LAUNCH_RULES.rule("SGL106", "overlap-loading-unbounded", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_overlap_loading_unbounded(subject: LaunchSubject) -> Iterator[Defect]:
    """Adapters are to be loaded in the background, without a tight limit on how many are kept.

    *What it checks*: `--enable-lora-overlap-loading` needs `--max-loaded-loras`, of at most twice
    `--max-loras-per-batch`.

    *Why it matters*: SGLang refuses to start: it pins all kept adapters in CPU memory.

    *How to fix*: give `--max-loaded-loras` twice the slots.
    """
    launch, most = subject.launch, 2 * num_slots(subject)
    if not subject.lora_enabled or not launch.is_on("--enable-lora-overlap-loading"):
        return
    loaded = launch.integer(_LOADED)
    if launch.use(_LOADED) is not None and (loaded is None or loaded <= most):
        return
    shown = "is not given" if loaded is None else f"is {loaded}"
    yield launch_defect(
        launch,
        f"`{_LOADED}` {shown} beside `--enable-lora-overlap-loading`, expected at most twice "
        f"`{_SLOTS}`, {most}",
        subject.at(_LOADED),
        options={_LOADED: str(most)},
    )


@LAUNCH_RULES.rule("SGL107", "drain-threshold-negative", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_drain_threshold_negative(subject: LaunchSubject) -> Iterator[Defect]:
    """`--lora-drain-wait-threshold` is negative.

    *What it checks*: the seconds after which a waiting adapter drains a running one; 0 is never.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: give 0 or more.
    """
    name = "--lora-drain-wait-threshold"
    number = parse_number(subject.launch.text(name) or "0")
    if subject.lora_enabled and number is not None and not number >= 0:
        yield launch_defect(
            subject.launch,
            f"`{name}` is {subject.launch.text(name)}, expected at least 0",
            subject.at(name),
            options={name: "0"},
        )


@LAUNCH_RULES.rule("SGL109", "max-lora-rank-negative", _ERROR, engine=_SGLANG, stage=Stage.STARTUP)
def check_max_lora_rank_negative(subject: LaunchSubject) -> Iterator[Defect]:
    """`--max-lora-rank` is negative.

    *What it checks*: the rank that the slots are made for.

    *Why it matters*: SGLang loads the model and then stops.

    *How to fix*: give the largest rank of the adapters.
    """
    rank = subject.launch.integer(_RANK)
    if subject.lora_enabled and rank is not None and rank < 0:
        largest = max((adapter.config.rank for adapter in subject.adapters), default=32)
        yield launch_defect(
            subject.launch,
            f"`{_RANK}` is {rank}, expected the largest rank of the adapters",
            subject.at(_RANK),
            options={_RANK: str(largest)},
        )


@LAUNCH_RULES.rule("SGL110", "fewer-slots-than-adapters", Severity.WARNING, engine=_SGLANG)
def check_more_adapters_than_slots(subject: LaunchSubject) -> Iterator[Defect]:
    """More adapters are loaded at start-up than slots hold beside requests without adapter.

    *What it checks*: the adapters of `--lora-paths` against `--max-loras-per-batch`, of which
    requests without adapter take one, too.

    *Why it matters*: a batch cannot use all of them: requests wait, and adapters are copied to the
    GPU again and again.

    *How to fix*: raise `--max-loras-per-batch`, if there is memory.
    """
    count, slots = sum(ref.at_startup for ref in subject.launch.adapters), num_slots(subject)
    if count > slots > 0:
        yield Defect(
            f"`--lora-paths` names {count} adapters, `{_SLOTS}` {slots} holds fewer at a time",
            f"give `{_SLOTS}` {count + 1} if there is memory (one slot is for requests without "
            "adapter): `inkling plan` shows what it takes",
            subject.at(_SLOTS),
        )


@LAUNCH_RULES.rule(
    "SGL111", "loading-into-replicas", _ERROR, engine=_SGLANG, stage=Stage.DYNAMIC_LOAD
)
def check_loading_into_replicas(subject: LaunchSubject) -> Iterator[Defect]:
    """Adapters are to be loaded while several replicas run.

    *What it checks*: `--dp-size` above 1, without DP attention, where an adapter is not in
    `--lora-paths`, or none is.

    *Why it matters*: SGLang refuses to load an adapter while it runs with replicas.

    *How to fix*: name all adapters in `--lora-paths`, or leave `--dp-size` out.
    """
    replicas = size_of(subject, "--dp-size")
    if not subject.lora_enabled or replicas is None or replicas < 2:
        return
    later = [ref for ref in subject.launch.adapters if not ref.at_startup]
    if attention_groups(subject) == 1 and (later or not subject.launch.adapters):
        yield Defect(
            f"`--dp-size` is {replicas}, expected 1 where adapters are loaded at run time",
            "name all adapters in `--lora-paths`, or leave `--dp-size` out",
            subject.at("--dp-size"),
        )


@LAUNCH_RULES.rule("SGL112", "loading-beyond-the-limit", Severity.WARNING, engine=_SGLANG)
def check_loading_beyond_the_limit(subject: LaunchSubject) -> Iterator[Defect]:
    """Adapters that are loaded later push others out of CPU memory.

    *What it checks*: all adapters, those of `--lora-paths` and those given by `--lora`, against
    `--max-loaded-loras`.

    *Why it matters*: SGLang drops the adapter that was not used for longest and reads it from disk
    again when it is asked for; if all are pinned, it refuses the new one.

    *How to fix*: raise `--max-loaded-loras`, or leave it out: then there is no limit.
    """
    loaded, count = subject.launch.integer(_LOADED), len(subject.launch.adapters)
    startup = sum(ref.at_startup for ref in subject.launch.adapters)
    if subject.lora_enabled and loaded is not None and startup <= loaded < count:
        yield launch_defect(
            subject.launch,
            f"{count} adapters are named, `{_LOADED}` is {loaded}",
            subject.at(_LOADED),
            options={_LOADED: str(count)},
        )


@LAUNCH_RULES.rule("SGL113", "embedding-slots-unused", Severity.INFO, engine=_SGLANG)
def check_embedding_slots_unused(subject: LaunchSubject) -> Iterator[Defect]:
    """`--lora-target-modules all` takes memory for embeddings that no adapter has.

    *What it checks*: `all` where adapters are known and none adapts `embed_tokens`, for an Inkling
    whose config is known, if it takes a MiB or more.

    *Why it matters*: `all` holds embedding and head, each of which SGLang then allocates twice.

    *How to fix*: write the targets that the adapters need.
    """
    option, spec = "--lora-target-modules", subject.model.spec
    given = subject.launch.values(option)
    if given != ("all",) or spec is None or not subject.adapters or subject.unread:
        return
    needed = {target for adapter in subject.adapters for target in needed_targets(adapter)}
    rank = subject.launch.integer(_RANK) or max(a.config.rank for a in subject.adapters)
    slots, width = num_slots(subject), spec.unpadded_vocab_size + spec.hidden_size
    size = 2 * 2 * slots * rank * width / _MIB
    if "embed_tokens" not in needed and subject.lora_enabled and size >= 1:
        named = " ".join(name for name in pool_targets(subject) or () if name in needed)
        yield Defect(
            f"`{option} all` holds embed_tokens, which no adapter has: {size:.1f} MiB per GPU in "
            f"{slots} slots",
            f"write `{option} {named}`",
            subject.at(option),
        )
