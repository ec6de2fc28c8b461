"""Rules over the files, names and shapes of adapters that vLLM refuses when it loads them."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.advice import advise_conversion
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.loader import refusals
from inkling_cli.checks.launch.vllm.refusal import Reason, Refusal
from inkling_cli.checks.launch.vllm.wrapping import SHARED_FLAG
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.adapter.adapter_weights import WEIGHTS_NAME
from inkling_runtime.errors import format_names

_LOAD = Stage.ADAPTER_LOAD
_EXPORT_AGAIN = "export the adapter again, or serve it on the model that it was trained on"
_ERROR = Severity.ERROR


@LAUNCH_RULES.rule("VLM205", "adapter-names-refused", _ERROR, engine=Engine.VLLM, stage=_LOAD)
def check_adapter_names_refused(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter has tensor names that vLLM does not take.

    *What it checks*: with LoRA enabled, that each name ends in `.lora_A.weight` or
    `.lora_B.weight`, and that the last part of its path is one of the modules that vLLM adapts on
    an Inkling: `wq_du`, `wk_dv`, `wv_dv`, `wr_du`, `wo_ud`, `gate_up_proj`, `down_proj`, `w1`,
    `w2`, `w3`, `lm_head`, or an expert. (Experts in the layout that the launch does not expect have
    rules of their own, VLM202 and VLM203.)

    *Why it matters*: vLLM refuses the whole adapter for one such name.

    *How to fix*: `inkling convert-adapter ADAPTER --to vllm -o OUT` writes names that it takes.
    """
    for facts in _loaded(subject):
        told = _told_by_layout_rules(subject, facts)
        found = [
            refusal
            for refusal in refusals(subject, facts)
            if refusal.reason in (Reason.UNSUPPORTED_NAME, Reason.UNEXPECTED_MODULE)
            and refusal.name.removesuffix(".weight").rpartition(".")[0] not in told
        ]
        if found:
            names = format_names([refusal.name for refusal in found])
            message = f"vLLM does not take the names {names}"
            yield _defect(facts, message, found[0], advise_conversion(facts, Engine.VLLM))


@LAUNCH_RULES.rule("VLM206", "packed-experts-refused", _ERROR, engine=Engine.VLLM, stage=_LOAD)
def check_packed_experts_refused(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter has its experts packed by PEFT, which vLLM cannot load for an Inkling.

    *What it checks*: with LoRA enabled, adapters with tensors of `mlp.experts` itself, as PEFT
    writes them for `target_parameters`.

    *Why it matters*: vLLM refuses the adapter and names `--enable-mixed-moe-lora-format` as the
    remedy. That does not help a multimodal Inkling: the conversion looks for an architecture in the
    text config and fails there. It works for a text-only config, with `"is_3d_lora_weight": true`
    in the adapter's JSON entry.

    *How to fix*: `inkling convert-adapter ADAPTER --to vllm --model MODEL -o OUT`.
    """
    for facts in _loaded(subject):
        found = _of(subject, facts, Reason.PACKED_EXPERTS)
        if found:
            message = f"its experts are packed (`{found[0].name}`), which vLLM refuses"
            remedy = advise_conversion(facts, Engine.VLLM, needs_model=True)
            yield _defect(facts, message, found[0], remedy)


@LAUNCH_RULES.rule("VLM207", "adapter-incomplete", _ERROR, engine=Engine.VLLM, stage=_LOAD)
def check_adapter_incomplete(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter lacks a factor, an expert or a projection without which vLLM fails.

    *What it checks*: with LoRA enabled, that every module has both factors (a missing A of q, k, v,
    r or of a shared expert's w1 or w3 is not refused but left out), and that a layer with adapted
    experts has all experts and all three projections.

    *Why it matters*: vLLM stops with an assertion that names neither the module nor the adapter.

    *How to fix*: export the adapter again; the file is incomplete.
    """
    for facts in _loaded(subject):
        found = _of(subject, facts, Reason.MISSING_FACTOR, Reason.MISSING_EXPERTS)
        if found:
            place = f"`{found[0].name}`: " if found[0].name else ""
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            yield _defect(facts, f"{place}{found[0].message}{more}", found[0])


@LAUNCH_RULES.rule("VLM208", "adapter-larger-than-slot", _ERROR, engine=Engine.VLLM, stage=_LOAD)
def check_adapter_larger_than_slot(subject: LaunchSubject) -> Iterator[Defect]:
    """A factor is larger than the room that vLLM has for it.

    *What it checks*: with LoRA enabled and the model's config at hand, the shape of every factor
    against the base model's widths, its number of experts and `--max-lora-rank`. A
    `lora_embedding_A` has to be exactly as wide as the vocabulary. (A rank that the adapter's
    config tells is VLM104's.)

    *Why it matters*: vLLM fails to copy the factor, with an error about sizes of tensors that names
    neither the module nor the adapter. Smaller factors are accepted and served wrongly (LCH205).

    *How to fix*: serve the adapter on the model that it was trained on.
    """
    for facts in _loaded(subject):
        found = _of(subject, facts, Reason.TOO_LARGE)
        if found and not _is_told_by_rank(subject, facts):
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            yield _defect(facts, f"`{found[0].name}`: {found[0].message}{more}", found[0])


@LAUNCH_RULES.rule("VLM215", "adapter-in-shards", _ERROR, engine=Engine.VLLM, stage=_LOAD)
def check_adapter_in_shards(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter's tensors are in several files, of which vLLM reads none.

    *What it checks*: with LoRA enabled, whether each adapter has an `adapter_model.safetensors`,
    or shards such as `adapter_model-00001-of-00002.safetensors`.

    *Why it matters*: vLLM looks for that one name and for pickled weights, not for an index. It
    refuses the adapter because the folder "doesn't contain tensors".

    *How to fix*: `inkling convert-adapter ADAPTER --to vllm -o OUT` joins the shards.
    """
    for facts in subject.adapters if subject.lora_enabled else ():
        weights = facts.adapter.file
        if weights.is_sharded:
            yield Defect(
                f"adapter `{facts.name}` has its tensors in {format_names(weights.file_names, 1)}, "
                f"vLLM reads `{WEIGHTS_NAME}` alone",
                advise_conversion(facts, Engine.VLLM),
                Location(str(weights.path)),
            )


def _loaded(subject: LaunchSubject) -> tuple[AdapterFacts, ...]:
    return subject.adapters if subject.lora_enabled and subject.is_inkling else ()


def _of(subject: LaunchSubject, facts: AdapterFacts, *reasons: Reason) -> list[Refusal]:
    return [refusal for refusal in refusals(subject, facts) if refusal.reason in reasons]


def _is_told_by_rank(subject: LaunchSubject, facts: AdapterFacts) -> bool:
    limit = subject.launch.integer("--max-lora-rank")
    return facts.max_rank > (16 if limit is None else limit)


def _told_by_layout_rules(subject: LaunchSubject, facts: AdapterFacts) -> set[str]:
    shared = subject.launch.is_on(SHARED_FLAG)
    return set(facts.numbered_experts() if shared else facts.stacked_experts())


def _defect(
    facts: AdapterFacts, message: str, refusal: Refusal, remedy: str = _EXPORT_AGAIN
) -> Defect:
    place = Location(str(facts.adapter.file.path), key=refusal.name or None)
    return Defect(f"adapter `{facts.name}`: {message}", remedy, place)
