"""Rules over the base model's config as vLLM reads it, and over its dtype."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_DTYPE = "--dtype"
_EXPECTED = {
    "gate_activation": ("sigmoid", "sigmoid"),
    "norm_after_topk": (True, True),
    "inference_moe_w13_interleaved": (True, True),
    "shared_expert_sink": (False, True),
}
"""Config key → its default in vLLM, and the value that the experts need."""


@LAUNCH_RULES.rule(
    "VLM501", "dtype-not-bfloat16", Severity.ERROR, engine=Engine.VLLM, stage=Stage.MODEL
)
def check_dtype_not_bfloat16(subject: LaunchSubject) -> Iterator[Defect]:
    """An Inkling is to run in another dtype than bfloat16.

    *What it checks*: `--dtype`, and where it is `auto` or not given the `dtype` of the model's
    config, on an Inkling.

    *Why it matters*: vLLM stops while it builds the model: the cache of the short convolutions
    takes bfloat16 alone.

    *How to fix*: `--dtype bfloat16`.
    """
    if not subject.is_inkling:
        return
    given = subject.launch.text(_DTYPE) or "auto"
    if given in ("half", "float16", "float", "float32"):
        message = f"`{_DTYPE}` is `{given}`, an Inkling needs `bfloat16`"
    elif given == "auto" and (pooling := _pooling(subject)):
        message = f"`{pooling}` makes the dtype `float16`, an Inkling needs `bfloat16`"
    elif given == "auto" and (dtype := _config_dtype(subject)) in ("float16", "half"):
        message = f"`{subject.model.config_path}` has dtype `{dtype}`, an Inkling needs `bfloat16`"
    else:
        return
    options = {_DTYPE: "bfloat16"}
    yield launch_defect(subject.launch, message, subject.at(_DTYPE), options=options)


@LAUNCH_RULES.rule(
    "VLM502", "experts-refused", Severity.ERROR, engine=Engine.VLLM, stage=Stage.MODEL
)
def check_experts_refused(subject: LaunchSubject) -> Iterator[Defect]:
    """The model's config describes experts that vLLM does not build.

    *What it checks*: in the config of an Inkling with expert layers: `shared_expert_sink` is true
    (absent counts as false), `n_shared_experts` is above 0, `gate_activation` is `sigmoid`,
    `norm_after_topk` and `inference_moe_w13_interleaved` are true.

    *Why it matters*: vLLM stops with an assertion while it builds the model.

    *How to fix*: use the config that was released with the model.
    """
    config = _text_config(subject)
    if config is None or not _has_expert_layers(config):
        return
    for key, (default, wanted) in _EXPECTED.items():
        value = config.get(key, default)
        if not (value if wanted is True else value == wanted):
            yield _config_defect(subject, key, f"has `{key}` {value!r}, vLLM needs {wanted!r}")
    count = config.get("n_shared_experts", 0)
    if not isinstance(count, int) or count < 1:
        message = f"has `n_shared_experts` {count!r}, vLLM needs at least 1"
        yield _config_defect(subject, "n_shared_experts", message)


@LAUNCH_RULES.rule(
    "VLM503", "sliding-layers-not-seen", Severity.ERROR, engine=Engine.VLLM, stage=Stage.SERVED
)
def check_sliding_layers_not_seen(subject: LaunchSubject) -> Iterator[Defect]:
    """The model's config tells its sliding-window layers in a way that vLLM does not read.

    *What it checks*: `local_layer_ids` in the config of an Inkling, against `layer_types` or, where
    both are absent, against the pattern that transformers takes for granted.

    *Why it matters*: vLLM 0.33 reads `local_layer_ids` alone. Without it every layer becomes a
    global one, with other widths of K and V: weights or adapters do not fit, or the output is wrong
    without a message.

    *How to fix*: add `local_layer_ids` with the numbers of the sliding layers to config.json.
    """
    spec = subject.model.spec
    if spec is None:
        return
    local = set(spec.config.get("local_layer_ids") or ())
    sliding = {layer.index for layer in spec.layers if layer.is_sliding}
    if local != sliding:
        yield _config_defect(
            subject,
            "local_layer_ids",
            f"has {len(sliding)} of {spec.num_layers} layers sliding, vLLM sees {len(local)}: "
            "it reads `local_layer_ids` alone",
        )


@LAUNCH_RULES.rule(
    "VLM504", "dense-layers-not-seen", Severity.ERROR, engine=Engine.VLLM, stage=Stage.MODEL
)
def check_dense_layers_not_seen(subject: LaunchSubject) -> Iterator[Defect]:
    """The model's config tells its dense layers in a way that vLLM does not read.

    *What it checks*: `dense_mlp_idx` in the config of an Inkling against `mlp_layer_types`.

    *Why it matters*: vLLM 0.33 reads `dense_mlp_idx` alone; absent, every layer has experts, and
    the weights do not fit.

    *How to fix*: add `dense_mlp_idx`, the number of dense layers, to config.json.
    """
    spec = subject.model.spec
    if spec is None:
        return
    dense = [layer.index for layer in spec.layers if layer.is_dense]
    count = min(spec.config.get("dense_mlp_idx") or 0, spec.num_layers)
    if dense != list(range(count)):
        defect = _config_defect(
            subject,
            "dense_mlp_idx",
            f"has {len(dense)} of {spec.num_layers} layers dense, vLLM sees the first {count}: "
            "it reads `dense_mlp_idx` alone",
        )
        has_weights = subject.launch.text("--load-format") != "dummy"
        yield replace(defect, stage=Stage.MODEL if has_weights else Stage.SERVED)


@LAUNCH_RULES.rule(
    "VLM505", "architecture-missing", Severity.ERROR, engine=Engine.VLLM, stage=Stage.MODEL
)
def check_architecture_missing(subject: LaunchSubject) -> Iterator[Defect]:
    """The config of an Inkling names no architecture of its own.

    *What it checks*: `architectures` in the config of a model whose `model_type` is Inkling's.

    *Why it matters*: vLLM chooses its code by the architecture; without one it takes another and
    stops while it builds the model.

    *How to fix*: set `architectures` to `["InklingForConditionalGeneration"]`, or to
    `["InklingForCausalLM"]` for a text-only config.
    """
    model = subject.model
    if model.spec is not None and not any("Inkling" in name for name in model.architectures):
        name = "ForConditionalGeneration" if model.spec.is_multimodal else "ForCausalLM"
        defect = _config_defect(
            subject, "architectures", f"names no architecture, expected `Inkling{name}`"
        )
        named = model.config.get("architectures")
        is_early = not (model.spec.is_multimodal or named) or isinstance(named, str)
        yield replace(defect, stage=Stage.ENGINE_CONFIG if is_early else Stage.MODEL)


@LAUNCH_RULES.rule("VLM506", "padded-logits", Severity.INFO, engine=Engine.VLLM)
def check_padded_logits(subject: LaunchSubject) -> Iterator[Defect]:
    """With LoRA the logits have the width of the padded vocabulary.

    *What it checks*: LoRA enabled, the head among the targets, and a vocabulary that is padded in
    the model's config.

    *Why it matters*: without LoRA vLLM cuts the logits to the real vocabulary; with LoRA it does
    not, also for requests without an adapter. Log probabilities then reach over ids that do not
    exist. (Read in the engine's code, not observed.)

    *How to fix*: nothing to fix for usual sampling. Where log probabilities are read, leave out ids
    at or above `unpadded_vocab_size`.
    """
    spec = subject.model.spec
    if spec is None or not subject.startup_adapters or not subject.lora_enabled:
        return
    padding = spec.vocab_size - spec.unpadded_vocab_size
    names = (name for facts in subject.startup_adapters for name in facts.modules())
    has_head = any(name.endswith("lm_head") for name in names)
    if padding and has_head and subject.launch.use("--max-logprobs"):
        yield Defect(
            f"with LoRA the logits have {spec.vocab_size} columns, {padding} more than the "
            f"vocabulary of {spec.unpadded_vocab_size}",
            location=subject.at("--max-logprobs"),
        )


def _pooling(subject: LaunchSubject) -> str | None:
    """Return the option that makes the model a pooling one, whose dtype is float16 by default."""
    launch = subject.launch
    if launch.text("--runner") == "pooling":
        return "--runner pooling"
    convert = launch.text("--convert")
    return f"--convert {convert}" if convert in ("embed", "classify") else None


def _config_dtype(subject: LaunchSubject) -> str | None:
    """Return the dtype that `auto` stands for, where the config says it."""
    spec = subject.model.spec
    if spec is None:
        return None
    for values in (spec.config, subject.model.config):
        value = values.get("dtype") or values.get("torch_dtype")
        if value is not None:
            return str(value).removeprefix("torch.")
    return None


def _text_config(subject: LaunchSubject) -> Mapping[str, Any] | None:
    """Return the text part of an Inkling's config, also where its sizes are not readable."""
    if not subject.model.is_inkling or not subject.model.config:
        return None
    config = subject.model.config
    if config.get("model_type") == "inkling_mm_model":
        return config.get("text_config") or {}
    return config


def _has_expert_layers(config: Mapping[str, Any]) -> bool:
    dense, layers = config.get("dense_mlp_idx") or 0, config.get("num_hidden_layers", 16)
    return isinstance(dense, int) and isinstance(layers, int) and dense < layers


def _config_defect(subject: LaunchSubject, key: str, message: str) -> Defect:
    path = subject.model.config_path
    return Defect(
        f"`{path}` {message}",
        "use the config that was released with the model, or correct it",
        Location(path, key=key),
    )
