"""Models and folders that many tests read and none changes."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from tiny_models import make_text_model, save
from transformers import InklingForCausalLM

from inkling_runtime.llm import LLM
from inkling_runtime.ops.backend import Backend, use_backend
from inkling_runtime.ops.native import library


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from threads and lose much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def _built_kernels() -> None:
    """Build the compiled kernels where that is possible: models of the tests are too small to."""
    library.enable("auto")


@pytest.fixture
def native_kernels() -> Iterator[None]:
    """Let CPU tensors go to the compiled kernels."""
    library.enable("on")
    with use_backend(Backend.NATIVE):
        yield
    library.enable("off")


@pytest.fixture(scope="session")
def text_model() -> InklingForCausalLM:
    return make_text_model()


@pytest.fixture(scope="session")
def text_folder(text_model: InklingForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(text_model, tmp_path_factory.mktemp("text"))


@pytest.fixture
def make_llm(text_folder: Path) -> Callable[..., LLM]:
    """Return who makes models of the same weights with other options."""
    return partial(LLM, text_folder, device="cpu")


@pytest.fixture
def llm(make_llm: Callable[..., LLM]) -> LLM:
    return make_llm()
