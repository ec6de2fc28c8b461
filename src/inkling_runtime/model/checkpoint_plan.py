"""What to do with each stored tensor so that all parameters of a model (or a rank's) are filled.

Decides, reads nothing but headers: a checkpoint that is incomplete, holds what has no place, or
has other shapes or dtypes than the config says is refused here, before any weight is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.weight_files import INDEX_NAME, read_weight_map
from inkling_runtime.errors import InklingError, format_names
from inkling_runtime.model.boxes import Part
from inkling_runtime.model.checkpoint_names import Layout, Move, Source
from inkling_runtime.model.mapped_tensors import StoredTensor
from inkling_runtime.model.nvfp4_names import (
    QUANTISED_WEIGHTS,
    Role,
    Spelling,
    find_spelling,
    part_shapes,
)
from inkling_runtime.model.parameters import (
    MODEL_PARAMETERS,
    Held,
    Parameter,
    dimensions,
    layer_parameters,
    parse_shape,
    parse_size,
)
from inkling_runtime.model.quantisation import PLAIN_DTYPES, require_known_quantisation
from inkling_runtime.model.shard import Shard
from inkling_runtime.ops.nvfp4 import BLOCK


@dataclass(frozen=True, slots=True)
class Place:
    """A parameter: its whole shape, what is held of it, in which precision."""

    shape: tuple[int, ...]
    held: Held
    part: Part


@dataclass(frozen=True, slots=True)
class Step:
    """Fill a parameter, or a part of it, from one stored tensor."""

    parameter: str
    move: Move
    shapes: tuple[tuple[int, ...], ...]
    """Shapes that the stored tensor may have."""
    dtypes: tuple[str, ...] = PLAIN_DTYPES
    start: int = 0
    """The row of the parameter at which the tensor begins."""
    role: Role | None = None
    """Which part of an NVFP4 weight it is; None: of a plain one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps by the names in the files, places by the names of the parameters."""

    steps: Mapping[str, Step]
    places: Mapping[str, Place]


def plan_checkpoint(
    layout: Layout,
    spec: ModelSpec,
    stored: Mapping[str, StoredTensor],
    folder: Path,
    shard: Shard,
) -> Plan:
    """Return how to load the text model of a folder.

    Args:
        layout: of the folder.
        spec: of the model.
        stored: the tensors that belong to the text model, by name.
        folder: that they are in, for messages.
        shard: what of it to hold.

    Raises:
        InklingError: tensors are missing or surplus, have other shapes than the config says, or
            are quantised in a way that is not supported.
    """
    dtypes = {name: tensor.info.dtype for name, tensor in stored.items()}
    places = _plan_places(spec, shard)
    steps: dict[str, Step] = {}
    optional: set[str] = set()
    for name, step in _plain_steps(layout, spec):
        spelling = _spelling_of(name, step, dtypes)
        if spelling is None:
            steps[name] = step
            continue
        steps |= _nvfp4_steps(name, step, spelling, places[step.parameter].shape)
        optional |= {name + suffix for suffix in spelling.optional}
    names = {name: dtype for name, dtype in dtypes.items() if name not in optional}
    known = {name: step.dtypes for name, step in steps.items()}
    require_known_quantisation(names, known, folder)
    _require_names(set(names), set(steps), folder, layout)
    for name, step in steps.items():
        if step.role is Role.PACKED:
            _require_blocks(name, places[step.parameter], stored[name].path)
    _require_shapes(stored, steps)
    return Plan(steps, places)


def _plan_places(spec: ModelSpec, shard: Shard) -> dict[str, Place]:
    """Return every parameter, by its full name."""
    places: dict[str, Place] = {}

    def add(prefix: str, parameters: Mapping[str, Parameter], letters: Mapping[str, int]) -> None:
        for name, parameter in parameters.items():
            shape = parse_shape(parameter.shape, letters)
            part = shard.part_of(name, shape, letters)
            places[prefix + name] = Place(shape, parameter.held, part)

    add("", MODEL_PARAMETERS, dimensions(spec))
    for layer in spec.layers:
        add(f"layers.{layer.index}.", layer_parameters(layer), dimensions(spec, layer))
    return places


def _plain_steps(layout: Layout, spec: ModelSpec) -> Iterable[tuple[str, Step]]:
    """Yield what to do with each tensor of a checkpoint that is not quantised."""
    letters = dimensions(spec)
    for name, source in layout.model_names.items():
        yield name, _step(source, "", letters)
    for layer in spec.layers:
        letters, prefix = dimensions(spec, layer), f"layers.{layer.index}."
        for name, source in layout.names_of(layer).items():
            yield name, _step(source, prefix, letters)


def _step(source: Source, prefix: str, letters: Mapping[str, int]) -> Step:
    shapes = [parse_shape(source.shape, letters)]
    if source.move is Move.HEAD:
        shapes.append(parse_shape("V H", letters))
    start = parse_size(source.start, letters)
    parameter = prefix + source.parameter
    return Step(parameter, source.move, tuple(dict.fromkeys(shapes)), start=start)


def _spelling_of(name: str, step: Step, dtypes: Mapping[str, str]) -> Spelling | None:
    return find_spelling(name, dtypes) if step.parameter.endswith(QUANTISED_WEIGHTS) else None


def _nvfp4_steps(
    name: str, step: Step, spelling: Spelling, shape: tuple[int, ...]
) -> dict[str, Step]:
    return {
        name + suffix: replace(
            step, shapes=tuple(part_shapes(part.role, shape)), dtypes=(part.dtype,), role=part.role
        )
        for suffix, part in spelling.parts.items()
    }


def _require_blocks(name: str, place: Place, path: Path) -> None:
    """Require that no block of columns is cut, by the width of the weight or by its part."""
    columns, box = place.shape[-1], place.part.boxes[0]
    if not any(column % BLOCK for column in (columns, box.starts[-1], box.stops[-1])):
        return
    if place.part.shape == place.shape:
        raise InklingError(
            f"`{name}` of `{path}` is in NVFP4 and has {columns} columns, expected a multiple of "
            f"{BLOCK}"
        )
    raise InklingError(
        f"`{name}` of `{path}` is in NVFP4 and has {columns} columns of which a rank holds "
        f"{place.part.shape[-1]}, expected multiples of {BLOCK}",
        "use fewer ranks, or expert parallelism",
    )


def _require_names(names: set[str], expected: set[str], folder: Path, layout: Layout) -> None:
    missing, surplus = sorted(expected - names), sorted(names - expected)
    if missing:
        raise InklingError(
            f"`{folder}` lacks tensors of the {layout.name} layout: {format_names(missing)}"
            + (f"; it has unknown ones: {format_names(surplus)}" if surplus else ""),
            _where_indexed(missing, folder),
        )
    if surplus:
        raise InklingError(
            f"`{folder}` has tensors that this model has no place for: {format_names(surplus)}",
            "compare config.json with the files: layers, dense layers and experts must agree",
        )


def _where_indexed(missing: Sequence[str], folder: Path) -> str | None:
    """Return in which files missing tensors should be, if the folder has an index that says so."""
    index = folder / INDEX_NAME
    places = read_weight_map(index) if index.exists() else {}
    files = sorted({places[name].name for name in missing if name in places})
    return f"the index has them in {format_names(files)}: fetch it again" if files else None


def _require_shapes(stored: Mapping[str, StoredTensor], steps: Mapping[str, Step]) -> None:
    wrong = [n for n, step in sorted(steps.items()) if stored[n].info.shape not in step.shapes]
    if wrong:
        first, *others = wrong
        tensor = stored[first]
        raise InklingError(
            f"`{first}` of `{tensor.path}` has the shape {list(tensor.info.shape)}, config.json "
            f"says {list(steps[first].shapes[0])}"
            + (f"; other shapes differ, too: {format_names(others)}" if others else "")
        )
