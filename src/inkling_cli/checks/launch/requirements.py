"""What a launch must pass so that an adapter is applied: options and environment, by engine.

The one place that knows the best launch for an adapter; whether even that one applies it whole is
judged elsewhere. `--load` and the rules' remedies start from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.sglang.pool import declared_targets, needed_targets
from inkling_cli.checks.launch.sglang.reading import detected_layouts
from inkling_cli.checks.launch.vllm.limits import smallest_allowed_rank
from inkling_cli.checks.sglang_targets import POOL_TARGETS
from inkling_runtime.adapter.adapter import A_SUFFIX
from inkling_runtime.adapter.adapter_module import AdapterModule
from inkling_runtime.adapter.convert.plan import Conversion


@dataclass(frozen=True, slots=True)
class Needs:
    """What of an adapter decides how it must be served.

    Attributes:
        rank: the largest of its config and of its tensors.
        has_stacks: whether its routed experts are `experts.w1`, `w2`, `w3`.
        is_packed: whether its routed experts are packed as PEFT packs them.
        is_shared_outer: whether SGLang sees a hidden side that is stored once.
        targets: the modules that SGLang has to hold for it, in the pool's order.
        names_all_targets: whether its own config names all of these.
    """

    rank: int
    has_stacks: bool = False
    is_packed: bool = False
    is_shared_outer: bool = False
    targets: tuple[str, ...] = ()
    names_all_targets: bool = True


@dataclass(frozen=True, slots=True)
class Requirements:
    """Options (empty for a switch) and environment variables that a launch must pass."""

    flags: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    def words(self) -> list[str]:
        """Return the options as words of a command."""
        return [word for name, value in self.flags.items() for word in (name, *value.split())]


def needs_of(facts: AdapterFacts) -> Needs:
    """Return what decides how an adapter on disk must be served."""
    tensors = facts.adapter.file.tensors.values()
    ranks = [t.shape[-2] for t in tensors if t.name.endswith(A_SUFFIX) and len(t.shape) == 3]
    modules = facts.adapter.modules
    ranks += [m.b.shape[-1] for m in modules if m.b is not None and m.b.shape and not _packs(m)]
    needed, declared = set(needed_targets(facts)), declared_targets(facts)
    targets = needed | (set(POOL_TARGETS) & set(declared or ()))
    return Needs(
        rank=max([facts.max_rank, *ranks]),
        has_stacks=bool(facts.stacked_experts()),
        is_packed=any(name.endswith(".mlp.experts") for name in facts.modules()),
        is_shared_outer=set(detected_layouts(facts)) == {True},
        targets=tuple(name for name in POOL_TARGETS if name in targets),
        names_all_targets=declared is None or needed <= {*declared, "lm_head", "embed_tokens"},
    )


def _packs(module: AdapterModule) -> bool:
    return module.parsed.row.layout.is_packed


def needs_of_conversion(conversion: Conversion) -> Needs:
    """Return the same for an adapter that a conversion is about to write."""
    outputs = [output.spec for output in conversion.outputs]
    ranks = [spec.shape[-2] for spec in outputs if spec.name.endswith(A_SUFFIX)]
    return Needs(
        rank=max(ranks, default=1),
        has_stacks=any(".mlp.experts.w" in spec.name for spec in outputs),
    )


def requirements(engine: Engine, needs: Needs, *, at_startup: bool = True) -> Requirements:
    """Return what a launch must pass for an adapter, beside the adapter and the model.

    Args:
        engine: that serves it.
        needs: the adapter's.
        at_startup: whether SGLang loads it when it starts, from `--lora-paths`, and so looks at
            it for ranks, targets and layout itself.
    """
    if engine is Engine.VLLM:
        return _for_vllm(needs)
    return _for_sglang(needs, at_startup=at_startup)


def _for_vllm(needs: Needs) -> Requirements:
    rank = smallest_allowed_rank(needs.rank) or needs.rank
    flags = {"--enable-lora": "", "--max-lora-rank": str(rank)}
    if needs.has_stacks:
        flags["--enable-moe-shared-loras"] = ""
    if needs.is_packed:
        flags["--enable-mixed-moe-lora-format"] = ""
    return Requirements(flags, {"INKLING_MULTIMEM_AR": "0"})


def _for_sglang(needs: Needs, *, at_startup: bool) -> Requirements:
    flags = {"--enable-lora": "", "--lora-backend": "triton"}
    if not at_startup:
        flags["--max-lora-rank"] = str(needs.rank)
        if needs.is_shared_outer:
            flags["--experts-shared-outer-loras"] = ""
    if not (at_startup and needs.names_all_targets):
        flags["--lora-target-modules"] = " ".join(needs.targets or ("all",))
    return Requirements(flags)
