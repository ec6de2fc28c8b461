"""Rules over config.json of the base model: what SGLang refuses in it, and what it overlooks."""

from collections.abc import Iterator, Mapping
from typing import Any

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.served_model import IGNORED, text_config
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.adapter.model_spec import MULTIMODAL_TYPES, TEXT_TYPES
from inkling_runtime.errors import format_names

_ERROR, _SGLANG = Severity.ERROR, Engine.SGLANG
_SERVED = "InklingForConditionalGeneration"
_REMEDY = "take config.json of the released checkpoint"
_COMPUTED = (
    "conv_layer_ids",
    "full_attention_layer_ids",
    "head_dim",
    "hidden_size",
    "linear_layer_ids",
    "mamba2_cache_params",
    "mamba_chunk_size",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "vocab_size",
)
"""Keys that SGLang computes from `text_config` and refuses beside it."""
_DRAFT_LAYERS = 8
"""`num_nextn_predict_layers` where it is not given."""


@LAUNCH_RULES.rule("SGL805", "text-only-model", _ERROR, engine=_SGLANG, stage=Stage.MODEL)
def check_text_only_model(subject: LaunchSubject) -> Iterator[Defect]:
    """The model is the text model alone, or a class for which SGLang has no code.

    *What it checks*: the first of `architectures`, and `model_type`, in the model's config.json.

    *Why it matters*: SGLang knows `InklingForConditionalGeneration` only and does not start.

    *How to fix*: serve the released model, or its config with `text_config` inside.
    """
    names, kind = subject.model.architectures, subject.model.config.get("model_type")
    if not names or not subject.is_inkling:
        return
    if names[0] != _SERVED:
        key = "architectures"
        message = f"`{subject.model.ref}` is an `{names[0]}`, SGLang has `{_SERVED}` only"
    elif kind in TEXT_TYPES:
        key = "model_type"
        message = (
            f"`{subject.model.ref}` has the model_type `{kind}`, expected "
            f"`{MULTIMODAL_TYPES[0]}` with the text model in `text_config`"
        )
    else:
        return
    yield Defect(
        message,
        "serve the released model: SGLang leaves its vision and audio parts out by itself",
        Location(subject.model.config_path, key=key),
    )


@LAUNCH_RULES.rule(
    "SGL811", "model-config-refused", _ERROR, engine=_SGLANG, stage=Stage.SERVER_ARGS
)
def check_model_config_refused(subject: LaunchSubject) -> Iterator[Defect]:
    """SGLang refuses the base model's config.json.

    *What it checks*: `architectures`, which has to be a list with a name; sizes of the text model
    outside of `text_config`; `local_layer_ids` and `mtp_local_layer_ids`, each layer once.

    *Why it matters*: SGLang refuses to start, often with an error that names no key.

    *How to fix*: take config.json of the released checkpoint.
    """
    config = subject.model.config
    if not config or not subject.is_inkling:
        return
    found = _refused_keys(config)
    text = text_config(config)
    if found is None and text is not None:
        found = _refused_layers(text)
    if found is not None:
        key, message = found
        yield Defect(message, _REMEDY, Location(subject.model.config_path, key=key))


@LAUNCH_RULES.rule("SGL813", "quantised-by-others", _ERROR, engine=_SGLANG, stage=Stage.MODEL)
def check_quantised_by_others(subject: LaunchSubject) -> Iterator[Defect]:
    """The model's config says that its weights are quantised, but not as an Inkling's can be.

    *What it checks*: `quantization_config` in the model's config.json, which has to hold ModelOpt's
    own settings (`modelopt_quant_config`).

    *Why it matters*: SGLang stops while it builds the model, with no more than the key's name.

    *How to fix*: serve the released checkpoint, in bfloat16 or NVFP4.
    """
    config = subject.model.config
    text = text_config(config) or {}
    found = config.get("quantization_config")
    found = text.get("quantization_config") if found is None else found
    if not subject.is_inkling or not isinstance(found, dict):
        return
    settings = found.get("quantization", found)
    if not isinstance(settings, dict) or "modelopt_quant_config" not in settings:
        yield Defect(
            "`quantization_config` has no `modelopt_quant_config`, the only form that SGLang reads "
            "for an Inkling",
            "serve the released checkpoint, in bfloat16 or NVFP4",
            Location(subject.model.config_path, key="quantization_config"),
        )


def _refused_keys(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first key of the whole config that SGLang stumbles over, and why."""
    names = config.get("architectures")
    if not names:
        shown = "none" if names is None else "empty"
        return "architectures", f"`architectures` is {shown}, expected a list with a name"
    if config.get("model_type") not in MULTIMODAL_TYPES:
        return None
    computed = [key for key in _COMPUTED if key in config]
    if computed:
        are = "stands" if len(computed) == 1 else "stand"
        message = f"{format_names(computed)} {are} beside `text_config`, expected inside of it"
        return computed[0], message
    return None


def _refused_layers(text: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first list of layers with a layer twice or one that is not there, and why."""
    drafts = text.get("num_nextn_predict_layers", _DRAFT_LAYERS)
    limits = {"local_layer_ids": text.get("num_hidden_layers"), "mtp_local_layer_ids": drafts}
    for key, count in limits.items():
        layers = text.get(key)
        if not isinstance(layers, list) or type(count) is not int:
            continue
        wrong = [i for n, i in enumerate(layers) if type(i) is int and i in layers[:n]]
        wrong += [i for i in layers if type(i) is int and not 0 <= i < count]
        if wrong:
            return (
                key,
                f"`{key}` holds {wrong[0]}, expected each of the layers 0 to {count - 1} "
                "at most once",
            )
    return None


@LAUNCH_RULES.rule("SGL812", "model-config-spelling", _ERROR, engine=_SGLANG, stage=Stage.SERVED)
def check_model_config_spelling(subject: LaunchSubject) -> Iterator[Defect]:
    """The base model's config.json is in the transformers spelling, which SGLang does not read.

    *What it checks*: `moe_intermediate_size`, `layer_types` and `mlp_layer_types` without the raw
    keys `dense_intermediate_size`, `local_layer_ids` and `dense_mlp_idx`.

    *Why it matters*: SGLang takes `intermediate_size` for the width of an expert and its own
    defaults for the rest, without a word: the checkpoint does not fit the model, and adapters fail
    at their first request.

    *How to fix*: take config.json of the released checkpoint, which is in the raw spelling.
    """
    text = text_config(subject.model.config)
    if not subject.is_inkling or not text:
        return
    unread = [key for key, raw in IGNORED.items() if key in text and text.get(raw) is None]
    if unread:
        raw = format_names([IGNORED[key] for key in unread])
        yield Defect(
            f"the config has {format_names(unread)}, which SGLang does not read, expected {raw}",
            _REMEDY,
            Location(subject.model.config_path, key=unread[0]),
        )
