"""An adapter changes the logits by what it changes them under PEFT.

Always the delta is compared, logits with adapter minus logits without: a lost or doubled delta
would hide in the logits themselves.
"""

import copy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_adapters import peft_factors
from tiny_models import make_multimodal_model, oracle_logits, random_ids, relative_error, save
from transformers import InklingForCausalLM

from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.llm import LLM, Request, SamplingParams

DELTA_ERROR = 1e-5
ATTENTION = ["q_proj", "k_proj", "v_proj", "r_proj", "o_proj"]
DENSE = ["gate_proj", "up_proj", "down_proj"]
ROUTED = ["experts.gate_up_proj", "experts.down_proj"]
SHARED = ["shared_experts.gate_proj", "shared_experts.up_proj", "shared_experts.down_proj"]
EVERYTHING = {
    "target_modules": [*ATTENTION, *DENSE, "lm_head"],
    "target_parameters": ROUTED + SHARED,
}
PATTERNS = {
    "rank_pattern": {"q_proj": 6, "experts.gate_up_proj": 2, "shared_experts.down_proj": 1},
    "alpha_pattern": {"v_proj": 2.0, "experts.down_proj": 3.0, "lm_head": 11.0},
}


@pytest.fixture(autouse=True)
def _peft_warns_about_what_works() -> Iterator[None]:
    """PEFT says that patterns of parameters are ignored (they are not) and asks for a property."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*_pattern keys did not match", RuntimeWarning)
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        yield


def with_adapter(model: Any, **options: Any) -> Any:
    """Return a PEFT model over a copy of the model; both of its factors are random."""
    config = LoraConfig(**{"r": 4, "lora_alpha": 5.0, **options})
    adapted = get_peft_model(copy.deepcopy(model), config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, tensor in adapted.named_parameters():
            if ".lora_A." in name or ".lora_B." in name:
                tensor.copy_(0.3 * torch.randn(tensor.shape, generator=generator))
    return adapted


def delta_error(llm: LLM, model: Any, adapted: Any) -> float:
    """Return how far our delta is from PEFT's, relative to the largest value of PEFT's."""
    token_ids = random_ids(40)
    llm.load_adapter("peft", peft_factors(adapted))
    ours = llm.logits(token_ids, "peft") - llm.logits(token_ids)
    theirs = oracle_logits(adapted, token_ids) - oracle_logits(model, token_ids)
    assert theirs.abs().max() > 0.05
    return relative_error(ours, theirs)


CASES: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ATTENTION},
    "k and v": {"target_modules": ["k_proj", "v_proj"]},
    "dense": {"target_modules": DENSE},
    "head": {"target_modules": ["lm_head"]},
    "routed": {"target_modules": ["q_proj"], "target_parameters": ROUTED},
    "routed gate_up": {"target_modules": ["q_proj"], "target_parameters": ROUTED[:1]},
    "shared": {"target_modules": ["q_proj"], "target_parameters": SHARED},
    "shared down": {"target_modules": ["q_proj"], "target_parameters": SHARED[2:]},
    "everything": EVERYTHING,
    "patterns": {**EVERYTHING, **PATTERNS},
    "patterns with rslora": {**EVERYTHING, **PATTERNS, "use_rslora": True},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_the_delta_of_the_logits_is_that_of_peft(
    text_model: InklingForCausalLM, llm: LLM, options: dict[str, Any]
) -> None:
    error = delta_error(llm, text_model, with_adapter(text_model, **options))
    assert error < DELTA_ERROR


def test_the_full_adapter_covers_every_site(text_model: InklingForCausalLM, llm: LLM) -> None:
    factors = peft_factors(with_adapter(text_model, **EVERYTHING))
    assert set(factors) == set(llm.spec.sites())
    assert {site.kind for site in factors} == set(SiteKind)


def test_the_delta_agrees_on_a_multimodal_model(tmp_path: Path) -> None:
    model = make_multimodal_model()
    llm = LLM(save(model, tmp_path), device="cpu")
    error = delta_error(llm, model, with_adapter(model, **EVERYTHING))
    assert error < DELTA_ERROR


def test_greedy_generation_with_an_adapter_is_that_of_peft(
    text_model: InklingForCausalLM, llm: LLM
) -> None:
    adapted = with_adapter(text_model, **EVERYTHING)
    llm.load_adapter("peft", peft_factors(adapted))
    prompt = random_ids(15)
    with torch.no_grad():
        want = adapted.generate(
            input_ids=torch.tensor([prompt]), max_new_tokens=20, do_sample=False, eos_token_id=None
        )
    greedy = SamplingParams(max_tokens=20, temperature=0)
    (completion,) = llm.generate([Request(prompt, greedy, "peft")])
    assert completion.token_ids == want[0, 15:].tolist()
