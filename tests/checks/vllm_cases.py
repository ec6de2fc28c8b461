"""Breaches and clean siblings of the rules over launches of vLLM."""

from checks.launch_case import VLLM, VLLM_ADAPTER, VLLM_LORA, Case

VLLM_CASES = (
    Case("VLM001", "vllm serve {model} --enable-lora", f"{VLLM} --enable-lora"),
    Case(
        "VLM002",
        f"VLLM_LORA_ENABLE_DUAL_STREAM=1 VLLM_TARGET_DEVICE=cpu {VLLM_LORA}",
        f"VLLM_LORA_ENABLE_DUAL_STREAM=1 VLLM_TARGET_DEVICE=cuda {VLLM_LORA}",
    ),
    Case(
        "VLM003",
        f"VLLM_LORA_ENABLE_DUAL_STREAM=1 {VLLM_LORA} --fully-sharded-loras "
        "--lora-target-modules wo_ud",
        f"VLLM_LORA_ENABLE_DUAL_STREAM=0 {VLLM_LORA} --fully-sharded-loras "
        "--lora-target-modules wo_ud",
    ),
    Case(
        "VLM004",
        f"VLLM_LORA_ENABLE_DUAL_STREAM=true {VLLM_LORA}",
        f"VLLM_LORA_ENABLE_DUAL_STREAM=1 {VLLM_LORA}",
    ),
    Case("VLM101", f"{VLLM_LORA} --max-loras 0", f"{VLLM_LORA} --max-loras 1"),
    Case(
        "VLM102",
        f"{VLLM_LORA} --max-loras 4 --max-cpu-loras 2",
        f"{VLLM_LORA} --max-loras 4 --max-cpu-loras 4",
    ),
    Case("VLM103", f"{VLLM_LORA} --max-lora-rank 24", f"{VLLM_LORA} --max-lora-rank 32"),
    Case(
        "VLM104",
        f"{VLLM_LORA} --lora-modules a={{adapters}}/rank32-for-vllm",
        f"{VLLM_LORA} --lora-modules a={{adapters}}/rank32-for-vllm --max-lora-rank 32",
    ),
    Case("VLM105", f"{VLLM} --max-loras 4", f"{VLLM} --enable-lora --max-loras 4"),
    Case("VLM106", f"{VLLM} --lora-modules a={{adapters}}/for-vllm", VLLM_ADAPTER),
    Case(
        "VLM107",
        f"{VLLM_LORA} --moe-backend deep-gemm-mega-moe",
        f"{VLLM_LORA} --moe-backend triton",
    ),
    Case(
        "VLM108",
        f"{VLLM_LORA} --fully-sharded-loras",
        f"{VLLM_LORA} --fully-sharded-loras --lora-target-modules wo_ud",
    ),
    Case("VLM109", f"{VLLM_LORA} --lora-dtype float16", f"{VLLM_LORA} --lora-dtype bfloat16"),
    Case(
        "VLM201",
        f"{VLLM_ADAPTER} --served-model-name inkling a",
        f"{VLLM_ADAPTER} --served-model-name inkling",
    ),
    Case(
        "VLM202",
        f"{VLLM} --enable-lora --lora-modules a={{adapters}}/for-vllm",
        f"{VLLM} --enable-lora --lora-modules a={{adapters}}/one-by-one",
    ),
    Case(
        "VLM203",
        f"{VLLM_LORA} --lora-modules a={{adapters}}/one-by-one",
        f"{VLLM_LORA} --lora-modules a={{adapters}}/for-vllm",
    ),
)
