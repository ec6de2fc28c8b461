"""Rules about the adapter itself and about its fit to the base model, whoever consumes it."""

from collections.abc import Iterator

from inkling_cli.checks.adapter.subject import ADAPTER_RULES, AdapterSubject
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.rule import Defect
from inkling_runtime.adapter.coverage import size_hint
from inkling_runtime.adapter.lora_config import beyond_plain_lora
from inkling_runtime.errors import format_names

_ERROR = Severity.ERROR


def _at(subject: AdapterSubject, key: str | None = None) -> Location:
    return Location(file=str(subject.adapter.file.path), key=key)


@ADAPTER_RULES.rule("ADP001", "unknown-names", _ERROR)
def check_unknown_names(subject: AdapterSubject) -> Iterator[Defect]:
    """Tensor names that the adapter's dialect does not have.

    *What it checks*: every tensor name of the file is looked up in the naming table of the
    dialect that understands most of them.

    *Why it matters*: engines match adapters by name. A name that matches nothing is dropped, in
    most consumers without a message, and the base model answers in that module's place.

    *How to fix*: rename the tensors, or name the dialect with `--from` if another was meant.
    """
    unknown = subject.adapter.unknown
    if unknown:
        yield Defect(
            f"{len(unknown)} of {len(subject.adapter.file.tensors)} tensors have names that the "
            f"{subject.adapter.dialect.name} dialect does not have: {format_names(unknown)}",
            f"`inkling inspect {subject.path}` shows what was understood",
            _at(subject, unknown[0]),
        )


@ADAPTER_RULES.rule("ADP002", "missing-factor", _ERROR)
def check_missing_factor(subject: AdapterSubject) -> Iterator[Defect]:
    """A module with lora_A or lora_B alone.

    *What it checks*: each module has both factors.

    *Why it matters*: one factor has no effect. Some engines fail on it with an assertion, others
    fill the other with zeros, which silently drops the module.

    *How to fix*: export the adapter again; the file is incomplete.
    """
    yield from _problems(subject, "missing-factor", "the file is incomplete: export it again")


@ADAPTER_RULES.rule("ADP003", "rank-mismatch", _ERROR)
def check_rank_mismatch(subject: AdapterSubject) -> Iterator[Defect]:
    """Ranks that contradict each other or the config.

    *What it checks*: lora_A and lora_B of a module have one rank, the one that the config gives
    the module (`r`, or `rank_pattern` where it matches).

    *Why it matters*: the scaling is computed from the config's rank. vLLM accepts another rank in
    the tensors and applies the wrong scale; SGLang fails when the adapter is first used; PEFT
    refuses to load.

    *How to fix*: correct `r` or `rank_pattern` in adapter_config.json.
    """
    yield from _problems(subject, "rank", "correct `r` or `rank_pattern` in adapter_config.json")


@ADAPTER_RULES.rule("ADP004", "unusable-tensor", _ERROR)
def check_unusable_tensor(subject: AdapterSubject) -> Iterator[Defect]:
    """A tensor whose shape or dtype cannot be a factor of its module.

    *What it checks*: the number of dimensions is that of the module's layout, no size is zero,
    both factors hold the same number of experts, and the dtype is a float.

    *Why it matters*: engines copy such a tensor into a corner of their buffers, or fail when the
    adapter is first used.

    *How to fix*: export the adapter again.
    """
    for kind in ("shape", "dtype"):
        yield from _problems(subject, kind, None)
    if subject.undecodable:
        yield Defect(subject.undecodable, None, _at(subject))


@ADAPTER_RULES.rule("ADP005", "adapted-twice", _ERROR)
def check_adapted_twice(subject: AdapterSubject) -> Iterator[Defect]:
    """Two modules for the same weights.

    *What it checks*: no two names of the file mean the same module, as with and without
    `base_model.model.` in front.

    *Why it matters*: which of the two is applied depends on the engine and on their order.

    *How to fix*: remove one of them.
    """
    yield from _problems(subject, "twice", None)


@ADAPTER_RULES.rule("ADP006", "not-in-base-model", _ERROR)
def check_not_in_base_model(subject: AdapterSubject) -> Iterator[Defect]:
    """Modules that the base model does not have.

    *What it checks*: the layer exists, and is dense or has experts as the module says.

    *Why it matters*: vLLM drops such modules silently and serves the rest; SGLang fails.

    *How to fix*: serve the adapter on the model that it was trained on.
    """
    coverage = subject.coverage
    if coverage is not None and coverage.surplus:
        names = [str(site) for site in coverage.surplus]
        yield Defect(
            f"{len(names)} adapted modules do not exist in the base model: {format_names(names)}",
            size_hint(subject.pairs),
            _at(subject, names[0]),
        )


@ADAPTER_RULES.rule("ADP007", "does-not-fit-base-model", _ERROR)
def check_does_not_fit_base_model(subject: AdapterSubject) -> Iterator[Defect]:
    """Factors whose widths are not those of the base model.

    *What it checks*: the input width of A, the output width of B and the number of experts of
    every module against config.json. The head may have the padded or the unpadded vocabulary.

    *Why it matters*: vLLM writes an adapter of a smaller model into a corner of its buffers and
    serves it without a message.

    *How to fix*: serve the adapter on the model that it was trained on.
    """
    coverage = subject.coverage
    if coverage is not None and coverage.misfits:
        first, count = coverage.misfits[0], len(coverage.misfits)
        more = f" (and {count - 1} more modules)" if count > 1 else ""
        yield Defect(
            f"`{first.site}`: {first.message}{more}",
            size_hint(subject.pairs),
            _at(subject, str(first.site)),
        )


@ADAPTER_RULES.rule("ADP008", "more-than-plain-lora", _ERROR)
def check_more_than_plain_lora(subject: AdapterSubject) -> Iterator[Defect]:
    """Config settings with which the effect is more than s·B·A.

    *What it checks*: DoRA, biases, fully trained modules, added tokens and the like in
    adapter_config.json.

    *Why it matters*: vLLM refuses most of them, SGLang ignores most of them without a message,
    and this runtime does not apply them.

    *How to fix*: train a plain LoRA adapter, or merge this one into the base model.
    """
    for setting in beyond_plain_lora(subject.adapter.config):
        key = setting.split(" ", 1)[0]
        yield Defect(
            f"adapter_config.json has `{setting}`, expected a plain LoRA adapter",
            "train without it, or merge the adapter into the base model",
            Location(file=str(subject.adapter.path / "adapter_config.json"), key=key),
        )


def _problems(subject: AdapterSubject, kind: str, remedy: str | None) -> Iterator[Defect]:
    """Yield one defect for all problems of a kind: the first, and how many more."""
    found = [problem for problem in subject.adapter.problems if problem.kind == kind]
    if found:
        first, more = found[0], len(found) - 1
        suffix = f" (and {more} more modules)" if more else ""
        yield Defect(
            f"`{first.module}`: {first.message}{suffix}", remedy, _at(subject, first.module)
        )
