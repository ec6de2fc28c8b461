"""Values in the JSON options of `vllm serve` in vLLM 0.33.0 that take one of a few words.

Data only, beside `vllm_choices.py`. Keys whose values have a rule of their own, and those in which
any text is taken, are not here.
"""

_MOE = """
    auto triton batched_triton deep_gemm deep_gemm_mega_moe cutlass flashinfer_trtllm
    flashinfer_cutlass flashinfer_cutedsl flashinfer_moe_ep_cutedsl flashinfer_b12x b12x
    flashinfer_moe_ep_mega_deep_gemm marlin humming triton_unfused aiter aiter_mega_moe
    aiter_triton_mxfp4_bf16 aiter_triton_mxfp4_mxfp4 flydsl hpc emulation rdna3
"""
_LINEAR = """
    auto cutlass flashinfer_cutlass flashinfer_cutedsl flashinfer_trtllm flashinfer_cudnn
    flashinfer_b12x b12x marlin humming triton deep_gemm torch aiter machete fbgemm conch exllama
    emulation xpu xpu_woq
"""

VALUES = {
    "--attention-config": {"flash_attn_version": "2 3 4"},
    "--compilation-config": {
        "mode": "0 1 2 3 none stock_torch_compile dynamo_trace_once vllm_compile",
        "cudagraph_mode": "0 1 2 none piecewise full full_decode_only full_and_piecewise",
        "compile_cache_save_format": "binary unpacked",
    },
    "--ec-transfer-config": {"ec_role": "ec_producer ec_both ec_consumer"},
    "--eplb-config": {"communicator": "torch_nccl torch_gloo torch_xccl nixl pynccl"},
    "--kernel-config": {"moe_backend": _MOE, "linear_backend": _LINEAR},
    "--kv-events-config": {"publisher": "null zmq"},
    "--kv-transfer-config": {
        "kv_role": "kv_producer kv_both kv_consumer",
        "kv_load_failure_policy": "recompute fail",
    },
    "--profiler-config": {"profiler": "torch cuda proton"},
    "--speculative-config": {
        "rejection_sample_method": "standard synthetic block fly",
        "draft_sample_method": "greedy probabilistic",
    },
    "--structured-outputs-config": {
        "backend": "auto xgrammar guidance outlines lm-format-enforcer",
    },
}
"""Option → key → the values it takes, in small letters."""

FOLDED = "mode cudagraph_mode moe_backend linear_backend"
"""Keys whose values may be spelled with capitals."""

LISTS = "cudagraph_capture_sizes custom_ops"
"""Keys that take a list, in `--compilation-config`."""

COMPANIONS = {
    "--enable-fault-tolerance": "--data-parallel-external-lb --data-parallel-rank",
    "--enable-batch-sharded-sampling": "--tensor-parallel-size",
}
"""Switch → options of which it needs one."""
