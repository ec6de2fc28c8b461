"""The runtime in one class: a base model, adapters beside it, and what one asks of them.

Not a chat: prompts are token ids, and so are answers. Adapters come as factors by site
(`inkling_runtime.adapter`), whatever dialect they were stored in.
"""

import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from inkling_runtime.adapter.factors import SiteFactors
from inkling_runtime.adapter.json_file import read_json_object
from inkling_runtime.adapter.model_spec import ModelSpec, parse_model_spec
from inkling_runtime.adapter.sites import Site
from inkling_runtime.cache.available_memory import sensible_cache_memory
from inkling_runtime.cache.cache import Cache
from inkling_runtime.cache.cache_sizes import CacheNeeds, plan_cache_sizes
from inkling_runtime.engine.build import ModelOrder, build_executor
from inkling_runtime.engine.engine import Engine
from inkling_runtime.engine.executor import Executor
from inkling_runtime.engine.placement import choose_device, choose_dtype
from inkling_runtime.engine.request import (
    Completion,
    Prompt,
    Request,
    TokenEvent,
    make_requests,
    require_valid_ids,
)
from inkling_runtime.engine.sampling import SamplingParams
from inkling_runtime.engine.sequence import Sequence as Running
from inkling_runtime.engine.stats import Stats
from inkling_runtime.engine.stream import Stream
from inkling_runtime.errors import InklingError
from inkling_runtime.lora.adapter_store import AdapterStore
from inkling_runtime.model.features import require_supported
from inkling_runtime.ops.native.library import CompileMode
from inkling_runtime.parallel.executor import ParallelExecutor

__all__ = ["LLM", "Completion", "Request", "SamplingParams", "Stats", "Stream", "TokenEvent"]


class LLM:
    """An Inkling model with any number of adapters.

    Not for several threads at a time. On a CPU it is fastest, and stays fast beside other
    processes, if `inkling_runtime.threads.settle_threads` was called before torch was imported.

    Args:
        model: folder with config.json and the safetensors files, in either layout.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        dtype: `auto`, `float32` or `bfloat16`.
        max_batch_tokens: tokens per step; longer prompts are read in several.
        max_sequences: requests that run at a time; others wait.
        max_loras: adapters on the device at a time; others are loaded when they are needed.
        cache_memory: bytes for keys, values and states on the CPU or on each GPU; `auto`: what is
            sensible here.
        block_size: tokens per block of the cache.
        reuse_prefixes: whether a prompt that begins like an earlier one goes on from there.
        tensor_parallel: processes of this machine that hold the model together.
        expert_parallel: of these each holds whole routed experts, not a part of every one.
        compile_mode: whether the compiled CPU kernels are used: `auto` where they can be had, `on`,
            `off`. For the whole process.

    Raises:
        InklingError: the folder, the device or an option is not what it should be.
    """

    def __init__(
        self,
        model: Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        max_batch_tokens: int = 512,
        max_sequences: int = 32,
        max_loras: int = 8,
        cache_memory: int | str = "auto",
        block_size: int = 64,
        reuse_prefixes: bool = True,
        tensor_parallel: int = 1,
        expert_parallel: bool = False,
        compile_mode: CompileMode = "auto",
    ) -> None:
        config = read_json_object(model / "config.json")
        self.spec: ModelSpec = parse_model_spec(config, str(model / "config.json"))
        require_supported(self.spec, config)
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device, config)
        _require_positive(
            max_batch_tokens=max_batch_tokens,
            max_sequences=max_sequences,
            max_loras=max_loras,
            block_size=block_size,
            tensor_parallel=tensor_parallel,
        )
        order = ModelOrder(model, self.spec, self.device, self.dtype, max_loras, compile_mode)
        executor = _build(order, tensor_parallel, expert_parallel)
        self.notes = executor.notes
        """What the user should know about the checkpoint, a sentence each."""
        self._executor = executor
        self._finalizer = weakref.finalize(self, executor.close)
        needs = CacheNeeds(max_sequences, max_batch_tokens, block_size, self.dtype.itemsize)
        budget = self._cache_budget(cache_memory)
        if self.device.type == "cpu":
            budget //= tensor_parallel  # the ranks share one memory
        sizes = plan_cache_sizes(executor.spec, needs, budget)
        executor.allocate(sizes)
        self._adapters = AdapterStore(executor, max_loras, self.spec)
        self._engine = Engine(
            self.spec,
            executor,
            Cache(sizes, self.spec.sliding_window, reuse_prefixes),
            self._adapters,
            max_batch_tokens,
            max_sequences,
        )

    def close(self) -> None:
        """End the other processes of a model over several; it cannot be used any more."""
        self._finalizer()

    @property
    def adapters(self) -> list[str]:
        """Names of the adapters that requests can ask for."""
        return self._adapters.names

    @property
    def stats(self) -> Stats:
        """What was done so far, in numbers."""
        return self._engine.stats

    def load_adapter(self, name: str, factors: Mapping[Site, SiteFactors]) -> None:
        """Make an adapter known under a name, and load it if one of `max_loras` slots is free.

        A name that is taken gets the new adapter: requests that run finish with the old one. The
        same content under two names is loaded once. `factors` stay on the host, to be loaded
        again after the slot was needed for others: best they are `LazyFactors`, which are read
        from their files then.

        Raises:
            InklingError: the factors do not fit the model; nothing has changed.
        """
        self._adapters.add(name, factors)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter; requests that run with it finish.

        Raises:
            InklingError: there is none of this name.
        """
        self._adapters.remove(name)

    def pin_adapter(self, name: str) -> None:
        """Load an adapter and keep it loaded, whatever others need.

        Raises:
            InklingError: there is none of this name, or no slot can be emptied for it.
        """
        self._adapters.pin(name)

    def unpin_adapter(self, name: str) -> None:
        """Undo `pin_adapter`.

        Raises:
            InklingError: there is none of this name.
        """
        self._adapters.unpin(name)

    def stream(
        self,
        prompts: Sequence[Prompt],
        sampling: SamplingParams | None = None,
        lora: str | Sequence[str | None] | None = None,
    ) -> Stream:
        """Return an iterator over the tokens of all prompts, as they come.

        A request that cannot be done ends with an event that says why, and the others go on.
        Closing the stream early ends its requests, `Stream.cancel` one of them.

        Args:
            prompts: requests, or lists of token ids.
            sampling: how all lists of ids go on.
            lora: the adapter of all lists of ids, or one (or None) for each.

        Raises:
            InklingError: the arguments contradict each other.
        """
        return Stream(self._engine, make_requests(prompts, sampling, lora))

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: SamplingParams | None = None,
        lora: str | Sequence[str | None] | None = None,
    ) -> list[Completion]:
        """Return the completions of all prompts, in their order.

        Arguments and errors are those of `stream`: a completion may have an `error`.
        """
        with self.stream(prompts, sampling, lora) as stream:
            for _ in stream:
                pass
            return stream.completions()

    def logits(self, token_ids: Sequence[int], adapter: str | None = None) -> Tensor:
        """Return the logits after every token, fp32 [T, V] without padded ids.

        Raises:
            InklingError: the ids or the adapter are not the model's, or there is no room.
        """
        rows: list[Tensor] = []
        self._score(token_ids, adapter, rows)
        return torch.cat(rows)

    def log_probs(self, token_ids: Sequence[int], adapter: str | None = None) -> Tensor:
        """Return log p(token[t+1] | token[0 … t]) for every t, fp32 [T-1].

        Raises:
            InklingError: the ids or the adapter are not the model's, or there is no room.
        """
        scores = self._score(token_ids, adapter, None).prompt_logprobs
        return torch.tensor(scores, dtype=torch.float32, device=self.device)

    def _score(
        self, token_ids: Sequence[int], adapter: str | None, logits: list[Tensor] | None
    ) -> Running:
        require_valid_ids(token_ids, self.spec, "the list of tokens")
        sampling = SamplingParams(max_tokens=0, prompt_logprobs=True)
        sequence = Running(0, Request(token_ids, sampling, adapter), deque(), logits)
        try:
            self._engine.add(sequence)
            while sequence.finish_reason is None:
                self._engine.step()
        finally:
            self._engine.cancel([sequence])
        if sequence.error is not None:
            raise sequence.error
        return sequence

    def _cache_budget(self, cache_memory: int | str) -> int:
        if cache_memory == "auto":
            return sensible_cache_memory(self.device)
        if not isinstance(cache_memory, int):
            raise InklingError(
                f"cache_memory is `{cache_memory}`, expected `auto` or a number of bytes"
            )
        return cache_memory


def _build(order: ModelOrder, size: int, expert_parallel: bool) -> "Executor | ParallelExecutor":
    if size == 1:
        return build_executor(order)
    return ParallelExecutor(order, size, expert_parallel=expert_parallel)


def _require_positive(**options: int) -> None:
    for name, value in options.items():
        if value < 1:
            raise InklingError(f"{name} is {value}, expected at least 1")
