"""The memory of a launch: what it says, what its adapters say, put through the formulas.

No I/O; the model's config and the adapters' headers were read with the launch.
"""

from collections.abc import Sequence

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.memory_setup import read_setup
from inkling_cli.checks.launch.subject import LaunchSubject, ModelFacts
from inkling_cli.checks.launch.vllm.limits import smallest_allowed_rank
from inkling_cli.memory.plan import AdapterSize, ServerPlan, plan_server
from inkling_cli.memory.setup import Setup
from inkling_cli.memory.slots import BYTES_PER_ELEMENT
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.safetensors_file import TensorInfo
from inkling_runtime.adapter.sites import Group
from inkling_runtime.errors import InklingError


def plan_launch(
    subject: LaunchSubject, gpu_bytes: int | None = None
) -> tuple[ServerPlan, tuple[str, ...]]:
    """Return the memory of a launch, and what had to be assumed.

    Raises:
        InklingError: the sizes of the base model are not known.
    """
    spec = require_spec(subject.model)
    read = read_setup(subject, spec)
    adapters = adapter_sizes(subject.adapters, read.setup, spec)
    plan = plan_server(spec, read.setup, adapters, adapter_limit(subject), gpu_bytes)
    return plan, read.assumptions


def require_spec(model: ModelFacts) -> ModelSpec:
    """Return the sizes of the base model.

    Raises:
        InklingError: they are not known, and why.
    """
    if model.spec is not None:
        return model.spec
    hint = "pass its config with `--model DIR|config.json`"
    if model.problem is not None:
        raise InklingError(model.problem, hint)
    if model.is_inkling is False:
        raise InklingError(f"`{model.config_path}` is not the config of an Inkling", hint)
    if model.ref is None:
        raise InklingError("the launch names no model", hint)
    raise InklingError(f"the config of `{model.ref}` is not on this machine", hint)


def adapter_limit(subject: LaunchSubject) -> int | None:
    """Return the smallest rank limit that the adapters need; None if some are not here."""
    if not subject.adapters or subject.unread:
        return None
    if subject.engine is Engine.SGLANG:
        return max(adapter.config.rank for adapter in subject.adapters)
    return smallest_allowed_rank(max(adapter.max_rank for adapter in subject.adapters))


def adapter_sizes(
    adapters: Sequence[AdapterFacts], setup: Setup, spec: ModelSpec
) -> tuple[AdapterSize, ...]:
    """Return the sizes of the adapters that were read.

    A worker keeps the whole adapter, whatever the tensor parallel size: vLLM in bf16 (of experts
    that are dealt to ranks only its own), SGLang as stored.
    """
    return tuple(
        AdapterSize(
            adapter.name,
            adapter.max_rank,
            adapter.adapter.file.file_size,
            _vllm_host_bytes(adapter, setup, spec)
            if setup.engine == "vllm"
            else sum(tensor.nbytes for tensor in adapter.adapter.file.tensors.values()),
        )
        for adapter in adapters
    )


def _vllm_host_bytes(adapter: AdapterFacts, setup: Setup, spec: ModelSpec) -> int:
    elements = 0
    for module in adapter.adapter.modules:
        is_routed = module.sites[0].kind.group is Group.ROUTED
        for tensor in filter(None, (module.a, module.b)):
            dealt = is_routed and _is_of_experts(tensor, spec)
            elements += tensor.num_elements // (setup.parallel.expert if dealt else 1)
    return BYTES_PER_ELEMENT * elements


def _is_of_experts(tensor: TensorInfo, spec: ModelSpec) -> bool:
    """Return whether a routed factor holds one block for each expert, or is one expert's."""
    return len(tensor.shape) == 2 or tensor.shape[0] == spec.num_experts
