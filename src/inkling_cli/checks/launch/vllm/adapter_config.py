"""Rules over adapter_config.json as vLLM reads it."""

from collections.abc import Iterator, Mapping
from typing import Any

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_PLAIN_INITS = ("gaussian", "eva", "orthogonal", "mica", "lora_ga")
"""Initialisations after which the saved factors are a plain LoRA adapter."""
_SAVABLE = ("classifier", "score")
_MUST_BE_EMPTY = (
    "use_dora",
    "lora_bias",
    "alora_invocation_tokens",
    "layer_replication",
    "use_bdlora",
    "use_qalora",
)


@LAUNCH_RULES.rule(
    "VLM204",
    "adapter-setting-refused",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ADAPTER_LOAD,
)
def check_adapter_setting_refused(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter's config has a setting that vLLM refuses, or lacks one that it needs.

    *What it checks*: with LoRA enabled, `target_modules` is there (whatever it says), `bias` is
    `none`, `modules_to_save` holds nothing but a classification head, `init_lora_weights` is none
    of those that change the base model (PiSSA, OLoRA, CorDA, LoftQ), and DoRA, `lora_bias`,
    activated LoRA, layer replication, BD-LoRA and QALoRA are off.

    *Why it matters*: vLLM refuses the adapter: at start-up, the server does not start.

    *How to fix*: train a plain LoRA adapter, or merge this one into the base model. A missing
    `target_modules` can be added by hand: vLLM does not look at its value.
    """
    for facts in subject.adapters if subject.lora_enabled else ():
        for key, message in refused_settings(facts.config.values):
            yield Defect(
                f"adapter `{facts.name}`: {message}",
                'add `"target_modules": "all-linear"`'
                if key == "target_modules"
                else "train a plain LoRA adapter, or merge this one into the base model",
                facts.at(key),
            )


def refused_settings(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each key that vLLM refuses, with what is wrong."""
    if "target_modules" not in config:
        yield "target_modules", "its config has no `target_modules`, which vLLM requires"
    for key in _MUST_BE_EMPTY:
        if config.get(key):
            yield key, f"its config has `{key}` {config[key]!r}, which vLLM does not support"
    bias = config.get("bias", "none")
    if bias != "none":
        yield "bias", f"its config has `bias` {bias!r}, vLLM takes 'none' alone"
    init = config.get("init_lora_weights", True)
    if isinstance(init, str) and init.lower() not in _PLAIN_INITS:
        yield (
            "init_lora_weights",
            f"its config has `init_lora_weights` {init!r}, which vLLM refuses",
        )
    saved = config.get("modules_to_save") or []
    if not isinstance(saved, list | str | dict) or any(name not in _SAVABLE for name in saved):
        yield "modules_to_save", f"its config has `modules_to_save` {saved!r}, which vLLM refuses"
