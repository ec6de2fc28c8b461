"""Rules over an Inkling's sizes, which have to divide evenly among the GPUs of an SGLang server."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.limits import num_slots
from inkling_cli.checks.launch.sglang.parallel import attention_groups, size_of
from inkling_cli.checks.launch.sglang.pool import adapts_experts
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.adapter.model_spec import ModelSpec

_ERROR, _SGLANG = Severity.ERROR, Engine.SGLANG
MAX_VIRTUAL_EXPERTS = 8191
"""Experts times slots that the kernels of virtual experts can count."""


@LAUNCH_RULES.rule("SGL519", "heads-do-not-divide", _ERROR, engine=_SGLANG, stage=Stage.MODEL)
def check_heads_do_not_divide(subject: LaunchSubject) -> Iterator[Defect]:
    """The attention heads do not divide evenly among the GPUs.

    *What it checks*: query heads, and key and value heads, of every kind of layer against the GPUs
    of one attention group. Fewer key heads than GPUs are copied, if they divide the GPUs.

    *Why it matters*: SGLang stops while it builds the model.

    *How to fix*: give a `--tp-size` that divides the heads.
    """
    spec, ranks = subject.model.spec, _attention_ranks(subject)
    if spec is None or ranks is None:
        return
    for what, heads in _heads(spec):
        divides = heads % ranks == 0 or (what == "key" and ranks % heads == 0)
        if not divides:
            expected = "a divisor" if what == "query" else "a divisor or a multiple"
            yield Defect(
                f"{ranks} GPUs share {heads} {what} heads, expected {expected} of {heads}",
                f"give a `--tp-size` that divides {heads}",
                subject.at("--tp-size"),
            )
            return


@LAUNCH_RULES.rule("SGL520", "experts-do-not-divide", _ERROR, engine=_SGLANG, stage=Stage.MODEL)
def check_experts_do_not_divide(subject: LaunchSubject) -> Iterator[Defect]:
    """The experts do not divide evenly among the GPUs.

    *What it checks*: the number of experts against `--ep-size`; the width of an expert against the
    GPUs that share it; the width of the dense and shared MLPs against `--tp-size`.

    *Why it matters*: SGLang stops while it builds the model.

    *How to fix*: give sizes that divide the model's.
    """
    spec, world, ep = (
        subject.model.spec,
        size_of(subject, "--tp-size"),
        size_of(subject, "--ep-size"),
    )
    if spec is None or not world or not ep or min(world, ep) < 1 or world % ep:
        return
    sizes = (
        ("experts", spec.num_experts, "--ep-size", ep),
        ("channels in an expert", spec.expert_width, "--tp-size", world // ep),
        ("channels in a dense MLP", spec.dense_width, "--tp-size", world),
        ("channels in a shared expert", spec.expert_width, "--tp-size", world),
    )
    for what, size, name, ranks in sizes:
        if size % ranks:
            yield Defect(
                f"{ranks} GPUs share {size} {what}, expected a divisor of {size}",
                f"give a `{name}` that divides {size}",
                subject.at(name),
            )
            return


@LAUNCH_RULES.rule(
    "SGL108", "too-many-virtual-experts", _ERROR, engine=_SGLANG, stage=Stage.FIRST_USE
)
def check_too_many_virtual_experts(subject: LaunchSubject) -> Iterator[Defect]:
    """Experts times slots is more than virtual experts can count.

    *What it checks*: the model's experts times `--max-loras-per-batch` where
    `--lora-use-virtual-experts` is given.

    *Why it matters*: the scheduler fails at the first request that uses an adapter.

    *How to fix*: lower `--max-loras-per-batch`.
    """
    spec, slots = subject.model.spec, num_slots(subject)
    if spec is None or not adapts_experts(subject) or not subject.lora_enabled:
        return
    count = spec.num_experts * slots
    if subject.launch.is_on("--lora-use-virtual-experts") and count > MAX_VIRTUAL_EXPERTS:
        most = MAX_VIRTUAL_EXPERTS // spec.num_experts
        yield Defect(
            f"{spec.num_experts} experts in {slots} slots are {count} virtual experts, "
            f"expected at most {MAX_VIRTUAL_EXPERTS}",
            f"give `--max-loras-per-batch` at most {most}",
            subject.at("--max-loras-per-batch"),
        )


def _attention_ranks(subject: LaunchSubject) -> int | None:
    """Return the GPUs that share one attention group; None if that is not known or uneven."""
    world, groups = size_of(subject, "--tp-size"), attention_groups(subject)
    context = size_of(subject, "--attn-cp-size")
    if not world or not groups or not context or min(world, groups, context) < 1:
        return None
    return None if world % (groups * context) else world // (groups * context)


def _heads(spec: ModelSpec) -> Iterator[tuple[str, int]]:
    kinds = {(layer.num_heads, layer.num_kv_heads) for layer in spec.layers}
    for heads, kv_heads in sorted(kinds):
        yield "query", heads
        yield "key", kv_heads
