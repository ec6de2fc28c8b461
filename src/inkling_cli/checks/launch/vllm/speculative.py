"""Rules over speculative decoding beside LoRA, and over MTP of an Inkling."""

from collections.abc import Iterator, Mapping
from typing import Any

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.advice import format_adapters
from inkling_cli.checks.launch.launch import parse_integer
from inkling_cli.checks.launch.options.vllm_choices import CHOICES
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.speculation import (
    Speculation,
    mtp_layers,
    read_speculation,
)
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_CONFIG = Stage.ENGINE_CONFIG
_USUAL_METHODS = ("mtp", "ngram", "draft_model", "eagle3", "suffix")
_WITHOUT_MODEL = ("ngram", "ngram_gpu", "suffix", "mtp", "dspark", "extract_hidden_states")
"""Methods that need no draft model of their own."""


@LAUNCH_RULES.rule(
    "VLM303", "adaptive-verification-with-lora", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_adaptive_verification_with_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """Drafts are verified adaptively, which does not go with LoRA.

    *What it checks*: `enable_adaptive_verification` in `--speculative-config`, with LoRA enabled.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: leave `enable_adaptive_verification` out.
    """
    drafts = read_speculation(subject.launch)
    if drafts and subject.lora_enabled and drafts.settings.get("enable_adaptive_verification"):
        yield Defect(
            "`enable_adaptive_verification` is on in `--speculative-config`, LoRA needs it off",
            "leave `enable_adaptive_verification` out",
            subject.at(drafts.option),
        )


@LAUNCH_RULES.rule(
    "VLM304", "mtp-without-weights", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_mtp_without_weights(subject: LaunchSubject) -> Iterator[Defect]:
    """Drafts are to come from MTP layers that the model does not have.

    *What it checks*: the method `mtp` (or `inkling_mtp`) without a draft model of its own, against
    `mtp_config` in the base model's config.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: leave speculative decoding out, or take the method `ngram`.
    """
    drafts = read_speculation(subject.launch)
    spec = subject.model.spec
    if drafts is None or spec is None or drafts.method != "mtp" or "model" in drafts.settings:
        return
    if drafts.num_tokens is not None and not mtp_layers(subject):
        yield Defect(
            f"speculative decoding is `mtp`, `{subject.model.config_path}` has no MTP layers "
            "(`mtp_config`)",
            'take `--speculative-config \'{"method": "ngram", …}\'`, or leave it out',
            subject.at(drafts.option),
        )


@LAUNCH_RULES.rule(
    "VLM305", "draft-count-not-a-multiple", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_draft_count_not_a_multiple(subject: LaunchSubject) -> Iterator[Defect]:
    """More tokens are drafted than there are MTP layers, and not a multiple of them.

    *What it checks*: `num_speculative_tokens` of the method `mtp` against the number of MTP layers
    in the base model's config.

    *Why it matters*: vLLM refuses to start: it runs the layers in turn, whole rounds only.

    *How to fix*: draft at most as many tokens as there are MTP layers.
    """
    drafts = read_speculation(subject.launch)
    if drafts is None or drafts.method != "mtp" or "model" in drafts.settings:
        return
    layers, tokens = mtp_layers(subject), drafts.num_tokens
    if layers and tokens and tokens > layers and tokens % layers:
        yield Defect(
            f"{tokens} tokens are drafted, expected at most {layers} or a multiple: the model has "
            f"{layers} MTP layers",
            f"set `num_speculative_tokens` to {layers}",
            subject.at(drafts.option),
        )


@LAUNCH_RULES.rule(
    "VLM306", "speculation-incomplete", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_speculation_incomplete(subject: LaunchSubject) -> Iterator[Defect]:
    """Speculative decoding lacks a setting, names one twice, or has one that is out of range.

    *What it checks*: that `--speculative-config` is an object, that the method is known, that the
    number of drafted tokens is given and above 0, that methods which need a draft model name one,
    that `--spec-…` options and `--speculative-config` do not name the same setting, that
    `tensor_parallel_size` is not among the settings, and that `prompt_lookup_min` is not above
    `prompt_lookup_max`.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: give each setting once: `'{"method": "ngram", "num_speculative_tokens": 3}'`.
    """
    drafts = read_speculation(subject.launch)
    for message in _incomplete(drafts) if drafts else ():
        yield Defect(
            f"speculative decoding: {message}",
            'write `--speculative-config \'{"method": "ngram", "num_speculative_tokens": 3}\'`',
            subject.at(drafts.option if drafts else ""),
        )


@LAUNCH_RULES.rule("VLM307", "head-adapter-with-drafts", Severity.WARNING, engine=Engine.VLLM)
def check_head_adapter_with_drafts(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter of the head is served with speculative decoding on the V2 model runner.

    *What it checks*: adapters with an `lm_head` module, speculative decoding, and
    `VLLM_USE_V2_MODEL_RUNNER`, which is on unless it is `0`.

    *Why it matters*: that runner maps logits to adapters by request, but drafts give several rows
    of logits per request: rows beyond the first ones are computed with another request's head.
    (Read in the engine's code, not observed.)

    *How to fix*: set `VLLM_USE_V2_MODEL_RUNNER=0`, or serve without speculative decoding.
    """
    drafts = read_speculation(subject.launch)
    is_v2 = parse_integer(subject.launch.variable("VLLM_USE_V2_MODEL_RUNNER") or "1") != 0
    with_head = [facts for facts in subject.adapters if _has_head(facts)]
    if drafts and with_head and subject.lora_enabled and is_v2:
        yield Defect(
            f"`lm_head` in {format_adapters(with_head)} with speculative decoding may be applied "
            "to the wrong rows on the V2 model runner",
            "set `VLLM_USE_V2_MODEL_RUNNER=0`, or serve without speculative decoding",
            subject.at(drafts.option),
        )


def _has_head(facts: AdapterFacts) -> bool:
    return any(name.endswith(("lm_head", "unembed")) for name in facts.modules())


def _incomplete(drafts: Speculation) -> Iterator[str]:
    settings = drafts.settings
    if not drafts.is_object:
        yield "it is JSON but no object"
        return
    method = settings.get("method")
    if method is not None and method not in CHOICES["--spec-method"].split():
        yield f"`method` is {method!r}, expected one of {format_names(_USUAL_METHODS)}"
    for option, key in drafts.conflicts:
        yield f"`{option}` and `--speculative-config` both say `{key}`"
    if settings.get("tensor_parallel_size") is not None:
        yield "`tensor_parallel_size` is given, expected `draft_tensor_parallel_size`"
    tokens = settings.get("num_speculative_tokens")
    if tokens is None and drafts.method != "suffix" and "model" not in settings:
        yield "`num_speculative_tokens` is not given"
    elif drafts.num_tokens is not None and drafts.num_tokens < 1:
        yield f"`num_speculative_tokens` is {drafts.num_tokens}, expected at least 1"
    elif tokens is not None and "model" not in settings and drafts.method not in _WITHOUT_MODEL:
        yield "it has no `method` that works without a draft model, and names no `model`"
    yield from _wrong_lookup(settings)


def _wrong_lookup(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the lengths that `ngram` looks up."""
    low, high = settings.get("prompt_lookup_min"), settings.get("prompt_lookup_max")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        yield f"`prompt_lookup_min` is {low}, expected at most `prompt_lookup_max`, which is {high}"
    for key, value in (("prompt_lookup_min", low), ("prompt_lookup_max", high)):
        if isinstance(value, int) and value < 1:
            yield f"`{key}` is {value}, expected at least 1"
