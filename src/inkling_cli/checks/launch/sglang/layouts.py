"""Rules over the expert layouts of an SGLang server's adapters: shared-outer or per expert.

A server serves one layout. It takes it from `--experts-shared-outer-loras` or its `--no-` form,
else from the start-up adapters, else it is per expert.
"""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.advice import advise_conversion, launch_defect
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.pool import adapts_experts
from inkling_cli.checks.launch.sglang.reading import layouts_of
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

FLAG = "--experts-shared-outer-loras"


def advise_one_layout(shared: AdapterFacts) -> str:
    """Return how a shared-outer adapter and one per expert can both be served."""
    expand = advise_conversion(shared, Engine.SGLANG, option="--expand")
    return f"serve them by two servers, or store `{shared.name}` per expert as well: {expand}"


def forced_layout(subject: LaunchSubject) -> bool | None:
    """Return the layout that an option forces: is shared-outer; None without one."""
    use = subject.launch.use(FLAG)
    return use.enabled if use else None


def is_shared_outer_server(subject: LaunchSubject) -> bool | None:
    """Return whether the server's slots store the hidden side once; None if that is not known."""
    forced = forced_layout(subject)
    if forced is not None:
        return forced
    if any(unread.ref.at_startup for unread in subject.unread):
        return None
    return True in startup_layouts(subject)


def startup_layouts(subject: LaunchSubject) -> dict[bool, tuple[AdapterFacts, str]]:
    """Return each layout among the start-up adapters → the first adapter and tensor of it."""
    found: dict[bool, tuple[AdapterFacts, str]] = {}
    for adapter in subject.startup_adapters:
        for layout, name in layouts_of(subject, adapter).items():
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

    *How to fix*: serve the two layouts by two servers, or store the shared-outer adapter per expert
    as well: `inkling convert-adapter ADAPTER --to sglang --expand -o OUT`.
    """
    layouts = startup_layouts(subject)
    if not subject.lora_enabled or forced_layout(subject) is not None or len(layouts) < 2:
        return
    (shared, shared_name), (per_expert, per_expert_name) = layouts[True], layouts[False]
    if shared.ref is per_expert.ref:
        message = (
            f"adapter `{shared.name}` has both layouts: `{shared_name}` is shared-outer, "
            f"`{per_expert_name}` is per expert, expected one layout"
        )
        remedy = advise_conversion(shared, Engine.SGLANG)
    else:
        message = (
            f"adapter `{shared.name}` is shared-outer (`{shared_name}`), "
            f"adapter `{per_expert.name}` is per expert (`{per_expert_name}`), expected one layout"
        )
        remedy = advise_one_layout(shared)
    yield Defect(message, remedy, per_expert.ref.location)


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
    if forced_layout(subject) is None and adapts_experts(subject):
        yield launch_defect(
            subject.launch,
            f"neither a start-up adapter nor `{FLAG}` tells the layout of experts: "
            "released adapters that are loaded later get their expert 0 only",
            subject.at(FLAG),
            options={FLAG: ""},
        )
