"""The K/V cache and the convolution states of one rank.

Global layers keep K and V of every token, sliding layers of the last window only; a convolution
keeps the last inputs, whatever the length. What a state is made of is each engine's own.
"""

from dataclasses import dataclass

from inkling_cli.memory.setup import Setup
from inkling_runtime.adapter.model_spec import ModelSpec


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Bytes on one rank.

    Attributes:
        global_bytes_per_token: K and V of one token in all global layers.
        sliding_bytes_per_token: the same in all sliding layers.
        window: tokens that a sliding layer keeps.
        conv_bytes: one convolution state (vLLM: one block) of all layers.
        conv_states: how many of them a sequence holds.
        conv_tokens: inputs that one of them holds.
    """

    global_bytes_per_token: int
    sliding_bytes_per_token: int
    window: int
    conv_bytes: int
    conv_states: int
    conv_tokens: int

    @property
    def window_bytes(self) -> int:
        """The most that the sliding layers keep of a sequence."""
        return self.sliding_bytes_per_token * self.window

    @property
    def conv_bytes_per_sequence(self) -> int:
        """The convolution states of a sequence."""
        return self.conv_bytes * self.conv_states

    def sequence_bytes(self, length: int) -> int:
        """Return what a sequence of a length takes."""
        sliding = self.sliding_bytes_per_token * min(length, self.window)
        return self.global_bytes_per_token * length + sliding + self.conv_bytes_per_sequence


def attention_bytes(spec: ModelSpec, setup: Setup, ranks: int) -> tuple[int, int]:
    """Return the bytes of a token's K and V in the global and in the sliding layers of one rank."""
    elements = {False: 0, True: 0}
    for layer in spec.layers:
        heads = max(layer.num_kv_heads // ranks, 1)
        elements[layer.is_sliding] += 2 * heads * layer.head_dim
    return int(elements[False] * setup.kv_bytes), int(elements[True] * setup.kv_bytes)
