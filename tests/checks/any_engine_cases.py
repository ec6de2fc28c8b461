"""Breaches and clean siblings of the rules that hold for every engine."""

from checks.launch_case import VLLM, VLLM_ADAPTER, VLLM_LORA, Case

ANY_ENGINE = (
    Case("LCH001", f"{VLLM} --max-model-lenn 8", f"{VLLM} --max-model-len 8"),
    Case("LCH002", f"{VLLM} --frobnicate yes", VLLM),
    Case("LCH003", f"{VLLM_LORA} --max-lora 8", f"{VLLM_LORA} --max-lora-ra 8"),
    Case("LCH004", f"{VLLM_LORA} --max-loras", f"{VLLM_LORA} --max-loras 1"),
    Case("LCH005", f"{VLLM} --enforce-eager=true", f"{VLLM} --enforce-eager"),
    Case("LCH006", f"{VLLM} --enforce-eager true", f"{VLLM} --enforce-eager"),
    Case("LCH007", f"{VLLM} --seed five", f"{VLLM} --seed 5"),
    Case("LCH008", f"{VLLM} --dtype bf16", f"{VLLM} --dtype bfloat16"),
    Case(
        "LCH013",
        f"{VLLM} --override-generation-config temperature=1",
        f"{VLLM} --override-generation-config '{{{{}}}}'",
    ),
    Case("LCH014", f"{VLLM} --max-num-seqs 0", f"{VLLM} --max-num-seqs 1"),
    Case("LCH009", f"{VLLM} --seed 1 --seed 2", f"{VLLM} --seed 2"),
    Case(
        "LCH010",
        "VLLM_LOGGING_LEVEL=DEBUG\nvllm serve {model}",
        "export VLLM_LOGGING_LEVEL=DEBUG\nvllm serve {model}",
        file="serve.sh",
    ),
    Case(
        "LCH011",
        f"{VLLM_LORA} --lora-modules {{adapters}}/for-vllm",
        f"{VLLM_LORA} --lora-modules a={{adapters}}/for-vllm",
    ),
    Case(
        "LCH012",
        "vllm serve {model} --seed $SEED",
        "SEED=3\nvllm serve {model} --seed $SEED",
        file="serve.sh",
    ),
    Case("LCH101", "vllm serve org/some-model", "vllm serve {model}"),
    Case("LCH102", "vllm serve {root}/torn", "vllm serve {model}", also=("VLM502",)),
    Case("LCH103", "vllm serve {root}/llama", "vllm serve {model}"),
    Case("LCH104", "vllm serve --seed 1", "vllm serve {model} --seed 1"),
    Case("LCH105", f"{VLLM} --config nowhere.yaml", VLLM),
    Case("LCH106", "vllm serve {model}", "vllm serve {model}", engine_version="0.32.0"),
    Case(
        "LCH107",
        "INKLING_MULTIMEM_AR=0\n",
        "services:\n  a:\n    image: vllm/vllm-openai\n    command: {model}\n"
        "    environment: [INKLING_MULTIMEM_AR=0]\n",
        file="x.env",
        clean_file="compose.yaml",
    ),
    Case(
        "LCH201",
        f"{VLLM_LORA} --lora-modules a=org/adapter",
        f"{VLLM_LORA} --lora-modules a={{adapters}}/for-vllm",
    ),
    Case(
        "LCH202",
        f"{VLLM_LORA} --lora-modules a={{adapters}}/torn",
        f"{VLLM_LORA} --lora-modules a={{adapters}}/for-vllm",
    ),
    Case(
        "LCH301",
        f"{VLLM_ADAPTER} --max-loras 40",
        f"{VLLM_ADAPTER} --max-loras 4",
        gpu_memory=33 << 20,
    ),
    Case("LCH205", f"{VLLM_LORA} --lora-modules a={{adapters}}/narrow-for-vllm", VLLM_ADAPTER),
    Case(
        "LCH203",
        f"{VLLM_ADAPTER} a={{adapters}}/twin-for-vllm --max-loras 2",
        f"{VLLM_ADAPTER} b={{adapters}}/twin-for-vllm --max-loras 2",
    ),
    Case(
        "LCH204",
        f"{VLLM_ADAPTER} b={{adapters}}/for-vllm --max-loras 2",
        f"{VLLM_ADAPTER} b={{adapters}}/twin-for-vllm --max-loras 2",
    ),
)
