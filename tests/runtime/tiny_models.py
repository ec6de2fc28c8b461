"""Tiny Inkling models by transformers, and what it says they compute.

Every width is another number, so that no wrong reshape fits. Extent, window and the floor of
the log scaling are shorter than the prompts of the tests, so that all of them take effect.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    InklingConfig,
    InklingForCausalLM,
    InklingForConditionalGeneration,
    InklingTextConfig,
    PreTrainedModel,
)
from transformers.utils import logging

logging.disable_progress_bar()

VOCAB, UNPADDED = 67, 61
TEXT: dict[str, Any] = {
    "vocab_size": VOCAB,
    "unpadded_vocab_size": UNPADDED,
    "hidden_size": 40,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "swa_num_attention_heads": 6,
    "swa_num_key_value_heads": 3,
    "swa_head_dim": 8,
    "sliding_window_size": 9,
    "d_rel": 5,
    "rel_extent": 7,
    "log_scaling_n_floor": 5,
    "log_scaling_alpha": 0.3,
    "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid", "hybrid_sliding"],
    "mlp_layer_types": ["dense", "dense", "sparse", "sparse", "sparse"],
    "intermediate_size": 56,
    "moe_intermediate_size": 20,
    "n_routed_experts": 7,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "route_scale": 1.7,
    "logits_mup_width_multiplier": 3.0,
    "max_position_embeddings": 400,
}


def make_text_model(seed: int = 0, **changes: Any) -> InklingForCausalLM:
    """Return a text model with random weights none of which is neutral."""
    return _randomise(InklingForCausalLM(InklingTextConfig(**{**TEXT, **changes})), seed)


def make_multimodal_model(seed: int = 0, **changes: Any) -> InklingForConditionalGeneration:
    """Return a model with (untested) towers; its text part is as large as the text model."""
    config = InklingConfig(
        text_config={**TEXT, **changes},
        vision_config={"patch_size": 4, "hidden_size": 8, "num_hidden_layers": 4},
        audio_config={"n_mel_bins": 3, "mel_vocab_size": 4},
        image_token_id=50,
        audio_token_id=51,
        image_bos_token_id=52,
        audio_bos_token_id=53,
    )
    return _randomise(InklingForConditionalGeneration(config), seed)


def _randomise(model: Any, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if not tensor.is_floating_point():
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if "norm" in name or "scale" in name:
                tensor.copy_(1 + 0.2 * noise)
            elif "sconv" in name or "bias" in name:
                tensor.copy_(0.3 * noise)
            elif "rel_logits" in name:
                tensor.copy_(0.7 * noise)
            else:
                tensor.copy_(1.2 * noise * tensor.shape[-1] ** -0.5)
    return model.eval()


def random_ids(count: int, seed: int = 0) -> list[int]:
    """Return token ids that the tiny models have."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 50, (count,), generator=generator).tolist()


def oracle_logits(model: Any, token_ids: list[int]) -> Tensor:
    """Return what transformers computes, fp32 [T, V]."""
    with torch.no_grad():
        return model(torch.tensor([token_ids])).logits[0].float()


def relative_error(got: Tensor, want: Tensor) -> float:
    """Return the largest difference relative to the largest wanted value."""
    return ((got - want).abs().max() / want.abs().max()).item()


def save(model: PreTrainedModel, folder: Path, **options: Any) -> Path:
    """Save a model and return the folder."""
    model.save_pretrained(folder, **options)
    return folder
