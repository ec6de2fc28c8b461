"""Rules over launches of vLLM, codes VLM: environment, limits, switches, adapters."""

from inkling_cli.checks.launch.vllm import adapters, environment, limits, switches

__all__ = ["adapters", "environment", "limits", "switches"]
