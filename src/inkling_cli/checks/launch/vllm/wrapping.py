"""Which modules vLLM wraps for LoRA, by `--lora-target-modules` and `--fully-sharded-loras`.

A target is the last part of a module's path or the whole path; a slice stands for the module that
holds it. The trap: with targets given, a match that cannot be wrapped stops the server, and a
target that matches nothing is passed over without a word.
"""

from collections.abc import Iterable, Iterator

from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.layers import EXPERT_STACKS, PARENTS, PROJECTIONS, QKVR
from inkling_runtime.adapter.model_spec import ModelSpec

SHARED_FLAG = "--enable-moe-shared-loras"
TARGETS = "--lora-target-modules"
_TOP = ("model", "model.embed_tokens", "model.layers", "model.norm", "logits_processor")
_IN_EVERY_LAYER = (
    *("conv_state", "attn_norm", "attn", "attn.rel_logits_proj", "attn.q_norm", "attn.k_norm"),
    *("attn.conv_owner", "attn.k_sconv", "attn.k_sconv.owner", "attn.v_sconv"),
    *("attn.v_sconv.owner", "attn_sconv", "attn_sconv.owner", "mlp", "mlp_norm"),
    *("mlp_sconv", "mlp_sconv.owner"),
)
_IN_EXPERT_LAYERS = (
    "mlp.gate",
    "mlp.experts.routed_experts",
    "mlp.experts.routed_experts.quant_method",
    "mlp.sink_experts",
)


def server_targets(subject: LaunchSubject) -> tuple[str, ...] | None:
    """Return the values of `--lora-target-modules`, or None where there is no such filter."""
    values = subject.launch.values(TARGETS)
    if not values or any(map(is_unknown, values)):
        return None
    return values


def is_wrapped(path: str, subject: LaunchSubject) -> bool:
    """Return whether vLLM wraps the module of a slot (`layers.py`) or of a layer's experts."""
    is_qkvr = path.rpartition(".")[2] in QKVR
    if is_qkvr and subject.launch.is_on("--fully-sharded-loras"):
        return False
    return passes_targets(path, subject)


def passes_targets(path: str, subject: LaunchSubject) -> bool:
    """Return whether the targets of the server, if there are any, let a module through."""
    parent, _, last = path.rpartition(".")
    if last in PARENTS:
        path = f"{parent}.{PARENTS[last]}"
    targets = server_targets(subject)
    return targets is None or _matches(path, set(targets), subject)


def unwrappable_matches(subject: LaunchSubject) -> Iterator[tuple[str, str]]:
    """Yield targets of the server that match a module that cannot be wrapped, with that module."""
    paths = list(_unwrappable_paths(subject.model.spec))
    if subject.launch.is_on("--fully-sharded-loras"):
        paths += [f"model.layers.{layer}.attn.qkvr" for layer in _layers(subject.model.spec)]
    for target in server_targets(subject) or ():
        found = next((path for path in paths if _matches(path, {target}, subject)), None)
        if found is not None:
            yield target, found


def matches_nothing(target: str, subject: LaunchSubject) -> bool:
    """Return whether no module of the base model passes a target."""
    spec = subject.model.spec
    known = [f"model.layers.{layer}.{module}" for layer in _layers(spec) for module in _WRAPPED]
    paths = [*known, "lm_head", *_unwrappable_paths(spec)]
    return not any(_matches(path, {target}, subject) for path in paths)


_WRAPPED = (
    *("attn.qkvr", "attn.wo_ud", "mlp.gate_up_proj", "mlp.down_proj"),
    *("mlp.experts", "mlp.sink_experts.w13", "mlp.sink_experts.w2"),
)


def _matches(path: str, targets: set[str], subject: LaunchSubject) -> bool:
    last = path.rpartition(".")[2]
    if last in targets or path in targets:
        return True
    return not targets.isdisjoint(_children(last, subject))


def _children(last: str, subject: LaunchSubject) -> Iterable[str]:
    """Return the names under which an adapter knows the parts of a module."""
    if last != "experts":
        return [child for child, parent in PARENTS.items() if parent == last]
    if subject.launch.is_on(SHARED_FLAG):
        return EXPERT_STACKS
    number = subject.model.spec.num_experts if subject.model.spec else 0
    return [f"experts.{e}.{name}" for e in range(number) for name in PROJECTIONS]


def _layers(spec: ModelSpec | None) -> range:
    return range(spec.num_layers if spec else 1)


def _unwrappable_paths(spec: ModelSpec | None) -> Iterator[str]:
    """Yield the paths of the modules of an Inkling that are no LoRA targets."""
    yield from _TOP
    if spec is None or spec.config.get("use_embed_norm"):
        yield "model.embed_norm"
    dense = (spec.config.get("dense_mlp_idx") or 0) if spec else 0
    for layer in _layers(spec):
        prefix = f"model.layers.{layer}"
        yield prefix
        yield from (f"{prefix}.{name}" for name in _IN_EVERY_LAYER)
        if layer >= dense:
            yield from (f"{prefix}.{name}" for name in _IN_EXPERT_LAYERS)
