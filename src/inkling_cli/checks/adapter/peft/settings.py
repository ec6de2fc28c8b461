"""Settings of adapter_config.json with which PEFT refuses an adapter, or does more than is known.

Not what the targets match: `targets`. Each table says what was observed on loading.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from inkling_cli.checks.adapter.peft.tree import EMBEDDING
from inkling_runtime.adapter.lora_config import LoraConfig
from inkling_runtime.adapter.pattern_table import is_plain
from inkling_runtime.adapter.shown import shown_value

Values = Mapping[str, Any]

PEFT_TYPE = "LORA"
_TASKS = (
    None,
    "SEQ_CLS",
    "SEQ_2_SEQ_LM",
    "CAUSAL_LM",
    "TOKEN_CLS",
    "QUESTION_ANS",
    "FEATURE_EXTRACTION",
)
_NAMES_OF_TYPES = (
    "ADALORA ADAMSS ADAPTION_PROMPT BEFT BOFT C3A CARTRIDGE CPT DEFT DELORA FOURIERFT FROD GLORA "
    "GRALORA HIRA HRA IA3 LILY LN_TUNING LOHA LOKR MISS MULTITASK_PROMPT_TUNING OFT OSF PEANUT "
    "POLY PREFIX_TUNING PROMPT_TUNING PSOFT PVERA P_TUNING RANDLORA ROAD SHADOW SHIRA SUPERTUNING "
    "TINYLORA TRAINABLE_TOKENS UNILORA VBLORA VERA WAVEFT XLORA"
)
_OTHER_TYPES = frozenset(_NAMES_OF_TYPES.split())
_OBJECTS = (
    "velora_config",
    "kasa_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "arrow_config",
    "use_bdlora",
)
"""Keys that hold an object or null."""

STARTS = (True, False, None, "gaussian", "eva", "orthogonal", "olora", "lora_ga", "mica", "loftq")
"""Values of `init_lora_weights` that PEFT knows; `pissa` and `corda` may be followed by more."""

_BASE_STARTS = ("pissa", "corda", "olora", "orthogonal", "lora_ga", "mica")
"""Those that look at the base weight of a module, which a parameter does not have."""

_NOT_WITH_PARAMETERS = (
    "use_dora",
    "lora_bias",
    "lora_dropout",
    "velora_config",
    "kasa_config",
    "arrow_config",
    "monteclora_config",
    "use_bdlora",
    "alora_invocation_tokens",
)

_BEYOND = (
    "velora_config",
    "kasa_config",
    "arrow_config",
    "monteclora_config",
    "use_bdlora",
    "megatron_config",
    "layer_replication",
)
"""Keys with which PEFT builds other wrappers, or needs what is not known here."""


def refused_settings(config: LoraConfig, *, is_multimodal: bool) -> Iterator[str]:
    """Yield what PEFT refuses in a config, whatever its targets."""
    values = config.values
    yield from _refused_words(values)
    for key in ("rank_pattern", "alpha_pattern"):
        if key in values and values[key] is None:
            yield f"`{key}` null, expected an object"
    for key in _OBJECTS:
        if values.get(key) is not None and not isinstance(values[key], dict):
            yield f"`{key}` {shown_value(values[key])}, expected an object or null"
    if is_multimodal and values.get("layer_replication"):
        replicated = shown_value(values["layer_replication"])
        yield f"`layer_replication` {replicated}, expected none on the multimodal model"
    yield from _refused_layers(config)
    yield from _refused_pairs(values)
    yield from _refused_start(values)
    dropout = values.get("lora_dropout", 0.0)
    if not isinstance(dropout, int | float) or dropout > 1:
        yield f"`lora_dropout` {shown_value(dropout)}, expected a number from 0 to 1"


def _refused_words(values: Values) -> Iterator[str]:
    kind = values.get("peft_type")
    if kind != PEFT_TYPE and not (isinstance(kind, str) and kind in _OTHER_TYPES):
        found = f"`peft_type` {shown_value(kind)}" if "peft_type" in values else "no `peft_type`"
        yield f"{found}, expected `{PEFT_TYPE}`"
    if values.get("task_type") not in _TASKS:
        yield f"`task_type` {shown_value(values['task_type'])}, expected null or a task of PEFT's"
    if values.get("bias", "none") not in ("none", "all", "lora_only"):
        yield f"`bias` {shown_value(values['bias'])}, expected `none`, `all` or `lora_only`"


def _refused_pairs(values: Values) -> Iterator[str]:
    start = values.get("init_lora_weights", True)
    if values.get("lora_bias") and start not in (True, False):
        yield f"`lora_bias` beside `init_lora_weights` {shown_value(start)}, expected true or false"
    for key in ("lora_bias", "megatron_config"):
        if values.get("use_dora") and values.get(key):
            yield f"`{key}` beside `use_dora`, expected one of them"


def _refused_layers(config: LoraConfig) -> Iterator[str]:
    layers, pattern = (config.values.get(key) for key in ("layers_to_transform", "layers_pattern"))
    if isinstance(config.target_modules, str):
        for key in ("layers_to_transform", "layers_pattern"):
            if config.values.get(key) is not None:
                yield f"`{key}` beside a `target_modules` that is a word, expected a list"
    elif pattern and layers is None:
        yield "`layers_pattern` without `layers_to_transform`, expected both"


def _refused_start(values: Values) -> Iterator[str]:
    start = values.get("init_lora_weights", True)
    if not start or start is True or start in STARTS or _is_gaussian(start):
        return
    if not isinstance(start, str) or not start.startswith(("pissa", "corda")):
        yield f"`init_lora_weights` {shown_value(start)}, expected a start that PEFT knows"
    elif start.startswith("corda"):
        yield f"`init_lora_weights` {shown_value(start)}, which needs statistics of the base model"


def _is_gaussian(start: Any) -> bool:
    return isinstance(start, str) and start.lower() in ("gaussian", "olora", "mica")


def refused_with_parameters(values: Values, *, has_linear: bool) -> Iterator[str]:
    """Yield what PEFT refuses where `target_parameters` selects something.

    `fan_in_fan_out` is taken back as soon as a linear layer is wrapped, which comes first.
    """
    for key in _NOT_WITH_PARAMETERS:
        value = values.get(key)
        if value or (isinstance(value, dict) and key != "alora_invocation_tokens"):
            yield f"`{key}` {shown_value(value)} beside `target_parameters`"
    if values.get("fan_in_fan_out") and not has_linear:
        yield "`fan_in_fan_out` true beside `target_parameters`"
    start = values.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_BASE_STARTS):
        yield f"`init_lora_weights` {shown_value(start)} beside `target_parameters`"


def unsettled_settings(config: LoraConfig) -> Iterator[str]:
    """Yield settings with which it is not known here what PEFT does."""
    values = config.values
    if values.get("peft_type") in _OTHER_TYPES:
        yield f"`peft_type` {shown_value(values['peft_type'])}"
    for key in _BEYOND:
        if values.get(key) is not None and values[key] != []:
            yield f"`{key}` {shown_value(values[key])}"
    start = values.get("init_lora_weights")
    if isinstance(start, str) and start.lower() in ("loftq", "mica"):
        yield f"`init_lora_weights` {shown_value(start)}"


def is_random(config: LoraConfig) -> bool:
    """Whether a wrapper without tensors starts with an effect: both factors are random."""
    return not config.values.get("init_lora_weights", True)


def starts_at_zero(config: LoraConfig) -> bool:
    """Whether the second factor of a wrapper is zero until it is loaded."""
    start = config.values.get("init_lora_weights", True)
    return start is True or (isinstance(start, str) and start.lower() in ("gaussian", "eva"))


def unreadable_settings(values: Values) -> Iterator[str]:
    """Yield settings of a type that is not known here, by which nothing can be selected."""
    for key, is_right in _TYPES.items():
        value = values.get(key)
        if value is not None and not is_right(value):
            yield f"`{key}` {shown_value(value)}"


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(type(item) is kind for item in value)


def _is_tokens(value: Any) -> bool:
    if isinstance(value, dict):
        return value.keys() == {EMBEDDING} and _is_list_of(int)(value[EMBEDDING])
    return _is_list_of(int)(value)


def _are_plain(value: Any) -> bool:
    """Whether it is a list of names, none of which is an expression."""
    return _is_list_of(str)(value) and all(map(is_plain, value))


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "exclude_modules": lambda value: isinstance(value, str) or _is_list_of(str)(value),
    "layers_to_transform": lambda value: type(value) is int or _is_list_of(int)(value),
    "layers_pattern": lambda value: _are_plain([value] if isinstance(value, str) else value),
    "modules_to_save": _are_plain,
    "trainable_token_indices": _is_tokens,
}
