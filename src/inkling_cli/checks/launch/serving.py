"""What a launch must pass so that a converted adapter is applied."""

from inkling_cli.checks.launch.vllm.limits import smallest_allowed_rank
from inkling_runtime.adapter.adapter import A_SUFFIX
from inkling_runtime.adapter.convert.plan import Conversion


def serving_lines(conversion: Conversion, path: str) -> tuple[str, ...]:
    """Return the environment and options to serve or load the result, a line each."""
    maker = {"vllm": _vllm, "sglang": _sglang, "peft": _peft}.get(conversion.dialect.name)
    return maker(conversion, path) if maker else ()


def _vllm(conversion: Conversion, path: str) -> tuple[str, ...]:
    rank = max(_tensor_ranks(conversion), default=1)
    limit = smallest_allowed_rank(rank) or rank
    options = f"--enable-lora --max-lora-rank {limit} --lora-modules NAME={path}"
    if any(".mlp.experts.w" in output.spec.name for output in conversion.outputs):
        options += " --enable-moe-shared-loras"
    return (f"INKLING_MULTIMEM_AR=0 vllm serve MODEL {options}",)


def _sglang(conversion: Conversion, path: str) -> tuple[str, ...]:
    return (
        "python -m sglang.launch_server --model-path MODEL --enable-lora --lora-backend triton "
        f"--lora-paths NAME={path}",
    )


def _peft(conversion: Conversion, path: str) -> tuple[str, ...]:
    return (f'model = peft.PeftModel.from_pretrained(model, "{path}")',)


def _tensor_ranks(conversion: Conversion) -> set[int]:
    """Return the ranks of all written modules, as their tensors have them."""
    return {
        output.spec.shape[-2]
        for output in conversion.outputs
        if output.spec.name.endswith(A_SUFFIX)
    }
