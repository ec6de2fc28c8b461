"""Why vLLM refuses an adapter, as data, and the check of one pair of factors against its room."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from inkling_cli.checks.launch.vllm.layers import Slot

Shape = tuple[int, ...]


class Reason(Enum):
    """Why an adapter is refused; one rule speaks of each."""

    UNSUPPORTED_NAME = "unsupported name"
    UNEXPECTED_MODULE = "unexpected module"
    PACKED_EXPERTS = "packed experts"
    MISSING_FACTOR = "missing factor"
    MISSING_EXPERTS = "missing experts"
    TOO_LARGE = "too large"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason with a tensor or module that shows it, and what is wrong with it."""

    reason: Reason
    name: str
    message: str = ""


@dataclass
class Factors:
    """The shapes of a module's factors, None where there is none, and where they come from.

    `name` is the module's on disk, `a_tensor` and `b_tensor` are the tensors' names. Where several
    names on disk lead to one module, these are the last ones, which the loader keeps; `first` is
    the first, whose scaling it gets.
    """

    a: Shape | None = None
    b: Shape | None = None
    name: str = ""
    first: str = ""
    a_tensor: str = ""
    b_tensor: str = ""


def check_size(factors: Factors, slot: Slot, rank: int) -> Iterator[Refusal]:
    """Yield what is larger than a slot: a pair of plain factors, or one expert's."""
    limits = ((factors.a, (rank, slot.inputs)), (factors.b, (slot.outputs, rank)))
    for letter, (shape, limit) in zip("AB", limits, strict=True):
        if shape is not None and not _fits(shape, limit):
            yield too_large(factors.name, letter, shape, limit)
            return


def too_large(name: str, letter: str, shape: Shape, limit: Shape) -> Refusal:
    """Return the refusal of a factor that is larger than its room."""
    message = f"lora_{letter} is {list(shape)}, vLLM has room for {list(limit)}"
    return Refusal(Reason.TOO_LARGE, name, message)


def _fits(shape: Shape, limit: Shape) -> bool:
    same = len(shape) == len(limit)
    return same and all(n <= most for n, most in zip(shape, limit, strict=True))
