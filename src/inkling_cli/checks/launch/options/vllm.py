"""The options of `vllm serve` in vLLM 0.33.0: names and how many values each takes.

Data only; `table.py` gives it meaning. Kept complete for this one version, so that an unknown
option is either misspelt, newer, or of a plugin. The values that options take are in
`vllm_choices.py`.
"""

from inkling_cli.checks.launch.options.vllm_choices import CHOICES as CHOICES
from inkling_cli.checks.launch.options.vllm_choices import FOLDED as FOLDED
from inkling_cli.checks.launch.options.vllm_choices import MINIMUMS as MINIMUMS

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
    --enable-eplb --enable-expert-parallel --enable-fault-tolerance --enable-flash-late-interaction
    --enable-flashinfer-autotune --enable-force-include-usage --enable-hc-sp
    --enable-layerwise-nvtx-tracing --enable-log-deltas --enable-log-outputs --enable-log-requests
    --enable-logging-iteration-details --enable-lora --enable-mamba-cache-stochastic-rounding
    --enable-mamba-shared-prefix-checkpoint --enable-mfu-metrics --enable-mixed-moe-lora-format
    --enable-mm-embeds --enable-moe-shared-loras --enable-nccl-comm-suspend --enable-offline-docs
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
    --api-server-count --block-size --cp-kv-cache-interleave-size --cpu-distributed-timeout-seconds
    --data-parallel-rank --data-parallel-rpc-port --data-parallel-size --data-parallel-size-local
    --data-parallel-start-rank --data-parallel-supervisor-port --dbo-decode-token-threshold
    --dbo-prefill-token-threshold --dcp-kv-cache-interleave-size --decode-context-parallel-size
    --distributed-timeout-seconds --dp-supervisor-probe-failure-threshold --dp-sync-interval
    --elastic-ep-max-dp-size --grpc-port --h11-max-header-count --h11-max-incomplete-event-size
    --long-prefill-token-threshold --mamba-block-size --mamba-cache-philox-rounds --master-port
    --max-cpu-loras --max-cudagraph-capture-size --max-log-len --max-logprobs --max-lora-cls-labels
    --max-lora-rank --max-loras --max-num-active-seqs --max-num-queued-reqs --max-num-seqs
    --max-parallel-loading-workers --mm-shm-cache-max-object-size-mb --nnodes --node-rank
    --num-gpu-blocks-override --offload-group-size --offload-num-in-group --offload-prefetch-step
    --pipeline-parallel-size --port --prefill-context-parallel-size --prefill-schedule-interval
    --prefix-cache-retention-interval --prefix-match-unit --renderer-num-workers
    --replayssm-buffer-len --safetensors-prefetch-num-threads --seed --shutdown-timeout
    --spec-tokens --sse-keep-alive-interval --ssl-cert-reqs --stream-interval
    --tensor-parallel-size --ubatch-size
"""
"""Take one whole number."""

SIZES = """
    --kv-cache-memory-bytes --max-model-len --max-num-batched-tokens --max-num-queued-tokens
    --max-num-scheduled-tokens --safetensors-prefetch-block-size
"""
"""Take one whole number, with the endings `k`, `K`, `M` and so on."""

SIZE_ENDINGS = r"\d+(?:\.\d+)?[kmgt]|\d+[KMGT]"
"""What a size looks like where it is not a whole number alone."""

NUMBERS = """
    --cpu-offload-gb --dp-supervisor-probe-interval-s --dp-supervisor-probe-timeout-s
    --gpu-memory-utilization --kv-cache-metrics-sample --kv-offloading-size
    --mm-encoder-fp8-scale-save-margin --mm-ipc-gpu-memory-gb --mm-processor-cache-gb
    --video-pruning-rate --watermark
"""
"""Take one number."""

JSON_OBJECTS = """
    --attention-config --aux-output-config --compilation-config --ec-manager-config
    --ec-transfer-config --engram-config --eplb-config --fault-tolerance-config --ir-op-priority
    --kernel-config --kv-events-config --kv-transfer-config --logging-config --pooler-config
    --profiler-config --quantization-config --reasoning-config --structured-outputs-config
    --watchdog-config --weight-transfer-config
"""
"""Take one JSON object, in which numbers may have the endings of a size."""

JSON_VALUES = """
    --allowed-headers --allowed-methods --allowed-origins --custom-histogram-buckets
    --default-chat-template-kwargs --default-mm-loras --diffusion-config --limit-mm-per-prompt
    --media-io-kwargs --mm-processor-kwargs --model-class-overrides --override-generation-config
    --reasoning-effort-map --speculative-config --watermark-config
"""
"""Take one JSON value."""

VALUES = """
    --additional-config --all2all-backend --allowed-local-media-path
    --anthropic-disabled-thinking-effort --attention-backend --chat-template
    --chat-template-content-format --code-revision --cohere-format --config --config-format
    --convert --data-parallel-address --data-parallel-backend --dcp-comm-backend --device-ids
    --disable-access-log-for-endpoints --distributed-executor-backend --download-dir --dtype
    --expert-placement-strategy --fingerprint-mode --fingerprint-value --gdn-prefill-backend
    --generation-config --hf-config-path --hf-overrides --host --io-processor-plugin
    --jit-monitor-mode --kda-decode-backend --kda-prefill-backend --kv-cache-dtype
    --kv-offloading-backend --linear-backend --load-format --log-config-file --log-level
    --logprobs-mode --lora-dtype --mamba-backend --mamba-cache-dtype --mamba-cache-mode
    --mamba-ssm-cache-dtype --mamba-ssu-algorithm --master-addr --middleware
    --mm-encoder-attn-backend --mm-encoder-attn-dtype --mm-encoder-fp8-scale-path
    --mm-encoder-fp8-scale-save-path --mm-encoder-tp-mode --mm-hasher-algorithm
    --mm-processor-cache-type --mm-processor-device --mm-tensor-ipc --model --model-impl
    --model-loader-extra-config --moe-backend --offload-backend --optimization-level
    --otlp-traces-endpoint --per-request-spec-decode-metrics --performance-mode
    --prefix-caching-hash-algo --pt-load-map-location --quantization --reasoning-parser
    --reasoning-parser-plugin --response-role --revision --root-path --runner
    --safetensors-load-strategy --scheduler-cls --scheduling-policy
    --show-hidden-metrics-for-version --sleep-mode-backend --sparse-indexer-topk-backend
    --spec-method --spec-model --ssl-ca-certs --ssl-certfile --ssl-ciphers --ssl-keyfile
    --tokenizer --tokenizer-mode --tokenizer-revision --tool-call-parser --tool-parser-plugin
    --tool-server --tool-strict-level --uds --uvicorn-log-level --video-pruning-method --worker-cls
    --worker-extension-cls
"""
"""Take one value."""

LISTS = """
    --allowed-media-domains --api-key --collect-detailed-traces --cpu-offload-params
    --ignore-patterns --kv-cache-dtype-skip-layers --logits-processors --lora-modules
    --lora-target-modules --numa-bind-cpus --offload-params --served-model-name
    --sleep-preserve-parameter-names
"""
"""Take all values up to the next option."""

INTEGER_LISTS = """
    --cudagraph-capture-sizes --numa-bind-nodes
"""
"""Take whole numbers up to the next option."""

NUMBER_LISTS = ""
"""Take numbers up to the next option."""

NEEDS_VALUE = """
    --allowed-media-domains --api-key --collect-detailed-traces --cpu-offload-params
    --cudagraph-capture-sizes --ignore-patterns --kv-cache-dtype-skip-layers --logits-processors
    --lora-modules --lora-target-modules --numa-bind-cpus --numa-bind-nodes --offload-params
    --served-model-name --sleep-preserve-parameter-names
"""
"""Lists that take at least one value."""

OPTIONAL = """
    --hf-token
"""
"""Take one value or none."""

MAY_BE_NONE = """
    --allowed-media-domains --api-key --attention-backend --chat-template --code-revision
    --collect-detailed-traces --cpu-distributed-timeout-seconds --custom-histogram-buckets
    --dcp-comm-backend --default-mm-loras --diffusion-config --disable-access-log-for-endpoints
    --distributed-executor-backend --distributed-timeout-seconds --download-dir
    --ec-transfer-config --engram-config --fingerprint-value --grpc-port --hf-config-path --host
    --io-processor-plugin --kv-cache-memory-bytes --kv-events-config --kv-offloading-size
    --kv-transfer-config --logits-processors --lora-modules --lora-target-modules
    --mamba-block-size --mamba-ssu-algorithm --max-cpu-loras --max-log-len --max-lora-cls-labels
    --max-num-active-seqs --max-num-queued-reqs --max-num-queued-tokens --max-num-scheduled-tokens
    --max-parallel-loading-workers --mm-encoder-attn-backend --mm-encoder-attn-dtype
    --mm-encoder-fp8-scale-path --mm-encoder-fp8-scale-save-path --mm-processor-kwargs
    --num-gpu-blocks-override --numa-bind-cpus --numa-bind-nodes --otlp-traces-endpoint
    --pooler-config --prefix-cache-retention-interval --prefix-match-unit --quantization
    --quantization-config --reasoning-config --revision --root-path --safetensors-load-strategy
    --scheduler-cls --served-model-name --show-hidden-metrics-for-version --spec-method
    --spec-model --speculative-config --ssl-ca-certs --ssl-certfile --ssl-ciphers --ssl-keyfile
    --tokenizer-revision --tool-call-parser --tool-server --tool-strict-level --uds
    --video-pruning-rate --watermark-config --weight-transfer-config
"""
"""Options for which the word `None`, or an empty one, stands for no value."""

SPECIAL_WORDS = {"--max-model-len": "auto -1"}
"""Words that an option takes although they are not of its kind, or below its least value."""

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
