"""Breaches and clean siblings of SGLang's rules over runners, GPUs, drafts, environment, model."""

from checks.launch_case import SGLANG, SGLANG_ADAPTER, Case

_ATTENTION = f"{SGLANG} --lora-paths a={{adapters}}/attention"
_V2 = f"{SGLANG_ADAPTER} --lora-backend triton_v2 --moe-runner-backend lora_triton"
_V2 = _V2.replace(" --lora-backend triton ", " ")
_MARLIN = f"{SGLANG_ADAPTER} --moe-runner-backend experimental_sgl_marlin"
_EAGLE = f"{SGLANG_ADAPTER} --speculative-algorithm EAGLE"
_PINNED = (
    f"{SGLANG} --lora-backend triton --lora-paths "
    '\'{{"lora_name":"a","lora_path":"{adapters}/released","pinned":true}}\''
)
_DP = f"{_PINNED} --attn-dp-size 2"

SGLANG_SERVER_CASES = (
    Case(
        "SGL004",
        f"{SGLANG} --retraction-policy priority",
        f"{SGLANG} --retraction-policy priority --enable-priority-scheduling",
    ),
    Case("SGL005", f"{SGLANG} --enable-hisparse", SGLANG),
    Case("SGL006", f"{SGLANG} --tokenizer-worker-num 0", f"{SGLANG} --tokenizer-worker-num 1"),
    Case(
        "SGL007",
        f"{SGLANG} --default-chat-template-kwargs [1]",
        f"{SGLANG} --default-chat-template-kwargs {{{{}}}}",
    ),
    Case(
        "SGL008",
        f"{SGLANG} --prompt-tokens-buckets 1 2",
        f"{SGLANG} --prompt-tokens-buckets custom 1 2",
    ),
    Case(
        "SGL009",
        f"{SGLANG} --served-model-name inkling:base",
        f"{SGLANG} --served-model-name inkling-base",
    ),
    Case(
        "SGL010",
        f"{SGLANG} --enable-torch-compile --disable-cuda-graph-padding",
        f"{SGLANG} --enable-torch-compile",
    ),
    Case(
        "SGL011",
        f"{SGLANG} --enable-pdmux",
        f"{SGLANG} --enable-pdmux --chunked-prefill-size -1 --disable-overlap-schedule",
    ),
    Case("SGL012", f"{SGLANG} --log-level loud", f"{SGLANG} --log-level DEBUG"),
    Case(
        "SGL501",
        f"{SGLANG_ADAPTER} --moe-runner-backend lora_triton",
        _V2,
    ),
    Case("SGL502", _V2.replace("lora_triton", "triton"), _V2),
    Case("SGL503", f"{_V2} --attn-dp-size 2 --tp-size 2", _V2, also=("SGL516",)),
    Case("SGL504", f"{_V2} --quantization awq", f"{_V2} --quantization fp8"),
    Case("SGL505", f"{_V2} --ep-num-redundant-experts 1", _V2),
    Case(
        "SGL506",
        _MARLIN,
        f"{_MARLIN} --lora-use-virtual-experts",
    ),
    Case(
        "SGL507",
        f"{SGLANG_ADAPTER} --moe-runner-backend triton_kernel",
        f"{_ATTENTION} --moe-runner-backend triton_kernel",
    ),
    Case(
        "SGL508",
        f"{SGLANG} --moe-runner-backend flashinfer_cutedsl",
        f"{SGLANG} --moe-runner-backend flashinfer_cutedsl --quantization modelopt_fp4",
    ),
    Case("SGL511", f"{SGLANG} --tp-size 0", f"{SGLANG} --tp-size 1"),
    Case("SGL512", f"{SGLANG} --tp-size 2 --ep-size 3", f"{SGLANG} --tp-size 2 --ep-size 2"),
    Case("SGL513", f"{SGLANG} --dp-size 2 --nnodes 2 --tp-size 2", f"{SGLANG} --dp-size 2"),
    Case("SGL514", f"{_DP} --tp-size 4", f"{_DP} --tp-size 2"),
    Case(
        "SGL515",
        f"{_DP.replace('--lora-backend triton', '')} --tp-size 2",
        f"{_DP} --tp-size 2",
        also=("SGL204",),
    ),
    Case(
        "SGL516",
        f"{SGLANG_ADAPTER} --attn-dp-size 2 --tp-size 2",
        f"{_DP} --tp-size 2",
    ),
    Case(
        "SGL517",
        f"{_DP} --tp-size 2 --enable-lora-overlap-loading --max-loaded-loras 8",
        f"{_PINNED} --enable-lora-overlap-loading --max-loaded-loras 8",
    ),
    Case(
        "SGL518",
        f"{_EAGLE} --pp-size 2",
        f"{_EAGLE} --pp-size 2 --disaggregation-mode prefill",
    ),
    Case("SGL519", f"{SGLANG} --tp-size 8", f"{SGLANG} --tp-size 4", also=("SGL520",)),
    Case("SGL520", f"{SGLANG} --tp-size 8 --ep-size 8 --attn-dp-size 2", f"{SGLANG} --tp-size 4"),
    Case("SGL521", f"{SGLANG} --moe-dense-tp-size 2", f"{SGLANG} --moe-dense-tp-size 1"),
    Case("SGL601", f"{SGLANG_ADAPTER} --speculative-algorithm STANDALONE", _EAGLE),
    Case("SGL602", f"{_EAGLE} --speculative-adaptive", _EAGLE),
    Case(
        "SGL603",
        f"SGLANG_RAGGED_VERIFY_MODE=ragged {SGLANG_ADAPTER} --speculative-algorithm DSPARK "
        "--speculative-draft-model-path {model}",
        f"SGLANG_RAGGED_VERIFY_MODE=static {SGLANG_ADAPTER} --speculative-algorithm DSPARK "
        "--speculative-draft-model-path {model}",
    ),
    Case(
        "SGL604",
        f"SGLANG_ENABLE_OVERLAP_PLAN_STREAM=1 {_EAGLE}",
        f"SGLANG_ENABLE_OVERLAP_PLAN_STREAM=0 {_EAGLE}",
    ),
    Case("SGL605", f"{_EAGLE} --speculative-moe-runner-backend lora_triton", _EAGLE),
    Case(
        "SGL606",
        f"{SGLANG_ADAPTER} --speculative-algorithm DFLASH",
        f"{SGLANG_ADAPTER} --speculative-algorithm DFLASH --speculative-draft-model-path {{model}}",
    ),
    Case(
        "SGL607",
        f"{_EAGLE} --speculative-num-steps 3",
        f"{_EAGLE} --speculative-num-steps 3 --speculative-eagle-topk 1",
    ),
    Case(
        "SGL608",
        f"{SGLANG} --speculative-algorithm NGRAM --attn-dp-size 2 --tp-size 2",
        f"{SGLANG} --speculative-algorithm NGRAM --tp-size 2",
    ),
    Case(
        "SGL609",
        f"{SGLANG} --speculative-algorithm NGRAM --page-size 64",
        f"{SGLANG} --speculative-algorithm NGRAM --page-size 1",
    ),
    Case(
        "SGL701",
        f"SGLANG_OPT_USE_INKLING_CUSTOM_AR=on {SGLANG}",
        f"SGLANG_OPT_USE_INKLING_CUSTOM_AR=yes {SGLANG}",
    ),
    Case(
        "SGL702",
        f"SGLANG_OPT_USE_INKLING_CUSTOM_ARR=1 {SGLANG}",
        f"SGLANG_OPT_USE_INKLING_CUSTOM_AR=1 {SGLANG}",
    ),
    Case(
        "SGL703",
        f"SGLANG_INKLING_DEFAULT_REASONING_EFFORT=high {SGLANG}",
        f"SGLANG_INKLING_DEFAULT_REASONING_EFFORT=0.5 {SGLANG}",
    ),
    Case("SGL704", f"INKLING_MULTIMEM_AR=0 {SGLANG}", SGLANG),
    Case("SGL801", f"{SGLANG} --disable-radix-cache", SGLANG),
    Case("SGL802", f"{SGLANG} --disable-hybrid-swa-memory", SGLANG),
    Case(
        "SGL803",
        f"{SGLANG} --mamba-radix-cache-strategy no_buffer",
        f"{SGLANG} --mamba-radix-cache-strategy extra_buffer",
    ),
    Case("SGL804", f"{SGLANG} --attention-backend fa3", f"{SGLANG} --attention-backend triton"),
    Case("SGL805", "sglang serve {root}/text-only", SGLANG),
    Case(
        "SGL806",
        f"{SGLANG} --mm-io-worker-num 2",
        f"{SGLANG} --mm-io-worker-num 2 --enable-multimodal",
    ),
    Case("SGL807", f"{SGLANG} --context-length 4096", f"{SGLANG} --context-length 2048"),
    Case(
        "SGL809",
        f"{SGLANG} --speculative-num-draft-tokens 300",
        f"{SGLANG} --speculative-num-draft-tokens 256",
    ),
    Case(
        "SGL810",
        f"{SGLANG} --reasoning-parser inkling --tool-call-parser qwen",
        f"{SGLANG} --reasoning-parser inkling --tool-call-parser inkling",
    ),
    Case("SGL808", f"{SGLANG} --page-size 7", f"{SGLANG} --page-size 64"),
    Case("SGL811", "sglang serve {root}/no-architecture", SGLANG),
    Case("SGL813", "sglang serve {root}/nvfp4", SGLANG),
    Case("SGL814", f"{SGLANG} --model-impl transformers", f"{SGLANG} --model-impl sglang"),
    Case("SGL812", "sglang serve {root}/no-dense-index", SGLANG),
)
