"""Rules over parts of an adapter that vLLM accepts and does not apply as they are meant.

What becomes of each module is told in `effects.py`; the rules only speak of it.
"""

from collections.abc import Iterator, Sequence

from inkling_cli.checks.effect import Effect, format_share, with_cause
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.advice import advise_conversion
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.causes import Cause
from inkling_cli.checks.launch.vllm.effects import vllm_effects
from inkling_cli.checks.launch.vllm.loader import is_refused_for_itself
from inkling_cli.checks.launch.vllm.wrapping import SHARED_FLAG
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_count, format_names

_ERROR = Severity.ERROR
_SERVED = Stage.SERVED


@LAUNCH_RULES.rule("VLA001", "shared-experts-dropped", _ERROR, engine=Engine.VLLM, stage=_SERVED)
def check_shared_experts_dropped(subject: LaunchSubject) -> Iterator[Defect]:
    """Shared-expert modules under a name that vLLM accepts and never applies.

    *What it checks*: modules named `mlp.shared_experts.…`; vLLM's module is `mlp.sink_experts`.

    *Why it matters*: the name passes vLLM's check, which looks at the last part only, and then
    matches nothing. The adapter loads and its shared-expert part has no effect; the only trace
    is a debug line.

    *How to fix*: `inkling convert-adapter ADAPTER --to vllm -o OUT` renames them.
    """
    for facts, effects in _effects(subject, Cause.SHARED_NAME):
        message = (
            f"vLLM drops {format_share(effects, vllm_effects(subject, facts))} silently, "
            "it looks for `sink_experts` where they say `shared_experts`"
        )
        yield _defect(facts, message, effects, "name them `sink_experts`")


@LAUNCH_RULES.rule(
    "VLA002", "dense-rows-not-interleaved", _ERROR, engine=Engine.VLLM, stage=_SERVED
)
def check_dense_rows_misread_by_vllm(subject: LaunchSubject) -> Iterator[Defect]:
    """Rows of the dense gate_up lora_B that vLLM adds to the wrong channels.

    *What it checks*: dense gate_up modules whose lora_B rows are [gate; up]. vLLM keeps its base
    rows interleaved (g0, u0, g1, u1 and so on) and adds lora_B row by row.

    *Why it matters*: half of the gate's delta lands on up and the other way round, without a
    message: a relative error of 0.83 was measured on such a layer.

    *How to fix*: `inkling convert-adapter ADAPTER --to vllm -o OUT` interleaves the rows.
    """
    for facts, effects in _effects(subject, Cause.ROWS):
        message = (
            f"vLLM misapplies {format_share(effects, vllm_effects(subject, facts))}: "
            "it reads lora_B rows as g0, u0, g1, u1, …, on disk they are [gate; up]"
        )
        yield _defect(facts, message, effects, "bring the rows into that order")


@LAUNCH_RULES.rule("VLM212", "modules-dropped-by-name", _ERROR, engine=Engine.VLLM, stage=_SERVED)
def check_modules_dropped_by_name(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter has modules whose paths lead nowhere in vLLM.

    *What it checks*: with LoRA enabled on an Inkling, the path of every module that vLLM accepts
    against the modules that it adapts: one `model.` too many, `layers.` without a prefix, draft
    layers. (Shared experts under the released name are VLA001's, layers that the model does not
    have are ADP006's.)

    *Why it matters*: vLLM looks at the last part of a path when it accepts a name, and at the whole
    path when it applies it. The module has no effect; the only trace is a debug line.

    *How to fix*: `inkling convert-adapter ADAPTER --to vllm -o OUT` writes paths that it applies.
    """
    for facts, effects in _effects(subject, Cause.NOWHERE):
        names = format_names([effect.module for effect in effects])
        message = f"vLLM drops {format_count(len(effects), 'module')} silently ({names})"
        yield _defect(facts, message, effects, "give them names that vLLM has, or leave them out")


@LAUNCH_RULES.rule("VLM213", "outer-factor-cut", _ERROR, engine=Engine.VLLM, stage=_SERVED)
def check_outer_factor_cut(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter has an outer factor per expert, of which vLLM keeps the first expert's.

    *What it checks*: with `--enable-moe-shared-loras`, that the hidden-side factor of the stacked
    experts (lora_A of `w1` and `w3`, lora_B of `w2`) is stored once; and that no packed experts are
    converted, which have one per expert too.

    *Why it matters*: vLLM takes the first expert's factor for all experts, without a message.

    *How to fix*: `inkling convert-adapter ADAPTER --to vllm -o OUT`, and serve the result without
    `--enable-moe-shared-loras` if the factors differ.
    """
    for facts, effects in _effects(subject, Cause.CUT):
        message = (
            f"`{effects[0].module}` has an outer factor per expert, with `{SHARED_FLAG}` "
            "vLLM keeps the first expert's for all"
        )
        yield _defect(facts, message, effects, "store that factor once, or the experts one by one")


@LAUNCH_RULES.rule(
    "VLM214", "foreign-names-not-as-meant", _ERROR, engine=Engine.VLLM, stage=_SERVED
)
def check_foreign_names_not_as_meant(subject: LaunchSubject) -> Iterator[Defect]:
    """Modules under names that vLLM knows and the adapter's dialect does not are not well-formed.

    *What it checks*: of such modules what ADP002 to ADP007 check of all others: both factors are
    there and none is empty, they fill the width of their place in vLLM, their rank is the one of
    the config, and no other name leads to the same place.

    *Why it matters*: vLLM writes a factor that is too small into a corner of its place, scales by
    the rank of the config, keeps the last of two names, and says nothing.

    *How to fix*: export the adapter again, under one convention of names.
    """
    causes = [cause for cause in Cause if "VLM214" in cause.rules]
    for facts, effects in _effects(subject, *causes):
        understood = {module.name for module in facts.adapter.modules}
        foreign = [effect for effect in effects if effect.module not in understood]
        if foreign:
            first, more = foreign[0], len(foreign) - 1
            others = f" (and {more} more modules)" if more else ""
            message = f"vLLM does not apply `{first.module}` as it is meant: {first.reason}{others}"
            help_text = "export the adapter again, under one convention of names"
            yield _defect(facts, message, foreign, help_text)


def _effects(
    subject: LaunchSubject, *causes: Cause
) -> Iterator[tuple[AdapterFacts, Sequence[Effect]]]:
    """Yield the adapters that have effects of these causes, with those, in order of names.

    Adapters that vLLM refuses under every launch are left out.
    """
    for facts in subject.adapters if subject.lora_enabled and subject.is_inkling else ():
        if is_refused_for_itself(subject, facts):
            continue
        found = with_cause(vllm_effects(subject, facts), *causes)
        if found:
            yield facts, sorted(found, key=lambda effect: effect.module)


def _defect(facts: AdapterFacts, message: str, effects: Sequence[Effect], otherwise: str) -> Defect:
    """Return a defect that a conversion repairs; `otherwise` is for adapters that it refuses."""
    return Defect(
        f"adapter `{facts.name}`: {message}",
        advise_conversion(facts, Engine.VLLM, otherwise),
        Location(str(facts.adapter.file.path), key=effects[0].module),
    )
