"""Rules over expert parallelism beside LoRA."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.parallel import DATA, TENSOR, parallel_size
from inkling_cli.checks.launch.vllm.wrapping import is_wrapped
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_EP = "--enable-expert-parallel"
_A2A = "--all2all-backend"
_PLAIN_A2A = "allgather_reducescatter"
_SAME_AS_PLAIN = (_PLAIN_A2A, "naive", "pplx")
"""Backends that vLLM replaces by the plain one."""


@LAUNCH_RULES.rule(
    "VLM403", "ep-backend-without-lora", Severity.ERROR, engine=Engine.VLLM, stage=Stage.WRAP
)
def check_ep_backend_without_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """Expert parallelism uses an all-to-all backend that cannot carry adapters.

    *What it checks*: `--all2all-backend` with `--enable-expert-parallel` and LoRA enabled.

    *Why it matters*: vLLM stops with an assertion when it wraps the experts: only
    `allgather_reducescatter` tells each token's adapter to the rank that computes it.

    *How to fix*: leave `--all2all-backend` out.
    """
    backend = subject.launch.text(_A2A)
    if _has_expert_lora(subject) and backend and backend not in _SAME_AS_PLAIN:
        yield launch_defect(
            subject.launch,
            f"`{_A2A}` is `{backend}`, LoRA with `{_EP}` needs `{_PLAIN_A2A}`",
            subject.at(_A2A),
            remove=[_A2A],
        )


@LAUNCH_RULES.rule(
    "VLM404", "ep-with-sequence-parallel", Severity.ERROR, engine=Engine.VLLM, stage=Stage.WRAP
)
def check_ep_with_sequence_parallel(subject: LaunchSubject) -> Iterator[Defect]:
    """Expert parallelism over tensor and data parallel ranks makes the experts sequence parallel.

    *What it checks*: `--enable-expert-parallel` with LoRA enabled where both
    `--tensor-parallel-size` and `--data-parallel-size` are above 1.

    *Why it matters*: vLLM then splits the tokens over the tensor parallel ranks on its own, which
    LoRA cannot do, and stops with an assertion when it wraps the experts.

    *How to fix*: use tensor or data parallelism alone beside expert parallelism.
    """
    sizes = (parallel_size(subject.launch, TENSOR), parallel_size(subject.launch, DATA))
    backend = subject.launch.text(_A2A) or _PLAIN_A2A
    if _has_expert_lora(subject) and min(sizes) > 1 and backend in _SAME_AS_PLAIN:
        yield Defect(
            f"`{_EP}` with `{TENSOR}` {sizes[0]} and `{DATA}` {sizes[1]} splits tokens over ranks, "
            "which LoRA cannot; expected one of the two sizes to be 1",
            f"`{TENSOR} {sizes[0] * sizes[1]}` or `{DATA} {sizes[0] * sizes[1]}` alone",
            subject.at(_EP),
        )


@LAUNCH_RULES.rule(
    "VLM405", "ep-with-fully-sharded", Severity.ERROR, engine=Engine.VLLM, stage=Stage.WRAP
)
def check_ep_with_fully_sharded(subject: LaunchSubject) -> Iterator[Defect]:
    """Expert parallelism together with fully sharded LoRA.

    *What it checks*: `--enable-expert-parallel` and `--fully-sharded-loras`, with LoRA enabled and
    experts among the targets, on more than one GPU.

    *Why it matters*: vLLM stops with an assertion when it wraps the experts.

    *How to fix*: leave `--fully-sharded-loras` out.
    """
    if _has_expert_lora(subject) and subject.launch.is_on("--fully-sharded-loras"):
        yield launch_defect(
            subject.launch,
            f"`{_EP}` and `--fully-sharded-loras` are both on, which LoRA on experts cannot do",
            subject.at("--fully-sharded-loras"),
            remove=["--fully-sharded-loras"],
        )


@LAUNCH_RULES.rule(
    "VLM406",
    "ep-does-not-divide-experts",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ADAPTER_LOAD,
)
def check_ep_does_not_divide_experts(subject: LaunchSubject) -> Iterator[Defect]:
    """Expert parallelism has a size that does not divide the routed experts.

    *What it checks*: with LoRA and `--enable-expert-parallel`, tensor times data parallel size
    against the number of routed experts in the model's config; adapters without experts are not
    concerned.

    *Why it matters*: vLLM rounds the number of experts up, and an adapter's experts then fit no
    longer: it is refused with an assertion about the expert dimension.

    *How to fix*: take sizes whose product divides the experts (256 in the released Inkling).
    """
    launch, spec = subject.launch, subject.model.spec
    size = parallel_size(launch, TENSOR) * parallel_size(launch, DATA)
    adapters = [facts.stacked_experts() or facts.numbered_experts() for facts in subject.adapters]
    is_used = any(adapters) or not adapters
    if spec and _has_expert_lora(subject) and spec.num_experts % size and is_used:
        yield Defect(
            f"expert parallel size {size} (`{TENSOR}` times `{DATA}`) does not divide "
            f"{spec.num_experts} routed experts",
            "take sizes whose product divides the experts",
            subject.at(_EP),
        )


def _has_expert_lora(subject: LaunchSubject) -> bool:
    """Return whether experts are spread over ranks and may be adapted."""
    launch = subject.launch
    is_spread = parallel_size(launch, TENSOR) * parallel_size(launch, DATA) > 1
    is_on = subject.lora_enabled and subject.is_inkling and launch.is_on(_EP) and is_spread
    return is_on and is_wrapped("model.layers.0.mlp.experts", subject)
