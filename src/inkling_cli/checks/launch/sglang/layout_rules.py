"""Rules over adapters whose layout of experts is not the server's."""

from collections.abc import Iterator

from inkling_cli.checks.effect import module_name, with_cause
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.advice import advise_conversion, format_adapters, launch_defect
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.causes import Cause
from inkling_cli.checks.launch.sglang.effects import sglang_effects
from inkling_cli.checks.launch.sglang.layouts import (
    FLAG,
    advise_one_layout,
    forced_layout,
    is_shared_outer_server,
    startup_layouts,
)
from inkling_cli.checks.launch.sglang.loading import landing_of
from inkling_cli.checks.launch.sglang.reading import layouts_of
from inkling_cli.checks.launch.sglang.served_model import served_spec
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_NO_FLAG = "--no-experts-shared-outer-loras"
_ERROR, _SGLANG, _SERVED = Severity.ERROR, Engine.SGLANG, Stage.SERVED


@LAUNCH_RULES.rule(
    "SGL302", "per-expert-in-shared-server", _ERROR, engine=_SGLANG, stage=Stage.FIRST_USE
)
def check_per_expert_in_shared_server(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter is per expert, the server shared-outer.

    *What it checks*: adapters whose gate and up side of lora_A has a factor for each expert, where
    `--experts-shared-outer-loras` is given, or the start-up adapters are shared-outer.

    *Why it matters*: the adapter is accepted, and the scheduler fails at the first request that
    uses it.

    *How to fix*: leave `--experts-shared-outer-loras` out, or store the shared-outer adapters per
    expert as well: `inkling convert-adapter ADAPTER --to sglang --expand -o OUT`.
    """
    forced = forced_layout(subject)
    detected = set(startup_layouts(subject)) == {True}
    found = _per_expert(subject)
    if not found or forced is False or not (forced or detected):
        return
    holds, first = "has" if len(found) == 1 else "have", next(iter(found.values()))
    message = (
        f"{format_adapters(list(found))} {holds} a factor for each expert (`{first}`), "
        "expected one for all experts"
    )
    if forced:
        message += f" beside `{FLAG}`"
        yield launch_defect(subject.launch, message, subject.at(FLAG), remove=[FLAG])
    else:
        place = next(iter(found)).ref.location
        shared, _ = startup_layouts(subject)[True]
        remedy = advise_one_layout(shared)
        yield Defect(f"{message} as in the start-up adapters", remedy, place)


@LAUNCH_RULES.rule("SGL303", "shared-outer-switched-off", _ERROR, engine=_SGLANG, stage=_SERVED)
def check_shared_outer_switched_off(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter is shared-outer, `--no-experts-shared-outer-loras` is given.

    *What it checks*: adapters whose experts' hidden side is stored once for all of them, where the
    layout is forced to per expert.

    *Why it matters*: SGLang fills the shared factor into expert 0 only and serves the adapter: the
    answers are wrong, and nothing says so.

    *How to fix*: leave `--no-experts-shared-outer-loras` out.
    """
    found = _filled_in_part(subject)
    if found and forced_layout(subject) is False:
        yield launch_defect(
            subject.launch,
            f"{_shared_outer(found)}, expected a factor for each expert beside `{_NO_FLAG}`: "
            "only expert 0 is filled",
            subject.at(FLAG),
            remove=[_NO_FLAG],
        )


@LAUNCH_RULES.rule("SGL304", "shared-outer-not-detected", _ERROR, engine=_SGLANG, stage=_SERVED)
def check_shared_outer_not_detected(subject: LaunchSubject) -> Iterator[Defect]:
    """A shared-outer adapter is loaded while the server runs, and the server is per expert.

    *What it checks*: adapters that are not in `--lora-paths` (given by `--lora`) and are
    shared-outer, where neither `--experts-shared-outer-loras` nor a start-up adapter tells the
    layout.

    *Why it matters*: SGLang looks for the layout at start-up only. It then fills the shared factor
    into expert 0 and serves the adapter: the answers are wrong, and nothing says so.

    *How to fix*: add `--experts-shared-outer-loras`.
    """
    found = {
        a: name for a, name in _filled_in_part(subject).items() if _has_shared_gate(subject, a)
    }
    if found and forced_layout(subject) is None:
        yield launch_defect(
            subject.launch,
            f"{_shared_outer(found)}, loaded after start-up, expected `{FLAG}` on the server: "
            "only expert 0 is filled",
            subject.at(FLAG),
            options={FLAG: ""},
        )


@LAUNCH_RULES.rule("SGL306", "down-side-stored-once", _ERROR, engine=_SGLANG, stage=_SERVED)
def check_down_side_stored_once(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter stores lora_B of `w2` once for all experts, and not lora_A of `w1` and `w3`.

    *What it checks*: adapters of which only the down side is shared-outer, where no option forces
    the layout.

    *Why it matters*: SGLang tells the layout by the gate and up side alone, and takes the server
    for per expert. Of `w2` it fills expert 0 only: the answers are wrong, and nothing says so.

    *How to fix*: `inkling convert-adapter ADAPTER --to sglang -o OUT` stores all sides alike.
    """
    found = _filled_in_part(subject)
    for adapter, module in found.items():
        if forced_layout(subject) is not None or _has_shared_gate(subject, adapter):
            continue
        yield Defect(
            f"adapter `{adapter.name}` stores `{module}` once for all experts, its gate and up "
            "side not: only expert 0 is filled",
            advise_conversion(adapter, Engine.SGLANG),
            adapter.ref.location,
        )


def _per_expert(subject: LaunchSubject) -> dict[AdapterFacts, str]:
    """Return the adapters that do not go into shared slots → the first tensor that shows it."""
    found: dict[AdapterFacts, str] = {}
    for adapter in subject.adapters if subject.lora_enabled else ():
        name, landing = layouts_of(subject, adapter).get(False), landing_of(subject, adapter)
        if name is not None and (landing.is_per_expert or landing.server is None):
            found[adapter] = name
    return found


def _filled_in_part(subject: LaunchSubject) -> dict[AdapterFacts, str]:
    """Return the adapters of which only expert 0 is filled → the first name that shows it."""
    found: dict[AdapterFacts, str] = {}
    for adapter in subject.adapters if subject.lora_enabled else ():
        effects = with_cause(sglang_effects(subject, adapter), Cause.ONE_EXPERT)
        unsized = served_spec(subject) is None and is_shared_outer_server(subject) is False
        name = layouts_of(subject, adapter).get(True) if unsized else None
        if effects or name is not None:
            found[adapter] = effects[0].module if effects else module_name(name or "")
    return found


def _has_shared_gate(subject: LaunchSubject, adapter: AdapterFacts) -> bool:
    return True in layouts_of(subject, adapter)


def _shared_outer(found: dict[AdapterFacts, str]) -> str:
    holds, first = "has" if len(found) == 1 else "have", next(iter(found.values()))
    return f"{format_adapters(list(found))} {holds} shared-outer experts (`{first}`)"
