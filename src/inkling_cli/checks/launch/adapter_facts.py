"""An adapter as the engines see it: what decides acceptance is in its names and shapes.

The adapter itself is `inkling_runtime.adapter`'s; here are only the questions that rules ask of
it. The trap: vLLM tells layouts of expert tensors apart by name, SGLang by the size of dimension 0.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import AdapterRef
from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.lora_config import CONFIG_NAME, LoraConfig

_STACKED = re.compile(r"\.experts\.w[123]$")
_NUMBERED = re.compile(r"\.experts\.\d+\.")
_TENSOR_ENDING = re.compile(r"\.lora_[AB]\.weight$")
_INKLING_NAMES = re.compile(r"\.attn\.(?:w[qkvr]_d[uv]|wo_ud|qkvr)$|\.mlp\.shared_experts\.w[123]$")


@dataclass(frozen=True, slots=True, eq=False)
class AdapterFacts:
    """An adapter that a launch names and that was found on this machine; equal to itself only."""

    ref: AdapterRef
    folder: str
    adapter: Adapter

    @property
    def name(self) -> str:
        """The name under which requests ask for it."""
        return self.ref.name

    @property
    def config(self) -> LoraConfig:
        """Its adapter_config.json."""
        return self.adapter.config

    @property
    def max_rank(self) -> int:
        """The largest rank that its config gives any module."""
        return max([self.config.rank, *self.config.rank_pattern.values()])

    def at(self, key: str) -> Location:
        """Return the place of a key of its config."""
        return Location(f"{self.folder.rstrip('/')}/{CONFIG_NAME}", key=key)

    def modules(self) -> Iterator[str]:
        """Yield its module names as stored, each once."""
        names = (_TENSOR_ENDING.sub("", name) for name in self.adapter.file.tensors)
        return iter(dict.fromkeys(names))

    @property
    def is_inkling(self) -> bool:
        """Whether its names are those of an Inkling adapter."""
        return any(_INKLING_NAMES.search(name) for name in self.modules())

    def stacked_experts(self) -> list[str]:
        """Return its routed experts that are one tensor for all experts: vLLM's shared layout."""
        return [name for name in self.modules() if _STACKED.search(name)]

    def numbered_experts(self) -> list[str]:
        """Return its routed experts that are one module each: vLLM's per-expert layout."""
        return [name for name in self.modules() if _NUMBERED.search(name)]
