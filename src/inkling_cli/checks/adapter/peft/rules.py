"""Rules about tensors that PEFT on transformers drops, misapplies, or puts over base weights."""

from collections.abc import Iterator, Sequence

from inkling_cli.checks.adapter.peft.effects import (
    FACTOR_ALONE,
    HALF_LOADED,
    NO_MAGNITUDE,
    NO_MATCH,
    NOT_TARGETED,
    OTHER_SCALE,
    OVERRIDDEN,
    PREFIX,
    RANDOM,
    TOKENS,
    loadings,
    peft_effects,
)
from inkling_cli.checks.adapter.subject import ADAPTER_RULES, AdapterSubject
from inkling_cli.checks.effect import Effect, Fate, format_share, with_cause
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.shell_word import shell_word
from inkling_runtime.adapter.dialects.peft import MULTIMODAL_ROOT, TEXT_ROOT, WRAPPER
from inkling_runtime.errors import format_count, format_names

_ERROR = Severity.ERROR
SINCE = "0.21.2"


@ADAPTER_RULES.rule("PFA001", "names-without-match", _ERROR, engine="peft", since=SINCE)
def check_foreign_names_for_peft(subject: AdapterSubject) -> Iterator[Defect]:
    """Names that the transformers model does not have.

    *What it checks*: every tensor name is looked up among the modules of the transformers model,
    with the renaming that PEFT does on load.

    *Why it matters*: PEFT says nothing about tensors that it drops. It loads the adapter
    "successfully", warns at most of what the model lacks, and computes the base model.

    *How to fix*: `inkling convert-adapter ADAPTER --to peft --model MODEL -o OUT`. If the names
    are PEFT's already, take the base model that the adapter was trained on.
    """
    found = _caused(subject, NO_MATCH)
    if found:
        yield Defect(
            f"PEFT drops {_share(subject, found)} silently, "
            f"no module of the transformers model is named so{_rest(subject)}",
            conversion_command(subject)
            if subject.adapter.dialect.written_as != "peft"
            else "correct the names, or take the base model that the adapter was trained on",
            subject.at(found[0].module),
        )


@ADAPTER_RULES.rule("PFA002", "prefix-of-another-model", _ERROR, engine="peft", since=SINCE)
def check_prefix_for_peft(subject: AdapterSubject) -> Iterator[Defect]:
    """Names that would match with another prefix.

    *What it checks*: names of the text model (`model.layers.`) on the multimodal one
    (`model.language_model.layers.`) and the other way round, and `base_model.model.` that is
    missing or stands twice.

    *Why it matters*: PEFT loads the adapter with a warning about missing keys and drops what it
    does not find.

    *How to fix*: `inkling convert-adapter ADAPTER --to peft --model MODEL -o OUT`, or pass a
    `key_mapping` to `PeftModel.from_pretrained`.
    """
    found = _caused(subject, PREFIX)
    if found:
        root = loadings(subject)[0].tree.root
        expected = f"`{WRAPPER}{root}`" if subject.spec is not None else f"`{WRAPPER}` once"
        yield Defect(
            f"PEFT drops {_share(subject, found)} silently for their prefix, "
            f"expected {expected}{_rest(subject)}",
            _remedy_of_prefix(subject, found[0].module),
            subject.at(found[0].module),
        )


def _remedy_of_prefix(subject: AdapterSubject, module: str) -> str:
    if subject.adapter.unknown:
        return f"begin every name with `{WRAPPER}` once, then the model's own name"
    if not module.startswith(WRAPPER):
        return conversion_command(subject)
    old, new = TEXT_ROOT, MULTIMODAL_ROOT
    if module.startswith(WRAPPER + MULTIMODAL_ROOT):
        old, new = new, old
    pattern = old.replace(".", r"\.")
    mapping = f"key_mapping={{r'^{pattern}': '{new}'}}"
    return f"{conversion_command(subject)}, or pass `{mapping}` to `PeftModel.from_pretrained`"


@ADAPTER_RULES.rule("PFA003", "raw-names-half-loaded", _ERROR, engine="peft", since=SINCE)
def check_raw_names_for_peft(subject: AdapterSubject) -> Iterator[Defect]:
    """Names of raw checkpoints, of which PEFT loads a part.

    *What it checks*: names that begin with `model.llm.`. transformers renames some names of raw
    checkpoints, and PEFT applies the same renames to adapters of the multimodal model: `attn.wq_du`
    and its siblings are loaded, `mlp.gate_up_proj`, all experts and the head are not.

    *Why it matters*: the logits change, so the adapter seems to work, but most of it is dropped
    without a message.

    *How to fix*: put `language_model.` in place of `model.llm.`, as the trainer wrote it, then
    `inkling convert-adapter ADAPTER --to peft --model MODEL -o OUT`.
    """
    found = _caused(subject, HALF_LOADED)
    if found:
        total = len(peft_effects(subject))
        yield Defect(
            f"PEFT renames and loads {total - len(found)} of {total} modules on the multimodal "
            f"model and drops the others silently ({_names(found)})",
            "put `language_model.` in place of `model.llm.`, then "
            f"`inkling convert-adapter {shell_word(subject.path)} --to peft --model MODEL -o OUT`",
            subject.at(found[0].module),
        )


@ADAPTER_RULES.rule("PFA004", "outside-the-targets", _ERROR, engine="peft", since=SINCE)
def check_outside_targets_for_peft(subject: AdapterSubject) -> Iterator[Defect]:
    """Tensors that the config does not ask for.

    *What it checks*: modules that the model has and that neither `target_modules` nor
    `target_parameters` selects, and tensors of DoRA or biases that the config does not switch on.
    Experts are parameters: only `target_parameters` selects them.

    *Why it matters*: PEFT drops them without a message.

    *How to fix*: name them in `target_modules` or `target_parameters`.
    """
    found = _caused(subject, NOT_TARGETED)
    if found:
        yield Defect(
            f"PEFT drops {_share(subject, found)} silently, adapter_config.json does not ask "
            "for them",
            "name them in `target_modules`, and experts in `target_parameters`",
            subject.in_config("target_modules"),
        )


@ADAPTER_RULES.rule(
    "PFA005", "wrapped-without-tensors", Severity.WARNING, engine="peft", since=SINCE
)
def check_wrapped_without_tensors(subject: AdapterSubject) -> Iterator[Defect]:
    """Modules that PEFT wraps and for which the file has nothing.

    *What it checks*: whatever the targets select has tensors in the file.

    *Why it matters*: the file may be incomplete. Such a module stays without effect, and the
    layer costs time. With `init_lora_weights` false it gets random factors instead and changes
    every answer.

    *How to fix*: export the adapter again, or narrow the targets to what is in the file.
    """
    empty = loadings(subject)[0].empty if subject.spec is not None else []
    if not empty or _caused(subject, NO_MATCH, PREFIX, HALF_LOADED):
        return
    names = format_names([wrapper.target for wrapper in empty])
    is_random = bool(_caused(subject, RANDOM))
    become = "random factors take their place" if is_random else "no effect comes of it"
    yield Defect(
        f"PEFT wraps {format_count(len(empty), 'module')} for which the file has no tensors "
        f"({names}): {become}",
        "export the adapter again, or narrow the targets to what is in the file",
        subject.in_config("target_modules"),
        severity=_ERROR if is_random else None,
    )


@ADAPTER_RULES.rule("PFA006", "one-factor-for-peft", _ERROR, engine="peft", since=SINCE)
def check_one_factor_for_peft(subject: AdapterSubject) -> Iterator[Defect]:
    """Modules of which PEFT finds one factor alone.

    *What it checks*: both factors of a module are loaded.

    *Why it matters*: without lora_B the module has no effect. Without lora_A its lora_B is
    multiplied with random numbers, new ones on each load.

    *How to fix*: export the adapter again; the file is incomplete.
    """
    yield from _each_reason(subject, FACTOR_ALONE, "the file is incomplete: export it again")


@ADAPTER_RULES.rule(
    "PFA010", "base-weights-overwritten", Severity.WARNING, engine="peft", since=SINCE
)
def check_base_weights_overwritten(subject: AdapterSubject) -> Iterator[Defect]:
    """Tensors that take the place of base weights.

    *What it checks*: tensors with the name of a weight of the model, as `lm_head.base_layer.weight`
    which PEFT saves beside the factors of a head or an embedding.

    *Why it matters*: PEFT loads them over the base model's own weights without a message. On
    another base model, or on a merged one, this silently puts the old weights back.

    *How to fix*: save the adapter with `save_embedding_layers=False`, or remove these tensors.
    """
    found = loadings(subject)[0].overwritten if subject.spec is not None else []
    if found and loadings(subject)[0].refusal is None:
        yield Defect(
            f"PEFT loads {format_count(len(found), 'tensor')} over weights of the base model "
            f"({format_names(found)}), expected factors alone",
            "save the adapter with `save_embedding_layers=False`",
            subject.at(found[0]),
        )


@ADAPTER_RULES.rule("PFA012", "magnitude-missing", _ERROR, engine="peft", since=SINCE)
def check_magnitude_missing(subject: AdapterSubject) -> Iterator[Defect]:
    """DoRA without its magnitude vectors.

    *What it checks*: with `use_dora`, each module has a `lora_magnitude_vector`.

    *Why it matters*: PEFT takes the norm of the base weight in its place, which is not what was
    trained.

    *How to fix*: export the adapter again, or set `use_dora` to false if it is plain LoRA.
    """
    help_text = "export it again, or set `use_dora` to false if it is plain LoRA"
    yield from _each_reason(subject, NO_MAGNITUDE, help_text)


@ADAPTER_RULES.rule("PFA013", "scaling-of-another-name", _ERROR, engine="peft", since=SINCE)
def check_scaling_of_another_name(subject: AdapterSubject) -> Iterator[Defect]:
    """Ranks and alphas that are given for names that PEFT does not look at.

    *What it checks*: `rank_pattern` and `alpha_pattern` mean the same for a module's name on disk
    and for the name that PEFT renames it to.

    *Why it matters*: PEFT matches patterns with names of the transformers model alone. A pattern
    for `wq_du` is ignored and the module gets another scale.

    *How to fix*: `inkling convert-adapter ADAPTER --to peft --model MODEL -o OUT` writes patterns
    for PEFT's names.
    """
    yield from _each_reason(subject, OTHER_SCALE, conversion_command(subject))


@ADAPTER_RULES.rule("PFA014", "embedding-norm-left-out", _ERROR, engine="peft", since=SINCE)
def check_embedding_norm_left_out(subject: AdapterSubject) -> Iterator[Defect]:
    """Trained rows of the embedding, with which PEFT forgets the embedding's norm.

    *What it checks*: `trainable_token_indices` with its tensor.

    *Why it matters*: Inkling norms its embeddings inside the embedding module. The wrapper for
    trained rows goes around it, so that every token of every answer is computed without the norm.

    *How to fix*: train without `trainable_token_indices`.
    """
    yield from _each_reason(subject, TOKENS, "train without `trainable_token_indices`")


@ADAPTER_RULES.rule("PFA015", "loaded-over-another", _ERROR, engine="peft", since=SINCE)
def check_loaded_over_another(subject: AdapterSubject) -> Iterator[Defect]:
    """Two tensors for one place.

    *What it checks*: no two names of the file are looked up by PEFT as one.

    *Why it matters*: PEFT loads the one that comes later in its order, without a message.

    *How to fix*: remove one of them.
    """
    yield from _each_reason(subject, OVERRIDDEN, "remove one of the two")


def _caused(subject: AdapterSubject, *causes: str) -> list[Effect]:
    return with_cause(peft_effects(subject), *causes)


def _names(found: Sequence[Effect]) -> str:
    return format_names([effect.module for effect in found])


def _share(subject: AdapterSubject, found: Sequence[Effect]) -> str:
    return format_share(found, peft_effects(subject))


def _rest(subject: AdapterSubject) -> str:
    """Return what is left to say: that nothing has an effect, and what is wrapped in vain."""
    empty = len(loadings(subject)[0].empty) if subject.spec is not None else 0
    wrapped = f"; it wraps {format_count(empty, 'module')} without any tensors" if empty else ""
    if any(effect.fate is not Fate.DROPPED for effect in peft_effects(subject)):
        return wrapped
    return f"{wrapped} and computes the base model" if wrapped else ", and computes the base model"


def _each_reason(subject: AdapterSubject, cause: str, remedy: str) -> Iterator[Defect]:
    """Yield one defect for all modules of a cause: the first, and how many more."""
    found = _caused(subject, cause)
    if found:
        word = "drops" if found[0].fate is Fate.DROPPED else "misapplies"
        yield Defect(
            f"PEFT {word} {_share(subject, found)}: {found[0].reason}",
            remedy,
            subject.at(found[0].module),
        )


def conversion_command(subject: AdapterSubject) -> str:
    """Return the command that writes the adapter as PEFT needs it, and what it needs before."""
    command = f"`inkling convert-adapter {shell_word(subject.path)} --to peft --model MODEL -o OUT`"
    return f"correct the unknown names, then {command}" if subject.adapter.unknown else command
