"""Breaches and clean siblings of the rules over launches of SGLang."""

from checks.launch_case import SGLANG, SGLANG_ADAPTER, SGLANG_LATER, Case
from checks.sglang_cases_server import SGLANG_SERVER_CASES

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
        also=("SGL110",),
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
        f"{SGLANG_LATER} --lora-target-modules qkvr gate_proj up_proj down_proj "
        "--experts-shared-outer-loras",
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
        "SGL216",
        f"{SGLANG_ADAPTER},b={{adapters}}/twin",
        f"{SGLANG_ADAPTER} b={{adapters}}/twin",
        also=("LCH201",),
    ),
    Case(
        "SGL217",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/second-file-torn",
        SGLANG_ADAPTER,
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
    Case(
        "SGL106",
        f"{SGLANG_ADAPTER} --enable-lora-overlap-loading",
        f"{SGLANG_ADAPTER} --enable-lora-overlap-loading --max-loaded-loras 16",
    ),
    Case(
        "SGL107",
        f"{SGLANG_ADAPTER} --lora-drain-wait-threshold -1",
        f"{SGLANG_ADAPTER} --lora-drain-wait-threshold 1",
    ),
    Case(
        "SGL108",
        f"{SGLANG_ADAPTER} --lora-use-virtual-experts --max-loras-per-batch 2048",
        f"{SGLANG_ADAPTER} --lora-use-virtual-experts --max-loras-per-batch 2047",
    ),
    Case(
        "SGL109",
        f"{SGLANG} --enable-lora --lora-backend triton --lora-target-modules qkvr wo_ud "
        "--max-lora-rank -1",
        f"{SGLANG} --enable-lora --lora-backend triton --lora-target-modules qkvr wo_ud "
        "--max-lora-rank 1",
    ),
    Case(
        "SGL110",
        f"{SGLANG_ADAPTER} b={{adapters}}/twin --max-loras-per-batch 1",
        f"{SGLANG_ADAPTER} b={{adapters}}/twin --max-loras-per-batch 2",
    ),
    Case(
        "SGL111",
        f"{SGLANG_LATER} --lora-target-modules qkvr wo_ud --dp-size 2",
        f"{SGLANG_ADAPTER} --dp-size 2",
    ),
    Case(
        "SGL112",
        f"{SGLANG_ADAPTER} --max-loras-per-batch 1 --max-loaded-loras 1",
        f"{SGLANG_ADAPTER} --max-loras-per-batch 1 --max-loaded-loras 2",
        lora=("{adapters}/twin",),
    ),
    Case(
        "SGL113",
        f"{SGLANG_ADAPTER} --max-lora-rank 2048 --lora-target-modules all",
        f"{SGLANG_ADAPTER} --max-lora-rank 2048 "
        "--lora-target-modules qkvr wo_ud gate_up_proj down_proj lm_head",
    ),
    Case(
        "SGL209",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/padded-head",
        SGLANG_ADAPTER,
    ),
    Case(
        "SGL211",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/dora",
        SGLANG_ADAPTER,
    ),
    Case(
        "SGL212",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/ia3",
        SGLANG_ADAPTER,
    ),
    Case(
        "SGL213",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/added-tokens",
        SGLANG_ADAPTER,
    ),
    Case(
        "SGL214",
        f"{SGLANG_LATER} --lora-target-modules qkvr wo_ud gate_up_proj",
        f"{SGLANG_LATER} --lora-target-modules qkvr wo_ud",
    ),
    Case(
        "SGA001",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/sinks",
        SGLANG_ADAPTER,
    ),
    Case(
        "SGA002",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/for-vllm",
        SGLANG_ADAPTER,
        also=("SGA001",),
    ),
    Case(
        "SGL114",
        SGLANG,
        f"{SGLANG_LATER} --lora-target-modules all --experts-shared-outer-loras",
        lora=("{adapters}/released",),
    ),
    Case(
        "SGL218",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/second-file-stray",
        SGLANG_ADAPTER,
    ),
    Case(
        "SGL306",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/half-shared",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/stacks",
    ),
    Case(
        "SGL307",
        "sglang serve {root}/no-sink --lora-backend triton --lora-paths a={adapters}/released",
        SGLANG_ADAPTER,
    ),
    Case(
        "SGL215",
        f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/other-file",
        SGLANG_ADAPTER,
    ),
    *SGLANG_SERVER_CASES,
)
