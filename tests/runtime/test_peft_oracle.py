"""An adapter changes the logits by what it changes them under PEFT.

Always the delta is compared, logits with adapter minus logits without: a lost or doubled delta
would hide in the logits themselves.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft_oracles import (
    ATTENTION,
    DENSE,
    EVERYTHING,
    ROUTED,
    SHARED,
    WARNINGS,
    with_adapter,
)
from tiny_adapters import peft_factors
from tiny_models import make_multimodal_model, oracle_logits, random_ids, relative_error, save
from transformers import InklingForCausalLM

from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.llm import LLM, Request, SamplingParams

pytestmark = [pytest.mark.filterwarnings(text) for text in WARNINGS]
DELTA_ERROR = 1e-5
PATTERNS = {
    "rank_pattern": {"q_proj": 6, "experts.gate_up_proj": 2, "shared_experts.down_proj": 1},
    "alpha_pattern": {"v_proj": 2.0, "experts.down_proj": 3.0, "lm_head": 11.0},
}


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
