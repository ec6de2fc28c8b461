"""Checks of a server launch: text → `Launch` → `LaunchSubject` → rules → findings.

Not a dry run: nothing of an engine is imported or started. The rules live in `any_engine/`,
`vllm/` and `sglang/`; importing this package registers them all.
"""

from inkling_cli.checks.launch import any_engine, sglang, vllm
from inkling_cli.checks.launch.registry import LAUNCH_RULES

__all__ = ["LAUNCH_RULES", "any_engine", "sglang", "vllm"]
