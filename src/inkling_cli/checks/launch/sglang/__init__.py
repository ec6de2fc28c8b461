"""Rules over launches of SGLang, codes SGL.

0 arguments, 1 slots and kept adapters, 2 adapters and targets, 3 layouts, 4 scales, 5 runners and
parallelism, 6 speculative decoding, 7 environment, 8 what the model itself demands.
"""

from inkling_cli.checks.launch.sglang import (
    adapter_files,
    adapter_targets,
    arguments,
    chat,
    command,
    companions,
    effect_rules,
    expert_placement,
    layout_rules,
    layouts,
    limits,
    model,
    model_config,
    model_sizes,
    moe_runners,
    parallel,
    scales,
    speculative,
    store,
    targets,
    variables,
)

__all__ = [
    "adapter_files",
    "adapter_targets",
    "arguments",
    "chat",
    "command",
    "companions",
    "effect_rules",
    "expert_placement",
    "layout_rules",
    "layouts",
    "limits",
    "model",
    "model_config",
    "model_sizes",
    "moe_runners",
    "parallel",
    "scales",
    "speculative",
    "store",
    "targets",
    "variables",
]
