"""Rules over the environment variables that vLLM reads when LoRA is enabled."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import LaunchForm, parse_integer
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_MULTIMEM = "INKLING_MULTIMEM_AR"
DUAL_STREAM = "VLLM_LORA_ENABLE_DUAL_STREAM"
_DEVICE = "VLLM_TARGET_DEVICE"
_CONFIG = Stage.ENGINE_CONFIG


@LAUNCH_RULES.rule(
    "VLM001", "multimem-ar-not-off", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_multimem_ar_not_off(subject: LaunchSubject) -> Iterator[Defect]:
    """`INKLING_MULTIMEM_AR` is not `0` although LoRA is enabled on an Inkling.

    *What it checks*: that the server sees `INKLING_MULTIMEM_AR=0` when `--enable-lora` is on and
    the base model is an Inkling (by its config, its name, or the names in the adapters). An env
    file alone is taken for one of such a server.

    *Why it matters*: vLLM refuses to start: an unset variable counts as on, and only the exact text
    `0` counts as off (not `false`, not `00`). In 0.33.0 nothing else reads it, so setting it costs
    nothing.

    *How to fix*: set `INKLING_MULTIMEM_AR=0` in the server's environment, exported.
    """
    value = subject.launch.variable(_MULTIMEM)
    is_meant = subject.launch.form is LaunchForm.ENV_FILE and value is not None
    if not (is_meant or (subject.lora_enabled and subject.is_inkling)) or value == "0":
        return
    if is_unknown(value or ""):
        return
    now = "is not set, which counts as on" if value is None else f"is `{value}`"
    yield launch_defect(
        subject.launch,
        f"`{_MULTIMEM}` {now}, expected exactly `0` for LoRA on an Inkling",
        subject.at(_MULTIMEM),
        variables={_MULTIMEM: "0"},
    )


@LAUNCH_RULES.rule(
    "VLM002", "dual-stream-without-gpu", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_dual_stream_without_gpu(subject: LaunchSubject) -> Iterator[Defect]:
    """`VLLM_LORA_ENABLE_DUAL_STREAM` is on for a device without CUDA streams.

    *What it checks*: `VLLM_LORA_ENABLE_DUAL_STREAM` beside `VLLM_TARGET_DEVICE=cpu`: two streams
    exist on NVIDIA and AMD GPUs only. (Any other device is found by what is there.)

    *Why it matters*: vLLM refuses to start with LoRA enabled.

    *How to fix*: unset `VLLM_LORA_ENABLE_DUAL_STREAM`, or serve on a GPU.
    """
    device = (subject.launch.variable(_DEVICE) or "cuda").lower()
    if subject.lora_enabled and _dual_stream(subject) and device == "cpu":
        yield launch_defect(
            subject.launch,
            f"`{DUAL_STREAM}` is on and `{_DEVICE}` is `{device}`, expected a GPU",
            subject.at(DUAL_STREAM),
            variables={DUAL_STREAM: "0"},
        )


@LAUNCH_RULES.rule("VLM003", "dual-stream-with-fully-sharded", Severity.WARNING, engine=Engine.VLLM)
def check_dual_stream_with_fully_sharded(subject: LaunchSubject) -> Iterator[Defect]:
    """`VLLM_LORA_ENABLE_DUAL_STREAM` has no effect beside `--fully-sharded-loras`.

    *What it checks*: both set, with LoRA enabled.

    *Why it matters*: vLLM turns the second stream off and says so once in its log; the speed that
    was asked for is not there.

    *How to fix*: set one of the two. On an Inkling `--fully-sharded-loras` is wrong anyway
    (VLM108).
    """
    fully_sharded = subject.launch.is_on("--fully-sharded-loras")
    if subject.lora_enabled and _dual_stream(subject) and fully_sharded:
        yield launch_defect(
            subject.launch,
            f"`{DUAL_STREAM}` is on and so is `--fully-sharded-loras`, which turns it off",
            subject.at(DUAL_STREAM),
            remove=["--fully-sharded-loras"],
        )


@LAUNCH_RULES.rule(
    "VLM004", "dual-stream-not-a-number", Severity.ERROR, engine=Engine.VLLM, stage=_CONFIG
)
def check_dual_stream_not_a_number(subject: LaunchSubject) -> Iterator[Defect]:
    """`VLLM_LORA_ENABLE_DUAL_STREAM` is neither `0` nor `1`.

    *What it checks*: that the variable, if set, is a whole number.

    *Why it matters*: vLLM reads it as a number and stops with an error at `true` or an empty text.

    *How to fix*: set it to `1` or `0`.
    """
    value = subject.launch.variable(DUAL_STREAM)
    if value is None or is_unknown(value):
        return
    if subject.lora_enabled and parse_integer(value) is None:
        yield launch_defect(
            subject.launch,
            f"`{DUAL_STREAM}` is `{value}`, expected `0` or `1`",
            subject.at(DUAL_STREAM),
            variables={DUAL_STREAM: "1"},
        )


def _dual_stream(subject: LaunchSubject) -> bool:
    return bool(parse_integer(subject.launch.variable(DUAL_STREAM)))
