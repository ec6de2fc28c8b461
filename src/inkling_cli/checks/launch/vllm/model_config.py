"""A rule over values in the base model's config.json that vLLM cannot start with.

Every key may be absent: vLLM then takes a default of its own. A null is not absent: where vLLM
expects a number it stops at it, and the earlier the key is used, the earlier it stops.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.launch.options.vllm_choices import LATER_CHOICES
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.scheduler import LENGTH_KEYS
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_CONFIG, _MODEL = Stage.ENGINE_CONFIG, Stage.MODEL
_MULTIMODAL, _TEXT = "inkling_mm_model", "inkling_model"
_CLASSES = {"InklingForConditionalGeneration": _MULTIMODAL, "InklingForCausalLM": _TEXT}
_READ_EARLY = ("hidden_size", "num_attention_heads", "num_key_value_heads")
_READ_LATE = ("num_hidden_layers", "vocab_size", "d_rel", "dense_mlp_idx")
_NOT_NEGATIVE = (*_READ_EARLY, "vocab_size", "d_rel", "head_dim")
_NOT_ZERO = ("num_key_value_heads", "swa_num_key_value_heads", "head_dim")
_EMPTY_AT_ZERO = ("hidden_size", "num_attention_heads", "num_hidden_layers", "d_rel")
"""Keys with which vLLM builds modules without elements, into which no adapter fits."""
_OF_TEXT_CONFIG = (*_READ_EARLY, "num_hidden_layers", "head_dim", "vocab_size")
"""Keys that a multimodal config must not have beside its `text_config`."""
_OTHER_CONFIGS = ("--hf-overrides", "--hf-config-path", "--config-format")
"""Options after which config.json is not what vLLM sees."""
_NO_DTYPES = ("none", "auto", "null")


@dataclass(frozen=True, slots=True)
class _Wrong:
    """A key with what it has and what was expected."""

    stage: Stage
    key: str
    message: str


@LAUNCH_RULES.rule(
    "VLM507", "model-setting-refused", Severity.ERROR, engine=Engine.VLLM, stage=_MODEL
)
def check_model_setting_refused(subject: LaunchSubject) -> Iterator[Defect]:
    """The model's config has a value that vLLM cannot start with.

    *What it checks*: in the config of an Inkling: the model type and its architecture, numbers that
    are null, texts or out of range, biases, the dtype, lengths, and the method of quantised
    weights. Absent keys are not looked at, and nothing is where `--hf-overrides`,
    `--hf-config-path` or `--config-format` changes what vLLM reads.

    *Why it matters*: vLLM stops while it reads the config or builds the model, mostly with an error
    that does not name the key.

    *How to fix*: use the config that was released with the model.
    """
    model, config = subject.model, subject.model.config
    is_other = any(subject.launch.use(option) for option in _OTHER_CONFIGS)
    is_untyped = model.config_path and not model.problem and not config.get("model_type")
    if is_other or not (is_untyped or (config and model.is_inkling)):
        return
    text = config
    if config.get("model_type") == _MULTIMODAL:
        text = config.get("text_config") or {}
    wrong = [*_wrong_class(config)]
    if isinstance(text, Mapping) and not wrong:
        wrong = [*_wrong_sizes(text), *_wrong_lengths(text)]
        wrong += [*_wrong_dtype(config, text), *_wrong_quantization(config, text)]
    for found in wrong:
        yield Defect(
            f"`{model.config_path}` {found.message}",
            "use the config that was released with the model, or correct it",
            Location(model.config_path, key=found.key),
            stage=found.stage,
        )


def _wrong_class(config: Mapping[str, Any]) -> Iterator[_Wrong]:
    kind, names = config.get("model_type"), config.get("architectures")
    if kind not in (_MULTIMODAL, _TEXT):
        shown = f"the `model_type` {kind!r}" if kind else "no `model_type`"
        expected = f"expected `{_MULTIMODAL}` or `{_TEXT}`"
        yield _Wrong(_CONFIG, "model_type", f"has {shown}, {expected}")
        return
    if kind == _MULTIMODAL:
        for key in _OF_TEXT_CONFIG:
            if key in config:
                message = f"has `{key}` outside `text_config`, expected it inside"
                yield _Wrong(_CONFIG, key, message)
    listed = [str(name) for name in names] if isinstance(names, list) else []
    known = next((name for name in listed if name in _CLASSES), None)
    if known is None and listed and all("Inkling" in name for name in listed):
        message = f"names the architecture `{listed[0]}`, expected `{_class_of(kind)}`"
        yield _Wrong(_CONFIG, "architectures", message)
    elif known is not None and _CLASSES[known] != kind:
        stage = _MODEL if kind == _MULTIMODAL else _CONFIG
        message = f"names `{known}` for a `{kind}`, expected `{_class_of(kind)}`"
        yield _Wrong(stage, "architectures", message)


def _class_of(kind: str) -> str:
    return next(name for name, of in _CLASSES.items() if of == kind)


def _wrong_sizes(text: Mapping[str, Any]) -> Iterator[_Wrong]:
    late = (*_READ_LATE, "sliding_window_size") if text.get("local_layer_ids") else _READ_LATE
    for key in (*_READ_EARLY, *late):
        value = text.get(key, 0)
        if not isinstance(value, int):
            is_early = key in _READ_EARLY and not isinstance(value, float)
            message = f"has `{key}` {value!r}, expected a whole number"
            yield _Wrong(_CONFIG if is_early else _MODEL, key, message)
    for key in dict.fromkeys((*_NOT_NEGATIVE, *_NOT_ZERO)):
        value = text.get(key)
        least = 1 if key in _NOT_ZERO else 0
        if isinstance(value, int) and value < least:
            yield _Wrong(_MODEL, key, f"has `{key}` {value}, expected at least {least}")
    for key in _EMPTY_AT_ZERO:
        value = text.get(key)
        is_negative = key == "num_hidden_layers" and isinstance(value, int) and value < 0
        if value == 0 or is_negative:
            yield _Wrong(Stage.ADAPTER_LOAD, key, f"has `{key}` {value}, expected at least 1")
    if text.get("o_bias"):
        yield _Wrong(_MODEL, "o_bias", f"has `o_bias` {text['o_bias']!r}, expected False")


def _wrong_lengths(text: Mapping[str, Any]) -> Iterator[_Wrong]:
    for key in LENGTH_KEYS:
        value = text.get(key)
        if value is not None and not (isinstance(value, int | float) and value > 0):
            yield _Wrong(_CONFIG, key, f"has `{key}` {value!r}, expected a number above 0")


def _wrong_dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> Iterator[_Wrong]:
    for values in (text, config):
        for key in ("dtype", "torch_dtype"):
            value = values.get(key)
            name = str(value).removeprefix("torch.")
            if isinstance(value, str) and name not in (*_DTYPES, *_NO_DTYPES):
                yield _Wrong(_CONFIG, key, f"has `{key}` {value!r}, expected `bfloat16`")
                return


_DTYPES = (
    *("bfloat16", "float16", "half", "float32", "float", "float64", "double", "int8", "uint8"),
    *("float8_e4m3fn", "float8_e5m2"),
)


def _wrong_quantization(config: Mapping[str, Any], text: Mapping[str, Any]) -> Iterator[_Wrong]:
    for values in (config, text):
        given = values.get("quantization_config")
        method = given.get("quant_method") if isinstance(given, Mapping) else None
        if not isinstance(given, Mapping) or not isinstance(method, str):
            continue
        if method.lower() not in LATER_CHOICES["--quantization"].split():
            message = f"has the `quant_method` {method!r}, which vLLM does not know"
            yield _Wrong(_CONFIG, "quantization_config", message)
        elif method == "fp8" and "activation_scheme" not in given:
            message = "has the `quant_method` 'fp8' without `activation_scheme`, expected one"
            yield _Wrong(_CONFIG, "quantization_config", message)
        return
