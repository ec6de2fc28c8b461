"""Rules over the expert layouts of an SGLang server's adapters: shared-outer or per expert.

A server serves one layout. It takes it from `--experts-shared-outer-loras` or its `--no-` form,
else from the start-up adapters, else it is per expert.
"""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.advice import format_adapters, launch_defect
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.pool import pool_targets
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_FLAG = "--experts-shared-outer-loras"
_NO_FLAG = "--no-experts-shared-outer-loras"
_TWO_SERVERS = (
    "serve the two layouts by two servers; `inkling convert-adapter` stores factors once that are "
    "the same for all experts"
)


def _forced_layout(subject: LaunchSubject) -> bool | None:
    use = subject.launch.use(_FLAG)
    return use.enabled if use else None


def is_shared_outer_server(subject: LaunchSubject) -> bool | None:
    """Return whether the server's slots store the hidden side once; None if that is not known."""
    forced = _forced_layout(subject)
    if forced is not None:
        return forced
    if any(unread.ref.at_startup for unread in subject.unread):
        return None
    return True in _startup_layouts(subject)


def _startup_layouts(subject: LaunchSubject) -> dict[bool, tuple[AdapterFacts, str]]:
    """Return each layout among the start-up adapters → the first adapter and tensor of it."""
    found: dict[bool, tuple[AdapterFacts, str]] = {}
    for adapter in subject.startup_adapters:
        for layout, name in adapter.expert_layouts().items():
            found.setdefault(layout, (adapter, name))
    return found


@LAUNCH_RULES.rule(
    "SGL301", "mixed-expert-layouts", Severity.ERROR, engine=Engine.SGLANG, stage=Stage.STARTUP
)
def check_mixed_expert_layouts(subject: LaunchSubject) -> Iterator[Defect]:
    """The start-up adapters have shared-outer and per-expert layouts.

    *What it checks*: the size of dimension 0 of the gate and up side of lora_A, routed and shared
    experts, over all adapters of `--lora-paths`, unless the layout is forced.

    *Why it matters*: SGLang refuses to start. Flat shared experts count as shared-outer, so one
    adapter that has them beside per-expert routed experts is enough.

    *How to fix*: serve the two layouts by two servers, or convert the adapters to one layout.
    """
    layouts = _startup_layouts(subject)
    if not subject.lora_enabled or _forced_layout(subject) is not None or len(layouts) < 2:
        return
    (shared, shared_name), (per_expert, per_expert_name) = layouts[True], layouts[False]
    if shared.ref is per_expert.ref:
        message = (
            f"adapter `{shared.name}` has both layouts: `{shared_name}` is shared-outer, "
            f"`{per_expert_name}` is per expert, expected one layout"
        )
    else:
        message = (
            f"adapter `{shared.name}` is shared-outer (`{shared_name}`), "
            f"adapter `{per_expert.name}` is per expert (`{per_expert_name}`), expected one layout"
        )
    yield Defect(message, _TWO_SERVERS, per_expert.ref.location)


@LAUNCH_RULES.rule(
    "SGL302",
    "per-expert-in-shared-server",
    Severity.ERROR,
    engine=Engine.SGLANG,
    stage=Stage.FIRST_USE,
)
def check_per_expert_in_shared_server(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter is per expert, the server shared-outer.

    *What it checks*: adapters whose gate and up side of lora_A has a factor for each expert, where
    `--experts-shared-outer-loras` is given, or the start-up adapters are shared-outer.

    *Why it matters*: the adapter is accepted, and the scheduler fails at the first request that
    uses it.

    *How to fix*: leave `--experts-shared-outer-loras` out, or convert the adapter to shared-outer
    experts if all experts have the same factor at the hidden side.
    """
    forced = _forced_layout(subject)
    detected = set(_startup_layouts(subject)) == {True}
    found = _adapters_of_layout(subject, False)
    if not found or not subject.lora_enabled or forced is False or not (forced or detected):
        return
    holds = "has" if len(found) == 1 else "have"
    message = (
        f"{format_adapters(list(found))} {holds} a factor for each expert ({_first_name(found)}), "
        "expected one for all experts"
    )
    if forced:
        message += f" beside `{_FLAG}`"
        yield launch_defect(subject.launch, message, subject.at(_FLAG), remove=[_FLAG])
    else:
        place = next(iter(found)).ref.location
        yield Defect(f"{message} as in the start-up adapters", _TWO_SERVERS, place)


@LAUNCH_RULES.rule(
    "SGL303", "shared-outer-switched-off", Severity.ERROR, engine=Engine.SGLANG, stage=Stage.SERVED
)
def check_shared_outer_switched_off(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter is shared-outer, `--no-experts-shared-outer-loras` is given.

    *What it checks*: adapters whose gate and up side of lora_A is stored once for all experts,
    where the layout is forced to per expert.

    *Why it matters*: SGLang fills the shared factor into expert 0 only and serves the adapter: the
    answers are wrong, and nothing says so.

    *How to fix*: leave `--no-experts-shared-outer-loras` out.
    """
    found = _adapters_of_layout(subject, True)
    if found and subject.lora_enabled and _forced_layout(subject) is False:
        yield launch_defect(
            subject.launch,
            f"{_shared_outer(found)}, expected a factor for each expert beside `{_NO_FLAG}`: "
            "only expert 0 is filled",
            subject.at(_FLAG),
            remove=[_NO_FLAG],
        )


@LAUNCH_RULES.rule(
    "SGL304", "shared-outer-not-detected", Severity.ERROR, engine=Engine.SGLANG, stage=Stage.SERVED
)
def check_shared_outer_not_detected(subject: LaunchSubject) -> Iterator[Defect]:
    """A shared-outer adapter is loaded while the server runs, and the server is per expert.

    *What it checks*: adapters that are not in `--lora-paths` (given by `--lora`) and are
    shared-outer, where neither `--experts-shared-outer-loras` nor a start-up adapter tells the
    layout.

    *Why it matters*: SGLang looks for the layout at start-up only. It then fills the shared factor
    into expert 0 and serves the adapter: the answers are wrong, and nothing says so.

    *How to fix*: add `--experts-shared-outer-loras`.
    """
    if not subject.lora_enabled or _forced_layout(subject) is not None:
        return
    if True in _startup_layouts(subject) or any(u.ref.at_startup for u in subject.unread):
        return
    found = _adapters_of_layout(subject, True)
    if found:
        yield launch_defect(
            subject.launch,
            f"{_shared_outer(found)}, loaded after start-up, expected `{_FLAG}` on the server: "
            "only expert 0 is filled",
            subject.at(_FLAG),
            options={_FLAG: ""},
        )


@LAUNCH_RULES.rule("SGL305", "expert-layout-undecided", Severity.WARNING, engine=Engine.SGLANG)
def check_expert_layout_undecided(subject: LaunchSubject) -> Iterator[Defect]:
    """Nothing tells a server without start-up adapters which expert layout to expect.

    *What it checks*: `--enable-lora` on an Inkling without `--lora-paths` and without
    `--experts-shared-outer-loras` or its `--no-` form, where experts are targets.

    *Why it matters*: the server is then per expert. Released adapters are shared-outer: loaded
    later, only their expert 0 is filled, the answers are wrong, and nothing says so.

    *How to fix*: add `--experts-shared-outer-loras`, or its `--no-` form if all adapters have a
    factor for each expert.
    """
    has_adapters = bool(subject.launch.adapters)
    if not (subject.lora_enabled and subject.is_inkling) or has_adapters:
        return
    targets = pool_targets(subject) or []
    if _forced_layout(subject) is None and {"gate_up_proj", "down_proj"} <= set(targets):
        yield launch_defect(
            subject.launch,
            f"neither a start-up adapter nor `{_FLAG}` tells the layout of experts: "
            "released adapters that are loaded later get their expert 0 only",
            subject.at(_FLAG),
            options={_FLAG: ""},
        )


def _adapters_of_layout(subject: LaunchSubject, is_shared: bool) -> dict[AdapterFacts, str]:
    """Return the adapters that hold a layout → the first tensor that shows it."""
    found = {adapter: adapter.expert_layouts().get(is_shared) for adapter in subject.adapters}
    return {adapter: name for adapter, name in found.items() if name is not None}


def _shared_outer(found: dict[AdapterFacts, str]) -> str:
    holds = "has" if len(found) == 1 else "have"
    return f"{format_adapters(list(found))} {holds} shared-outer experts ({_first_name(found)})"


def _first_name(found: dict[AdapterFacts, str]) -> str:
    return f"`{next(iter(found.values()))}`"
