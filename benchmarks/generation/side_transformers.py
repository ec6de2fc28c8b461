"""The peer of bench_generate.py: transformers' `generate`, PEFT around the model with adapter."""

import time
from typing import Any

import torch
from transformers import InklingForCausalLM
from transformers.utils import logging


class Side:
    """A model of transformers, all else than the dtype by default."""

    def load(self, model: str, dtype: str, adapter: str | None) -> dict[str, Any]:
        """Load a model and, if there is one, its adapter."""
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        self.model: Any = InklingForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
        if adapter is not None:
            from peft import PeftModel  # the base model alone does not pay for it

            self.model = PeftModel.from_pretrained(self.model, adapter)
        self.model.eval()
        self.is_adapted = adapter is not None
        return {"threads": torch.get_num_threads()}

    def logits(self, prompt: list[int], is_adapted: bool) -> torch.Tensor:
        """Return the logits after every token, fp32 [T, V]."""
        assert is_adapted == self.is_adapted
        with torch.inference_mode():
            return self.model(input_ids=torch.tensor([prompt])).logits[0].float()

    def stamps(
        self, prompts: list[list[int]], new_tokens: int, is_adapted: bool
    ) -> list[tuple[int, float]]:
        """Continue all prompts; return the prompt's index and the time of every token."""
        assert is_adapted == self.is_adapted
        stamps = _Stamps(len(prompts))
        ids = torch.tensor(prompts)
        self.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            streamer=stamps,
        )
        return stamps.found


class _Stamps:
    """What `generate` calls with the prompts and then with the tokens of each step."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.found: list[tuple[int, float]] = []
        self.has_prompts = False

    def put(self, value: torch.Tensor) -> None:
        """Note the time of a step's tokens."""
        if not self.has_prompts:
            self.has_prompts = True
            return
        assert value.numel() == self.batch
        now = time.perf_counter()
        self.found += [(index, now) for index in range(self.batch)]

    def end(self) -> None:
        """There is nothing to finish."""
