"""Rules over the names of an adapter's tensors, whoever consumes it."""

from collections.abc import Iterator

from inkling_cli.checks.adapter.naming import suggestion
from inkling_cli.checks.adapter.rewriting import rewrite_command
from inkling_cli.checks.adapter.subject import ADAPTER_RULES, AdapterSubject
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.shell_word import shell_word
from inkling_runtime.errors import format_names

_ERROR = Severity.ERROR


@ADAPTER_RULES.rule("ADP001", "unknown-names", _ERROR)
def check_unknown_names(subject: AdapterSubject) -> Iterator[Defect]:
    """Tensor names that the adapter's dialect does not have.

    *What it checks*: every tensor name of the file is looked up in the naming table of the
    dialect that understands most of them. Names with which only the prefix is wrong, and tensors
    that are no factors, have rules of their own.

    *Why it matters*: engines match adapters by name. A name that matches nothing is dropped, in
    most consumers without a message, and the base model answers in that module's place.

    *How to fix*: rename the tensors, or name the dialect with `--from` if another was meant.
    """
    unknown = subject.unknown.others
    if unknown:
        dialect = subject.adapter.dialect
        hints = dict.fromkeys(suggestion(name, subject.adapter) for name in unknown[:_ASKED])
        shown = f"`inkling inspect {shell_word(subject.path)}` shows what was understood"
        yield Defect(
            f"{len(unknown)} of {len(subject.adapter.file.tensors)} tensors have names that the "
            f"{dialect.name} dialect does not have: {format_names(unknown)}",
            "; ".join([*filter(None, list(hints)[:_SHOWN]), shown]),
            subject.at(unknown[0]),
        )


_ASKED, _SHOWN = 64, 2
"""So many names are compared with the known ones, and so many suggestions are shown."""


@ADAPTER_RULES.rule("ADP009", "more-than-factors", _ERROR)
def check_more_than_factors(subject: AdapterSubject) -> Iterator[Defect]:
    """Tensors that are no LoRA factors.

    *What it checks*: whether the file holds DoRA magnitudes, biases, retrained rows of an
    embedding, or whole weights (`modules_to_save`). Copies of base weights that PEFT saves as
    `….base_layer.weight` are no part of the adapter, and told apart.

    *Why it matters*: the adapter was trained with them. vLLM refuses most of them, SGLang drops
    most of them without a message, and what is left has another effect.

    *How to fix*: train a plain LoRA adapter, or merge this one into the base model.
    """
    tensors = len(subject.adapter.file.tensors)
    for what, names in subject.unknown.more_than_factors.items():
        yield Defect(
            f"{len(names)} of {tensors} tensors are {what}: {format_names(names)}; "
            "expected factors of plain LoRA alone",
            "train without them, or merge the adapter into the base model",
            subject.at(names[0]),
        )


@ADAPTER_RULES.rule("ADP010", "wrong-prefix", _ERROR)
def check_wrong_prefix(subject: AdapterSubject) -> Iterator[Defect]:
    """Tensor names that would be understood with another prefix.

    *What it checks*: of names that the dialect does not have, whether what begins with `layers.N.`
    is known: `base_model.model.` twice, `language_model.` or `model.` too many or missing.

    *Why it matters*: engines match whole paths. PEFT and vLLM drop such modules without an error
    and answer with the base model, SGLang looks at the end of a name alone and may take them.

    *How to fix*: rename the tensors.
    """
    for prefix, names in subject.unknown.misprefixed.items():
        yield Defect(
            f"{len(names)} of {len(subject.adapter.file.tensors)} tensors begin with "
            f"`{prefix.actual}`, expected `{prefix.expected}`",
            f"put `{prefix.expected}` in place of `{prefix.actual}` in their names",
            subject.at(names[0]),
        )


@ADAPTER_RULES.rule("ADP016", "base-weights-saved", Severity.INFO)
def check_base_weights_saved(subject: AdapterSubject) -> Iterator[Defect]:
    """Copies of base weights beside the factors.

    *What it checks*: tensors named `….base_layer.weight`, which PEFT saves where the head or the
    embedding is adapted.

    *Why it matters*: they are no part of the adapter and often larger than it. PEFT overwrites
    the base model's weights with them when it loads the adapter.

    *How to fix*: save with `save_pretrained(…, save_embedding_layers=False)`;
    `inkling convert-adapter` leaves them out.
    """
    copies = subject.adapter.base_copies
    if copies:
        size = sum(subject.adapter.file.tensors[name].nbytes for name in copies)
        yield Defect(
            f"{len(copies)} of {len(subject.adapter.file.tensors)} tensors are copies of base "
            f"weights ({size:,} bytes): {format_names(copies)}",
            f"{rewrite_command(subject)} leaves them out",
            subject.at(copies[0]),
        )
