"""Where a path leads in vLLM: to a module that adapters can change, with its widths, or nowhere."""

import re
from dataclasses import dataclass

from inkling_cli.checks.launch.vllm.layers import AdaptableModules

_PART = r"base_layer|w[123]|\d+\.(?:gate|up|down)_proj"
_EXPERTS = re.compile(rf"(.*\.mlp\.experts)(?:\.({_PART}))?")
_DOWN = ("w2", "down_proj")
_ANYWHERE = re.compile(
    r"model\.layers\.\d+\.(?:attn\.(?:w[qkvr]_d[uv]|wo_ud)|mlp\.(?:gate_up_proj|down_proj)"
    rf"|mlp\.sink_experts\.w[123]|mlp\.experts(?:\.(?:{_PART}))?)|lm_head"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A module of vLLM that one module of an adapter changes.

    Attributes:
        owner: the path by which vLLM decides whether it is wrapped: the place's own, or that of
            the layer's routed experts.
        inputs: columns of lora_A that fill it.
        outputs: rows of lora_B that fill it.
        packed: the number of experts whose ranks stand side by side in PEFT's packed form; 1 in
            all others.
    """

    owner: str
    inputs: int
    outputs: int
    packed: int = 1


def place_of(path: str, known: AdaptableModules) -> Place | None:
    """Return the place that a path leads to in a model; None if it leads nowhere."""
    slot = known.slots.get(path)
    if slot is not None:
        return Place(path, slot.inputs, slot.outputs)
    match = _EXPERTS.fullmatch(path)
    if match is None or match[1] not in known.expert_layers:
        return None
    owner, part = match.groups()
    number, slot = known.expert_layers[owner]
    if part is None:
        return Place(owner, slot.outputs, slot.inputs, number)
    if part == "base_layer":
        return Place(owner, slot.inputs, 2 * slot.outputs, number)
    if part.rpartition(".")[2] in _DOWN:
        return Place(owner, slot.outputs, slot.inputs)
    return Place(owner, slot.inputs, slot.outputs)


def leads_somewhere(path: str) -> bool:
    """Return whether a path leads to a place in any Inkling, whatever its sizes."""
    return _ANYWHERE.fullmatch(path) is not None
