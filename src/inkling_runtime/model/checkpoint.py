"""Reading a base model's checkpoint, in either layout, straight onto a device.

Headers first: every name, shape and dtype is checked before any weight is read. Then tensor by
tensor from the mapped file into its place, so that memory never exceeds the model by more than
one tensor. Not here: adapters, towers, draft layers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.safetensors_file import read_header
from inkling_runtime.adapter.weight_files import iter_weight_files
from inkling_runtime.errors import InklingError, format_names
from inkling_runtime.model.checkpoint_names import Layout, Move, Source, find_layout
from inkling_runtime.model.mapped_tensors import FLOATS, StoredTensor, iter_tensors
from inkling_runtime.model.parameters import (
    MODEL_PARAMETERS,
    Held,
    Parameter,
    dimensions,
    layer_parameters,
    parse_shape,
    parse_size,
)

_ADAPTER_NAME = re.compile(r"\.lora_[AB]\.")
_QUANTISED_NAME = re.compile(
    r"\.(scale|scale2|input_amax|original_shape"
    r"|weight_packed|weight_scale|weight_global_scale|input_global_scale)$"
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Parameters by the names of `parameters.py`, and what a user should know about the files."""

    weights: dict[str, Tensor]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Place:
    """Shape and precision of a parameter."""

    shape: tuple[int, ...]
    held: Held


@dataclass(frozen=True, slots=True)
class _Step:
    """Fill a parameter, or the part of it that starts at `start`, from one stored tensor."""

    parameter: str
    move: Move
    shapes: tuple[tuple[int, ...], ...]
    """Shapes that the stored tensor may have."""
    start: int


def load_checkpoint(
    folder: Path, spec: ModelSpec, device: torch.device, dtype: torch.dtype
) -> Checkpoint:
    """Return all parameters of the text model on a device.

    What transformers keeps in fp32 (convolutions, the router's bias and scale) stays in fp32.

    Raises:
        InklingError: the folder holds no such model, tensors are missing or surplus or have
            other shapes than the config says, or the experts are quantised.
    """
    stored = _read_names(folder)
    layout = find_layout(stored, folder)
    names = [name for name in stored if not name.startswith(layout.ignored)]
    adapter_names = [name for name in names if _ADAPTER_NAME.search(name)]
    names = [name for name in names if not _ADAPTER_NAME.search(name)]
    steps = _plan_steps(layout, spec)
    _require_unquantised(names, stored, folder)
    _require_names(set(names), set(steps), folder, layout)
    _require_shapes(stored, steps)

    places = _plan_parameters(spec)
    weights = {name: _allocate(place, device, dtype) for name, place in places.items()}
    for name, tensor in iter_tensors({name: stored[name] for name in steps}):
        step = steps[name]
        is_rounded = places[step.parameter].held is Held.ROUNDED
        _apply(step, tensor.to(dtype) if is_rounded else tensor, weights[step.parameter])
    return Checkpoint(weights, _notes(adapter_names, folder))


def _read_names(folder: Path) -> dict[str, StoredTensor]:
    stored: dict[str, StoredTensor] = {}
    for path in iter_weight_files(folder):
        for name, info in read_header(path).tensors.items():
            if name in stored:
                raise InklingError(
                    f"tensor `{name}` is in `{stored[name].path}` and in `{path}`, expected it once"
                )
            stored[name] = StoredTensor(path, info)
    return stored


def _plan_steps(layout: Layout, spec: ModelSpec) -> dict[str, _Step]:
    """Return what to do with each tensor, by its name in the files."""
    letters = dimensions(spec)
    steps = {name: _step(source, "", letters) for name, source in layout.model_names.items()}
    for layer in spec.layers:
        letters, prefix = dimensions(spec, layer), f"layers.{layer.index}."
        for name, source in layout.names_of(layer).items():
            steps[name] = _step(source, prefix, letters)
    return steps


def _step(source: Source, prefix: str, letters: Mapping[str, int]) -> _Step:
    shapes = [parse_shape(source.shape, letters)]
    if source.move is Move.HEAD:
        shapes.append(parse_shape("V H", letters))
    start = parse_size(source.start, letters)
    return _Step(prefix + source.parameter, source.move, tuple(dict.fromkeys(shapes)), start)


def _require_unquantised(
    names: list[str], stored: Mapping[str, StoredTensor], folder: Path
) -> None:
    quantised = [name for name in names if _QUANTISED_NAME.search(name)]
    quantised = quantised or [n for n in names if stored[n].info.dtype not in FLOATS]
    if quantised:
        raise InklingError(
            f"`{folder}` holds quantised tensors (experts), which are not supported yet: "
            f"{format_names(sorted(quantised))}",
            "use the checkpoint in BF16",
        )


def _require_names(names: set[str], expected: set[str], folder: Path, layout: Layout) -> None:
    missing, surplus = sorted(expected - names), sorted(names - expected)
    if missing:
        raise InklingError(
            f"`{folder}` lacks tensors of the {layout.name} layout: {format_names(missing)}"
            + (f"; it has unknown ones: {format_names(surplus)}" if surplus else "")
        )
    if surplus:
        raise InklingError(
            f"`{folder}` has tensors that this model has no place for: {format_names(surplus)}",
            "compare config.json with the files: layers, dense layers and experts must agree",
        )


def _require_shapes(stored: Mapping[str, StoredTensor], steps: Mapping[str, _Step]) -> None:
    wrong = [n for n, step in sorted(steps.items()) if stored[n].info.shape not in step.shapes]
    if wrong:
        first, *others = wrong
        raise InklingError(
            f"`{first}` has the shape {list(stored[first].info.shape)}, config.json says "
            f"{list(steps[first].shapes[0])}"
            + (f"; other shapes differ, too: {format_names(others)}" if others else "")
        )


def _plan_parameters(spec: ModelSpec) -> dict[str, _Place]:
    """Return shape and precision of every parameter, by its full name."""
    places: dict[str, _Place] = {}

    def add(prefix: str, parameters: Mapping[str, Parameter], letters: Mapping[str, int]) -> None:
        for name, parameter in parameters.items():
            places[prefix + name] = _Place(parse_shape(parameter.shape, letters), parameter.held)

    add("", MODEL_PARAMETERS, dimensions(spec))
    for layer in spec.layers:
        add(f"layers.{layer.index}.", layer_parameters(layer), dimensions(spec, layer))
    return places


def _allocate(place: _Place, device: torch.device, dtype: torch.dtype) -> Tensor:
    held = dtype if place.held is Held.MODEL else torch.float32
    return torch.empty(place.shape, dtype=held, device=device)


def _apply(step: _Step, tensor: Tensor, parameter: Tensor) -> None:
    match step.move:
        case Move.COPY:
            parameter.copy_(tensor)
        case Move.HEAD:
            parameter.copy_(tensor[: len(parameter)])
        case Move.ROWS:
            parameter.narrow(-2, step.start, tensor.shape[-2]).copy_(tensor)
        case Move.ALTERNATING:
            width = tensor.shape[-2] // 2
            parameter.narrow(-2, 0, width).copy_(tensor[..., 0::2, :])
            parameter.narrow(-2, width, width).copy_(tensor[..., 1::2, :])
        case Move.TAPS:
            parameter.copy_(tensor[:, 0].T)
        case Move.BESIDE:
            hidden, width = parameter.shape[0], tensor.shape[2]
            parameter.view(hidden, -1, width).copy_(tensor.transpose(0, 1))


def _notes(adapter_names: list[str], folder: Path) -> list[str]:
    if not adapter_names:
        return []
    return [
        f"`{folder}` also holds {len(adapter_names)} adapter tensors, which were not read: "
        + format_names(sorted(adapter_names))
    ]
