"""What the numbers of an adapter are.

`read.read_values` makes one pass over its file, with numpy; the values themselves need none.
"""

from inkling_runtime.adapter.values.adapter_values import (
    AdapterValues,
    DeltaValues,
    TensorValues,
    total_norm,
)

__all__ = ["AdapterValues", "DeltaValues", "TensorValues", "total_norm"]
