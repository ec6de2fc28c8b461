"""What SGLang 0.5.23 demands of single options after its parser has taken them. Data only.

These checks run while the server's arguments are resolved, so no model is loaded yet. Left out
is what depends on the GPU or on installed packages.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that an option takes."""

    low: float
    high: float | None = None
    is_low_open: bool = False
    """Whether `low` itself is refused."""

    def holds(self, number: float) -> bool:
        """Return whether a number lies within; NaN never does."""
        above = number > self.low if self.is_low_open else number >= self.low
        return above and (self.high is None or number <= self.high)

    def __str__(self) -> str:
        low = f"more than {self.low:g}" if self.is_low_open else f"at least {self.low:g}"
        return low if self.high is None else f"{low} and at most {self.high:g}"


_AT_LEAST_ONE = Range(1)
_NOT_NEGATIVE = Range(0)
_SHARE = Range(0, 1, is_low_open=True)

RANGES = {
    "--asr-max-buffer-seconds": _AT_LEAST_ONE,
    "--asr-max-concurrent-sessions": _AT_LEAST_ONE,
    "--attn-dp-size": _AT_LEAST_ONE,
    "--base-gpu-id": _NOT_NEGATIVE,
    "--cuda-graph-prefill-max-context": _AT_LEAST_ONE,
    "--disaggregation-decode-host-receive-threshold": Range(0, 1),
    "--dcp-size": _AT_LEAST_ONE,
    "--gpu-id-step": _AT_LEAST_ONE,
    "--grpc-port": Range(1, 65535),
    "--grpc-response-timeout-secs": _AT_LEAST_ONE,
    "--hicache-host-memory-fraction": _SHARE,
    "--mamba-cache-philox-rounds": _NOT_NEGATIVE,
    "--media-url-max-file-size-mb": _NOT_NEGATIVE,
    "--mm-io-worker-num": _NOT_NEGATIVE,
    "--mm-preprocess-cache-size-mb": _NOT_NEGATIVE,
    "--mm-processor-worker-num": _NOT_NEGATIVE,
    "--pp-max-micro-batch-size": _AT_LEAST_ONE,
    "--prefill-decode-interval": _NOT_NEGATIVE,
    "--prefill-decode-interval-min-bs": _NOT_NEGATIVE,
    "--sampling-mask-max-tokens": _AT_LEAST_ONE,
    "--schedule-conservativeness": _NOT_NEGATIVE,
    "--speculative-draft-sink-size": _NOT_NEGATIVE,
    "--speculative-draft-window-size": _AT_LEAST_ONE,
    "--swa-full-tokens-ratio": _SHARE,
    "--swa-prefix-tails": _NOT_NEGATIVE,
    "--tokenizer-worker-num": _AT_LEAST_ONE,
}
"""Option → the numbers that it takes."""

DP_ATTENTION = ("--attn-dp-size", "--enable-dp-attention")

NEEDS: dict[str, tuple[str, ...]] = {
    "--dcp-comm-backend=a2a": ("--dcp-size",),
    "--dcp-comm-backend=fi_a2a": ("--dcp-size",),
    "--dcp-replicate-q-proj": ("--dcp-size",),
    "--disaggregation-decode-allocation-policy=prefill_complete": ("--disaggregation-mode",),
    "--disaggregation-decode-enable-offload-kvcache": ("--disaggregation-mode",),
    "--disaggregation-decode-retraction-backup=host_pool": ("--disaggregation-mode",),
    "--elastic-ep-initial-size": ("--max-ep-size",),
    "--elastic-ep-join-mode": ("--elastic-ep-backend",),
    "--enable-eplb": ("--ep-size", "--moe-a2a-backend"),
    "--enable-http-worker-reuseport": ("--tokenizer-worker-num",),
    "--enable-kv-cache-sharding": ("--disaggregation-mode",),
    "--enable-linker-mla-dedup": ("--unified-cache-external-linker-backend",),
    "--enable-mamba-cache-stochastic-rounding": ("--mamba-ssm-dtype",),
    "--enable-megamoe-for-layernorm-sp": ("--enable-layernorm-sp",),
    "--enable-page-major-kv-layout": ("--enable-unified-memory",),
    "--enable-prefill-cp": ("--cp-strategy",),
    "--enable-return-aux-hidden-states": ("--speculative-algorithm",),
    "--enable-ssl-refresh": ("--ssl-certfile",),
    "--enable-tp-lm-head-all-to-all": DP_ATTENTION,
    "--enable-two-batch-overlap": (*DP_ATTENTION, "--moe-a2a-backend"),
    "--ep-dispatch-algorithm=lp": ("--moe-a2a-backend",),
    "--ep-dispatch-algorithm=static": ("--moe-a2a-backend",),
    "--export-metrics-to-file": ("--export-metrics-to-file-dir",),
    "--flashinfer-a2a-dispatch-type=bf16": ("--moe-a2a-backend",),
    "--flashinfer-a2a-dispatch-type=mxfp8": ("--moe-a2a-backend",),
    "--flashinfer-a2a-dispatch-type=nvfp4": ("--moe-a2a-backend",),
    "--load-publish-endpoint": ("--kv-events-config",),
    "--max-ep-size": ("--elastic-ep-backend",),
    "--moe-a2a-backend=flashinfer": DP_ATTENTION,
    "--moe-a2a-backend=pplx": DP_ATTENTION,
    "--prefill-kv-cache-dequant-dtype=fp8_e4m3": ("--kv-cache-dtype",),
    "--prefill-kv-cache-dequant-dtype=nvfp4": ("--kv-cache-dtype",),
    "--prefill-only-disable-kv-cache": ("--is-embedding",),
    "--quantize-and-serve": ("--quantization",),
    "--radix-eviction-policy=tlru": ("--radix-eviction-policy-config",),
    "--retraction-policy=priority": ("--enable-priority-scheduling",),
    "--return-aux-hidden-state-layer-ids": ("--enable-return-aux-hidden-states",),
    "--sidecar": ("--grpc-port", "SGLANG_GRPC_PORT"),
    "--sidecar-args": ("--sidecar",),
    "--speculative-draft-sink-size": ("--speculative-draft-window-size",),
    "--speculative-use-block-verification": ("--speculative-algorithm",),
    "--ssl-ca-certs": ("--ssl-certfile",),
    "--ssl-certfile": ("--ssl-keyfile",),
    "--ssl-keyfile": ("--ssl-certfile",),
    "--ssl-keyfile-password": ("--ssl-certfile",),
    "--watermark-config": ("--enable-watermark",),
}
"""Option, or option and value → the options (or variables) of which one has to stand beside it."""

NEEDS_IF_POSITIVE: dict[str, tuple[str, ...]] = {
    "--elastic-ep-join-rank-offset": ("--elastic-ep-join-mode",),
    "--kv-canary-sweep-interval": ("--kv-canary",),
}
"""Likewise, for options whose number has to be above 0 for that."""

_NOT_BY_PRIORITY = (
    "dfs-weight",
    "hrrn",
    "lpm",
    "priority",
    "random",
    "routing-key",
    "shortest-prefill-first",
)
CLASHES = (
    ("--disable-cuda-graph-padding", "--enable-torch-compile"),
    ("--enable-response-store", "--disaggregation-mode=prefill"),
    ("--enable-response-store", "--disaggregation-mode=decode"),
    ("--encoder-only", "--language-only"),
    *(
        (f"--schedule-policy={policy}", "--enable-priority-scheduling")
        for policy in _NOT_BY_PRIORITY
    ),
)
"""Pairs of options, or options and values, that SGLang refuses together; the first is to go."""

NOT_FOR_INKLING = (
    "--dllm-algorithm",
    "--enable-cp-decode-attn-tp",
    "--enable-dsa-cache-layer-split",
    "--enable-encoder-swa-bounded-replay",
    "--enable-hisparse",
    "--enable-layernorm-sp",
    "--enable-mis",
    "--enable-linear-replayssm",
    "--enable-prefix-mm-cache",
    "--encoder-only",
    "--language-model-only",
    "--language-only",
    "--linear-attn-backend=cutedsl",
    "--linear-attn-backend=flashinfer",
    "--linear-attn-backend=flashkda",
    "--linear-attn-backend=helion",
    "--linear-attn-backend=intel_xpu",
    "--linear-attn-backend=nvidia_kda",
    "--linear-attn-backend=ptx_kda",
    "--moe-a2a-backend=deepep_v2",
    "--moe-a2a-backend=flashinfer_megamoe",
    "--shared-experts-tp-size",
)
"""Options, or options and values, that SGLang refuses for an Inkling."""

NEVER = {
    "--enable-amd-monokernel": "is for AMD GPUs",
    "--enable-quant-communications": "is for Ascend NPUs",
    "--linear-attn-decode-backend=flashkda": "is for prefill alone",
    "--monokernel-backend=amd": "is for AMD GPUs",
    "--quantization=gptq": "is for Ascend NPUs, Intel GPUs and CPUs",
    "--quantization=mlx_q4": "is for Apple GPUs",
    "--quantization=mlx_q8": "is for Apple GPUs",
    "--sampling-backend=intel_xpu": "is for Intel GPUs",
    "--speculative-moe-a2a-backend=deepep_v2": "is not for draft models",
}
"""Options and values that SGLang refuses for every model → why."""

OBJECTS = (
    "--default-chat-template-kwargs",
    "--mm-process-config",
    "--unified-cache-external-linker-config",
)
"""Options whose JSON has to be an object."""

JSON_TEXTS = ("--json-model-override-args",)
"""Options whose value the parser takes as text, and that is read as JSON later."""

LOG_LEVELS = ("critical", "debug", "error", "fatal", "info", "notset", "warn", "warning")
"""The words of `--log-level`, upper or lower case."""

BUCKETS = ("--generation-tokens-buckets", "--prompt-tokens-buckets")
BUCKET_RULES = ("tse", "default", "custom")
"""The words that the lists of buckets begin with."""
