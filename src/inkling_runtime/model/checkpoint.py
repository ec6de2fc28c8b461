"""Reading a base model's checkpoint, in either layout, straight onto a device.

Headers first: every name, shape and dtype is checked before any weight is read
(`checkpoint_plan`). Then tensor by tensor from the mapped file into its place, so that memory
never exceeds the model by more than one tensor. On a CPU a large tensor that is stored exactly as
it is needed is not copied at all: the mapped pages are the parameter (`mapped_tensors` says what
that means while files change). Of several ranks each reads only what it holds.

Not here: adapters, towers, draft layers.
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
from inkling_runtime.model.boxes import Part, copy_into, leading_rows
from inkling_runtime.model.checkpoint_names import Move, find_layout
from inkling_runtime.model.checkpoint_plan import Place, Plan, Step, plan_checkpoint
from inkling_runtime.model.mapped_tensors import DTYPES, StoredTensor, iter_tensors
from inkling_runtime.model.nvfp4_names import Role
from inkling_runtime.model.parameters import Held
from inkling_runtime.model.shard import WHOLE, Shard, require_shardable
from inkling_runtime.ops.nvfp4 import BLOCK, Nvfp4Weight

Weight = Tensor | Nvfp4Weight

_ADAPTER_NAME = re.compile(r"\.lora_[AB]\.")

MAPPED_FROM = 1 << 20
"""Bytes from which a tensor is mapped: what is small is better together, and aligned."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Parameters by the names of `parameters.py`, and what a user should know about the files."""

    weights: dict[str, Weight]
    notes: list[str] = field(default_factory=list)


def load_checkpoint(
    folder: Path,
    spec: ModelSpec,
    device: torch.device,
    dtype: torch.dtype,
    shard: Shard = WHOLE,
) -> Checkpoint:
    """Return all parameters of the text model on a device, or one rank's parts of them.

    What transformers keeps in fp32 (convolutions, the router's bias and scale) stays in fp32;
    routed experts in NVFP4 stay packed.

    Raises:
        InklingError: the folder holds no such model, tensors are missing or surplus or have
            other shapes than the config says, or are quantised in another way than NVFP4; or the
            model cannot be cut for that many ranks.
    """
    require_shardable(spec, shard.size, expert_parallel=shard.expert_parallel)
    stored = _read_names(folder)
    layout = find_layout(stored, folder)
    names = [name for name in stored if not name.startswith(layout.ignored)]
    adapter_names = [name for name in names if _ADAPTER_NAME.search(name)]
    ours = {name: stored[name] for name in names if not _ADAPTER_NAME.search(name)}
    plan = plan_checkpoint(layout, spec, ours, folder, shard)
    weights = _load(plan, ours, device, dtype)
    return Checkpoint(weights, _notes(adapter_names, folder))


def _read_names(folder: Path) -> dict[str, StoredTensor]:
    stored: dict[str, StoredTensor] = {}
    for path in iter_weight_files(folder):
        file = read_header(path)
        for name, info in file.tensors.items():
            if name in stored:
                raise InklingError(
                    f"tensor `{name}` is in `{stored[name].path}` and in `{path}`, expected it once"
                )
            stored[name] = StoredTensor(path, info, file.file_size)
    return stored


def _load(
    plan: Plan, stored: Mapping[str, StoredTensor], device: torch.device, dtype: torch.dtype
) -> dict[str, Weight]:
    used = {name: stored[name] for name in plan.steps}
    mapped = {
        name: rows
        for name, step in plan.steps.items()
        if device.type == "cpu" and (rows := _rows_as_stored(step, used[name], plan, dtype))
    }
    held: dict[tuple[str, Role | None], Tensor] = {}
    for name, tensor in iter_tensors(used, mapped):
        step = plan.steps[name]
        key, place = (step.parameter, step.role), plan.places[step.parameter]
        if name in mapped:
            held[key] = tensor[mapped[name]]
        elif step.role in (Role.FACTOR, Role.DIVISOR):
            factors = _factors(tensor, step.role, name, used[name].path)
            held[step.parameter, Role.FACTOR] = factors[_experts(place.part)].to(device)
        elif step.role is Role.SHAPE:
            _require_original_shape(tensor, place, name, used[name].path)
        else:
            if key not in held:
                held[key] = _allocate(step, place, device, dtype)
            _fill(held[key], step, place, tensor, dtype)
    return {name: _join(name, held) for name in plan.places}


def _part(step: Step, place: Place) -> Part:
    """Return what is held, counted in elements of the stored tensor."""
    match step.role:
        case Role.PACKED:
            return place.part.divided(2)
        case Role.SCALES:
            return place.part.divided(BLOCK)
    return place.part


def _held_dtype(step: Step, place: Place, dtype: torch.dtype) -> torch.dtype:
    if step.role is not None:
        return DTYPES[step.dtypes[0]]
    return dtype if place.held is Held.MODEL else torch.float32


def _rows_as_stored(
    step: Step, stored: StoredTensor, plan: Plan, dtype: torch.dtype
) -> slice | None:
    """Return the rows of a stored tensor that are a parameter just as they lie in the file."""
    place, info = plan.places[step.parameter], stored.info
    wanted = _held_dtype(step, place, dtype)
    if (
        step.move not in (Move.COPY, Move.HEAD)
        or place.held is Held.ROUNDED
        or step.role not in (None, Role.PACKED, Role.SCALES)
        or DTYPES[info.dtype] != wanted
        or info.nbytes < MAPPED_FROM
        or info.start % wanted.itemsize
    ):
        return None
    return leading_rows(_part(step, place), info.shape)


def _allocate(step: Step, place: Place, device: torch.device, dtype: torch.dtype) -> Tensor:
    shape = _part(step, place).shape
    return torch.empty(shape, dtype=_held_dtype(step, place, dtype), device=device)


def _fill(held: Tensor, step: Step, place: Place, tensor: Tensor, dtype: torch.dtype) -> None:
    """Copy what is held of one stored tensor to its place."""
    if place.held is Held.ROUNDED:
        tensor = tensor.to(dtype)
    part, zeros = _part(step, place), [0] * held.dim()
    match step.move:
        case Move.COPY | Move.HEAD:
            copy_into(held, part, tensor, zeros)
        case Move.ROWS:
            copy_into(held, part, tensor, [*zeros[:-2], step.start, 0])
        case Move.ALTERNATING:
            half = tensor.shape[-2] // 2
            copy_into(held, part, tensor[..., 0::2, :], zeros)
            copy_into(held, part, tensor[..., 1::2, :], [*zeros[:-2], half, 0])
        case Move.TAPS:
            copy_into(held, part, tensor[:, 0].T, zeros)
        case Move.BESIDE:
            for expert, matrix in enumerate(tensor):
                copy_into(held, part, matrix, [0, expert * matrix.shape[1]])


def _experts(part: Part) -> slice:
    """Return the experts that are held of a stack."""
    return slice(part.boxes[0].starts[0], part.boxes[0].stops[0])


def _factors(tensor: Tensor, role: Role, name: str, path: Path) -> Tensor:
    """Return the factor of each expert, fp32 [E]."""
    columns = tensor.reshape(len(tensor), -1)
    if not bool((columns.isfinite() & (columns > 0)).all()):
        raise InklingError(f"`{name}` of `{path}` has scales that are not positive numbers")
    first = columns[:, 0].clone()
    if not bool((columns == first[:, None]).all()):
        raise InklingError(
            f"`{name}` of `{path}` has different scales for gate and up, expected one per expert",
            "quantise gate and up together, as the tools do by default",
        )
    return first.reciprocal() if role is Role.DIVISOR else first


def _require_original_shape(tensor: Tensor, place: Place, name: str, path: Path) -> None:
    found = tuple(tensor.tolist())
    if found != place.shape:
        raise InklingError(
            f"`{name}` of `{path}` says that the weight has the shape {list(found)}, "
            f"config.json says {list(place.shape)}"
        )


def _join(name: str, held: Mapping[tuple[str, Role | None], Tensor]) -> Weight:
    """Return a parameter from its parts."""
    if (name, None) in held:
        return held[name, None]
    return Nvfp4Weight(held[name, Role.PACKED], held[name, Role.SCALES], held[name, Role.FACTOR])


def _notes(adapter_names: list[str], folder: Path) -> list[str]:
    if not adapter_names:
        return []
    return [
        f"`{folder}` also holds {len(adapter_names)} adapter tensors, which were not read: "
        + format_names(sorted(adapter_names))
    ]
