"""The dialects and the recognition of one from the names in a file."""

from collections.abc import Mapping

from inkling_runtime.adapter.dialects.dialect import Dialect
from inkling_runtime.adapter.dialects.peft import PEFT
from inkling_runtime.adapter.dialects.sglang import SGLANG
from inkling_runtime.adapter.dialects.tinker import TINKER
from inkling_runtime.adapter.dialects.vllm import VLLM
from inkling_runtime.adapter.lora_config import LoraConfig
from inkling_runtime.errors import InklingError

DIALECTS: Mapping[str, Dialect] = {d.name: d for d in (TINKER, VLLM, SGLANG, PEFT)}
"""Every dialect by name."""

_PREFERRED = (TINKER, PEFT, SGLANG, VLLM)
"""Where several understand the same names, the earliest is meant. vLLM comes last, since only a
conversion, which leaves a stamp, makes the alternating rows that it reads."""

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


def recognise(
    modules: Mapping[str, int], config: LoraConfig, metadata: Mapping[str, str]
) -> Dialect:
    """Return the dialect of a file: the stamp of a conversion, else who understands most names.

    `modules` maps on-disk module names to their tensors' number of dimensions. The released
    schema and vLLM's form share all names but the shared experts'; without those and without a
    stamp the released schema is meant, since no trainer writes interleaved rows.
    """
    if metadata.get(STAMP) in DIALECTS:
        return DIALECTS[metadata[STAMP]]
    best, most = _PREFERRED[0], -1
    for dialect in _PREFERRED:
        count = _num_understood(dialect, modules, config)
        if count > most:
            best, most = dialect, count
        if count == len(modules):
            break
    return best


def _num_understood(dialect: Dialect, modules: Mapping[str, int], config: LoraConfig) -> int:
    names = dialect.resolve(modules, config)
    return sum(
        (parsed := dialect.parse(names[module], ndim)) is not None
        and parsed.row.layout.ndim == ndim
        for module, ndim in modules.items()
    )
