"""Rules over launches of SGLang, codes SGL: spelling, limits, targets, layouts, scales."""

from inkling_cli.checks.launch.sglang import (
    adapter_targets,
    command,
    layouts,
    limits,
    scales,
    targets,
)

__all__ = ["adapter_targets", "command", "layouts", "limits", "scales", "targets"]
