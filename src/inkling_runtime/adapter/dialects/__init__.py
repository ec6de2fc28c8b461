"""The dialects and the recognition of one from the names in a file."""

from collections.abc import Collection, Mapping

from inkling_runtime.adapter.dialects.dialect import Dialect
from inkling_runtime.adapter.dialects.peft import PEFT, PEFT_018, PEFT_UNSLOTH
from inkling_runtime.adapter.dialects.raw import RAW
from inkling_runtime.adapter.dialects.sglang import SGLANG
from inkling_runtime.adapter.dialects.tinker import TINKER
from inkling_runtime.adapter.dialects.vllm import VLLM
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.lora_config import LoraConfig
from inkling_runtime.errors import InklingError

TARGETS: Mapping[str, Dialect] = {d.name: d for d in (TINKER, VLLM, SGLANG, PEFT)}
"""The dialects that are written, by name."""

DIALECTS: Mapping[str, Dialect] = {
    **TARGETS,
    **{d.name: d for d in (RAW, PEFT_018, PEFT_UNSLOTH)},
}
"""Every dialect by name."""

_PREFERRED = (TINKER, PEFT, SGLANG, RAW, VLLM)
"""Where several understand the same names, the earliest is meant. vLLM comes last, since only a
conversion, which leaves a stamp, makes the alternating rows that it reads. Two are never
recognised: PEFT's older and Unsloth's packing have PEFT's names (`ambiguity`)."""

STAMP = "inkling.dialect"
"""Metadata key that a conversion leaves in the file it writes."""


def require_dialect(name: str) -> Dialect:
    """Return a dialect by name.

    Raises:
        InklingError: there is none of that name.
    """
    if name not in DIALECTS:
        known = ", ".join(f"`{known}`" for known in DIALECTS)
        raise InklingError(f"`{name}` is not a dialect, expected one of {known}")
    return DIALECTS[name]


def require_target(name: str) -> Dialect:
    """Return a dialect that a conversion can write, by name.

    Raises:
        InklingError: there is none of that name, or it is only read.
    """
    if name in TARGETS:
        return TARGETS[name]
    known = ", ".join(f"`{known}`" for known in TARGETS)
    if name in DIALECTS:
        raise InklingError(
            f"`{name}` is a dialect that is only read, expected one of {known}",
            f"`--to {DIALECTS[name].written_as}` writes what its consumer reads today",
        )
    raise InklingError(f"`{name}` is not a dialect that is written, expected one of {known}")


def recognise(
    modules: Mapping[str, int],
    config: LoraConfig,
    metadata: Mapping[str, str],
    halves: Collection[str] = (),
) -> Dialect:
    """Return the dialect of a file: the stamp of a conversion, else who understands most names.

    `modules` maps on-disk module names to their tensors' number of dimensions; `halves` are those
    with one factor, which may have two dimensions where the pair would have three. The released
    schema and vLLM's form share all names but the shared experts'; without those and without a
    stamp the released schema is meant, since no trainer writes interleaved rows.
    """
    if metadata.get(STAMP) in TARGETS:
        return TARGETS[metadata[STAMP]]
    best, most = _PREFERRED[0], -1
    for dialect in _PREFERRED:
        count = _num_understood(dialect, modules, config, halves)
        if count > most:
            best, most = dialect, count
        if count == len(modules):
            break
    return best


def _num_understood(
    dialect: Dialect, modules: Mapping[str, int], config: LoraConfig, halves: Collection[str]
) -> int:
    names = dialect.resolve(modules, config)
    count = 0
    for module, ndim in modules.items():
        parsed = dialect.parse(names[module], ndim)
        if parsed is not None:
            layout = parsed.row.layout
            is_half = module in halves and layout is Layout.STACK
            count += layout.ndim == ndim or is_half
    return count
