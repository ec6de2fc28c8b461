"""The values of the options of `sglang serve` that have a fixed list, in SGLang 0.5.23. Data only.

`sglang.py` holds the options themselves.
"""

_LOAD_FORMATS = """
    auto pt safetensors instanttensor npcache dummy sharded_state presharded gguf expert_pack
    bitsandbytes mistral layered flash_rl remote remote_instance fastsafetensors private
    runai_streamer
"""
_QUANTIZATION = """
    awq fp8 mxfp8 gptq gptq_marlin awq_marlin bitsandbytes gguf modelopt modelopt_fp8 modelopt_fp4
    nvfp4_online modelopt_mixed petit_nvfp4 w8a8_int8 w8a8_fp8 moe_wna16 w4afp8 mxfp4 auto-round
    auto-round-int8 compressed-tensors modelslim mxfp_w4a8 quark quark_int4fp8_moe quark_mxfp4
    mlx_q4 mlx_q8 unquant humming
"""
_ATTENTION = """
    triton torch_native flex_attention dsa nsa qsa dsv4 compressed fa3 fa4 flashinfer
    llada2_cfg_flashinfer flashmla trtllm_mla cutedsl_mla tokenspeed_mla trtllm_mha hpc_ops
    minicpm_flashattn minicpm_flashinfer aiter wave intel_amx ascend intel_xpu
"""
_MOE_RUNNERS = """
    auto deep_gemm triton triton_kernel flashinfer_trtllm experimental_sgl_trtllm
    flashinfer_trtllm_routed flashinfer_cutlass flashinfer_mxfp4 flashinfer_cutedsl
    flashinfer_megamoe cutlass aiter marlin humming experimental_sgl_marlin lora_cutedsl
    lora_triton lora_marlin hpc_ops megamoe intel_xpu
"""
_LINEAR_ATTENTION = """
    triton cutedsl flashinfer flashkda nvidia_kda ptx_kda helion intel_xpu
"""

CHOICES = {
    "--attention-backend": _ATTENTION,
    "--bf16-gemm-backend": "auto cutedsl gemv torch",
    "--boundary-reduction": "auto ar rs rsv rs+rsv",
    "--cp-strategy": "zigzag interleave",
    "--cuda-graph-backend-decode": "full breakable disabled",
    "--cuda-graph-backend-prefill": "full breakable disabled",
    "--dcp-comm-backend": "ag_rs a2a fi_a2a",
    "--decode-attention-backend": _ATTENTION,
    "--decoupled-spec-role": "null verifier drafter",
    "--deepep-dispatcher-output-dtype": "auto bf16 fp8 int8 nvfp4",
    "--deepep-mode": "auto normal low_latency",
    "--deepep-v2-mode": "direct hybrid",
    "--disaggregation-decode-allocation-policy": "early prefill_complete",
    "--disaggregation-decode-retraction-backup": "cpu_tensor host_pool none",
    "--disaggregation-mode": "null prefill decode",
    "--disaggregation-transfer-backend": "mooncake nixl ascend fake mori mooncake_tcp",
    "--dsa-decode-backend": """
        flashmla_sparse flashmla_sparse_q8 flashmla_kv flashmla_auto flashinfer_sparse_mla fa3
        tilelang triton aiter trtllm intel_xpu
    """,
    "--dsa-paged-mqa-logits-backend": "auto deepgemm cutedsl aiter",
    "--dsa-prefill-backend": """
        flashmla_sparse flashmla_sparse_q8 flashmla_kv flashmla_auto flashinfer_sparse_mla
        triton_sparse_mla fa3 tilelang triton aiter trtllm intel_xpu
    """,
    "--dsa-topk-backend": "sgl-kernel torch flashinfer",
    "--dsa-triton-union": "0 2 4",
    "--dsv4-attn-backend": "auto flashmla flashmla_mega trtllm",
    "--dsv4-prefill-backend": "auto flashmla_sparse flashmla_sparse_q8",
    "--dtype": "auto half float16 bfloat16 float float32",
    "--elastic-ep-backend": "none mooncake nixl",
    "--elastic-ep-join-mode": "scale recover",
    "--encoder-transfer-backend": "auto zmq_to_scheduler zmq_to_tokenizer mooncake",
    "--ep-dispatch-algorithm": "static dynamic fake lp",
    "--expert-balancedness-report-mode": "off server_log prometheus both",
    "--expert-distribution-recorder-mode": "stat stat_approx per_pass per_token",
    "--flashinfer-a2a-dispatch-type": "auto bf16 nvfp4 mxfp8",
    "--flashinfer-allreduce-fusion-backend": "auto trtllm mnnvl cutedsl",
    "--flashinfer-mxfp4-moe-precision": "default bf16 fp8",
    "--fp4-gemm-backend": """
        auto flashinfer_cudnn flashinfer_cutedsl flashinfer_cutlass flashinfer_trtllm marlin
    """,
    "--fp8-gemm-backend": """
        auto deep_gemm flashinfer_trtllm flashinfer_cutlass flashinfer_deepgemm flashinfer_cutedsl
        cutlass triton aiter
    """,
    "--fuseep-mode": "1 2",
    "--grammar-backend": "xgrammar outlines llguidance none",
    "--hicache-host-memory-mode": "cache buffer_only",
    "--hicache-io-backend": "direct kernel kernel_ascend",
    "--hicache-mem-layout": """
        layer_first page_first page_first_direct page_first_kv_split page_head
    """,
    "--hicache-storage-backend": """
        file sim mooncake npu_memcache hf3fs nixl aibrix dynamic eic simm mori shm tensorcast
        seaweedfs
    """,
    "--hicache-storage-prefetch-policy": "best_effort wait_complete timeout",
    "--hicache-write-policy": "write_back write_through write_through_selective",
    "--image-processor-backend": "auto torchvision pil",
    "--kv-cache-dtype": "auto fp8_e5m2 fp8_e4m3 mxfp8 bf16 bfloat16 nvfp4 fp4_mx_block16",
    "--kv-canary": "none log raise",
    "--kv-canary-real-data": "none partial all",
    "--linear-attn-backend": _LINEAR_ATTENTION,
    "--linear-attn-decode-backend": _LINEAR_ATTENTION,
    "--linear-attn-prefill-backend": _LINEAR_ATTENTION,
    "--linear-attn-verify-backend": """
        triton cutedsl flashinfer flashkda nvidia_kda ptx_kda helion intel_xpu nv_cutedsl
    """,
    "--load-balance-method": "auto round_robin follow_bootstrap_room total_requests total_tokens",
    "--load-format": _LOAD_FORMATS,
    "--log-requests-format": "text json",
    "--log-requests-level": "0 1 2 3",
    "--lora-backend": "triton csgmv ascend torch_native triton_v2",
    "--lora-eviction-policy": "lru fifo",
    "--lora-target-modules": """
        q_proj k_proj v_proj o_proj q_a_proj kv_a_proj_with_mqa q_b_proj kv_b_proj wq_b wk
        weights_proj gate_proj up_proj down_proj qkv_proj gate_up_proj embed_tokens lm_head qkvr
        wo_ud all
    """,
    "--mamba-backend": "triton flashinfer",
    "--mamba-radix-cache-strategy": "auto no_buffer extra_buffer extra_buffer_lazy",
    "--mamba-ssm-dtype": "float32 bfloat16 float16",
    "--max-lora-chunk-size": "16 32 64 128",
    "--mm-attention-backend": """
        sdpa fa3 fa4 triton_attn ascend_attn aiter_attn flashinfer_cudnn amx_attn xpu_attn
    """,
    "--mm-feature-transport": "cpu cuda_ipc cuda_vmm",
    "--mm-global-cache-backend": "mooncake",
    "--model-type": "auto llm diffusion",
    "--moe-a2a-backend": """
        none deepep mooncake nixl mori ascend_fuseep flashinfer megamoe deepep_v2 pplx ascend_tp
        flashinfer_megamoe
    """,
    "--moe-runner-backend": _MOE_RUNNERS,
    "--monokernel-backend": "amd",
    "--ple-offload-backend": "pinned file",
    "--prefill-attention-backend": _ATTENTION,
    "--prefill-kv-cache-dequant-dtype": "auto nvfp4 fp8_e4m3",
    "--qsa-indexer-dtype": "auto bfloat16 fp8_e4m3",
    "--quantization": _QUANTIZATION,
    "--radix-eviction-policy": "lru lfu slru priority tlru",
    "--reasoning-parser": """
        auto apertus2509 beam deepseek-r1 deepseek-v3 deepseek-v4 deepseek-v41 dots glm45 ling3
        hunyuan gpt-oss k2_horizon kimi kimi_k2 kimi_k3 mimo muse poolside_v1 qwen3 qwen3-thinking
        minimax minimax-append-think minimax-m3 nanbeige step3 step3p5 mistral nemotron_3
        granite_thinking_parser interns1 gemma4 gigachat35 inkling iquest_q1 cohere_command4
        response_template
    """,
    "--remote-instance-weight-loader-backend": "transfer_engine nccl modelexpress",
    "--retraction-policy": "length priority",
    "--return-hidden-states-mode": "last full",
    "--rl-on-policy-target": "fsdp",
    "--sampling-backend": "flashinfer pytorch intel_xpu ascend",
    "--sampling-defaults": "openai model",
    "--schedule-policy": """
        lpm random fcfs dfs-weight lof priority routing-key hrrn shortest-prefill-first
    """,
    "--speculative-attention-mode": "prefill decode",
    "--speculative-draft-kv-cache-dtype": "auto fp8_e5m2 fp8_e4m3 bf16 bfloat16",
    "--speculative-draft-load-format": _LOAD_FORMATS,
    "--speculative-draft-model-quantization": _QUANTIZATION,
    "--speculative-dsa-topk-backend": "sgl-kernel torch flashinfer",
    "--speculative-moe-a2a-backend": """
        none deepep mooncake nixl mori ascend_fuseep flashinfer megamoe deepep_v2 pplx ascend_tp
    """,
    "--speculative-moe-runner-backend": _MOE_RUNNERS,
    "--speculative-ngram-match-type": "BFS PROB",
    "--startup-weight-load-mode": "serial overlap",
    "--tokenizer-backend": "huggingface fastokens",
    "--tokenizer-mode": "auto slow",
    "--tool-call-parser": """
        auto apertus2509 beam cohere_command4 deepseekv3 deepseekv31 deepseekv32 deepseekv4
        deepseekv41 dots glm glm45 glm47 gpt-oss k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3 mimo
        minicpm5 mistral muse poolside_v1 pythonic qwen qwen25 qwen3_coder spark25 step3 step3p5
        minimax-m2 minimax-m3 nanbeige trinity interns1 hermes hunyuan gigachat3 gigachat35 gemma4
        inkling iquest_q1 response_template
    """,
    "--unified-cache-external-linker-backend": "mooncake mori dynamic",
    "--weight-cache-mode": "off daemon client",
}
"""Option → the values that it takes."""
