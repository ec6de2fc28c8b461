"""Where an adapter's names leave two readings of its numbers, and what tells them apart.

Only PEFT's packing of 3-D parameters has several: its own before 0.19.1 had in and out exchanged,
and Unsloth's may hold the experts one after the other in lora_B. Names are the same, and in both
released models a fused gate_up expert is square. Not an error by itself: what only looks at an
adapter goes on with PEFT's present reading, what changes it should ask.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from inkling_runtime.adapter.adapter import Adapter, read_adapter
from inkling_runtime.adapter.adapter_module import AdapterModule
from inkling_runtime.adapter.dialects import STAMP
from inkling_runtime.adapter.dialects.peft import PEFT, PEFT_018, PEFT_UNSLOTH
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.lora_config import LoraConfig
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.shown import shown_value
from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.errors import InklingError

_EXCHANGED_SINCE = (0, 19, 1)


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """Why an adapter's dialect is not certain, as a sentence, and the dialects to choose from."""

    what: str
    readings: tuple[str, ...]


def ambiguity_of(adapter: Adapter, spec: ModelSpec | None) -> Ambiguity | None:
    """Return why a recognised dialect may not be the right one, or None where it is certain.

    Only for an adapter whose dialect was recognised, not named. A conversion's own stamp is
    certain; so are widths that fit one reading alone. Of widths that fit the other reading alone
    that one is the only choice.
    """
    if adapter.dialect is not PEFT or adapter.file.metadata.get(STAMP) == PEFT.name:
        return None
    packed = [m for m in adapter.modules if m.parsed.row.layout.is_packed and _is_whole(m)]
    if not packed:
        return None
    return _about_sides(adapter, packed, spec) or _about_blocks(adapter, packed)


def read_certain_adapter(folder: Path, dialect: str | None, spec: ModelSpec | None) -> Adapter:
    """Return the adapter in a folder, in the named dialect or in one that is certain.

    Raises:
        InklingError: as `read_adapter`, or its names leave two readings and no dialect is named.
    """
    adapter = read_adapter(folder, dialect)
    if dialect is None:
        _require_one_reading(adapter, spec)
    return adapter


def _require_one_reading(adapter: Adapter, spec: ModelSpec | None) -> None:
    if (found := ambiguity_of(adapter, spec)) is not None:
        choices = " or ".join(f"`--from {reading}`" for reading in found.readings)
        raise InklingError(found.what, f"say how it is to be read: {choices}")


def _about_sides(
    adapter: Adapter, packed: list[AdapterModule], spec: ModelSpec | None
) -> Ambiguity | None:
    first = packed[0].name
    known = {spec.hidden_size} if spec is not None else _hidden_widths(adapter.modules)
    fits_now = len(known | {_sides(module)[0] for module in packed}) == 1
    fits_before = len(known | {_sides(module)[1] for module in packed}) == 1
    if fits_before and not fits_now:
        what = (
            f"the packed factors of `{adapter.path}` (`{first}`) have in and out where PEFT before "
            "0.19.1 has them, expected where PEFT has them today"
        )
        return Ambiguity(what, (PEFT_018.name,))
    version = adapter.config.values.get("peft_version")
    if fits_now != fits_before or _is_at_least(version, _EXCHANGED_SINCE):
        return None
    said = "no peft_version" if version is None else f"peft_version {shown_value(version)}"
    what = (
        f"the config of `{adapter.path}` has {said}: PEFT before 0.19.1 packs 3-D parameters "
        f"(`{first}`) with in and out exchanged, and the widths do not tell"
    )
    return Ambiguity(what, (PEFT.name, PEFT_018.name))


def _about_blocks(adapter: Adapter, packed: list[AdapterModule]) -> Ambiguity | None:
    """Return whether Unsloth may have packed lora_B; at rank 1 its order is the same."""
    module = next((module for module in packed if module.rank > 1), None)
    if module is None or not _is_of_unsloth(adapter.config):
        return None
    what = (
        f"the config of `{adapter.path}` has auto_mapping.unsloth_fixed true: Unsloth may pack "
        f"lora_B (`{module.name}`) expert by expert, where PEFT has the rank as the slow index"
    )
    return Ambiguity(what, (PEFT.name, PEFT_UNSLOTH.name))


def _is_whole(module: AdapterModule) -> bool:
    return len(module.tensors) == 2 and all(len(tensor.shape) == 2 for tensor in module.tensors)


def _sides(module: AdapterModule) -> tuple[int, int]:
    """Return the hidden width of a module as PEFT reads it today, and as it did before 0.19.1."""
    assert module.a is not None
    assert module.b is not None
    width_a, width_b = module.a.shape[-1], module.b.shape[-2]
    return (width_b, width_a) if module.sites[0].kind.is_down else (width_a, width_b)


def _hidden_widths(modules: Iterable[AdapterModule]) -> set[int]:
    """Return the width of whatever reads the hidden state through a plain matrix."""
    return {
        module.a.shape[-1]
        for module in modules
        if module.parsed.row.layout is Layout.MATRIX
        and module.a is not None
        and len(module.a.shape) == 2
        and not _writes_hidden(module)
    }


def _writes_hidden(module: AdapterModule) -> bool:
    return any(kind.is_down or kind is SiteKind.O for kind in module.parsed.row.kinds)


def _is_at_least(version: object, least: tuple[int, ...]) -> bool:
    """Return whether a text is a version from `least` on; development versions of it are not."""
    if not isinstance(version, str):
        return False
    match = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})(?:\.([0-9]{1,9}))?(.*)", version)
    if match is None:
        return False
    number = (int(match[1]), int(match[2]), int(match[3] or 0))
    is_before = match[4].lstrip(".").startswith(("dev", "a", "b", "rc"))
    return number > least or (number == least and not is_before)


def _is_of_unsloth(config: LoraConfig) -> bool:
    mapping = config.values.get("auto_mapping")
    return isinstance(mapping, dict) and mapping.get("unsloth_fixed") is True
