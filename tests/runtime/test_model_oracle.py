"""The base model computes what transformers computes, whatever the checkpoint's layout."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from tiny_models import (
    make_multimodal_model,
    make_text_model,
    oracle_logits,
    random_ids,
    relative_error,
    save,
)
from transformers import InklingForCausalLM

from inkling_runtime.llm import LLM, Request, SamplingParams
from inkling_runtime.ops.backend import Backend, use_backend

FP32_ERROR = 2e-6


@pytest.fixture(autouse=True, params=["torch alone", "what the CPU has"])
def _backend(request: pytest.FixtureRequest) -> Iterator[None]:
    with use_backend(Backend.TORCH) if request.param == "torch alone" else nullcontext():
        yield


@pytest.mark.parametrize("chunk", [512, 7, 1])
def test_prefill_at_once_in_chunks_or_by_token_gives_the_logits_of_transformers(
    text_model: InklingForCausalLM, text_folder: Path, chunk: int
) -> None:
    token_ids = random_ids(60)
    llm = LLM(text_folder, device="cpu", max_batch_tokens=chunk)
    logits = llm.logits(token_ids)
    assert logits.dtype == torch.float32
    assert relative_error(logits, oracle_logits(text_model, token_ids)) < FP32_ERROR


def test_a_prompt_longer_than_any_block_of_queries_keys_or_logits_agrees(
    text_model: InklingForCausalLM, text_folder: Path
) -> None:
    token_ids = random_ids(390)
    want = oracle_logits(text_model, token_ids)
    for chunk in (400, 150):
        llm = LLM(text_folder, device="cpu", max_batch_tokens=chunk)
        assert relative_error(llm.logits(token_ids), want) < FP32_ERROR


@pytest.mark.parametrize(
    "changes",
    [
        {"log_scaling_n_floor": None},
        {"rel_extent": 100},
        {"rel_extent": 1, "sliding_window_size": 1},
        {"conv_kernel_size": 2},
        {"conv_kernel_size": 1},
        {"unpadded_vocab_size": None},
        {"layer_types": ["hybrid"] * 5},
        {"layer_types": ["hybrid_sliding"] * 5, "mlp_layer_types": ["sparse"] * 5},
        {"mlp_layer_types": ["dense"] * 5},
        {"num_experts_per_tok": 7, "n_shared_experts": 1},
        {"swa_num_key_value_heads": 6, "num_key_value_heads": 1},
    ],
    ids=str,
)
def test_other_shapes_of_model_agree(tmp_path: Path, changes: dict[str, object]) -> None:
    model = make_text_model(**changes)
    token_ids = random_ids(25)
    llm = LLM(save(model, tmp_path), device="cpu", max_batch_tokens=10)
    assert relative_error(llm.logits(token_ids), oracle_logits(model, token_ids)) < FP32_ERROR


@pytest.mark.parametrize("shard", ["5GB", "20KB"])
@pytest.mark.parametrize("original", [True, False], ids=["raw", "transformers"])
def test_multimodal_checkpoints_agree_in_both_layouts_whole_or_sharded(
    tmp_path: Path, original: bool, shard: str
) -> None:
    model = make_multimodal_model()
    save(model, tmp_path, save_original_format=original, max_shard_size=shard)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard == "20KB")
    token_ids = random_ids(30)
    llm = LLM(tmp_path, device="cpu")
    assert llm.spec.is_multimodal
    assert llm.notes == []
    assert relative_error(llm.logits(token_ids), oracle_logits(model, token_ids)) < FP32_ERROR


def test_log_probs_are_those_of_the_next_tokens(text_model: InklingForCausalLM, llm: LLM) -> None:
    token_ids = random_ids(150)
    want = oracle_logits(text_model, token_ids).log_softmax(-1)
    want = want[:-1].gather(1, torch.tensor(token_ids[1:])[:, None])[:, 0]
    torch.testing.assert_close(llm.log_probs(token_ids), want, atol=1e-5, rtol=0)
    assert llm.log_probs([3]).shape == (0,)


def test_greedy_generation_is_that_of_transformers(
    text_model: InklingForCausalLM, llm: LLM
) -> None:
    prompt = random_ids(20)
    with torch.no_grad():
        want = text_model.generate(
            torch.tensor([prompt]), max_new_tokens=30, do_sample=False, eos_token_id=None
        )
    (completion,) = llm.generate([Request(prompt, SamplingParams(max_tokens=30, temperature=0))])
    assert completion.token_ids == want[0, 20:].tolist()
    assert completion.finish_reason == "length"


def test_bf16_keeps_what_transformers_keeps_in_fp32_and_is_as_close_to_fp32(
    text_model: InklingForCausalLM, text_folder: Path
) -> None:
    token_ids = random_ids(60)
    exact = oracle_logits(text_model, token_ids)
    peer = InklingForCausalLM.from_pretrained(
        text_folder, dtype=torch.bfloat16, experts_implementation="eager"
    )
    llm = LLM(text_folder, device="cpu", dtype="bfloat16")
    error = (llm.logits(token_ids) - exact).pow(2).mean().sqrt()
    peer_error = (oracle_logits(peer, token_ids) - exact).pow(2).mean().sqrt()
    assert error < 1.3 * peer_error


def test_auto_dtype_is_what_the_config_says(tmp_path: Path, text_folder: Path) -> None:
    model = InklingForCausalLM.from_pretrained(text_folder, dtype=torch.bfloat16)
    assert LLM(save(model, tmp_path), device="cpu").dtype == torch.bfloat16
    assert LLM(text_folder, device="cpu").dtype == torch.float32
