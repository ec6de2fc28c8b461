"""Rules about the elements of an adapter's tensors. Silent where they were not read."""

from collections import Counter
from collections.abc import Iterator

from inkling_cli.checks.adapter.rewriting import rewrite_command
from inkling_cli.checks.adapter.subject import ADAPTER_RULES, AdapterSubject
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.rule import Defect
from inkling_runtime.errors import format_names


@ADAPTER_RULES.rule("VAL001", "not-finite", Severity.ERROR)
def check_not_finite(subject: AdapterSubject) -> Iterator[Defect]:
    """NaN or Inf among the numbers.

    *What it checks*: every element of every tensor of a float dtype, on its bits.

    *Why it matters*: one of them makes every output NaN that passes through the module, for all
    requests of the batch in some engines. No engine looks.

    *How to fix*: take a checkpoint from before the training diverged.
    """
    if subject.values is None:
        return
    bad = {name: t for name, t in subject.values.tensors.items() if not t.is_finite}
    if bad:
        name, first = next(iter(bad.items()))
        more = f" (and {len(bad) - 1} more tensors)" if len(bad) > 1 else ""
        yield Defect(
            f"`{name}` holds {first.num_nan:,} NaN and {first.num_inf:,} Inf among "
            f"{first.num_elements:,} elements, expected numbers only{more}",
            "take a checkpoint from before the training diverged",
            subject.at(name),
        )


@ADAPTER_RULES.rule("VAL004", "constant-factor", Severity.WARNING)
def check_constant_factor(subject: AdapterSubject) -> Iterator[Defect]:
    """A factor whose elements are all one number, and not zero.

    *What it checks*: lora_A and lora_B of every module.

    *Why it matters*: no training gives such a factor. It is a placeholder, or memory that was
    never filled.

    *How to fix*: export the adapter again.
    """
    if subject.values is None:
        return
    tensors = subject.values.tensors
    constant = [
        factor.name
        for factor in subject.adapter.factor_tensors()
        if (found := tensors.get(factor.name)) is not None
        and found.is_constant
        and found.is_finite
        and not found.is_zero
    ]
    if constant:
        largest = tensors[constant[0]].largest
        yield Defect(
            f"{len(constant)} of {len(tensors)} tensors hold one number in all places: "
            f"{format_names(constant)}, the first ±{largest:g}",
            "export the adapter again",
            subject.at(constant[0]),
        )


@ADAPTER_RULES.rule("VAL006", "mixed-dtypes", Severity.INFO)
def check_mixed_dtypes(subject: AdapterSubject) -> Iterator[Defect]:
    """Factors of several dtypes in one file.

    *What it checks*: the dtypes of all lora_A and lora_B.

    *Why it matters*: engines convert all factors to one dtype when they load, so a part of the
    adapter is rounded or takes more room than it needs.

    *How to fix*: save all factors in the base model's dtype: `inkling convert-adapter ADAPTER
    --to ENGINE --dtype bf16 -o OUT`.
    """
    values = subject.values
    if values is None:
        return
    counts = Counter(t.dtype for t in subject.adapter.factor_tensors() if t.name in values.tensors)
    if len(counts) < 2:
        return
    shown = ", ".join(f"{count:,} {dtype}" for dtype, count in sorted(counts.items()))
    yield Defect(
        f"the factors have {len(counts)} dtypes, expected one: {shown}",
        f"{rewrite_command(subject, '--dtype bf16')} writes all as bf16, the base model's dtype",
        subject.at(),
    )


@ADAPTER_RULES.rule("VAL007", "wider-than-needed", Severity.INFO)
def check_wider_than_needed(subject: AdapterSubject) -> Iterator[Defect]:
    """F32 factors that are exactly bf16.

    *What it checks*: whether the lower 16 bits of every element of every F32 factor are zero.

    *Why it matters*: the file has twice the size that it needs; in bf16 it is the same to the bit.

    *How to fix*: `inkling convert-adapter ADAPTER --to ENGINE --dtype bf16 -o OUT`.
    """
    if subject.values is None:
        return
    wide = [t for t in subject.adapter.factor_tensors() if t.dtype == "F32"]
    found = [subject.values.tensors[t.name] for t in wide]
    if not found or not all(t.is_exactly_bf16 for t in found) or all(t.is_zero for t in found):
        return
    nbytes = sum(tensor.nbytes for tensor in wide)
    yield Defect(
        f"all {len(wide)} F32 factors hold bf16 numbers: {nbytes:,} bytes, as bf16 {nbytes // 2:,}",
        f"{rewrite_command(subject, '--dtype bf16')} halves the file, nothing is lost",
        subject.at(wide[0].name),
    )


@ADAPTER_RULES.rule("VAL008", "not-judged", Severity.WARNING)
def check_not_judged(subject: AdapterSubject) -> Iterator[Defect]:
    """Numbers that could not be read or deltas that could not be computed.

    *What it checks*: what `--values` left out, unless another finding says why.

    *Why it matters*: what was not looked at may hold anything.

    *How to fix*: save the factors as bf16, F16 or F32, with a rank up to 1024.
    """
    values = subject.values
    if values is None:
        return
    factors = {tensor.name for tensor in subject.adapter.factor_tensors()}
    tensors = {name: why for name, why in values.not_read.items() if name not in factors}
    sites = {str(s): why for s, why in values.not_computed.items() if s in subject.pairs}
    num_sites = len(values.sites) + len(values.not_finite) + len(values.not_computed)
    for what, left_out, total in (
        ("tensors are not read", tensors, len(subject.adapter.file.tensors)),
        ("deltas have no norm", sites, num_sites),
    ):
        if left_out:
            name, why = next(iter(left_out.items()))
            names = format_names(list(left_out))
            yield Defect(
                f"{len(left_out)} of {total} {what}: {names}; the first: {why}",
                None,
                subject.at(name),
            )
