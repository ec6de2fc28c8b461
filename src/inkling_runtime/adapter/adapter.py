"""An adapter folder as a value: config, header and the meaning of every tensor name.

Not its numbers: only the header is read. Nothing is dropped on the way: each tensor is part of a
module, or stands in `unknown` or `base_copies`, and what is wrong with a module is a `Problem`,
so that an inspection can show it and a conversion or the runtime can refuse it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from inkling_runtime.adapter.dialects import recognise, require_dialect
from inkling_runtime.adapter.dialects.dialect import Dialect, ParsedName
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.lora_config import LoraConfig, beyond_plain_lora, read_lora_config
from inkling_runtime.adapter.safetensors_file import SafetensorsFile, TensorInfo, read_header
from inkling_runtime.adapter.sites import Group, Site
from inkling_runtime.errors import InklingError

WEIGHTS_NAME = "adapter_model.safetensors"
A_SUFFIX, B_SUFFIX = ".lora_A.weight", ".lora_B.weight"
FACTOR_DTYPES = ("BF16", "F16", "F32", "F64")


@dataclass(frozen=True, slots=True)
class AdapterModule:
    """A pair of factors as stored.

    Attributes:
        name: on disk, without the `.lora_A.weight` ending.
        table_name: the name looked up in the dialect's table.
        parsed: its row, layer and expert.
        a, b: the tensors; None where the file lacks one.
        rank, scaling: what the config gives the module (alpha / r, or alpha / √r).
    """

    name: str
    table_name: str
    parsed: ParsedName
    a: TensorInfo | None
    b: TensorInfo | None
    rank: int
    scaling: float

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites that it adapts."""
        return tuple(Site(self.parsed.layer, kind) for kind in self.parsed.row.kinds)


@dataclass(frozen=True, slots=True)
class Problem:
    """What keeps a module from meaning anything: a name for the kind, the module, the facts."""

    kind: str
    module: str
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """A parsed adapter; equal to itself only. Modules are sorted by site, then by expert."""

    path: Path
    file: SafetensorsFile
    config: LoraConfig
    dialect: Dialect
    modules: tuple[AdapterModule, ...]
    unknown: tuple[str, ...]
    """Names of tensors that the dialect's table does not have."""
    base_copies: tuple[str, ...]
    """Base weights that PEFT saved beside the factors; they are not part of the delta."""
    problems: tuple[Problem, ...]

    @property
    def num_parameters(self) -> int:
        """Elements of all factors that are understood."""
        return sum(tensor.num_elements for tensor in self.factor_tensors())

    def factor_tensors(self) -> Iterable[TensorInfo]:
        """Yield the tensors of all modules."""
        for module in self.modules:
            yield from (tensor for tensor in (module.a, module.b) if tensor is not None)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of the factors, sorted."""
        return tuple(sorted({tensor.dtype for tensor in self.factor_tensors()}))


def read_adapter(folder: Path, dialect: str | None = None) -> Adapter:
    """Return the adapter in a folder, read in its own dialect or in the named one.

    Raises:
        InklingError: no such folder, a file is missing or broken, the config does not say rank
            and alpha, or the dialect is unknown.
    """
    weights = folder / WEIGHTS_NAME
    try:
        _require_folder(folder)
        if not weights.exists() and not weights.is_symlink():
            raise _missing_weights(folder)
    except OSError as error:
        raise InklingError(f"`{folder}` cannot be read: {error.strerror or error}") from error
    return parse_adapter(folder, read_header(weights), read_lora_config(folder), dialect)


def _require_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    if folder.exists():
        raise InklingError(
            f"`{folder}` is a file, expected the adapter's folder", f"pass `{folder.parent}`"
        )
    raise InklingError(f"`{folder}` does not exist")


def _missing_weights(folder: Path) -> InklingError:
    for other in ("adapter_model.bin", "adapter_model.pt"):
        if (folder / other).exists():
            return InklingError(
                f"`{folder}` holds `{other}` but no `{WEIGHTS_NAME}`",
                "save it with safetensors: pickled weights run code when they are loaded",
            )
    return InklingError(f"`{folder}` holds no `{WEIGHTS_NAME}`")


def parse_adapter(
    folder: Path, file: SafetensorsFile, config: LoraConfig, dialect_name: str | None = None
) -> Adapter:
    """Return the adapter that a header and a config describe (see `read_adapter`)."""
    pairs, others = _pair_up(file.tensors)
    ndims = {name: len((a or b or _ABSENT).shape) for name, (a, b) in pairs.items()}
    if dialect_name is None:
        dialect = recognise(ndims, config, file.metadata)
    else:
        dialect = require_dialect(dialect_name)
    table_names = dialect.resolve(pairs, config)
    modules, unknown = [], []
    for name, (a, b) in pairs.items():
        table_name = table_names[name]
        parsed = dialect.parse(table_name, ndims[name])
        if parsed is None:
            unknown += [tensor.name for tensor in (a, b) if tensor is not None]
            continue
        modules.append(
            AdapterModule(
                name,
                table_name,
                parsed,
                a,
                b,
                config.rank_of(table_name),
                config.scaling_of(table_name),
            )
        )
    base_copies = tuple(sorted(name for name in others if name.endswith(".base_layer.weight")))
    unknown += [name for name in others if name not in base_copies]
    modules.sort(key=lambda m: (m.sites, m.parsed.expert, m.name))
    problems = [problem for module in modules for problem in _check_module(module)]
    problems += _check_twice(modules)
    return Adapter(
        folder,
        file,
        config,
        dialect,
        tuple(modules),
        tuple(sorted(unknown)),
        base_copies,
        tuple(problems),
    )


_ABSENT = TensorInfo("", "F32", (), 0, 0)


def _pair_up(
    tensors: Mapping[str, TensorInfo],
) -> tuple[dict[str, tuple[TensorInfo | None, TensorInfo | None]], list[str]]:
    """Return the A and B of each module, and the names of all other tensors."""
    pairs: dict[str, tuple[TensorInfo | None, TensorInfo | None]] = {}
    others = []
    for name, tensor in tensors.items():
        if name.endswith(A_SUFFIX):
            module = name.removesuffix(A_SUFFIX)
            pairs[module] = (tensor, pairs.get(module, (None, None))[1])
        elif name.endswith(B_SUFFIX):
            module = name.removesuffix(B_SUFFIX)
            pairs[module] = (pairs.get(module, (None, None))[0], tensor)
        else:
            others.append(name)
    return pairs, others


def _check_module(module: AdapterModule) -> Iterable[Problem]:
    a, b, layout = module.a, module.b, module.parsed.row.layout
    if a is None or b is None:
        have, lack = ("lora_A", "lora_B") if b is None else ("lora_B", "lora_A")
        yield Problem("missing-factor", module.name, f"it has {have} but no {lack}")
        return
    for tensor in (a, b):
        if tensor.dtype not in FACTOR_DTYPES:
            message = f"`{tensor.name}` has dtype {tensor.dtype}, expected a float dtype"
            yield Problem("dtype", module.name, message)
        if len(tensor.shape) != layout.ndim:
            yield Problem(
                "shape",
                module.name,
                f"`{tensor.name}` has {len(tensor.shape)} dimensions, expected {layout.ndim}",
            )
            return
    if 0 in a.shape + b.shape:
        yield Problem("shape", module.name, f"A is {list(a.shape)} and B {list(b.shape)}: empty")
        return
    yield from _check_ranks(module, a, b)


def _check_ranks(module: AdapterModule, a: TensorInfo, b: TensorInfo) -> Iterable[Problem]:
    layout, rank_a, rank_b = module.parsed.row.layout, a.shape[-2], b.shape[-1]
    shapes = f"A is {list(a.shape)} and B {list(b.shape)}"
    is_fused_qkvr = layout is Layout.QKVR and rank_a == 4 * rank_b
    if rank_a != rank_b and not is_fused_qkvr:
        message = f"{shapes}: their ranks {rank_a} and {rank_b} differ"
        yield Problem("rank", module.name, message)
    elif layout.is_packed and rank_a % module.rank:
        yield Problem(
            "rank",
            module.name,
            f"{shapes}, expected a multiple of the rank {module.rank} in the config",
        )
    elif not layout.is_packed and rank_b != module.rank:
        yield Problem(
            "rank", module.name, f"{shapes}: rank {rank_b}, the config says {module.rank}"
        )
    counts = {a.shape[0], b.shape[0]} - {1}
    if layout.ndim == 3 and len(counts) > 1:
        yield Problem("shape", module.name, f"{shapes}: their numbers of experts differ")
    elif layout.ndim == 3 and not counts and _is_routed(module):
        yield Problem("shape", module.name, f"{shapes}: their numbers of experts are both 1")


def _is_routed(module: AdapterModule) -> bool:
    """Whether a module adapts routed experts, of which no model has only one."""
    return any(site.kind.group is Group.ROUTED for site in module.sites)


def _check_twice(modules: list[AdapterModule]) -> Iterable[Problem]:
    """Yield modules that share weights: one for all experts (-1), or the same expert twice."""
    seen: dict[Site, dict[int, str]] = {}
    for module in modules:
        for site in module.sites:
            experts, expert = seen.setdefault(site, {}), module.parsed.expert
            if expert < 0:
                other = next(iter(experts.values()), None)
            else:
                other = experts.get(-1) or experts.get(expert)
            if other is not None:
                yield Problem("twice", module.name, f"it adapts the same weights as `{other}`")
            experts.setdefault(expert, module.name)


def require_understood(adapter: Adapter) -> None:
    """Require that every tensor is understood and no module has a problem.

    Raises:
        InklingError: with the first names and how many more there are.
    """
    if adapter.unknown:
        raise InklingError(
            f"{len(adapter.unknown)} of {len(adapter.file.tensors)} tensors in "
            f"`{adapter.path}` have names that the dialect `{adapter.dialect.name}` does not have, "
            f"the first is `{adapter.unknown[0]}`",
            f"`inkling inspect {adapter.path}` lists them",
        )
    if not adapter.modules:
        raise InklingError(f"`{adapter.path}` holds no LoRA factors")
    if adapter.problems:
        first, more = adapter.problems[0], len(adapter.problems) - 1
        raise InklingError(
            f"module `{first.module}` of `{adapter.path}`: {first.message}"
            + (f" (and {more} more problems)" if more else ""),
            f"`inkling inspect {adapter.path}` lists them",
        )


def require_plain_lora(adapter: Adapter, done: str) -> None:
    """Require that an adapter's effect is s·B·A, without which it cannot be `done`.

    Raises:
        InklingError: with the first setting that asks for more.
    """
    if beyond := beyond_plain_lora(adapter.config):
        raise InklingError(
            f"`{adapter.path}` has {beyond[0]}, with which its effect is more than s·B·A",
            f"only plain LoRA adapters can be {done}",
        )


def sound_part(adapter: Adapter) -> Adapter:
    """Return the adapter without its unknown tensors and without modules that have a problem."""
    bad = {problem.module for problem in adapter.problems}
    modules = tuple(module for module in adapter.modules if module.name not in bad)
    return replace(adapter, modules=modules, unknown=(), problems=())
