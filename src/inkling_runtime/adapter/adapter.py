"""An adapter folder as a value: config, header and the meaning of every tensor name.

Not its numbers: only the header is read. Nothing is dropped on the way: each tensor is part of a
module, or stands in `unknown` or `base_copies`, and what is wrong with a module is a `Problem`,
so that an inspection can show it and a conversion or the runtime can refuse it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from inkling_runtime.adapter.adapter_module import AdapterModule, find_halves
from inkling_runtime.adapter.adapter_weights import AdapterWeights, read_weights
from inkling_runtime.adapter.dialects import recognise, require_dialect
from inkling_runtime.adapter.dialects.dialect import Dialect
from inkling_runtime.adapter.lora_config import LoraConfig, beyond_plain_lora, read_lora_config
from inkling_runtime.adapter.module_problems import Problem, check_modules
from inkling_runtime.adapter.safetensors_file import TensorInfo
from inkling_runtime.errors import InklingError

A_SUFFIX, B_SUFFIX = ".lora_A.weight", ".lora_B.weight"


def module_of(tensor: str) -> str:
    """Return the name of the module that a factor belongs to, by the factor's name."""
    return tensor.removesuffix(A_SUFFIX).removesuffix(B_SUFFIX)


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """A parsed adapter; equal to itself only. Modules are sorted by site, then by expert."""

    path: Path
    file: AdapterWeights
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
            yield from module.tensors

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
    _require_folder(folder)
    return parse_adapter(folder, read_weights(folder), read_lora_config(folder), dialect)


def _require_folder(folder: Path) -> None:
    try:
        if folder.is_dir():
            return
        is_file = folder.exists()
    except OSError as error:
        raise InklingError(f"`{folder}` cannot be read: {error.strerror or error}") from error
    if is_file:
        raise InklingError(
            f"`{folder}` is a file, expected the adapter's folder", f"pass `{folder.parent}`"
        )
    raise InklingError(f"`{folder}` does not exist")


def parse_adapter(
    folder: Path, file: AdapterWeights, config: LoraConfig, dialect_name: str | None = None
) -> Adapter:
    """Return the adapter that headers and a config describe (see `read_adapter`)."""
    pairs, others = _pair_up(file.tensors)
    ndims = {name: len((a or b or _ABSENT).shape) for name, (a, b) in pairs.items()}
    if dialect_name is None:
        halves = {name for name, (a, b) in pairs.items() if a is None or b is None}
        dialect = recognise(ndims, config, file.metadata, halves)
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
    return Adapter(
        folder,
        file,
        config,
        dialect,
        tuple(modules),
        tuple(sorted(unknown)),
        base_copies,
        check_modules(modules),
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
    """Return the adapter without its unknown tensors and without modules that have a problem.

    Halves of experts go as well where the other half has one.
    """
    bad = {problem.module for problem in adapter.problems}
    modules = tuple(module for module in adapter.modules if module.name not in bad)
    halves = find_halves(modules)
    modules = tuple(m for m in modules if len(m.tensors) == 2 or m.sites[0] in halves)
    return replace(adapter, modules=modules, unknown=(), problems=())
