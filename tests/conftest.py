"""What all test folders share. Its presence puts `tests/` on the path: `import factories`."""

import os

import pytest

# Read when triton is imported, which any test's import may do: kernels then run on CPU tensors.
# `make test-gpu` sets it to 0.
os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_addoption(parser):
    parser.addoption(
        "--golden-update", action="store_true", help="rewrite the golden files from what is shown"
    )
    parser.addoption(
        "--require-gpu", action="store_true", help="fail a test marked `gpu` where there is no GPU"
    )


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            no_gpu = pytest.fail if item.config.getoption("--require-gpu") else pytest.skip
            no_gpu("no CUDA device is found, the test is marked `gpu`")


@pytest.fixture
def golden_update(request):
    """Whether golden files are to be rewritten in place of being compared."""
    return request.config.getoption("--golden-update")
