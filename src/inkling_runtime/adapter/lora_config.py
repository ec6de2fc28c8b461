"""adapter_config.json: rank and scaling of every module, by PEFT's own matching rule.

Only what changes the effect of the tensors is typed; the rest of the object is kept as read, so
that a conversion carries it over. The trap: `rank_pattern` and `alpha_pattern` match the first
key in file order whose regular expression fits the end of the module's name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inkling_runtime.adapter.json_file import read_json_object
from inkling_runtime.adapter.pattern_table import PatternTable
from inkling_runtime.adapter.regex_syntax import PatternError
from inkling_runtime.adapter.shown import shown_text, shown_value
from inkling_runtime.errors import InklingError

CONFIG_NAME = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """The parts of an adapter's config that decide its effect, and the whole object as read."""

    rank: int
    alpha: float
    use_rslora: bool = False
    rank_pattern: PatternTable[int] = field(default_factory=PatternTable)
    alpha_pattern: PatternTable[float] = field(default_factory=PatternTable)
    target_modules: str | tuple[str, ...] | None = None
    target_parameters: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def rank_of(self, module: str) -> int:
        """Return the rank that the config gives a module, by its on-disk name."""
        key = _find_key(self.rank_pattern, "rank_pattern", module)
        return self.rank if key is None else self.rank_pattern[key]

    def alpha_of(self, module: str) -> float:
        """Return the alpha that the config gives a module, by its on-disk name."""
        key = _find_key(self.alpha_pattern, "alpha_pattern", module)
        return self.alpha if key is None else self.alpha_pattern[key]

    def scaling_of(self, module: str) -> float:
        """Return s in ΔW = s·B·A: alpha / r, or alpha / √r with rsLoRA (PEFT)."""
        return scaling(self.alpha_of(module), self.rank_of(module), self.use_rslora)


def scaling(alpha: float, rank: int, use_rslora: bool) -> float:
    """Return alpha / rank, or alpha / √rank with rsLoRA."""
    return alpha / (math.sqrt(rank) if use_rslora else rank)


def _find_key(table: PatternTable[Any], key: str, module: str) -> str | None:
    try:
        return table.find_key(module)
    except PatternError as error:
        raise _refused(error, key, CONFIG_NAME) from error


class ConfigError(InklingError):
    """A value of adapter_config.json that cannot be used; `key` is where it stands."""

    def __init__(self, where: str, key: str, fault: str) -> None:
        super().__init__(f"`{where}` has {fault}")
        self.key = key


def _refused(error: PatternError, key: str, where: str) -> ConfigError:
    fault = f"the {key} key `{shown_text(error.key)}`: {error.reason}"
    return ConfigError(where, key, fault)


def read_lora_config(folder: Path) -> LoraConfig:
    """Return the config of an adapter folder.

    Raises:
        InklingError: the file is missing or not a JSON object.
        ConfigError: a value that decides the effect is missing or of a wrong type.
    """
    path = folder / CONFIG_NAME
    return parse_lora_config(read_json_object(path), str(path))


def parse_lora_config(values: dict[str, Any], where: str = CONFIG_NAME) -> LoraConfig:
    """Return the typed config of an object (see `read_lora_config`)."""
    rank = values.get("r")
    if not isinstance(rank, int) or not _is_rank(rank):
        raise ConfigError(where, "r", f"{_said('r', rank)}, expected a positive integer")
    alpha = values.get("lora_alpha")
    if not isinstance(alpha, int | float) or not _is_number(alpha):
        fault = f"{_said('lora_alpha', alpha)}, expected a finite number"
        raise ConfigError(where, "lora_alpha", fault)
    return LoraConfig(
        rank=rank,
        alpha=float(alpha),
        use_rslora=_flag(values, "use_rslora", where),
        rank_pattern=_pattern(values, "rank_pattern", where, _is_rank, "positive integers"),
        alpha_pattern=_pattern(values, "alpha_pattern", where, _is_number, "numbers"),
        target_modules=_targets(values.get("target_modules"), where),
        target_parameters=_names(values.get("target_parameters"), "target_parameters", where),
        values=values,
    )


def _said(key: str, value: Any) -> str:
    return f"no {key}" if value is None else f"{key} {shown_value(value)}"


_RANK_LIMIT = 2**31
"""Above it, a rank is a typing error and would only overflow later."""


def _is_rank(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _RANK_LIMIT


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _flag(values: dict[str, Any], key: str, where: str) -> bool:
    value = values.get(key)
    if value is not None and not isinstance(value, bool):
        raise ConfigError(where, key, f"{key} {shown_value(value)}, expected true or false")
    return bool(value)


def _pattern(
    values: dict[str, Any], key: str, where: str, is_valid: Any, expected: str
) -> PatternTable[Any]:
    pattern = values.get(key) or {}
    if not isinstance(pattern, dict) or not all(map(is_valid, pattern.values())):
        article = "an" if key.startswith("a") else "a"
        fault = f"{article} {key} that is not an object of {expected}"
        raise ConfigError(where, key, fault)
    try:
        return PatternTable(pattern)
    except PatternError as error:
        raise _refused(error, key, where) from error


def _targets(value: Any, where: str) -> str | tuple[str, ...] | None:
    if value is None or isinstance(value, str):
        return value
    return _names(value, "target_modules", where)


def _names(value: Any, key: str, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ConfigError(where, key, f"{key} {shown_value(value)}, expected a list of names")
    return tuple(value)


_PLAIN = {
    "use_dora": (None, False),
    "lora_bias": (None, False),
    "bias": (None, "none"),
    "fan_in_fan_out": (None, False),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, [], {}),
    "alora_invocation_tokens": (None, []),
    "layer_replication": (None, []),
    "use_bdlora": (None, False),
    "use_qalora": (None, False),
}


_CHANGES_BASE = ("pissa", "olora", "corda", "loftq")
"""Initialisations that change the base weights, so that the factors alone are not the effect."""


def beyond_plain_lora(config: LoraConfig) -> tuple[str, ...]:
    """Return the settings with which ΔW is more than s·B·A, as `key value` texts."""
    found = [
        f"{key} {shown_value(config.values[key])}"
        for key, plain in _PLAIN.items()
        if key in config.values and config.values[key] not in plain
    ]
    start = config.values.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
        found.append(f"init_lora_weights {shown_value(start)}")
    kind = config.values.get("peft_type")
    if kind is not None and str(kind).upper() != "LORA":
        found.append(f"peft_type {shown_value(kind)}")
    return tuple(found)
