"""The JSON object of `inkling diff`. Every key is always there; what is not measured is null."""

from typing import Any

from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.difference import Difference, ModuleDifference


def difference_object(difference: Difference, tolerance: float) -> dict[str, Any]:
    """Return the JSON object of a difference, less `version` and `command`.

    `distance` is the Frobenius norm of the difference of the deltas, `relative` the same over the
    larger `norm`, both exactly 0 where `equal`. `norm` and `cosine` are of modules that differ,
    `distance` and `relative` are null where a factor holds NaN or infinity. `beyond_tolerance`
    says what makes the exit code 1.
    """
    names = difference.names
    apart = difference.beyond(tolerance)
    beyond = {module.site for module in apart}
    return {
        "status": "different" if apart else "same",
        "tolerance": tolerance,
        "num_modules": len(difference.modules),
        "num_beyond_tolerance": len(apart),
        "first": _adapter_object(difference.first),
        "second": _adapter_object(difference.second),
        "names": {
            "num_common": names.num_common,
            "only_first": list(names.only_first),
            "only_second": list(names.only_second),
        },
        "config": [
            {
                "key": key.key,
                "first": key.first,
                "second": key.second,
                "decides_effect": key.decides_effect,
            }
            for key in difference.config
        ],
        "modules": [
            _module_object(module) | {"beyond_tolerance": module.site in beyond}
            for module in difference.modules
        ],
    }


def _adapter_object(adapter: Adapter) -> dict[str, Any]:
    return {
        "path": str(adapter.path),
        "dialect": adapter.dialect.name,
        "rank": adapter.config.rank,
        "alpha": adapter.config.alpha,
        "use_rslora": adapter.config.use_rslora,
        "dtypes": list(adapter.dtypes),
        "not_compared": list(adapter.base_copies),
    }


def _module_object(module: ModuleDifference) -> dict[str, Any]:
    delta = module.delta
    return {
        "site": str(module.site),
        "in": module.presence.value,
        "fate": delta.fate.value,
        "equal": delta.fate.is_equal,
        "distance": delta.distance,
        "relative": delta.relative,
        "norm": {"first": delta.norms[0], "second": delta.norms[1]} if delta.norms else None,
        "cosine": delta.cosine,
        "experts": {
            "total": module.experts,
            "apart": delta.num_experts_apart,
            "worst": delta.worst_expert,
        }
        if module.experts
        else None,
    }
