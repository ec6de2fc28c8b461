"""Rules over the mixture-of-experts runner of a LoRA server, and what each runner refuses."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.parallel import attention_groups
from inkling_cli.checks.launch.sglang.pool import adapts_experts
from inkling_cli.checks.launch.sglang.variables import is_true
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_ERROR, _SGLANG, _STAGE = Severity.ERROR, Engine.SGLANG, Stage.SERVER_ARGS
_RUNNER, _BACKEND = "--moe-runner-backend", "--lora-backend"
_LORA_RUNNERS = ("lora_triton", "lora_cutedsl", "lora_marlin")
MARLIN = "experimental_sgl_marlin"
"""A runner for quantised experts, with conditions of its own."""
_WITHOUT_LORA = (
    "deep_gemm",
    "flashinfer_cutlass",
    "flashinfer_trtllm",
    "flashinfer_trtllm_routed",
    "triton_kernel",
)
_TRTLLM = (
    *(None, "modelopt_fp4", "nvfp4_online", "fp8", "mxfp8", "modelopt_fp8", "modelopt_mixed"),
    "compressed-tensors",
)
_QUANTIZATIONS = ("fp8", "modelopt_fp4", "unquant")
_QUANTIZATIONS_OF: dict[str, tuple[str | None, ...]] = {
    "experimental_sgl_trtllm": _TRTLLM,
    "flashinfer_cutedsl": ("modelopt_fp4", "modelopt_mixed", "nvfp4_online"),
    "flashinfer_cutlass": (None, "modelopt_fp4", "modelopt_fp8", "modelopt_mixed"),
    "flashinfer_trtllm": _TRTLLM,
    "flashinfer_trtllm_routed": (
        *(None, "fp8", "mxfp8", "modelopt_fp4", "modelopt_mixed", "nvfp4_online"),
        "minimax_m3_nvfp4",
    ),
}
"""Runner → the quantisations that it runs; None is no quantisation."""
_EXPERIMENT = "SGLANG_EXPERIMENTAL_LORA_OPTI"
_MODES = (("--enable-pdmux", "PD multiplexing"), ("--enable-two-batch-overlap", "overlap"))


def runner_of(subject: LaunchSubject) -> str:
    """Return the runner that the launch asks for; `auto` where it asks for none."""
    return subject.launch.text(_RUNNER) or "auto"


def is_lora_runner(subject: LaunchSubject) -> bool:
    """Return whether the launch asks for a `lora_*` runner."""
    return runner_of(subject).startswith("lora_")


def _backend(subject: LaunchSubject) -> str:
    return subject.launch.text(_BACKEND) or "csgmv"


@LAUNCH_RULES.rule("SGL501", "lora-runner-without-triton-v2", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_lora_runner_without_triton_v2(subject: LaunchSubject) -> Iterator[Defect]:
    """A `lora_*` runner is asked for without the LoRA backend that it belongs to.

    *What it checks*: `--moe-runner-backend lora_*` with LoRA off, or with a `--lora-backend` other
    than `triton_v2`.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: add `--lora-backend triton_v2`, or leave the runner out and take `triton`.
    """
    if not is_lora_runner(subject) or is_unknown(_backend(subject)):
        return
    if not subject.lora_enabled:
        yield launch_defect(
            subject.launch,
            f"`{_RUNNER}` is `{runner_of(subject)}`, but LoRA is not enabled",
            subject.at(_RUNNER),
            remove=[_RUNNER],
        )
    elif _backend(subject) != "triton_v2":
        yield launch_defect(
            subject.launch,
            f"`{_RUNNER}` is `{runner_of(subject)}`, expected `{_BACKEND} triton_v2` beside it, "
            f"not `{_backend(subject)}`",
            subject.at(_RUNNER),
            options={_BACKEND: "triton_v2"},
        )


@LAUNCH_RULES.rule(
    "SGL502", "triton-v2-without-lora-runner", _ERROR, engine=_SGLANG, stage=Stage.STARTUP
)
def check_triton_v2_without_lora_runner(subject: LaunchSubject) -> Iterator[Defect]:
    """The LoRA backend `triton_v2` meets experts without a `lora_*` runner.

    *What it checks*: `--lora-backend triton_v2` on an Inkling whose experts are targets.

    *Why it matters*: SGLang loads the model and then stops. Attention alone works.

    *How to fix*: take `--lora-backend triton`, or add `--moe-runner-backend lora_triton` (Hopper
    and Blackwell GPUs).
    """
    if not subject.lora_enabled or _backend(subject) != "triton_v2" or is_lora_runner(subject):
        return
    if adapts_experts(subject) and not is_unknown(runner_of(subject)):
        yield launch_defect(
            subject.launch,
            f"`{_BACKEND}` is `triton_v2` and `{_RUNNER}` is `{runner_of(subject)}`, "
            f"expected one of {format_names(_LORA_RUNNERS)}",
            subject.at(_BACKEND),
            options={_BACKEND: "triton"},
        )


@LAUNCH_RULES.rule("SGL503", "mode-without-triton-v2", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_mode_without_triton_v2(subject: LaunchSubject) -> Iterator[Defect]:
    """A mode of the server does not work with `triton_v2`.

    *What it checks*: DP attention, PD multiplexing, two-batch overlap and
    `SGLANG_EXPERIMENTAL_LORA_OPTI` beside `--lora-backend triton_v2` or a `lora_*` runner.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: leave the mode out, or take `--lora-backend triton` without a `lora_*` runner.
    """
    if not subject.lora_enabled or not (
        _backend(subject) == "triton_v2" or is_lora_runner(subject)
    ):
        return
    place = _RUNNER if is_lora_runner(subject) else _BACKEND
    shown = f"`{place} {subject.launch.text(place)}`"
    groups = attention_groups(subject)
    if groups is not None and groups > 1:
        yield Defect(
            f"DP attention with {groups} groups and {shown} do not go together",
            f"take `{_BACKEND} triton`",
            subject.at("--attn-dp-size"),
        )
    for name, what in _MODES:
        if subject.launch.is_on(name):
            yield launch_defect(
                subject.launch,
                f"`{name}` beside {shown}: {what} does not work there",
                subject.at(name),
                remove=[name],
            )
    value = subject.launch.variable(_EXPERIMENT)
    if is_true(value):
        yield launch_defect(
            subject.launch,
            f"`{_EXPERIMENT}={value}` and {shown} do not go together",
            subject.at(_EXPERIMENT),
            variables={_EXPERIMENT: "0"},
        )


@LAUNCH_RULES.rule("SGL504", "quantization-without-runner", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_quantization_without_runner(subject: LaunchSubject) -> Iterator[Defect]:
    """A `lora_*` runner cannot run the experts' quantisation.

    *What it checks*: `--quantization` beside a `lora_*` runner: none, `fp8`, or `modelopt_fp4`,
    which needs `lora_marlin`.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: take `lora_marlin` for `modelopt_fp4`; else serve the unquantised weights.
    """
    quantization = subject.launch.text("--quantization")
    if quantization is None or not is_lora_runner(subject) or not subject.lora_enabled:
        return
    if quantization not in _QUANTIZATIONS and not is_unknown(quantization):
        yield Defect(
            f"`--quantization` is `{quantization}`, `{runner_of(subject)}` runs "
            f"{format_names(_QUANTIZATIONS)} only",
            f"take `{_BACKEND} triton` without `{_RUNNER}`",
            subject.at("--quantization"),
        )
    elif quantization == "modelopt_fp4" and runner_of(subject) != "lora_marlin":
        yield launch_defect(
            subject.launch,
            f"`--quantization` is `modelopt_fp4`, which `{runner_of(subject)}` cannot run, "
            "expected `lora_marlin`",
            subject.at(_RUNNER),
            options={_RUNNER: "lora_marlin"},
        )


@LAUNCH_RULES.rule("SGL508", "runner-without-quantization", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_runner_without_quantization(subject: LaunchSubject) -> Iterator[Defect]:
    """A FlashInfer runner does not run the experts' quantisation, or needs one.

    *What it checks*: `--quantization` beside `--moe-runner-backend flashinfer_cutedsl`,
    `flashinfer_cutlass`, `flashinfer_trtllm`, `flashinfer_trtllm_routed` and
    `experimental_sgl_trtllm`. Where it is not given, the model's own quantisation counts, if its
    config was read.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: leave `--moe-runner-backend` out.
    """
    allowed = _QUANTIZATIONS_OF.get(runner_of(subject))
    given = subject.launch.text("--quantization")
    if given is not None and is_unknown(given):
        return
    given = None if given == "unquant" else given
    is_told = subject.model.config_path is not None and not subject.model.quantization
    if allowed is None or given in allowed or (given is None and not is_told):
        return
    names = format_names([name for name in allowed if name is not None], 9)
    shown = f"`--quantization` is `{given}`" if given else "the weights are not quantised"
    yield launch_defect(
        subject.launch,
        f"{shown}, `{_RUNNER} {runner_of(subject)}` runs {names}"
        + (" or no quantisation only" if None in allowed else " only"),
        subject.at(_RUNNER),
        remove=[_RUNNER],
    )


@LAUNCH_RULES.rule("SGL506", "marlin-runner-incomplete", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_marlin_runner_incomplete(subject: LaunchSubject) -> Iterator[Defect]:
    """`experimental_sgl_marlin` is asked for without what it needs beside LoRA.

    *What it checks*: `--lora-use-virtual-experts` and `--lora-backend triton` beside it.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: add both.
    """
    if runner_of(subject) != MARLIN or not subject.lora_enabled or is_unknown(_backend(subject)):
        return
    options: dict[str, str] = {}
    if not subject.launch.is_on("--lora-use-virtual-experts"):
        options["--lora-use-virtual-experts"] = ""
    if _backend(subject) != "triton":
        options[_BACKEND] = "triton"
    if options:
        needed = format_names([f"{name} {value}".rstrip() for name, value in options.items()])
        yield launch_defect(
            subject.launch,
            f"`{_RUNNER}` is `{MARLIN}`, expected {needed} beside it",
            subject.at(_RUNNER),
            options=options,
        )


@LAUNCH_RULES.rule("SGL507", "runner-without-lora", _ERROR, engine=_SGLANG, stage=Stage.STARTUP)
def check_runner_without_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """The mixture-of-experts runner cannot apply LoRA to experts.

    *What it checks*: `--moe-runner-backend` on an Inkling whose experts are targets.

    *Why it matters*: SGLang loads the model and then stops.

    *How to fix*: leave `--moe-runner-backend` out, or adapt attention alone.
    """
    runner = runner_of(subject)
    if runner not in _WITHOUT_LORA or not subject.lora_enabled or _backend(subject) == "triton_v2":
        return
    if adapts_experts(subject):
        yield launch_defect(
            subject.launch,
            f"`{_RUNNER}` is `{runner}`, which cannot apply LoRA to experts",
            subject.at(_RUNNER),
            remove=[_RUNNER],
        )
