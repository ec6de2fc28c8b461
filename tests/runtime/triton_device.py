"""Where tests run Triton kernels: in the interpreter on CPU tensors, or on a GPU.

The interpreter by default (`tests/conftest.py`); with TRITON_INTERPRET=0, which `make test-gpu`
sets, on the CUDA device. A test module says `pytestmark = MARKS` and puts its tensors on `DEVICE`.
"""

import pytest
import torch

from inkling_runtime.ops.kernels.launch import INTERPRETED

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
MARKS = [] if INTERPRETED else [pytest.mark.gpu]
