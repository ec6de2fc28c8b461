"""The factors of one site as arrays, in the one layout that consumers of deltas use.

Not tied to a file: dialects and moves end here, the runtime and the numeric checks begin here.
ΔW = scaling · B @ A. Expert sites have a leading expert dimension that is 1 where the factor is
shared by all experts: ΔW[e] = scaling · B[min(e, Eb-1)] @ A[min(e, Ea-1)].
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SiteFactors:
    """Both factors of a site as raw arrays and their scaling.

    Without experts `a` is [R, in] and `b` is [out, R]; with experts `a` is [1 or E, R, in] and
    `b` is [1 or E, out, R]. `dtype` is the safetensors name; BF16 comes as uint16.
    """

    a: NDArray[Any]
    b: NDArray[Any]
    dtype: str
    scaling: float


def to_float32(array: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """Return an array of a safetensors dtype as float32, exactly (F64 rounds to nearest even)."""
    if dtype == "BF16":
        wide = array.astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    return array.astype(np.float32)
