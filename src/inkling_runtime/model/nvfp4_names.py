"""The tensors that stand for one routed expert weight in an NVFP4 checkpoint, in both spellings.

Only routed experts are quantised so, and not necessarily in every layer. Each part is named after
the weight that it is a part of, in either layout (`checkpoint_names`), and has its rows in the
order of that layout: where gate and up alternate, the rows of the scales do, too.

Sources: public checkpoints and the engines that load them. The spelling of ModelOpt
(`thinkingmachines/Inkling-NVFP4`, vLLM `models/inkling`): w = q · scale · scale2. The spelling of
compressed-tensors (`RedHatAI/Inkling-NVFP4-FP8-BLOCK`, vLLM's compressed-tensors NVFP4 experts):
w = q · weight_scale / weight_global_scale; that second scale is a divisor, (6 · 448) / max|w|.
It has a column for gate and one for up, which must be equal, because they are one weight here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from inkling_runtime.ops.nvfp4 import BLOCK


class Role(Enum):
    """What a part is for."""

    PACKED = "two columns in a byte"
    SCALES = "a scale per block"
    FACTOR = "a factor per expert"
    DIVISOR = "a divisor per expert"
    SHAPE = "the shape before packing"


@dataclass(frozen=True, slots=True)
class Nvfp4Part:
    """One tensor of an NVFP4 weight."""

    role: Role
    dtype: str


@dataclass(frozen=True, slots=True)
class Spelling:
    """The parts by what is added to the weight's name; what is optional is not used."""

    name: str
    parts: Mapping[str, Nvfp4Part]
    optional: tuple[str, ...]


MODELOPT = Spelling(
    name="ModelOpt",
    parts={
        "": Nvfp4Part(Role.PACKED, "U8"),
        ".scale": Nvfp4Part(Role.SCALES, "F8_E4M3"),
        ".scale2": Nvfp4Part(Role.FACTOR, "F32"),
        ".original_shape": Nvfp4Part(Role.SHAPE, "I64"),
    },
    # Scales of activations: here only weights are quantised.
    optional=(".input_amax",),
)

COMPRESSED_TENSORS = Spelling(
    name="compressed-tensors",
    parts={
        ".weight_packed": Nvfp4Part(Role.PACKED, "U8"),
        ".weight_scale": Nvfp4Part(Role.SCALES, "F8_E4M3"),
        ".weight_global_scale": Nvfp4Part(Role.DIVISOR, "F32"),
    },
    optional=(".input_global_scale",),
)

QUANTISED_WEIGHTS = ("mlp.experts.w13", "mlp.experts.w2")
"""The parameters that may be in NVFP4."""


def find_spelling(name: str, dtypes: Mapping[str, str]) -> Spelling | None:
    """Return how a weight is quantised, None if it is not.

    Args:
        name: of the weight, as where it is not quantised.
        dtypes: of all tensors of the checkpoint, by name.
    """
    if name not in dtypes:
        suffixes = (*COMPRESSED_TENSORS.parts, *COMPRESSED_TENSORS.optional)
        if any(name + suffix in dtypes for suffix in suffixes):
            return COMPRESSED_TENSORS
    scales = any(name + suffix in dtypes for suffix in (".scale", ".scale2"))
    return MODELOPT if scales or dtypes.get(name) == "U8" else None


def part_shapes(role: Role, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the shapes that a part of a weight [E, N, K] may have in a file."""
    experts, rows, columns = shape
    match role:
        case Role.PACKED:
            return [(experts, rows, columns // 2)]
        case Role.SCALES:
            return [(experts, rows, columns // BLOCK)]
        case Role.FACTOR:
            return [(experts,), (experts, 1)]
        case Role.DIVISOR:
            return [(experts, 1), (experts, 2), (experts,)]
        case Role.SHAPE:
            return [(3,)]
