"""The options of `sglang serve` in SGLang 0.5.23: names and how many values each takes.

Data only; `table.py` gives it meaning. Kept complete for this one version, so that an unknown
option is either misspelt, newer, or of a plugin. The lists of values are in `sglang_choices.py`.
"""

from inkling_cli.checks.launch.options.sglang_choices import CHOICES as CHOICES

SWITCHES = """
    --abort-on-priority-when-disabled --allow-auto-truncate
    --checkpoint-engine-wait-weights-before-ready --constrained-json-disable-any-whitespace
    --debug-cuda-graph --delete-ckpt-after-loading --disable-aiter-allreduce-fusion-in-decode
    --disable-aiter-allreduce-fusion-in-prefill --disable-attn-tp-gather
    --disable-chunked-prefix-cache --disable-cuda-graph --disable-cuda-graph-padding
    --disable-custom-all-reduce --disable-decode-cuda-graph --disable-fast-image-processor
    --disable-flashinfer-autotune --disable-flashinfer-cutlass-moe-fp4-allgather
    --disable-hybrid-swa-memory --disable-outlines-disk-cache --disable-overlap-schedule
    --disable-prefill-cuda-graph --disable-priority-preemption --disable-radix-cache
    --disable-shared-experts-fusion --disable-tokenizer-batch-decode
    --disaggregation-decode-enable-offload-kvcache --disaggregation-decode-enable-radix-cache
    --disaggregation-enable-kv-checksum --enable-adaptive-dispatch-to-encoder
    --enable-aiter-allreduce-fusion --enable-amd-monokernel --enable-attn-tp-input-scattered
    --enable-broadcast-mm-inputs-process --enable-cache-report --enable-cp-decode-attn-tp
    --enable-cudagraph-gc --enable-custom-logit-processor --enable-deepseek-v4-fp4-indexer
    --enable-dense-mlp-attn-tp --enable-deterministic-inference --enable-dp-attention
    --enable-dp-attention-local-control-broadcast --enable-dp-lm-head
    --enable-draft-weights-cpu-backup --enable-dsa-cache-layer-split
    --enable-dynamic-batch-tokenizer --enable-dynamic-chunking --enable-elastic-expert-backup
    --enable-encoder-swa-bounded-replay --enable-eplb --enable-flashinfer-allreduce-fusion
    --enable-flexkv --enable-forward-pass-metrics --enable-fp32-lm-head
    --enable-fused-moe-sum-all-reduce --enable-hierarchical-cache --enable-hisparse
    --enable-http-worker-reuseport --enable-http2 --enable-int8-mamba-checkpoint
    --enable-kv-cache-sharding --enable-layernorm-sp --enable-layerwise-nvtx-marker
    --enable-lean-attention --enable-linear-replayssm --enable-linear-replayssm-spec
    --enable-linker-mla-dedup --enable-lmcache --enable-lora --enable-lora-overlap-loading
    --enable-mamba-cache-stochastic-rounding --enable-megamoe-for-layernorm-sp
    --enable-memory-saver --enable-metrics --enable-metrics-for-all-schedulers --enable-mfu-metrics
    --enable-mis --enable-mixed-chunk --enable-mm-global-cache --enable-mscclpp
    --enable-multi-layer-eagle --enable-multimodal --enable-nccl-nvls --enable-nvidia-megakernel
    --enable-p2p-check --enable-page-major-kv-layout --enable-paged-experts --enable-pd-role-switch
    --enable-pdmux --enable-precise-embedding-interpolation --enable-prefill-cp
    --enable-prefill-delayer --enable-prefix-mm-cache --enable-priority-scheduling
    --enable-profile-cuda-graph --enable-quant-communications --enable-request-time-stats-logging
    --enable-response-store --enable-return-aux-hidden-states --enable-return-hidden-states
    --enable-return-indexer-topk --enable-return-routed-experts --enable-scattered-sconv
    --enable-session-radix-cache --enable-shared-experts-attn-tp --enable-single-batch-overlap
    --enable-ssl-refresh --enable-streaming-session --enable-strict-thinking --enable-symm-mem
    --enable-tokenizer-batch-encode --enable-torch-compile --enable-torch-compile-debug-mode
    --enable-torch-symm-mem --enable-trace --enable-two-batch-overlap
    --enable-unified-cache-external-linker --enable-unified-memory --enable-w4a4-mxfp4-megamoe
    --enable-waterfill --enable-watermark --enable-weights-cpu-backup --encoder-only
    --enforce-disable-flashinfer-allreduce-fusion --enforce-shared-experts-fusion
    --export-metrics-to-file --flashinfer-mla-disable-ragged --grpc-mode
    --incremental-streaming-output --is-embedding --language-model-only --language-only
    --log-requests --lora-use-virtual-experts --mlx-enable-sampling --pre-warm-nccl
    --prefill-only-disable-kv-cache --quantize-and-serve
    --remote-instance-weight-loader-start-seed-via-transfer-engine --return-input-ids
    --return-output-ids --schedule-low-priority-values-first --show-time-cost --skip-server-warmup
    --skip-tokenizer-init --sleep-on-idle --smg-grpc-mode --speculative-adaptive
    --speculative-dspark-align-verify-tokens-to-graph-tier --speculative-use-block-verification
    --speculative-use-rejection-sampling --stream-response-default-include-usage
    --strip-thinking-cache --triton-attention-reduce-in-fp32 --trust-mm-content-hashes
    --trust-remote-code --trust-request-chat-template --use-ray --weight-loader-disable-mmap
    --weight-loader-drop-cache-after-load --weight-loader-prefetch-checkpoints
"""
"""Take no value and have no negation."""

PAIRS = """
    --dcp-replicate-q-proj --dllm-fdfo --enable-decoder-swa-bounded-replay
    --enable-dsa-fused-indexer --enable-fused-qk-norm-rope --enable-tf32-matmul
    --enable-tp-lm-head-all-to-all --experts-shared-outer-loras --lora-strict-loading
    --mm-enable-dp-encoder --ple-offload-embedding --speculative-enable-w4a4-mxfp4-megamoe
"""
"""Take no value; `--x` is undone by `--no-x`."""

INTEGERS = """
    --asr-max-buffer-seconds --asr-max-concurrent-sessions --attn-cp-size --attn-dp-size
    --base-gpu-id --batch-notify-size --c128-page-size --chunked-prefill-size
    --constrained-json-max-whitespace-cnt --cpu-offload-gb --cuda-graph-max-bs-decode
    --cuda-graph-max-bs-prefill --cuda-graph-max-seq-len-prefill --dcp-size --decode-log-interval
    --decoupled-spec-rank --default-priority-value --detokenizer-worker-num
    --disaggregation-bootstrap-port --disaggregation-decode-extra-slots
    --disaggregation-decode-polling-interval --dist-timeout --dp-size --dsa-triton-union
    --dwdp-size --dynamic-batch-tokenizer-batch-size --elastic-ep-initial-size
    --elastic-ep-join-rank-offset --encoder-bootstrap-port --engine-info-bootstrap-port
    --ep-num-redundant-experts --ep-size --eplb-rebalance-layers-per-chunk
    --eplb-rebalance-num-iterations --expert-distribution-recorder-buffer-size --fuseep-mode
    --gated-launch-port --gpu-id-step --grpc-port --grpc-response-timeout-secs --hicache-size
    --hicache-storage-prefetch-retry-max-attempts --hicache-storage-prefetch-retry-poll-interval
    --http2-initial-connection-window-size --http2-max-concurrent-streams --int8-mamba-ckpt-size
    --kt-cpuinfer --kt-max-deferred-experts-per-token --kt-num-gpu-experts --kt-threadpool-count
    --kv-canary-sweep-interval --linear-replayssm-cache-len --load-snapshot-publish-interval
    --log-requests-level --mamba-cache-philox-rounds --mamba-max-states-per-path
    --mamba-track-interval --max-ep-size --max-loaded-loras --max-lora-chunk-size --max-lora-rank
    --max-loras-per-batch --max-mamba-cache-size --max-queued-requests --max-running-requests
    --media-url-max-file-size-mb --min-free-slots-delay --mm-io-worker-num
    --mm-preprocess-cache-size-mb --mm-processor-worker-num --moe-dense-tp-size --moe-dp-size
    --nccl-port --nnodes --node-rank --num-continuous-decode-steps --num-reserved-decode-tokens
    --offload-group-size --offload-num-in-group --offload-prefetch-step
    --optimistic-prefill-attempts --page-size --paged-experts-num-resident --port
    --pp-async-batch-depth --pp-max-micro-batch-size --pp-size --prefill-decode-interval
    --prefill-decode-interval-min-bs --prefill-delayer-max-delay-passes --prefill-max-requests
    --priority-scheduling-preemption-threshold --random-seed
    --remote-instance-weight-loader-seed-instance-service-port --sampling-mask-max-tokens
    --scheduler-recv-interval --shared-experts-tp-size --sm-group-num --smg-http-sidecar-port
    --speculative-dflash-block-size --speculative-domino-candidate-pool-size
    --speculative-draft-sink-size --speculative-draft-window-size --speculative-dspark-block-size
    --speculative-eagle-topk --speculative-ngram-capacity
    --speculative-ngram-external-corpus-max-tokens --speculative-ngram-external-sam-budget
    --speculative-ngram-max-bfs-breadth --speculative-ngram-max-trie-depth
    --speculative-ngram-min-bfs-breadth --speculative-num-draft-tokens --speculative-num-steps
    --stream-interval --swa-prefix-tails --tokenizer-worker-num --torch-compile-max-bs --tp-size
    --triton-attention-num-kv-splits --triton-attention-split-tile-size --weight-cache-timeout
    --weight-loader-prefetch-num-threads
"""
"""Take one whole number."""

SIZES = """
    --context-length --cuda-graph-prefill-max-context --max-prefill-tokens --max-total-tokens
"""
"""Take one whole number, with endings like `k`, `M` and `Ki`."""

NUMBERS = """
    --disaggregation-decode-host-receive-threshold --dynamic-batch-tokenizer-batch-timeout
    --elastic-ep-scale-timeout --eplb-min-rebalancing-utilization-threshold
    --gc-warning-threshold-secs --hicache-host-memory-fraction --hicache-ratio
    --lora-drain-wait-threshold --mamba-full-memory-ratio --mem-fraction-static
    --prefill-delayer-max-delay-ms --prefill-delayer-queue-min-ratio
    --prefill-delayer-token-usage-low-watermark --schedule-conservativeness --soft-watchdog-timeout
    --speculative-accept-threshold-acc --speculative-accept-threshold-single
    --swa-full-tokens-ratio --tbo-token-distribution-threshold --watchdog-timeout
"""
"""Take one number."""

JSON_VALUES = """
    --cuda-graph-config --decoupled-spec-connect-endpoints --default-chat-template-kwargs
    --extra-metric-labels --forward-hooks --limit-mm-data-per-request --mm-process-config
    --preferred-sampling-params --radix-eviction-policy-config
    --remote-instance-weight-loader-send-weights-group-ports --sidecar-args
    --unified-cache-external-linker-config
"""
"""Take one JSON value."""

VALUES = """
    --admin-api-key --api-key --attention-backend --bf16-gemm-backend --boundary-reduction
    --chat-template --completion-template --config --constrained-json-whitespace-pattern
    --cp-strategy --crash-dump-folder --cuda-graph-backend-decode --cuda-graph-backend-prefill
    --dcp-comm-backend --debug-tensor-dump-input-file --debug-tensor-dump-output-folder
    --decode-attention-backend --decoupled-spec-bind-endpoint --decoupled-spec-role
    --decrypted-config-file --decrypted-draft-config-file --deepep-config
    --deepep-dispatcher-output-dtype --deepep-mode --deepep-v2-mode --device
    --disaggregation-decode-allocation-policy --disaggregation-decode-retraction-backup
    --disaggregation-ib-device --disaggregation-mode --disaggregation-transfer-backend
    --dist-init-addr --dllm-algorithm --dllm-algorithm-config --download-dir --dsa-decode-backend
    --dsa-paged-mqa-logits-backend --dsa-prefill-backend --dsa-topk-backend --dsv4-attn-backend
    --dsv4-prefill-backend --dtype --elastic-ep-backend --elastic-ep-join-mode
    --encoder-transfer-backend --ep-dispatch-algorithm --eplb-algorithm
    --expert-balancedness-report-mode --expert-distribution-recorder-mode
    --export-metrics-to-file-dir --fastapi-root-path --file-storage-path
    --flashinfer-a2a-dispatch-type --flashinfer-allreduce-fusion-backend
    --flashinfer-mxfp4-moe-precision --flexkv-config-file --forward-pass-metrics-ipc-name
    --forward-pass-metrics-worker-id --fp4-gemm-backend --fp8-gemm-backend --grammar-backend
    --hf-chat-template-name --hicache-host-memory-mode --hicache-io-backend --hicache-mem-layout
    --hicache-storage-backend --hicache-storage-backend-extra-config
    --hicache-storage-prefetch-policy --hicache-write-policy --hisparse-config --host
    --image-processor-backend --init-expert-location --json-model-override-args --kt-method
    --kt-weight-path --kv-cache-dtype --kv-canary --kv-canary-real-data --kv-events-config
    --linear-attn-backend --linear-attn-decode-backend --linear-attn-prefill-backend
    --linear-attn-verify-backend --lmcache-config-file --load-balance-method --load-format
    --load-publish-endpoint --log-level --log-level-http --log-requests-format --lora-backend
    --lora-eviction-policy --mamba-backend --mamba-radix-cache-strategy --mamba-ssm-dtype
    --mm-attention-backend --mm-feature-transport --mm-global-cache-backend --model-config-parser
    --model-impl --model-loader-extra-config --model-path --model-type --modelexpress-config
    --modelopt-checkpoint-restore-path --modelopt-checkpoint-save-path --modelopt-export-path
    --modelopt-quant --moe-a2a-backend --moe-runner-backend --monokernel-backend
    --mooncake-ib-device --msprobe-dump-config --offload-mode --otlp-service-name
    --otlp-traces-endpoint --pdmux-config-path --ple-offload-backend --ple-offload-dir
    --prefill-attention-backend --prefill-kv-cache-dequant-dtype --qsa-indexer-dtype --quantization
    --quantization-param-path --radix-cache-backend --radix-eviction-policy --reasoning-parser
    --remote-instance-weight-loader-backend --remote-instance-weight-loader-seed-instance-ip
    --retraction-policy --return-hidden-states-mode --revision --rl-on-policy-target
    --rl-quant-profile --sampling-backend --sampling-defaults --schedule-policy --served-model-name
    --sidecar --spec-trace-dir --speculative-adaptive-config --speculative-algorithm
    --speculative-attention-mode --speculative-draft-attention-backend
    --speculative-draft-kv-cache-dtype --speculative-draft-load-format
    --speculative-draft-model-path --speculative-draft-model-quantization
    --speculative-draft-model-revision --speculative-dsa-topk-backend
    --speculative-dspark-confidence-sts-path --speculative-dspark-sps-table-path
    --speculative-moe-a2a-backend --speculative-moe-runner-backend
    --speculative-ngram-external-corpus-path --speculative-ngram-match-type --speculative-token-map
    --ssl-ca-certs --ssl-certfile --ssl-keyfile --ssl-keyfile-password --startup-weight-load-mode
    --tokenizer-backend --tokenizer-metrics-custom-labels-header --tokenizer-mode --tokenizer-path
    --tool-call-parser --tool-server --trace-modules --unified-cache-external-linker-backend
    --uno-lora-path --warmups --watermark-config --weight-cache-mode --weight-cache-socket
    --weight-version
"""
"""Take one value."""

INTEGER_LISTS = """
    --cuda-graph-bs-decode --cuda-graph-bs-prefill --debug-tensor-dump-layers --gc-threshold
    --numa-node --return-aux-hidden-state-layer-ids
"""
"""Take whole numbers up to the next option."""

JSON_OBJECTS = ""
"""Take one JSON object, in which numbers may have the endings of a size."""

FOLDED = ""
"""Options whose values may be spelled with capitals, and with `-` for `_`."""

SPECIAL_WORDS: dict[str, str] = {}
"""Words that an option takes although they are not of its kind, or below its least value."""

NUMBER_LISTS = """
    --bucket-e2e-request-latency --bucket-inter-token-latency --bucket-time-to-first-token
    --prefill-delayer-forward-passes-buckets --prefill-delayer-wait-seconds-buckets
"""
"""Take numbers up to the next option."""

LISTS = """
    --allowed-media-domains --custom-weight-loader --encoder-register-urls --encoder-urls
    --flashinfer-autotune-skip-ops --generation-tokens-buckets --log-requests-target --lora-paths
    --lora-target-modules --prompt-tokens-buckets --tokenizer-metrics-allowed-custom-labels
    --uvicorn-access-log-exclude-prefixes
"""
"""Take all values up to the next option."""

OPTIONAL = """
    --model-checksum
"""
"""Take one value or none."""

NEEDS_VALUE = """
    --allowed-media-domains --bucket-e2e-request-latency --bucket-inter-token-latency
    --bucket-time-to-first-token --cuda-graph-bs-decode --cuda-graph-bs-prefill
    --debug-tensor-dump-layers --encoder-register-urls --encoder-urls
    --flashinfer-autotune-skip-ops --gc-threshold --generation-tokens-buckets --log-requests-target
    --numa-node --prefill-delayer-forward-passes-buckets --prefill-delayer-wait-seconds-buckets
    --prompt-tokens-buckets --return-aux-hidden-state-layer-ids
    --tokenizer-metrics-allowed-custom-labels
"""
"""Lists that take at least one value."""

SIZE_ENDINGS = r"\d+(?:\.\d+)?[kMGT]|\d+[KMGT]i"
"""What a size looks like where it is not a whole number alone."""

ALIASES = {
    "--attention-context-parallel-size": "--attn-cp-size",
    "--attention-data-parallel-size": "--attn-dp-size",
    "--context-bucket": "--cuda-graph-prefill-max-context",
    "--data-parallel-size": "--dp-size",
    "--decode-context-parallel-size": "--dcp-size",
    "--enable-hicache": "--enable-hierarchical-cache",
    "--ep": "--ep-size",
    "--expert-parallel-size": "--ep-size",
    "--grpc-http-sidecar-port": "--smg-http-sidecar-port",
    "--hierarchical-sparse-attention-extra-config": "--hisparse-config",
    "--model": "--model-path",
    "--moe-data-parallel-size": "--moe-dp-size",
    "--nccl-init-addr": "--dist-init-addr",
    "--pipeline-parallel-size": "--pp-size",
    "--speculative-draft-model": "--speculative-draft-model-path",
    "--tensor-parallel-size": "--tp-size",
}
"""Other spellings of the names above."""

MINIMUMS: dict[str, float] = {}
"""The least number that an option takes, where there is one."""

MAY_BE_NONE = ""
"""Options for which the word `None` stands for no value."""
