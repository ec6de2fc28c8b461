"""The options of `vllm serve` in vLLM 0.33.0: names and how many values each takes.

Data only; `options.py` gives it meaning. Kept complete for this one version, so that an unknown
option is either misspelt, newer, or of a plugin.
"""

SWITCHES = """
    --aggregate-engine-logging --data-parallel-multi-port-external-lb --disable-log-stats --grpc
    --headless
"""
"""Take no value and have no negation."""

PAIRS = """
    --allow-credentials --allow-deprecated-quantization --async-scheduling
    --cohere-is-reasoning-model --cudagraph-metrics --data-parallel-external-lb
    --data-parallel-hybrid-lb --dcp-q-replicate --disable-cascade-attn --disable-chunked-mm-input
    --disable-custom-all-reduce --disable-fastapi-docs --disable-hybrid-kv-cache-manager
    --disable-nccl-for-dp-synchronization --disable-sliding-window --disable-uvicorn-access-log
    --enable-auto-tool-choice --enable-batch-sharded-sampling --enable-chunked-prefill
    --enable-cumem-allocator --enable-dbo --enable-elastic-ep --enable-ep-weight-filter
    --enable-eplb --enable-expert-parallel --enable-fault-tolerance
    --enable-flash-late-interaction --enable-flashinfer-autotune --enable-force-include-usage
    --enable-hc-sp --enable-layerwise-nvtx-tracing --enable-log-deltas --enable-log-outputs
    --enable-log-requests --enable-logging-iteration-details --enable-lora
    --enable-mamba-cache-stochastic-rounding --enable-mamba-shared-prefix-checkpoint
    --enable-mfu-metrics --enable-mixed-moe-lora-format --enable-mm-embeds
    --enable-moe-shared-loras --enable-nccl-comm-suspend --enable-offline-docs
    --enable-per-request-metrics --enable-prefix-caching --enable-prompt-embeds
    --enable-prompt-tokens-details --enable-request-id-headers --enable-return-routed-experts
    --enable-scale-out --enable-server-load-tracking --enable-shm-tensor-arena --enable-sleep-mode
    --enable-ssl-refresh --enable-tokenizer-info-endpoint --enable-tower-connector-lora
    --enable-trace-replay --enforce-eager --exclude-tools-when-tool-choice-none
    --fail-on-environ-validation --fully-sharded-loras --interleave-mm-strings
    --jit-monitor-verbose --kv-cache-metrics --kv-sharing-fast-prefill --language-model-only
    --log-error-stack --long-prefill-token-threshold-adaptive --mm-device-do-normalize
    --mm-encoder-only --monokernel --numa-bind --ray-workers-use-nsight --return-sampling-mask
    --return-tokens-as-token-ids --scheduler-reserve-full-isl --skip-mm-profiling
    --skip-tokenizer-init --sleep-mode-offload-cudagraph --specialize-active-lora
    --swa-bounded-replay --tokens-only --trust-remote-code --trust-request-chat-template
    --trust-request-mm-kwargs --use-fp64-gumbel --use-replayssm --use-tqdm-on-load
"""
"""Take no value; `--enable-x` is undone by `--disable-x`, all by `--no-…`."""

INTEGERS = """
    --api-server-count --block-size --cp-kv-cache-interleave-size --data-parallel-rank
    --data-parallel-rpc-port --data-parallel-size --data-parallel-size-local
    --data-parallel-start-rank --data-parallel-supervisor-port --dbo-decode-token-threshold
    --dbo-prefill-token-threshold --dcp-kv-cache-interleave-size --decode-context-parallel-size
    --dp-supervisor-probe-failure-threshold --dp-sync-interval --elastic-ep-max-dp-size
    --h11-max-header-count --h11-max-incomplete-event-size --long-prefill-token-threshold
    --mamba-cache-philox-rounds --master-port --max-cpu-loras --max-cudagraph-capture-size
    --max-logprobs --max-lora-rank --max-loras --max-num-seqs --mm-shm-cache-max-object-size-mb
    --nnodes --node-rank --offload-group-size --offload-num-in-group --offload-prefetch-step
    --pipeline-parallel-size --port --prefill-context-parallel-size --prefill-schedule-interval
    --renderer-num-workers --replayssm-buffer-len --safetensors-prefetch-num-threads --seed
    --shutdown-timeout --spec-tokens --sse-keep-alive-interval --ssl-cert-reqs --stream-interval
    --tensor-parallel-size --ubatch-size
"""
"""Take one whole number."""

VALUES = """
    --additional-config --all2all-backend --allowed-headers --allowed-local-media-path
    --allowed-methods --allowed-origins --anthropic-disabled-thinking-effort --attention-backend
    --attention-config --aux-output-config --chat-template --chat-template-content-format
    --code-revision --cohere-format --compilation-config --config --config --config-format
    --convert --cpu-distributed-timeout-seconds --cpu-offload-gb --custom-histogram-buckets
    --data-parallel-address --data-parallel-backend --dcp-comm-backend
    --default-chat-template-kwargs --default-mm-loras --device-ids --diffusion-config
    --disable-access-log-for-endpoints --distributed-executor-backend
    --distributed-timeout-seconds --download-dir --dp-supervisor-probe-interval-s
    --dp-supervisor-probe-timeout-s --dtype --ec-manager-config --ec-transfer-config
    --engram-config --eplb-config --expert-placement-strategy --fault-tolerance-config
    --fingerprint-mode --fingerprint-value --gdn-prefill-backend --generation-config
    --gpu-memory-utilization --grpc-port --hf-config-path --hf-overrides --host
    --io-processor-plugin --ir-op-priority --jit-monitor-mode --kda-decode-backend
    --kda-prefill-backend --kernel-config --kv-cache-dtype --kv-cache-memory-bytes
    --kv-cache-metrics-sample --kv-events-config --kv-offloading-backend --kv-offloading-size
    --kv-transfer-config --limit-mm-per-prompt --linear-backend --load-format --log-config-file
    --log-level --logging-config --logprobs-mode --lora-dtype --mamba-backend --mamba-block-size
    --mamba-cache-dtype --mamba-cache-mode --mamba-ssm-cache-dtype --mamba-ssu-algorithm
    --master-addr --max-log-len --max-lora-cls-labels --max-model-len --max-num-active-seqs
    --max-num-batched-tokens --max-num-queued-reqs --max-num-queued-tokens
    --max-num-scheduled-tokens --max-parallel-loading-workers --media-io-kwargs --middleware
    --mm-encoder-attn-backend --mm-encoder-attn-dtype --mm-encoder-fp8-scale-path
    --mm-encoder-fp8-scale-save-margin --mm-encoder-fp8-scale-save-path --mm-encoder-tp-mode
    --mm-hasher-algorithm --mm-ipc-gpu-memory-gb --mm-processor-cache-gb --mm-processor-cache-type
    --mm-processor-device --mm-processor-kwargs --mm-tensor-ipc --model --model-class-overrides
    --model-impl --model-loader-extra-config --moe-backend --num-gpu-blocks-override
    --offload-backend --optimization-level --otlp-traces-endpoint --override-generation-config
    --per-request-spec-decode-metrics --performance-mode --pooler-config
    --prefix-cache-retention-interval --prefix-caching-hash-algo --prefix-match-unit
    --profiler-config --pt-load-map-location --quantization --quantization-config
    --reasoning-config --reasoning-effort-map --reasoning-parser --reasoning-parser-plugin
    --response-role --revision --root-path --runner --safetensors-load-strategy
    --safetensors-prefetch-block-size --scheduler-cls --scheduling-policy
    --show-hidden-metrics-for-version --sleep-mode-backend --sparse-indexer-topk-backend
    --spec-method --spec-model --ssl-ca-certs --ssl-certfile --ssl-ciphers
    --ssl-keyfile --structured-outputs-config --tokenizer --tokenizer-mode --tokenizer-revision
    --tool-call-parser --tool-parser-plugin --tool-server --tool-strict-level --uds
    --uvicorn-log-level --video-pruning-method --video-pruning-rate --watchdog-config --watermark
    --watermark-config --weight-transfer-config --worker-cls --worker-extension-cls
"""
"""Take one value."""

SIZES = ""
"""Take one whole number, with the endings `k`, `K`, `M` and so on."""

NUMBERS = ""
"""Take one number."""

JSON_VALUES = """
    --speculative-config
"""
"""Take one JSON value."""

INTEGER_LISTS = ""
"""Take whole numbers up to the next option."""

LISTS = """
    --allowed-media-domains --api-key --collect-detailed-traces --cpu-offload-params
    --cudagraph-capture-sizes --ignore-patterns --kv-cache-dtype-skip-layers --logits-processors
    --lora-modules --lora-target-modules --numa-bind-cpus --numa-bind-nodes --offload-params
    --served-model-name --sleep-preserve-parameter-names
"""
"""Take all values up to the next option."""

OPTIONAL = """
    --hf-token
"""
"""Take one value or none."""

ALIASES = {
    "--device-memory-utilization": "--gpu-memory-utilization",
    "-ac": "--attention-config",
    "-asc": "--api-server-count",
    "-cc": "--compilation-config",
    "-dc": "--diffusion-config",
    "-dcp": "--decode-context-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpa": "--data-parallel-address",
    "-dpb": "--data-parallel-backend",
    "-dpe": "--data-parallel-external-lb",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpl": "--data-parallel-size-local",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-dpn": "--data-parallel-rank",
    "-dpp": "--data-parallel-rpc-port",
    "-dpr": "--data-parallel-start-rank",
    "-ep": "--enable-expert-parallel",
    "-n": "--nnodes",
    "-pcp": "--prefill-context-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-r": "--node-rank",
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
}
"""Other spellings of the names above."""

CHOICES = {
    "--all2all-backend": """
        allgather_reducescatter deepep_high_throughput deepep_low_latency deepep_v2
        flashinfer_all2allv flashinfer_nvlink_one_sided flashinfer_nvlink_two_sided moonep
        mori_high_throughput mori_low_latency naive nixl_ep pplx
    """,
    "--dtype": """
        auto bfloat16 float float16 float32 half
    """,
    "--lora-dtype": """
        auto bfloat16 float16
    """,
    "--max-lora-rank": """
        1 8 16 32 64 128 256 320 512
    """,
    "--moe-backend": """
        aiter aiter_mega_moe aiter_triton_mxfp4_bf16 aiter_triton_mxfp4_mxfp4 auto b12x
        batched_triton cutlass deep_gemm deep_gemm_mega_moe emulation flashinfer_b12x
        flashinfer_cutedsl flashinfer_cutlass flashinfer_moe_ep_cutedsl
        flashinfer_moe_ep_mega_deep_gemm flashinfer_trtllm flydsl hpc humming marlin rdna3
        triton triton_unfused
    """,
}
"""The values that an option takes, for the options that rules look at."""

MINIMUMS: dict[str, float] = {
    "--max-num-seqs": 1,
}
"""The least number that an option takes, where there is one."""

MAY_BE_NONE = "--max-cpu-loras"
"""Options for which the word `None` stands for no value."""
