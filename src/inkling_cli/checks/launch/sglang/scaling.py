"""The scale that SGLang applies, against the one that an adapter's config asks for. No rules.

The trap: SGLang takes `lora_alpha` / `r` for every module, whatever else the config says.
"""

from math import isclose

from inkling_cli.checks.effect import module_name
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.sglang.causes import Cause, Found
from inkling_runtime.adapter.lora_config import LoraConfig


def served_scale(config: LoraConfig) -> float:
    """Return the scale that SGLang applies to every module of an adapter."""
    return config.alpha / config.rank


def wrong_scale(adapter: AdapterFacts, module: str) -> Found | None:
    """Return why a module gets another scale or rank than it should; None if it does not."""
    config = adapter.config
    if not (config.use_rslora or config.rank_pattern or config.alpha_pattern):
        return None
    served, meant, rank = served_scale(config), config.scaling_of(module), config.rank_of(module)
    if rank != config.rank:
        return Cause.RANK_PATTERN, f"its rank is {rank}, SGLang expects `r` {config.rank}"
    if isclose(meant, served, rel_tol=1e-6):
        return None
    cause = Cause.RSLORA if config.use_rslora else Cause.ALPHA_PATTERN
    return cause, f"its scale is {meant:.4g}, SGLang applies {served:.4g}"


def wrongly_scaled(adapter: AdapterFacts, cause: Cause) -> list[str]:
    """Return the modules of an adapter that get a wrong scale for one cause, in order."""
    names = dict.fromkeys(map(module_name, adapter.adapter.file.tensors))
    scales = ((name, wrong_scale(adapter, name)) for name in names)
    return [name for name, found in scales if found is not None and found[0] is cause]
