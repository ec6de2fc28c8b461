"""Further launches whose findings read differently: other branches of a message, other forms.

Each is one more entry of the golden messages; its clean sibling is the one of the rule's case.
"""

from checks.launch_case import SGLANG, SGLANG_ADAPTER, VLLM, VLLM_LORA, Case


def _variant(code: str, broken: str, file: str | None = None) -> Case:
    return Case(code, broken, "", file)


VARIANTS = (
    _variant(
        "LCH001",
        "max-loars: 4\nmax-cpu-loras: 4\nmodel: {model}\nenable-lora: true\n",
        "launch.yaml",
    ),
    _variant("LCH004", "sglang serve --model-path\n", "serve.sh"),
    _variant("LCH007", f"{VLLM} --max-num-batched-tokens 8kb"),
    _variant("LCH008", f"{VLLM} --dtype eight"),
    _variant(
        "LCH009",
        f"{VLLM_LORA} --lora-modules a={{adapters}}/for-vllm --lora-modules b={{adapters}}/rank32",
    ),
    _variant("LCH011", f'{VLLM_LORA} --lora-modules \'{{{{"name": "a"}}}}\''),
    _variant("LCH101", "vllm serve org/Inkling"),
    _variant("LCH104", "sglang serve --port 1"),
    _variant("LCH104", "python -m sglang.launch_server --port 1"),
    _variant("LCH202", f"{VLLM_LORA} --lora-modules a={{root}}/model"),
    _variant(
        "LCH203", f"{VLLM_LORA} --lora-modules a={{adapters}}/for-vllm a={{adapters}}/for-vllm"
    ),
    _variant("LCH205", SGLANG_ADAPTER.replace("released", "misnamed")),
    _variant("VLM001", "INKLING_MULTIMEM_AR=false vllm serve {model} --enable-lora"),
    _variant(
        "VLM001",
        "model: {model}\nenable-lora: true\nmax-cpu-loras: 2\nenv:\n  INKLING_MULTIMEM_AR: 1\n",
        "launch.yaml",
    ),
    Case("VLM106", VLLM, "", lora=("{adapters}/for-vllm",)),
    _variant("VLA001", f"{VLLM_LORA} --lora-modules a={{adapters}}/released"),
    _variant("VLM123", f"{VLLM} --served-model-name ''"),
    _variant("VLM126", f'{VLLM} --kv-transfer-config \'{{{{"kv_role": "kv_both"}}}}\''),
    _variant("VLM128", f"{VLLM} --enable-fault-tolerance"),
    _variant(
        "VLM202",
        f"{VLLM} --enable-lora --max-loras 2 "
        "--lora-modules a={adapters}/for-vllm b={adapters}/one-by-one",
    ),
    _variant("VLM507", "vllm serve {root}/no-type"),
    _variant(
        "VLM102",
        "model: {model}\nenable-lora: true\nmax_loras: 4\nmax_cpu_loras: 2\n",
        "launch.yaml",
    ),
    _variant(
        "SGL102",
        f"{SGLANG} --enable-lora --lora-backend triton --max-lora-rank 2 "
        "--lora-target-modules all --max-loras-per-batch 4 --max-loaded-loras 2",
    ),
    _variant("SGL201", f"{SGLANG} --enable-lora --lora-backend triton"),
    _variant("SGL218", SGLANG_ADAPTER.replace("released", "second-file-again")),
    _variant("SGL301", SGLANG_ADAPTER.replace("released", "both-layouts")),
)
