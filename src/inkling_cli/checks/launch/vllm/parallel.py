"""Rules over vLLM's parallel sizes; expert parallelism is in `expert_parallel.py`."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import Launch, parse_integer
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.layers import head_counts, kv_head_counts
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.adapter.model_spec import ModelSpec

TENSOR, DATA = "--tensor-parallel-size", "--data-parallel-size"
_WARM_UP_RANK = 8
"""The rank of the adapters that vLLM makes up to warm up."""


def parallel_size(launch: Launch, option: str) -> int:
    """Return a parallel size; absent or unreadable counts as 1."""
    size = launch.integer(option)
    return size if size is not None and size > 0 else 1


@LAUNCH_RULES.rule(
    "VLM401",
    "tp-does-not-divide-heads",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ENGINE_CONFIG,
)
def check_tp_does_not_divide_heads(subject: LaunchSubject) -> Iterator[Defect]:
    """`--tensor-parallel-size` does not divide the attention heads.

    *What it checks*: the size against the numbers of attention heads in the model's config.

    *Why it matters*: vLLM refuses to start.

    *How to fix*: take a size that divides them: 1, 2, 4 or 8 for the released Inkling.
    """
    spec, size = subject.model.spec, parallel_size(subject.launch, TENSOR)
    heads = [count for count in head_counts(spec) if count % size] if spec else []
    if spec and heads:
        yield Defect(
            f"`{TENSOR}` is {size}, expected a divisor of {heads[0]} attention heads",
            f"`{TENSOR} {_largest_size(spec, size)}` is the next smaller size that fits",
            subject.at(TENSOR),
        )


@LAUNCH_RULES.rule(
    "VLM402", "tp-above-kv-heads", Severity.ERROR, engine=Engine.VLLM, stage=Stage.MODEL
)
def check_tp_above_kv_heads(subject: LaunchSubject) -> Iterator[Defect]:
    """`--tensor-parallel-size` is larger than a layer's number of K/V heads, or does not divide it.

    *What it checks*: the size against the K/V heads of every kind of layer in the model's config.

    *Why it matters*: vLLM stops while it builds the model: the cache of the short convolutions
    keeps at least one whole K/V head on each rank. The released Inkling has 8 in its global layers.

    *How to fix*: take a size that divides the smallest number: 1, 2, 4 or 8 for the released
    Inkling. Use pipeline or data parallelism for more GPUs.
    """
    spec, size = subject.model.spec, parallel_size(subject.launch, TENSOR)
    if spec is None or any(count % size for count in head_counts(spec)):
        return
    wrong = [count for count in kv_head_counts(spec) if count % size]
    if wrong:
        yield Defect(
            f"`{TENSOR}` is {size}, expected a divisor of {wrong[0]} K/V heads",
            f"`{TENSOR} {_largest_size(spec, size)}` is the next smaller size that fits",
            subject.at(TENSOR),
        )


@LAUNCH_RULES.rule(
    "VLM407", "no-warm-up-rank", Severity.ERROR, engine=Engine.VLLM, stage=Stage.WRAP
)
def check_no_warm_up_rank(subject: LaunchSubject) -> Iterator[Defect]:
    """Fully sharded LoRA has no rank up to `--max-lora-rank` that tensor parallelism divides.

    *What it checks*: with `--fully-sharded-loras`, `--tensor-parallel-size` against
    `--max-lora-rank`.

    *Why it matters*: vLLM warms up with made-up adapters of rank 8, rounded up to a multiple of the
    tensor parallel size; where that is above the limit it stops.

    *How to fix*: raise `--max-lora-rank` to the tensor parallel size, or leave
    `--fully-sharded-loras` out.
    """
    launch = subject.launch
    size = parallel_size(launch, TENSOR)
    limit = parse_integer(launch.text("--max-lora-rank") or "16")
    is_sharded = launch.is_on("--fully-sharded-loras") and subject.lora_enabled and size > 1
    if not is_sharded or limit is None:
        return
    rank = min(limit, _WARM_UP_RANK)
    rounded = -(-rank // size) * size
    if rounded > limit:
        yield launch_defect(
            launch,
            f"`--max-lora-rank` is {limit}, fully sharded LoRA over {size} ranks warms up with "
            f"rank {rounded}",
            subject.at("--fully-sharded-loras"),
            remove=["--fully-sharded-loras"],
        )


@LAUNCH_RULES.rule(
    "VLM408",
    "parallel-sizes-disagree",
    Severity.ERROR,
    engine=Engine.VLLM,
    stage=Stage.ENGINE_CONFIG,
)
def check_parallel_sizes_disagree(subject: LaunchSubject) -> Iterator[Defect]:
    """A rank or a part of a parallel size does not fit the size.

    *What it checks*: `--data-parallel-rank` and `--data-parallel-size-local` against
    `--data-parallel-size`, and that `--decode-context-parallel-size` divides
    `--tensor-parallel-size` (without prefill context parallelism).

    *Why it matters*: vLLM refuses to start.

    *How to fix*: correct one of the two.
    """
    launch, data_parallel = subject.launch, parallel_size(subject.launch, DATA)
    rank, local = launch.integer("--data-parallel-rank"), launch.integer(DATA + "-local")
    if rank is not None and rank >= 0 and (data_parallel == 1 or rank >= data_parallel):
        expected = "above 1" if data_parallel == 1 else f"above {rank}"
        yield _mismatch(
            subject, "--data-parallel-rank", rank, f"`{DATA}` {expected}", data_parallel
        )
    if local is not None and local > data_parallel:
        expected = f"`{DATA}` of at least {local}"
        yield _mismatch(subject, DATA + "-local", local, expected, data_parallel)
    context = parallel_size(launch, "--decode-context-parallel-size")
    prefill = parallel_size(launch, "--prefill-context-parallel-size")
    size = parallel_size(launch, TENSOR)
    if prefill == 1 and size % context:
        expected = f"`{TENSOR}` to be a multiple"
        yield _mismatch(subject, "--decode-context-parallel-size", context, expected, size)


def _mismatch(
    subject: LaunchSubject, option: str, value: int, expected: str, actual: int
) -> Defect:
    return Defect(
        f"`{option}` is {value}, expected {expected}, which is {actual}",
        "correct one of the two",
        subject.at(option),
    )


def _largest_size(spec: ModelSpec, size: int) -> int:
    """Return the largest tensor parallel size up to another one that fits all heads."""
    counts = (*head_counts(spec), *kv_head_counts(spec))
    fitting = (n for n in range(min(size, *counts), 0, -1) if not any(c % n for c in counts))
    return next(fitting, 1)
