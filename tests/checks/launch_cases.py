"""For every rule over launches the smallest launch that breaks it, and its clean sibling.

`{model}` and `{adapters}` stand for folders of the test world, `{root}` for the folder itself. A
case is a command unless it says which file it is.
"""

from dataclasses import dataclass

VLLM = "INKLING_MULTIMEM_AR=0 vllm serve {model}"
VLLM_LORA = f"{VLLM} --enable-lora --enable-moe-shared-loras"
VLLM_ADAPTER = f"{VLLM_LORA} --lora-modules a={{adapters}}/for-vllm"
SGLANG = "sglang serve {model}"
SGLANG_ADAPTER = f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/released"
SGLANG_LATER = f"{SGLANG} --enable-lora --lora-backend triton --max-lora-rank 2"


@dataclass(frozen=True)
class Case:
    code: str
    broken: str
    clean: str
    file: str | None = None
    """The name of the file that both launches are written to; None: they are commands."""
    lora: tuple[str, ...] = ()
    engine_version: str | None = None
    also: tuple[str, ...] = ()
    """Other rules that the broken launch breaks unavoidably."""
    also_clean: tuple[str, ...] = ()
    """Rules of severity info that the clean sibling breaks unavoidably."""


ANY_ENGINE = (
    Case("LCH001", f"{VLLM} --max-model-lenn 8", f"{VLLM} --max-model-len 8"),
    Case("LCH002", f"{VLLM} --frobnicate yes", VLLM),
    Case("LCH003", f"{VLLM_LORA} --max-lora 8", f"{VLLM_LORA} --max-lora-ra 8"),
    Case("LCH004", f"{VLLM_LORA} --max-loras", f"{VLLM_LORA} --max-loras 1"),
    Case("LCH005", f"{VLLM} --enforce-eager=true", f"{VLLM} --enforce-eager"),
    Case("LCH006", f"{VLLM} --enforce-eager true", f"{VLLM} --enforce-eager"),
    Case("LCH007", f"{VLLM} --seed five", f"{VLLM} --seed 5"),
    Case("LCH008", f"{VLLM} --dtype bf16", f"{VLLM} --dtype bfloat16"),
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
    Case("LCH102", "vllm serve {root}/torn", "vllm serve {model}"),
    Case("LCH103", "vllm serve {root}/llama", "vllm serve {model}"),
    Case("LCH104", "vllm serve --seed 1", "vllm serve {model} --seed 1"),
    Case("LCH105", f"{VLLM} --config nowhere.yaml", VLLM),
    Case("LCH106", "vllm serve {model}", "vllm serve {model}", engine_version="0.32.0"),
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
    Case("LCH205", f"{VLLM_LORA} --lora-modules a={{adapters}}/released", VLLM_ADAPTER),
    Case(
        "LCH203",
        f"{VLLM_ADAPTER} a={{adapters}}/twin-for-vllm",
        f"{VLLM_ADAPTER} b={{adapters}}/twin-for-vllm",
    ),
    Case(
        "LCH204",
        f"{VLLM_ADAPTER} b={{adapters}}/for-vllm",
        f"{VLLM_ADAPTER} b={{adapters}}/twin-for-vllm",
    ),
)

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

SGLANG_CASES = (
    Case("SGL001", f"{SGLANG} --random_seed 4", f"{SGLANG} --random-seed 4"),
    Case(
        "SGL002",
        "model-path: {model}\nlora-backend: triton\nlora-paths: [a={adapters}/released]\n",
        "model-path: {model}\nlora-backend: triton\nlora-paths: [a={adapters}/released]\n"
        "env: {{}}\n",
        file="launch.yaml",
    ),
    Case("SGL003", f"{SGLANG} --max-lora-rank 8", SGLANG),
    Case("SGL101", f"{SGLANG} --max-loras-per-batch 0", SGLANG, also=("SGL003",)),
    Case(
        "SGL102", f"{SGLANG_ADAPTER} --max-loaded-loras 4", f"{SGLANG_ADAPTER} --max-loaded-loras 8"
    ),
    Case(
        "SGL103",
        f"{SGLANG_ADAPTER} b={{adapters}}/twin --max-loras-per-batch 1 --max-loaded-loras 1",
        f"{SGLANG_ADAPTER} --max-loras-per-batch 1 --max-loaded-loras 1",
    ),
    Case(
        "SGL104",
        f"{SGLANG_ADAPTER} --max-lora-rank 1",
        f"{SGLANG_ADAPTER} --max-lora-rank 2",
    ),
    Case(
        "SGL105",
        f"{SGLANG} --lora-backend triton --max-loras-per-batch 1 "
        '--lora-paths \'{{"lora_name":"a","lora_path":"{adapters}/released","pinned":true}}\'',
        f"{SGLANG} --lora-backend triton --max-loras-per-batch 2 "
        '--lora-paths \'{{"lora_name":"a","lora_path":"{adapters}/released","pinned":true}}\'',
    ),
    Case(
        "SGL201",
        f"{SGLANG_LATER} --experts-shared-outer-loras",
        f"{SGLANG_LATER} --experts-shared-outer-loras --lora-target-modules all",
    ),
    Case(
        "SGL202",
        f"{SGLANG_ADAPTER} --lora-target-modules all qkvr",
        f"{SGLANG_ADAPTER} --lora-target-modules all",
    ),
    Case(
        "SGL203",
        f"{SGLANG_LATER} --lora-target-modules qkvr w1",
        f"{SGLANG_LATER} --lora-target-modules qkvr gate_proj up_proj",
    ),
    Case(
        "SGL204",
        f"{SGLANG} --lora-paths a={{adapters}}/released",
        f"{SGLANG} --lora-paths a={{adapters}}/attention",
    ),
    Case(
        "SGL205",
        f"{SGLANG_LATER} --lora-target-modules all --lora-paths a={{adapters}}/released-names",
        f"{SGLANG_LATER} --lora-target-modules all --lora-paths a={{adapters}}/runtime-names",
    ),
    Case(
        "SGL206",
        f"{SGLANG_LATER} --lora-target-modules qkvr --lora-paths a={{adapters}}/attention",
        f"{SGLANG_LATER} --lora-target-modules qkvr wo_ud --lora-paths a={{adapters}}/attention",
    ),
    Case(
        "SGL207",
        f"{SGLANG_ADAPTER} --lora-target-modules qkvr wo_ud gate_up_proj down_proj",
        f"{SGLANG_ADAPTER} --lora-target-modules qkvr wo_ud gate_up_proj down_proj lm_head",
    ),
    Case(
        "SGL208",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/no-head-name",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/runtime-names",
    ),
    Case(
        "SGL301",
        f"{SGLANG_ADAPTER} b={{adapters}}/stacks",
        f"{SGLANG_ADAPTER} b={{adapters}}/twin",
    ),
    Case(
        "SGL302",
        f"{SGLANG} --lora-backend triton --lora-paths b={{adapters}}/stacks "
        "--experts-shared-outer-loras",
        f"{SGLANG} --lora-backend triton --lora-paths b={{adapters}}/stacks",
    ),
    Case(
        "SGL303",
        f"{SGLANG_ADAPTER} --no-experts-shared-outer-loras",
        f"{SGLANG_ADAPTER} --experts-shared-outer-loras",
    ),
    Case(
        "SGL304",
        f"{SGLANG_LATER} --lora-target-modules all",
        f"{SGLANG_LATER} --lora-target-modules all --experts-shared-outer-loras",
        lora=("{adapters}/released",),
    ),
    Case(
        "SGL305",
        f"{SGLANG_LATER} --lora-target-modules all",
        f"{SGLANG_LATER} --lora-target-modules qkvr wo_ud",
    ),
    Case(
        "SGL401",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/rslora",
        SGLANG_ADAPTER,
    ),
    Case(
        "SGL402",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/alpha-pattern",
        SGLANG_ADAPTER,
    ),
    Case(
        "SGL403",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/rank-pattern",
        SGLANG_ADAPTER,
    ),
)

CASES = ANY_ENGINE + VLLM_CASES + SGLANG_CASES
