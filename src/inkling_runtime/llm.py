"""The runtime in one class: a base model, adapters beside it, and what one asks of them.

Not a chat: prompts are token ids, and so are answers. Adapters come as factors by site
(`inkling_runtime.adapter`), whatever dialect they were stored in.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from inkling_runtime.adapter.factors import SiteFactors
from inkling_runtime.adapter.json_file import read_json_object
from inkling_runtime.adapter.model_spec import ModelSpec, parse_model_spec
from inkling_runtime.adapter.sites import Site
from inkling_runtime.cache.model_cache import ModelCache
from inkling_runtime.engine.placement import choose_device, choose_dtype
from inkling_runtime.engine.request import (
    Completion,
    Request,
    TokenEvent,
    require_valid,
    require_valid_ids,
)
from inkling_runtime.engine.runner import LOGIT_ROWS, Runner
from inkling_runtime.engine.sampling import SamplingParams, log_probs_of
from inkling_runtime.engine.scheduler import Scheduler
from inkling_runtime.engine.sequence import Chunk
from inkling_runtime.engine.sequence import Sequence as Running
from inkling_runtime.errors import InklingError
from inkling_runtime.lora.load import load_adapter
from inkling_runtime.lora.slots import AdapterSlots
from inkling_runtime.model.checkpoint import load_checkpoint
from inkling_runtime.model.features import require_supported
from inkling_runtime.model.inkling import Inkling

__all__ = ["LLM", "Completion", "Request", "SamplingParams", "TokenEvent"]


class LLM:
    """An Inkling model with any number of adapters.

    Args:
        model: folder with config.json and the safetensors files, in either layout.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        dtype: `auto`, `float32` or `bfloat16`.
        max_batch_tokens: tokens per step; longer prompts are read in several.
        max_sequences: requests that run at a time; others wait.

    Raises:
        InklingError: the folder, the device or the dtype is not what it should be.
    """

    def __init__(
        self,
        model: Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        max_batch_tokens: int = 512,
        max_sequences: int = 32,
    ) -> None:
        config = read_json_object(model / "config.json")
        self.spec: ModelSpec = parse_model_spec(config, str(model / "config.json"))
        require_supported(self.spec, config)
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device, config)
        if max_batch_tokens < 1 or max_sequences < 1:
            raise InklingError(
                f"max_batch_tokens is {max_batch_tokens} and max_sequences {max_sequences}, "
                "expected at least 1"
            )
        self.max_batch_tokens = max_batch_tokens
        self.max_sequences = max_sequences
        checkpoint = load_checkpoint(model, self.spec, self.device, self.dtype)
        self.notes = checkpoint.notes
        """What the user should know about the checkpoint, a sentence each."""
        self._slots = AdapterSlots(self.spec.num_layers)
        self._runner = Runner(
            Inkling(self.spec, checkpoint.weights),
            ModelCache(self.spec, self.device, self.dtype),
            self._slots,
        )

    @property
    def adapters(self) -> list[str]:
        """Names of the loaded adapters."""
        return self._slots.names

    def load_adapter(self, name: str, factors: Mapping[Site, SiteFactors]) -> None:
        """Load an adapter under a name.

        Raises:
            InklingError: the name is taken, or the factors do not fit the model.
        """
        self._slots.require_absent(name)
        self._slots.add(name, load_adapter(factors, self.spec, self.device, self.dtype))

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter.

        Raises:
            InklingError: there is none of this name, or a stream still uses it.
        """
        self._slots.remove(name)

    def stream(self, requests: Sequence[Request]) -> Iterator[TokenEvent]:
        """Return an iterator over the tokens of all requests, as they come.

        Closing the iterator early gives back what its requests own.

        Raises:
            InklingError: a request asks for what the model or its adapters cannot do.
        """
        self._require_valid(requests)
        return self._iter_tokens(requests, [])

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Return the completions of all requests, in their order.

        Raises:
            InklingError: a request asks for what the model or its adapters cannot do.
        """
        self._require_valid(requests)
        sequences: list[Running] = []
        for _ in self._iter_tokens(requests, sequences):
            pass
        return [sequence.completion() for sequence in sequences]

    def logits(self, token_ids: Sequence[int], adapter: str | None = None) -> Tensor:
        """Return the logits after every token, fp32 [T, V] without padded ids.

        Raises:
            InklingError: the ids or the adapter are not the model's.
        """
        logits = torch.empty(len(token_ids), self.spec.unpadded_vocab_size, device=self.device)
        for start, block in self._iter_logits(token_ids, adapter):
            logits[start : start + len(block)] = block
        return logits

    def log_probs(self, token_ids: Sequence[int], adapter: str | None = None) -> Tensor:
        """Return log p(token[t+1] | token[0 … t]) for every t, fp32 [T-1].

        Raises:
            InklingError: the ids or the adapter are not the model's.
        """
        log_probs = torch.empty(max(len(token_ids) - 1, 0), device=self.device)
        for start, block in self._iter_logits(token_ids, adapter):
            targets = torch.tensor(
                token_ids[start + 1 : start + 1 + len(block)],
                dtype=torch.int64,
                device=self.device,
            )
            log_probs[start : start + len(targets)] = log_probs_of(block[: len(targets)], targets)
        return log_probs

    def _require_valid(self, requests: Sequence[Request]) -> None:
        for index, request in enumerate(requests):
            require_valid(request, index, self.spec)
            self._slots.require(request.adapter)

    def _iter_tokens(
        self, requests: Sequence[Request], sequences: list[Running]
    ) -> Iterator[TokenEvent]:
        """Yield the tokens of all requests; `sequences` gets their sequences, in order."""
        scheduler = Scheduler(self.max_batch_tokens, self.max_sequences)
        try:
            for index, request in enumerate(requests):
                adapter = self._slots.require(request.adapter)
                self._slots.pin(adapter)
                sequences.append(Running(index, request.prompt_ids, adapter, request.sampling))
                scheduler.add(sequences[-1])
            while scheduler.has_work:
                advanced = self._runner.step(scheduler.plan_step())
                for sequence in scheduler.remove_finished():
                    self._runner.release(sequence)
                yield from (_event(s) for s in sorted(advanced, key=lambda s: s.index))
        finally:
            for sequence in sequences:
                self._runner.release(sequence)
                self._slots.unpin(sequence.adapter)

    def _iter_logits(
        self, token_ids: Sequence[int], adapter: str | None
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield blocks of logits with the index of their first token."""
        require_valid_ids(token_ids, self.spec, "the list of tokens")
        sequence = Running(0, token_ids, self._slots.require(adapter), SamplingParams(max_tokens=0))
        try:
            for begin in range(0, len(token_ids), self.max_batch_tokens):
                end = min(begin + self.max_batch_tokens, len(token_ids))
                hidden = self._runner.forward([Chunk(sequence, begin, end)])
                for row in range(0, len(hidden), LOGIT_ROWS):
                    rows = hidden[row : row + LOGIT_ROWS]
                    yield begin + row, self._runner.logits(rows, [sequence.adapter] * len(rows))
        finally:
            self._runner.release(sequence)


def _event(sequence: Running) -> TokenEvent:
    return TokenEvent(
        sequence.index,
        sequence.token_ids[-1],
        sequence.logprobs[-1],
        sequence.finish_reason,
    )
