"""Our side of bench_generate.py: `LLM`, the adapter read from PEFT's folder like any other."""

import time
from pathlib import Path
from typing import Any

import torch

from inkling_runtime.adapter.load_factors import read_factors
from inkling_runtime.llm import LLM, Request, SamplingParams

NAME = "adapter"


class Side:
    """An `LLM`, all else than device and dtype by default."""

    def load(self, model: str, dtype: str, adapter: str | None) -> dict[str, Any]:
        """Load a model and, if there is one, its adapter."""
        self.llm = LLM(Path(model), device="cpu", dtype=dtype)
        if adapter is not None:
            self.llm.load_adapter(NAME, read_factors(Path(adapter), self.llm.spec))
        return {"threads": torch.get_num_threads(), "notes": list(self.llm.notes)}

    def logits(self, prompt: list[int], is_adapted: bool) -> torch.Tensor:
        """Return the logits after every token, fp32 [T, V]."""
        return self.llm.logits(prompt, NAME if is_adapted else None)

    def stamps(
        self, prompts: list[list[int]], new_tokens: int, is_adapted: bool
    ) -> list[tuple[int, float]]:
        """Continue all prompts; return the prompt's index and the time of every token."""
        sampling = SamplingParams(max_tokens=new_tokens, temperature=0)
        adapter = NAME if is_adapted else None
        requests = [Request(prompt, sampling, adapter) for prompt in prompts]
        return [(event.request, time.perf_counter()) for event in self.llm.stream(requests)]
