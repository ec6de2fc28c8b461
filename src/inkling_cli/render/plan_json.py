"""`inkling plan` for programs: one object for each launch. Sizes in bytes, on one rank."""

from collections.abc import Sequence
from typing import Any

from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.memory.plan import ServerPlan
from inkling_cli.memory.setup import Setup
from inkling_cli.memory.sizes import Fit
from inkling_cli.memory.slots import BYTES_PER_ELEMENT, SlotPart


def plan_object(
    subject: LaunchSubject, plan: ServerPlan, assumptions: Sequence[str]
) -> dict[str, Any]:
    """Return the object of one launch; every key is always there, unknown values are null."""
    place, sizes = subject.launch.location, plan.sizes
    return {
        "engine": subject.engine.value,
        "engine_version": subject.version,
        "location": {"file": place.file, "line": place.line},
        "model": {"ref": subject.model.ref, "config": subject.model.config_path},
        "setup": _setup_object(sizes.setup),
        "slot": {
            "bytes": sizes.slot_bytes,
            "modules": [_part_object(part) for part in sizes.slot],
        },
        "slots_bytes": sizes.slots_bytes,
        "base": {
            "bytes": sizes.base_bytes,
            "is_estimate": True,
            "parts": [{"kind": part.kind.value, "bytes": part.nbytes} for part in sizes.base],
        },
        "cache": _cache_object(plan),
        "adapters": [
            {
                "name": adapter.name,
                "rank": adapter.rank,
                "disk_bytes": adapter.disk_bytes,
                "host_bytes": adapter.host_bytes,
            }
            for adapter in plan.adapters
        ],
        "released_adapter_bytes": plan.released_bytes,
        "host": {"bytes_per_worker": plan.host_bytes, "num_workers": plan.num_workers},
        "gpu": None if plan.fit is None else _fit_object(plan.fit),
        "choices": [
            {
                "change": choice.words,
                "note": choice.note or None,
                "slots_bytes": choice.sizes.slots_bytes,
                "base_bytes": choice.sizes.base_bytes,
            }
            for choice in plan.choices
        ],
        "assumptions": list(assumptions),
    }


def _setup_object(setup: Setup) -> dict[str, Any]:
    parallel = setup.parallel
    return {
        "has_lora": setup.has_lora,
        "max_lora_rank": setup.max_rank,
        "num_slots": setup.num_slots if setup.has_lora else 0,
        "is_shared_outer": setup.is_shared_outer,
        "targets": None if setup.targets is None else list(setup.targets),
        "is_fully_sharded": setup.is_fully_sharded,
        "host_adapters": setup.host_adapters if setup.has_lora else 0,
        "weights": setup.weights.value,
        "context": setup.context,
        "parallel": {
            "tensor": parallel.tensor,
            "attention": parallel.attention,
            "expert": parallel.expert,
            "expert_tensor": parallel.expert_tensor,
            "pipeline": parallel.pipeline,
        },
    }


def _part_object(part: SlotPart) -> dict[str, Any]:
    return {
        "kind": part.kind.value,
        "a_bytes": BYTES_PER_ELEMENT * part.a,
        "b_bytes": BYTES_PER_ELEMENT * part.b,
        "idle_bytes": BYTES_PER_ELEMENT * part.idle,
        "derived_bytes": BYTES_PER_ELEMENT * part.derived,
    }


def _cache_object(plan: ServerPlan) -> dict[str, Any]:
    cache = plan.sizes.cache
    return {
        "global_bytes_per_token": cache.global_bytes_per_token,
        "sliding_bytes_per_token": cache.sliding_bytes_per_token,
        "window": cache.window,
        "conv_bytes_per_sequence": cache.conv_bytes_per_sequence,
        "length": plan.length,
        "sequence_bytes": cache.sequence_bytes(plan.length),
    }


def _fit_object(found: Fit) -> dict[str, Any]:
    return {
        "bytes": found.gpu_bytes,
        "reserve_bytes": found.reserve_bytes,
        "cache_bytes": found.cache_bytes,
        "needed_cache_bytes": found.needed_cache_bytes,
        "fits": found.is_enough,
        "max_slots": found.max_slots,
        "num_sequences": found.num_sequences,
    }
