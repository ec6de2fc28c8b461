"""Which modules SGLang's adapter pool covers, and which an adapter needs. No rules here."""

import re

from inkling_cli.checks.effect import module_name
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.sglang_targets import HALVES, POOL_TARGETS, normalise

_NEEDED = (
    (re.compile(r"\.(?:wq_du|wk_dv|wv_dv|wr_du|qkvr)$"), "qkvr"),
    (re.compile(r"\.wo_ud$"), "wo_ud"),
    (re.compile(r"\.mlp\.(?:.*\.)?(?:w1|w3|gate_proj|up_proj|gate_up_proj)$"), "gate_up_proj"),
    (re.compile(r"\.mlp\.(?:.*\.)?(?:w2|down_proj)$"), "down_proj"),
    (re.compile(r"(?:^|\.)(?:lm_head|unembed_tokens)$"), "lm_head"),
    (re.compile(r"(?:^|\.)embed_tokens$"), "embed_tokens"),
)


def declared_targets(adapter: AdapterFacts) -> list[str] | None:
    """Return what an adapter's `target_modules` list comes to; None for a word like `all`."""
    targets = adapter.config.target_modules
    return normalise(targets) if isinstance(targets, tuple) and targets != ("all",) else None


def needed_targets(adapter: AdapterFacts) -> dict[str, str]:
    """Return the pool targets that an adapter's modules need → the first module that does."""
    needed: dict[str, str] = {}
    for module in dict.fromkeys(map(module_name, adapter.adapter.file.tensors)):
        for pattern, target in _NEEDED:
            if pattern.search(module):
                needed.setdefault(target, module)
    return needed


def server_targets(subject: LaunchSubject) -> list[str] | None:
    """Return what `--lora-target-modules` comes to; None where it is not given."""
    if subject.launch.use("--lora-target-modules") is None:
        return None
    given = subject.launch.values("--lora-target-modules")
    return list(POOL_TARGETS) if "all" in given else normalise(given)


def pool_targets(subject: LaunchSubject) -> list[str] | None:
    """Return what the pool covers: the server's targets, else those of all start-up adapters.

    None where it cannot be told: no adapters, some that are not on this machine, or names that
    the pool does not have, with which no server starts.
    """
    targets = server_targets(subject)
    if targets is None:
        adapters = subject.startup_adapters
        if not adapters or len(adapters) < sum(ref.at_startup for ref in subject.launch.adapters):
            return None
        declared = [_declared_or_all(adapter) for adapter in adapters]
        targets = list(dict.fromkeys(name for names in declared for name in names))
    return targets if set(targets) <= set(POOL_TARGETS) else None


def adapts_experts(subject: LaunchSubject) -> bool:
    """Whether the experts of an Inkling are known to be adapted: both of their halves are targets.

    SGLang leaves the experts alone where only one half is a target.
    """
    targets = pool_targets(subject) or []
    return subject.is_inkling and set(HALVES) <= set(targets)


def _declared_or_all(adapter: AdapterFacts) -> list[str]:
    declared = declared_targets(adapter)
    return list(POOL_TARGETS) if declared is None else declared
