"""Rules about adapters that PEFT on transformers refuses whole, and targets that it passes over."""

from collections.abc import Iterator

from inkling_cli.checks.adapter.peft.effects import loadings, peft_effects
from inkling_cli.checks.adapter.peft.refusals import FILES, NO_TARGET, SAVED, SETTINGS, SHAPES
from inkling_cli.checks.adapter.peft.rules import SINCE, conversion_command
from inkling_cli.checks.adapter.subject import ADAPTER_RULES, AdapterSubject
from inkling_cli.checks.effect import Effect, Fate
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.rule import Defect
from inkling_runtime.adapter.coverage import size_hint
from inkling_runtime.errors import format_count, format_names

_ERROR = Severity.ERROR


@ADAPTER_RULES.rule("PFA007", "shapes-refused", _ERROR, engine="peft", since=SINCE)
def check_shapes_for_peft(subject: AdapterSubject) -> Iterator[Defect]:
    """Tensors whose shapes PEFT refuses.

    *What it checks*: every tensor that has a place has the place's shape: rank and scaling as the
    config gives them to PEFT's own name of the module, packed experts, and the head with all rows
    of the padded vocabulary.

    *Why it matters*: PEFT refuses the whole adapter for one such tensor.

    *How to fix*: correct `r` or `rank_pattern`, or take the base model that the adapter was
    trained on. `inkling convert-adapter ADAPTER --to peft --model MODEL -o OUT` pads the head.
    """
    refusal = _refusal(subject, SHAPES)
    if refusal is None or subject.spec is None:
        return
    misfits = loadings(subject)[0].misfits
    more = f" (and {format_count(len(misfits) - 1, 'more tensor')})" if len(misfits) > 1 else ""
    first, spec = min(misfits), subject.spec
    found = subject.adapter.file.tensors[first].shape
    remedy = size_hint(subject.pairs) or "correct `r` or `rank_pattern`, or export it again"
    is_unpadded = found[:1] == (spec.unpadded_vocab_size,) and misfits[first][0] == spec.vocab_size
    yield Defect(
        f"PEFT refuses the adapter: {refusal.reason}{more}",
        conversion_command(subject) if is_unpadded else remedy,
        subject.at(first),
    )


@ADAPTER_RULES.rule("PFA008", "settings-refused", _ERROR, engine="peft", since=SINCE)
def check_settings_for_peft(subject: AdapterSubject) -> Iterator[Defect]:
    """Settings with which PEFT refuses an adapter.

    *What it checks*: values that PEFT does not take, settings that contradict each other, targets
    that it cannot wrap, and settings that do not go with `target_parameters`, which all experts
    need: DoRA, dropout, biases and the like.

    *Why it matters*: PEFT refuses the whole adapter.

    *How to fix*: correct adapter_config.json.
    """
    refusal = _refusal(subject, SETTINGS)
    if refusal is not None:
        yield Defect(
            f"PEFT refuses the adapter: {refusal.reason}",
            "correct adapter_config.json, or train without the setting",
            subject.in_config(),
        )


@ADAPTER_RULES.rule("PFA009", "nothing-targeted", _ERROR, engine="peft", since=SINCE)
def check_nothing_targeted(subject: AdapterSubject) -> Iterator[Defect]:
    """Targets of which the transformers model has none.

    *What it checks*: `target_modules` or `target_parameters` selects at least one module.

    *Why it matters*: PEFT refuses the adapter. Names of other tools (`wq_du`, `w1`) are not those
    of the transformers model.

    *How to fix*: `inkling convert-adapter ADAPTER --to peft --model MODEL -o OUT`, or correct the
    targets.
    """
    refusal = _refusal(subject, NO_TARGET)
    if refusal is not None:
        yield Defect(
            f"PEFT refuses the adapter: {refusal.reason}",
            f"correct the targets, or {conversion_command(subject)} writes them",
            subject.in_config("target_modules"),
        )


@ADAPTER_RULES.rule("PFA011", "saved-weight-missing", _ERROR, engine="peft", since=SINCE)
def check_saved_weight_missing(subject: AdapterSubject) -> Iterator[Defect]:
    """Weights that the config asks for and the file lacks.

    *What it checks*: each weight of a module in `modules_to_save`, and the rows for
    `trainable_token_indices`.

    *Why it matters*: PEFT refuses the whole adapter with a KeyError.

    *How to fix*: export the adapter again, or take the setting out.
    """
    refusal = _refusal(subject, SAVED)
    if refusal is not None:
        yield Defect(
            f"PEFT refuses the adapter: {refusal.reason}",
            "export the adapter again, or take the setting out of adapter_config.json",
            subject.in_config("modules_to_save"),
        )


@ADAPTER_RULES.rule("PFA016", "targets-without-match", Severity.WARNING, engine="peft", since=SINCE)
def check_targets_without_match(subject: AdapterSubject) -> Iterator[Defect]:
    """Targets that select nothing, beside others that do.

    *What it checks*: every name in `target_modules` and `target_parameters` is one of the
    transformers model.

    *Why it matters*: PEFT passes over such a name without a message, so that a typo leaves a
    module untrained and unloaded.

    *How to fix*: correct the name or take it out.
    """
    if subject.spec is None or subject.adapter.dialect.written_as != "peft":
        return
    loading = loadings(subject)[0]
    if loading.unmatched and loading.refusal is None:
        names = format_names(list(loading.unmatched))
        yield Defect(
            f"{format_count(len(loading.unmatched), 'target')} ({names}) without a module or "
            "parameter of that name in the transformers model, PEFT is silent about it",
            "correct the name or take it out",
            subject.in_config("target_modules"),
        )


@ADAPTER_RULES.rule("PFA017", "adapter-in-shards-for-peft", _ERROR, engine="peft", since=SINCE)
def check_shards_for_peft(subject: AdapterSubject) -> Iterator[Defect]:
    """Tensors in several files, of which PEFT reads none.

    *What it checks*: whether the tensors are in `adapter_model.safetensors`, or in shards such as
    `adapter_model-00001-of-00002.safetensors`.

    *Why it matters*: PEFT looks for that one name, not for an index. Where it is missing, PEFT
    takes the folder's path for the name of a repository and asks the hub for it.

    *How to fix*: `inkling convert-adapter ADAPTER --to peft --model MODEL -o OUT` joins the shards.
    """
    refusal = _refusal(subject, FILES)
    if refusal is not None:
        yield Defect(
            f"PEFT refuses the adapter: {refusal.reason}",
            conversion_command(subject),
            subject.at(),
        )


def _refusal(subject: AdapterSubject, cause: str) -> Effect | None:
    """Return an effect that gives this cause of a refusal for the whole adapter, or None."""
    refusal = loadings(subject)[0].refusal
    effects = [e for e in peft_effects(subject) if e.fate is Fate.REFUSED and e.cause == cause]
    if not effects or refusal is None:
        return None
    return Effect(effects[0].module, Fate.REFUSED, cause, refusal.reason)
