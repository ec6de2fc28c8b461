"""What decides how much memory a server takes, as numbers.

Not a launch: `checks/launch/memory_setup.py` reads one into a `Setup`. A variation of a launch
("what if the tensor parallel size were 4") is the same `Setup` with a field replaced.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Literal

EngineName = Literal["vllm", "sglang"]

SGLANG_TARGETS = ("qkvr", "wo_ud", "gate_up_proj", "down_proj", "embed_tokens", "lm_head")
"""Every module of an Inkling that SGLang's pool of slots can have, by its runtime name."""


class WeightFormat(StrEnum):
    """How the routed experts of the base model are stored; everything else is bf16."""

    BF16 = "bf16"
    NVFP4 = "nvfp4"

    @property
    def bytes_per_weight(self) -> Fraction:
        """Bytes of one routed weight, scales of blocks of 16 included."""
        return Fraction(2) if self is WeightFormat.BF16 else Fraction(1, 2) + Fraction(1, 16)


@dataclass(frozen=True, slots=True)
class Parallel:
    """Over how many ranks a server divides what.

    Attributes:
        tensor: ranks that share a layer.
        attention: of these, the ranks that share attention (SGLang's attention data parallelism
            makes it smaller).
        expert: groups that the routed experts are dealt to.
        expert_tensor: ranks that share each routed expert.
        pipeline: stages that the layers are dealt to.
    """

    tensor: int = 1
    attention: int = 1
    expert: int = 1
    expert_tensor: int = 1
    pipeline: int = 1

    @property
    def ranks(self) -> int:
        """The ranks that experts are divided over."""
        return self.expert * self.expert_tensor


@dataclass(frozen=True, slots=True)
class Setup:
    """One server as far as its memory goes.

    Attributes:
        engine: whose formulas hold.
        parallel: over how many ranks what is divided.
        has_lora: whether there are adapter slots at all.
        max_rank: the rank that every slot is made for.
        num_slots: adapter slots on each rank (SGLang's include the one without an adapter).
        is_shared_outer: whether slots hold the hidden side of experts once for all experts.
        targets: modules that have slots, by the engine's own names; None for all.
        is_fully_sharded: vLLM's `--fully-sharded-loras`.
        has_global_experts: SGLang's MoE runners that keep every expert's factors on every rank.
        sink_buffers: SGLang's buffers beside the pool: `cat` of both factors, of one, or none.
        host_adapters: adapters that a worker keeps in host memory.
        weights: how routed experts are stored.
        kv_bytes: bytes of one number in the K/V cache.
        context: tokens of the longest sequence.
        memory_fraction: the part of the GPU that the engine may fill; None for its default.
        sliding_ratio: SGLang's tokens of sliding layers for each token of global ones.
        conv_ratio: SGLang's memory for convolution states beside the K/V cache's.
        conv_states: convolution states that a sequence holds.
        step_tokens: tokens of one (prefill) step; None for the engine's default.
        steps_in_flight: vLLM's steps that are scheduled at the same time.
        has_sharded_conv: SGLang's `--enable-scattered-sconv`.
    """

    engine: EngineName
    parallel: Parallel = Parallel()
    has_lora: bool = True
    max_rank: int = 16
    num_slots: int = 1
    is_shared_outer: bool = True
    targets: tuple[str, ...] | None = None
    is_fully_sharded: bool = False
    has_global_experts: bool = False
    sink_buffers: Literal["legacy", "v2"] = "legacy"
    host_adapters: int = 1
    weights: WeightFormat = WeightFormat.BF16
    kv_bytes: Fraction = Fraction(2)
    context: int = 131072
    memory_fraction: float | None = None
    sliding_ratio: float = 0.1
    conv_ratio: float = 0.1
    conv_states: int = 1
    step_tokens: int | None = None
    steps_in_flight: int = 2
    has_sharded_conv: bool = False

    def with_tensor(self, tensor: int) -> "Setup":
        """Return the setup on another number of ranks, divided in the same way."""
        old = self.parallel
        if old.expert > 1:
            expert, expert_tensor = max(old.ranks * tensor // old.tensor, 1), 1
        else:
            expert, expert_tensor = 1, max(old.ranks * tensor // old.tensor, 1)
        attention = max(old.attention * tensor // old.tensor, 1)
        parallel = replace(
            old,
            tensor=tensor,
            attention=attention,
            expert=expert,
            expert_tensor=expert_tensor,
        )
        return replace(self, parallel=parallel)

    def with_expert_parallel(self, is_on: bool) -> "Setup":
        """Return the setup with whole experts dealt to the ranks, or every expert divided."""
        ranks = self.parallel.ranks
        expert, expert_tensor = (ranks, 1) if is_on else (1, ranks)
        parallel = replace(self.parallel, expert=expert, expert_tensor=expert_tensor)
        return replace(self, parallel=parallel)


def divided(size: int, ranks: int) -> int:
    """Return one rank's part of a size, rounded up where it does not divide."""
    return -(-size // ranks)
