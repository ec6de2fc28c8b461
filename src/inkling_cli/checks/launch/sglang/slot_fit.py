"""What becomes of a factor in its slot: refused, cut to fit, put in the wrong place, or right.

No rules here. The trap: SGLang compares most sizes and fails where they differ, but takes the
first columns of some A and the first rows of some B, and fills as many experts as there are.
"""

from dataclasses import dataclass, field

from inkling_cli.checks.launch.sglang.causes import Cause, Found
from inkling_cli.checks.launch.sglang.merged_factors import Factor, Shape
from inkling_cli.checks.launch.sglang.slots import Content, Named, Slot, SlotShape

_ROW_SPLIT = ("wo_ud", "down_proj")
"""Plain modules of whose A the first columns are taken."""
_COLUMN_SPLIT = ("qkvr", "gate_up_proj")
"""Plain modules of whose B the first rows are taken."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A tensor that does not go into its slot, and why."""

    tensor: str
    message: str
    is_layout: bool = False
    """Whether it holds a factor for each expert where the slot has one for all."""


@dataclass(slots=True)
class Fit:
    """How what is put into a slot fits.

    Attributes:
        refusals: what SGLang fails at.
        wrong: tensor on disk that lands, but not as it is meant → why, as cause and in words.
        landed: tensors on disk of which at least a part lands.
    """

    refusals: list[Refusal] = field(default_factory=list)
    wrong: dict[str, Found] = field(default_factory=dict)
    landed: set[str] = field(default_factory=set)

    def mark(self, factor: Factor, cause: Cause, reason: str) -> None:
        """Note that the tensors of a factor land wrongly; the first cause counts."""
        for tensor in factor.tensors:
            self.landed.add(tensor)
            self.wrong.setdefault(tensor, (cause, reason))

    def put(self, named: Named, seen: Shape, shape: SlotShape) -> None:
        """Put a matrix, as SGLang sees it once cut, into its place."""
        name, factor = named
        expected = (sum(shape.rows), shape.columns)
        if seen == expected:
            self._place(factor, shape)
            return
        message = f"is {list(factor.shape)} once merged, its slot takes {list(expected)}"
        self.refusals.append(Refusal(name, f"`{name}` {message}"))
        self.mark(factor, Cause.CUT, f"it {message}")

    def _place(self, factor: Factor, shape: SlotShape) -> None:
        """Note which tensors of a factor land, and which of them not where they are meant."""
        is_joined = len(factor.parts) == len(shape.rows)
        places = shape.rows if is_joined else (sum(shape.rows),)
        at = expected_at = 0
        for part, place in zip(factor.parts, places, strict=False):
            if part.tensor is not None and at < sum(places):
                self.landed.add(part.tensor)
                if (at, part.rows) != (expected_at, place):
                    reason = f"its {part.rows} rows go where {place} belong"
                    self.wrong.setdefault(part.tensor, (Cause.CUT, reason))
            at, expected_at = at + part.rows, expected_at + place
        if factor.shape[-1] != shape.columns:
            taken = f"of its {factor.shape[-1]} columns the first {shape.columns} are taken"
            self.mark(factor, Cause.CUT, taken)


def fit_plain(slot: Slot, named: Named, shape: SlotShape, *, has_a: bool) -> Fit:
    """Return how a factor fits a plain slot; `has_a` says whether there is an A beside a B."""
    fit, seen = Fit(), named[1].shape
    if len(seen) == 2 and slot.factor == "A" and slot.kind in _ROW_SPLIT:
        seen = (seen[0], min(seen[1], shape.columns))
    if len(seen) == 2 and slot.factor == "B" and slot.kind in _COLUMN_SPLIT and has_a:
        seen = (min(seen[0], sum(shape.rows)), seen[1])
    fit.put(named, seen, shape)
    return fit


def fit_outer(content: Content, shape: SlotShape, num_experts: int) -> Fit:
    """Return how factors fit a slot that holds one matrix for all experts."""
    fit = Fit()
    for number, (name, factor) in content.items():
        count = factor.shape[0] if number is None else len(content)
        if count != 1 or (number is None and len(factor.shape) != 3):
            message = f"`{name}` {'holds' if number is None else 'is one of'} {count} experts"
            message += ", expected 1 where the hidden side is stored once"
            fit.refusals.append(Refusal(name, message, is_layout=True))
            fit.mark(factor, Cause.CUT, "SGLang has one place for all experts")
            continue
        fit.put((name, factor), _matrix(number, factor), shape)
        if number is not None and num_experts > 1:
            reason = f"it is stored for expert {number}, SGLang takes it for all {num_experts}"
            fit.mark(factor, Cause.SOME_EXPERTS, reason)
    return fit


def fit_experts(slot: Slot, content: Content, shape: SlotShape) -> Fit:
    """Return how factors fit a slot that holds a matrix for each expert."""
    fit = Fit()
    filled: set[int] = set()
    for number, (name, factor) in content.items():
        filled |= set(range(factor.shape[0])) if number is None else {number}
        seen = _matrix(number, factor)
        if len(seen) == 2 and slot.factor == "A":
            seen = (min(seen[0], sum(shape.rows)), seen[1])
        fit.put((name, factor), seen, shape)
        if max(filled, default=-1) >= shape.experts:
            message = f"`{name}` holds expert {max(filled)}, the model has {shape.experts}"
            fit.refusals.append(Refusal(name, message))
            fit.mark(factor, Cause.CUT, f"it holds expert {max(filled)} of {shape.experts}")
    gaps = shape.experts - len(filled)
    for number, (_, factor) in content.items() if gaps > 0 else ():
        if slot.is_outer and number is None and len(filled) == 1:
            reason = "it is stored once for all experts, SGLang fills expert 0 of "
            fit.mark(factor, Cause.ONE_EXPERT, f"{reason}{shape.experts} alone")
        else:
            reason = f"{gaps} of {shape.experts} experts stay without it"
            fit.mark(factor, Cause.SOME_EXPERTS, reason)
    return fit


def _matrix(number: int | None, factor: Factor) -> Shape:
    """Return the shape of one expert's matrix."""
    return factor.shape[1:] if number is None else factor.shape
