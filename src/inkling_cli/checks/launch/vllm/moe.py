"""Rules over the backends of the experts and the formats of their adapters."""

from collections.abc import Iterator
from typing import Any

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import Launch
from inkling_cli.checks.launch.options.table import read_json_object
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.loader import packed_adapters
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_BACKEND = "--moe-backend"
_MIXED = "--enable-mixed-moe-lora-format"
_MEGA = (
    "aiter_mega_moe",
    "deep_gemm_mega_moe",
    "flashinfer_moe_ep_cutedsl",
    "flashinfer_moe_ep_mega_deep_gemm",
)


def moe_backend(launch: Launch) -> tuple[str, str]:
    """Return the backend of the experts and the option that says it; `auto` where none does."""
    given = (launch.text(_BACKEND) or "auto").lower().replace("-", "_")
    if given != "auto":
        return given, _BACKEND
    kernel: dict[str, Any] = {}
    for use in launch.uses:
        if use.name == "--kernel-config" and use.values:
            kernel = read_json_object(use.values[-1]) or {}
    dotted = "--kernel-config.moe_backend"
    if (text := launch.text(dotted)) is not None:
        return text, dotted
    backend = kernel.get("moe_backend")
    return (backend, "--kernel-config") if isinstance(backend, str) else ("auto", _BACKEND)


@LAUNCH_RULES.rule(
    "VLM107",
    "moe-backend-without-lora",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ENGINE_CONFIG,
)
def check_moe_backend_without_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """`--moe-backend` names a mega-kernel, which cannot apply adapters.

    *What it checks*: `--moe-backend`, or `moe_backend` in `--kernel-config`, against the four
    mega-kernels, with LoRA enabled.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: leave `--moe-backend` out: vLLM then takes one that can (Triton for bf16 weights,
    Marlin for NVFP4).
    """
    backend, option = moe_backend(subject.launch)
    if not (subject.lora_enabled and backend in _MEGA):
        return
    works = "`marlin`" if "nvfp4" in subject.model.quantization.lower() else "`triton`"
    message = f"`{option}` is `{backend}`, which cannot apply adapters, expected `auto` or {works}"
    if option == "--kernel-config":
        remedy = "leave `moe_backend` out of `--kernel-config`"
        yield Defect(message, remedy, subject.at(option))
    else:
        yield launch_defect(subject.launch, message, subject.at(option), remove=[option])


@LAUNCH_RULES.rule("VLM115", "moe-backend-passed-over", Severity.WARNING, engine=Engine.VLLM)
def check_moe_backend_passed_over(subject: LaunchSubject) -> Iterator[Defect]:
    """`--moe-backend` has no effect on a bfloat16 Inkling that serves adapters.

    *What it checks*: a backend other than `auto` and `triton`, with LoRA enabled and a model whose
    config has no quantisation.

    *Why it matters*: with LoRA vLLM runs bfloat16 experts on Triton, whatever the option says.

    *How to fix*: leave `--moe-backend` out.
    """
    backend, option = moe_backend(subject.launch)
    is_plain = subject.model.spec is not None and not _is_quantized(subject)
    is_other = backend not in ("auto", "triton", *_MEGA)
    if subject.lora_enabled and is_plain and is_other and option == _BACKEND:
        yield launch_defect(
            subject.launch,
            f"`{option}` is `{backend}`, but with LoRA bfloat16 experts run on `triton`",
            subject.at(option),
            remove=[option],
        )


@LAUNCH_RULES.rule(
    "VLM116",
    "quantized-backend-without-lora",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.MODEL,
)
def check_quantized_backend_without_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """`--moe-backend` names a backend of NVFP4 experts that cannot apply adapters.

    *What it checks*: a backend other than `auto` and `marlin`, with LoRA enabled and a model whose
    config says NVFP4.

    *Why it matters*: vLLM stops while it builds the model: of its backends for NVFP4 experts Marlin
    alone applies adapters.

    *How to fix*: leave `--moe-backend` out; vLLM then takes Marlin.
    """
    backend, option = moe_backend(subject.launch)
    is_nvfp4 = "nvfp4" in subject.model.quantization.lower()
    if subject.lora_enabled and is_nvfp4 and backend not in ("auto", "marlin", *_MEGA):
        yield launch_defect(
            subject.launch,
            f"`{option}` is `{backend}`, NVFP4 experts with LoRA need `marlin`",
            subject.at(option),
            options={_BACKEND: "marlin"},
        )


@LAUNCH_RULES.rule("VLM117", "packed-flag-alone", Severity.WARNING, engine=Engine.VLLM)
def check_packed_flag_alone(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter is said to be packed, but the server does not take packed adapters.

    *What it checks*: `"is_3d_lora_weight": true` in the JSON form of `--lora-modules` without
    `--enable-mixed-moe-lora-format`.

    *Why it matters*: vLLM ignores the setting.

    *How to fix*: add `--enable-mixed-moe-lora-format`, or leave the setting out.
    """
    named = sorted(packed_adapters(subject))
    if named and subject.lora_enabled and not subject.launch.is_on(_MIXED):
        yield launch_defect(
            subject.launch,
            f"`is_3d_lora_weight` of {format_names(named)} has no effect: `{_MIXED}` is not on",
            subject.at("--lora-modules"),
            options={_MIXED: ""},
        )


def _is_quantized(subject: LaunchSubject) -> bool:
    given = subject.launch.text("--quantization")
    return bool(subject.model.quantization) or given not in (None, "", "None")
