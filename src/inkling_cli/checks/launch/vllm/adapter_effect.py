"""Rules over parts of an adapter that vLLM accepts and does not apply as they are meant."""

import re
from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.layers import AdaptableModules, adaptable_modules
from inkling_cli.checks.launch.vllm.loader import converts_packed, is_refused_for_itself
from inkling_cli.checks.launch.vllm.loader_names import is_base_copy, parse_factor_name
from inkling_cli.checks.launch.vllm.wrapping import SHARED_FLAG
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_OUTER = re.compile(r"\.experts\.(?:w[13]\.lora_A|w2\.lora_B)\.weight$")
_EXPERT_PART = re.compile(r"(.*\.mlp\.experts)\..+")
_PLACE = re.compile(
    r"model\.layers\.\d+\.(?:attn\.(?:w[qkvr]_d[uv]|wo_ud)|mlp\.(?:gate_up_proj|down_proj)"
    r"|mlp\.sink_experts\.w[123]|mlp\.experts(?:\..+)?)|lm_head"
)
"""Where a module can lie, for a model whose sizes are not known."""


@LAUNCH_RULES.rule(
    "VLM212", "modules-dropped-by-name", Severity.ERROR, engine=Engine.VLLM, stage=Stage.SERVED
)
def check_modules_dropped_by_name(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter has modules whose paths lead nowhere in vLLM.

    *What it checks*: with LoRA enabled on an Inkling, the path of every module that vLLM accepts
    against the modules that it adapts: one `model.` too many, `layers.` without a prefix, draft
    layers. (Shared experts under the released name and layers that the model does not have are
    LCH205's.)

    *Why it matters*: vLLM looks at the last part of a path when it accepts a name, and at the whole
    path when it applies it. The module has no effect; the only trace is a debug line.

    *How to fix*: `inkling convert-adapter ADAPTER --to vllm -o OUT` writes paths that it applies.
    """
    for facts in _served(subject):
        dropped = _dropped(subject, facts)
        if dropped:
            yield Defect(
                f"adapter `{facts.name}`: vLLM drops {len(dropped)} modules silently "
                f"({format_names(dropped)})",
                f"`inkling convert-adapter {facts.folder} --to vllm -o OUT`",
                Location(str(facts.adapter.file.path), key=dropped[0]),
            )


@LAUNCH_RULES.rule(
    "VLM213", "outer-factor-cut", Severity.ERROR, engine=Engine.VLLM, stage=Stage.SERVED
)
def check_outer_factor_cut(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter has an outer factor per expert, of which vLLM keeps the first expert's.

    *What it checks*: with `--enable-moe-shared-loras`, that the hidden-side factor of the stacked
    experts (lora_A of `w1` and `w3`, lora_B of `w2`) is stored once; and that no packed experts are
    converted, which have one per expert too.

    *Why it matters*: vLLM takes the first expert's factor for all experts, without a message.

    *How to fix*: `inkling convert-adapter ADAPTER --to vllm -o OUT`, and serve the result without
    `--enable-moe-shared-loras` if the factors differ.
    """
    for facts in _served(subject) if subject.launch.is_on(SHARED_FLAG) else ():
        wrong = [
            name
            for name, tensor in facts.adapter.file.tensors.items()
            if _OUTER.search(name) and len(tensor.shape) == 3 and tensor.shape[0] > 1
        ]
        if converts_packed(subject, facts):
            wrong += [name for name in facts.modules() if name.endswith(".mlp.experts")]
        if wrong:
            yield Defect(
                f"adapter `{facts.name}`: `{wrong[0]}` is stored per expert, with `{SHARED_FLAG}` "
                "vLLM keeps the first expert's for all",
                f"`inkling convert-adapter {facts.folder} --to vllm -o OUT`",
                Location(str(facts.adapter.file.path), key=wrong[0]),
            )


def _served(subject: LaunchSubject) -> Iterator[AdapterFacts]:
    """Yield the adapters that vLLM does not refuse under every launch."""
    if subject.lora_enabled and subject.is_inkling:
        for facts in subject.adapters:
            if not is_refused_for_itself(subject, facts):
                yield facts


def _dropped(subject: LaunchSubject, facts: AdapterFacts) -> list[str]:
    """Return the names on disk of modules that reach nothing, but for what LCH205 tells."""
    spec = subject.model.spec
    known = adaptable_modules(spec) if spec else None
    understood = {module.name for module in facts.adapter.modules}
    names = set(facts.adapter.file.tensors)
    paths = {}
    for name in names:
        factor = None if is_base_copy(name) else parse_factor_name(name)
        if factor is not None:
            paths[name.removesuffix(".weight").rpartition(".")[0]] = factor.module
    found = []
    for module, path in sorted(paths.items()):
        is_rooted = path.startswith("model.layers.") or path == "lm_head"
        is_told = module in understood and is_rooted
        if not is_told and not _reaches(path, known, set(paths.values())):
            found.append(module)
    return found


def _reaches(path: str, known: AdaptableModules | None, paths: set[str]) -> bool:
    if path.endswith(".mlp.experts.base_layer"):
        return path.removesuffix(".base_layer") in paths
    if known is None:
        return _PLACE.fullmatch(path) is not None
    part = _EXPERT_PART.fullmatch(path)
    return path in known.slots or (part[1] if part else path) in known.expert_layers
