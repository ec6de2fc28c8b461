"""Breaches and clean siblings of the rules over launches of vLLM."""

from checks.launch_case import UPDATING, VLLM, VLLM_ADAPTER, VLLM_LORA, Case

NGRAM = '{{"method": "ngram", "num_speculative_tokens": 3}}'
DRAFTS = f"--speculative-config '{NGRAM}'"
BATCH = "--max-num-seqs 64 --max-num-batched-tokens 256"
LATER = f"{VLLM} --enable-lora --enable-moe-shared-loras"


def on(model: str, options: str = "") -> str:
    return f"INKLING_MULTIMEM_AR=0 vllm serve {{root}}/{model} {options}".rstrip()


VLLM_CASES = (
    Case(
        "VLM001",
        f"{UPDATING} vllm serve {{model}} --enable-lora",
        f"{UPDATING} {VLLM} --enable-lora",
    ),
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
    Case("VLM105", f"{VLLM} --max-loras 4", f"{UPDATING} {VLLM} --enable-lora --max-loras 4"),
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
    Case("VLM005", f"VLLM_PLUGIN=a {VLLM}", f"VLLM_PLUGINS=a {VLLM}"),
    Case(
        "VLM006",
        f"VLLM_OF_MY_OWN=1 {VLLM} --fail-on-environ-validation",
        f"VLLM_OF_MY_OWN=1 {VLLM}",
    ),
    Case("VLM007", f"VLLM_LORA_DISABLE_PDL=true {VLLM}", f"VLLM_LORA_DISABLE_PDL=1 {VLLM}"),
    Case("VLM008", f"VLLM_DEEP_GEMM_WARMUP=no {VLLM}", f"VLLM_DEEP_GEMM_WARMUP=skip {VLLM}"),
    Case("VLM009", f"LAMPORT_RS_SCONV=false {VLLM}", f"LAMPORT_RS_SCONV=0 {VLLM}"),
    Case(
        "VLM110",
        f"{VLLM} --gpu-memory-utilization 1.5",
        f"{VLLM} --gpu-memory-utilization 0.95",
    ),
    Case("VLM111", f"{VLLM} --reasoning-parser inklin", f"{VLLM} --reasoning-parser inkling"),
    Case(
        "VLM112",
        f"{VLLM} --kernel-config.moe_backnd triton",
        f"{VLLM} --kernel-config.moe_backend triton",
    ),
    Case(
        "VLM113",
        f"{VLLM_LORA} --lora-target-modules wo_ud gate",
        f"{VLLM_LORA} --lora-target-modules wo_ud",
    ),
    Case(
        "VLM114",
        f"{VLLM_LORA} --lora-target-modules wo_ud q_proj",
        f"{VLLM_LORA} --lora-target-modules wo_ud wq_du",
    ),
    Case("VLM115", f"{VLLM_LORA} --moe-backend marlin", f"{VLLM_LORA} --moe-backend triton"),
    Case(
        "VLM116",
        f"{UPDATING} {on('nvfp4', '--enable-lora --moe-backend cutlass')}",
        f"{UPDATING} {on('nvfp4', '--enable-lora --moe-backend marlin')}",
    ),
    Case(
        "VLM117",
        f"{VLLM_LORA} --lora-modules "
        '\'{{"name":"a","path":"{adapters}/for-vllm","is_3d_lora_weight":true}}\'',
        f"{VLLM_LORA} --enable-mixed-moe-lora-format --lora-modules "
        '\'{{"name":"a","path":"{adapters}/for-vllm","is_3d_lora_weight":true}}\'',
    ),
    Case("VLM118", f"{VLLM_LORA} --enable-dbo", VLLM_LORA),
    Case(
        "VLM119",
        f"{VLLM_LORA} --ec-transfer-config "
        '\'{{"ec_connector":"ECMooncakeConnector","ec_role":"ec_producer",'
        '"ec_connector_extra_config":{{"cross_encoder_cache":true}}}}\'',
        f"{VLLM_LORA} --ec-transfer-config "
        '\'{{"ec_connector":"ECMooncakeConnector","ec_role":"ec_producer"}}\'',
    ),
    Case("VLM120", f"{VLLM_LORA} --enable-tower-connector-lora", VLLM_LORA),
    Case(
        "VLM121",
        on("text-only", '--default-mm-loras \'{{"image": "/a"}}\''),
        on("text-only"),
        also=("VLM105",),
    ),
    Case(
        "VLM122",
        f"{VLLM} --enable-eplb",
        f"{VLLM} --enable-eplb --enable-expert-parallel --data-parallel-size 2",
    ),
    Case("VLM123", f"{VLLM_LORA} --lora-target-modules ''", VLLM_LORA, also=("VLM114",)),
    Case(
        "VLM130",
        "vllm serve --served-model-name a --seed 1 {model}",
        "vllm serve {model} --served-model-name a --seed 1",
    ),
    Case("VLM124", f"{VLLM} --hf-overrides a=b", f"{VLLM} --hf-overrides '{{{{}}}}'"),
    Case(
        "VLM125",
        f"{VLLM} --watermark -0.5",
        f"{VLLM} --watermark 0.5",
        also=("VLM110",),
    ),
    Case(
        "VLM126",
        f'{VLLM} --kv-transfer-config \'{{{{"kv_connector": "NixlConnector"}}}}\'',
        f"{VLLM} --kv-transfer-config "
        '\'{{"kv_connector": "NixlConnector", "kv_role": "kv_both"}}\'',
    ),
    Case(
        "VLM127",
        f"{VLLM} --compilation-config.cudagraph_mode ful",
        f"{VLLM} --compilation-config.cudagraph_mode FULL",
    ),
    Case(
        "VLM128",
        f"{VLLM} --enable-batch-sharded-sampling",
        f"{VLLM} --data-parallel-size 2 --data-parallel-rank 1 --enable-fault-tolerance",
    ),
    Case(
        "VLM204",
        f"{VLLM_LORA} --lora-modules a={{adapters}}/dora-for-vllm",
        VLLM_ADAPTER,
    ),
    Case("VLM205", f"{VLLM_LORA} --lora-modules a={{adapters}}/misnamed", VLLM_ADAPTER),
    Case("VLM206", f"{VLLM_LORA} --lora-modules a={{adapters}}/packed", VLLM_ADAPTER),
    Case("VLM207", f"{VLLM_LORA} --lora-modules a={{adapters}}/incomplete", VLLM_ADAPTER),
    Case("VLM208", f"{VLLM_LORA} --lora-modules a={{adapters}}/oversized", VLLM_ADAPTER),
    Case(
        "VLM209",
        f"{VLLM_ADAPTER} --lora-target-modules qkvr",
        f"{VLLM_ADAPTER} --lora-target-modules qkvr wo_ud gate_up_proj down_proj experts w13 w2 "
        "lm_head",
    ),
    Case("VLM210", f"{VLLM_LORA} --lora-modules a={{adapters}}/pickled", VLLM_ADAPTER),
    Case(
        "VLM211",
        f"{VLLM_ADAPTER} b={{adapters}}/twin-for-vllm",
        f"{VLLM_ADAPTER} b={{adapters}}/twin-for-vllm --max-loras 2",
    ),
    Case("VLM212", f"{VLLM_LORA} --lora-modules a={{adapters}}/bare", VLLM_ADAPTER),
    Case("VLA001", f"{VLLM_LORA} --lora-modules a={{adapters}}/only-shared", VLLM_ADAPTER),
    Case("VLA002", f"{VLLM_LORA} --lora-modules a={{adapters}}/only-dense", VLLM_ADAPTER),
    Case(
        "VLM214",
        f"{VLLM_LORA} --lora-modules a={{adapters}}/short-under-two-wrappers",
        VLLM_ADAPTER,
    ),
    Case("VLM215", f"{VLLM_LORA} --lora-modules a={{adapters}}/sharded-for-vllm", VLLM_ADAPTER),
    Case("VLM213", f"{VLLM_LORA} --lora-modules a={{adapters}}/stacks", VLLM_ADAPTER),
    Case(
        "VLM301",
        f"{VLLM_LORA} {DRAFTS} --max-num-seqs 64 --max-num-batched-tokens 255",
        f"{VLLM_LORA} {DRAFTS} {BATCH}",
    ),
    Case(
        "VLM302",
        f"{VLLM_LORA} --spec-method ngram --spec-tokens 8",
        f"{VLLM_LORA} --spec-method ngram --spec-tokens 7",
    ),
    Case(
        "VLM303",
        f"{VLLM_LORA} {DRAFTS} {BATCH} --speculative-config.enable_adaptive_verification true",
        f"{VLLM_LORA} {DRAFTS} {BATCH}",
    ),
    Case(
        "VLM304",
        f"{VLLM} --spec-method mtp --spec-tokens 2",
        on("mtp", "--spec-method mtp --spec-tokens 2"),
    ),
    Case(
        "VLM305",
        on("mtp", "--spec-method mtp --spec-tokens 3"),
        on("mtp", "--spec-method mtp --spec-tokens 4"),
    ),
    Case("VLM306", f"{VLLM} --spec-method ngram", f"{VLLM} --spec-method ngram --spec-tokens 3"),
    Case(
        "VLM307",
        f"{VLLM_ADAPTER} {DRAFTS} {BATCH}",
        f"VLLM_USE_V2_MODEL_RUNNER=0 {VLLM_ADAPTER} {DRAFTS} {BATCH}",
    ),
    Case("VLM401", f"{VLLM} --tensor-parallel-size 3", f"{VLLM} --tensor-parallel-size 1"),
    Case("VLM402", f"{VLLM} --tensor-parallel-size 2", f"{VLLM} --tensor-parallel-size 1"),
    Case(
        "VLM403",
        f"{VLLM_LORA} --enable-expert-parallel --data-parallel-size 2 --api-server-count 1 "
        "--all2all-backend nixl_ep",
        f"{VLLM_LORA} --enable-expert-parallel --data-parallel-size 2 --api-server-count 1",
    ),
    Case(
        "VLM404",
        f"{VLLM_LORA} --enable-expert-parallel -tp 2 -dp 2 --api-server-count 1",
        f"{VLLM_LORA} --enable-expert-parallel -dp 4 --api-server-count 1",
        also=("VLM402",),
    ),
    Case(
        "VLM405",
        f"{VLLM_LORA} --enable-expert-parallel -dp 2 --api-server-count 1 --fully-sharded-loras",
        f"{VLLM_LORA} --enable-expert-parallel -dp 2 --api-server-count 1",
        also=("VLM108",),
    ),
    Case(
        "VLM406",
        f"{VLLM_LORA} --enable-expert-parallel -dp 3 --api-server-count 1",
        f"{VLLM_LORA} --enable-expert-parallel -dp 4 --api-server-count 1",
    ),
    Case(
        "VLM407",
        f"{VLLM_LORA} -tp 2 --max-lora-rank 1 --fully-sharded-loras --lora-target-modules wo_ud",
        f"{VLLM_LORA} --max-lora-rank 1 --fully-sharded-loras --lora-target-modules wo_ud",
        also=("VLM402",),
    ),
    Case("VLM408", f"{VLLM} --data-parallel-rank 1", f"{VLLM} -dp 2 --data-parallel-rank 1"),
    Case("VLM501", f"{VLLM} --dtype half", f"{VLLM} --dtype bfloat16"),
    Case("VLM502", on("no-sink"), on("model")),
    Case("VLM503", on("no-local-ids"), on("model")),
    Case("VLM504", on("no-dense-index"), on("model")),
    Case("VLM505", on("no-architecture"), on("model")),
    Case("VLM506", f"{VLLM_ADAPTER} --max-logprobs 5", VLLM_ADAPTER),
    Case("VLM507", on("null-heads"), on("model")),
    Case("VLM601", LATER, f"{UPDATING} {LATER}"),
    Case(
        "VLM602",
        f"{VLLM_LORA} --api-server-count 2",
        f"{VLLM_LORA} --api-server-count 1",
    ),
    Case(
        "VLM603",
        f"VLLM_LORA_RESOLVER_CACHE_DIR=/a {LATER} --lora-modules a={{adapters}}/for-vllm",
        f"VLLM_LORA_RESOLVER_CACHE_DIR=/a {VLLM_ADAPTER}",
    ),
    Case(
        "VLM604",
        f"VLLM_LORA_RESOLVER_HF_REPO_LIST=org/a {VLLM_LORA}",
        f"VLLM_LORA_RESOLVER_HF_REPO_LIST=org/a VLLM_PLUGINS=lora_hf_hub_resolver {VLLM_LORA}",
    ),
    Case(
        "VLM605",
        f"VLLM_LORA_RESOLVER_CACHE_DIR=/a {VLLM_LORA}",
        VLLM_LORA,
        lora=("{adapters}/for-vllm",),
    ),
    Case(
        "VLM701",
        f"{VLLM} --max-num-seqs 128 --max-num-batched-tokens 64",
        f"{VLLM} --max-num-seqs 64 --max-num-batched-tokens 64",
    ),
    Case(
        "VLM702",
        f"{VLLM} --no-enable-chunked-prefill --max-num-batched-tokens 1k --max-model-len 2k",
        f"{VLLM} --max-num-batched-tokens 1k --max-model-len 2k",
    ),
    Case(
        "VLM703",
        f"{VLLM} --max-num-active-seqs 9 --max-num-seqs 8",
        f"{VLLM} --max-num-active-seqs 8 --max-num-seqs 8",
    ),
    Case(
        "VLM704",
        f"{VLLM} --long-prefill-token-threshold 5000",
        f"{VLLM} --long-prefill-token-threshold 1000",
    ),
    Case("VLM705", on("short", "--max-model-len 8k"), on("short", "--max-model-len 4k")),
    Case("VLM706", f"{VLLM} --kv-cache-dtype float16", f"{VLLM} --kv-cache-dtype bfloat16"),
    Case("VLM707", f"{VLLM} --max-model-len auto", on("short", "--max-model-len auto")),
)
