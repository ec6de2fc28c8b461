"""The whole model on Triton kernels gives what it gives in plain torch, for few more launches."""

from pathlib import Path

import pytest
import torch
from tiny_adapters import random_factors
from tiny_models import UNPADDED, make_text_model, random_ids, save
from triton_device import DEVICE, MARKS

from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.llm import LLM, Completion, SamplingParams
from inkling_runtime.ops.backend import Backend, use_backend
from inkling_runtime.ops.kernels.launch import count_launches

pytestmark = MARKS
LAYERS = {
    "num_hidden_layers": 2,
    "layer_types": ["hybrid_sliding", "hybrid"],
    "mlp_layer_types": ["dense", "sparse"],
}
PROMPTS = [random_ids(length, length) for length in (4, 3, 5, 2)]
NAMES = ("outer", None, "apart", "outer")
SAMPLING = SamplingParams(max_tokens=2, temperature=0, ignore_stop=True, top_logprobs=UNPADDED)
ERROR = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(make_text_model(**LAYERS), tmp_path_factory.mktemp("two_layers"))


def run(
    folder: Path, backend: Backend, names: tuple[str | None, ...]
) -> tuple[list[Completion], int]:
    """Return the completions, one step of prefill and one of decode, and their launches."""
    llm = LLM(folder, device=str(DEVICE), dtype="float32")
    llm.load_adapter("outer", random_factors(llm.spec, 1))
    some = set(SiteKind) - {SiteKind.V, SiteKind.DENSE_GATE, SiteKind.SHARED_UP}
    llm.load_adapter("apart", random_factors(llm.spec, 2, 5, shared_outer=False, kinds=some))
    with use_backend(backend), count_launches() as launches:
        completions = llm.generate(PROMPTS[: len(names)], SAMPLING, names)
    return completions, launches.total()


def distributions(completion: Completion) -> torch.Tensor:
    """Return the log-probabilities of all ids at every generated token."""
    assert completion.top_logprobs is not None
    rows = [[value for _, value in sorted(place)] for place in completion.top_logprobs]
    return torch.tensor(rows)


def test_prefill_and_decode_of_mixed_adapters_equal_those_in_torch(folder: Path) -> None:
    got, launches = run(folder, Backend.TRITON, NAMES)
    want, none = run(folder, Backend.TORCH, NAMES)
    assert none == 0 < launches
    for ours, theirs in zip(got, want, strict=True):
        assert ours.error is None
        assert ours.token_ids == theirs.token_ids
        error = (distributions(ours) - distributions(theirs)).abs().max()
        assert error < ERROR
    assert not torch.allclose(distributions(want[0])[0], distributions(want[3])[0], atol=0.1)


def test_an_adapter_adds_at_most_three_launches_per_layer_and_two_at_the_head(
    folder: Path,
) -> None:
    _, plain = run(folder, Backend.TRITON, (None,))
    _, adapted = run(folder, Backend.TRITON, ("outer",))
    steps, layers = SAMPLING.max_tokens, LAYERS["num_hidden_layers"]
    assert 0 < adapted - plain <= steps * (3 * layers + 2)
