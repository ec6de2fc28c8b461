"""The values that the options of `vllm serve` take in vLLM 0.33.0. Data only.

`vllm.py` holds the options themselves. What the argument parser knows is in `CHOICES`; all
else is checked by the engine's config classes, after the command line.
"""

CHOICES = {
    "--all2all-backend": """
        allgather_reducescatter deepep_high_throughput deepep_low_latency deepep_v2
        flashinfer_all2allv flashinfer_nvlink_one_sided flashinfer_nvlink_two_sided moonep
        mori_high_throughput mori_low_latency naive nixl_ep pplx
    """,
    "--anthropic-disabled-thinking-effort": "auto high low max medium none xhigh",
    "--chat-template-content-format": "auto openai string",
    "--collect-detailed-traces": "all model worker",
    "--convert": "auto classify embed none",
    "--dcp-comm-backend": "a2a ag_rs",
    "--dtype": "auto bfloat16 float float16 float32 half",
    "--expert-placement-strategy": "linear round_robin",
    "--fingerprint-mode": "custom full hash none",
    "--gdn-prefill-backend": "flashinfer triton cutedsl aiter_flydsl sycl",
    "--jit-monitor-mode": "error warn",
    "--kda-decode-backend": "auto native flashinfer triton",
    "--kda-prefill-backend": "auto triton flashkda flashinfer fused",
    "--kv-offloading-backend": "lmcache native",
    "--linear-backend": """
        aiter auto b12x conch cutlass deep_gemm emulation exllama fbgemm flashinfer_b12x
        flashinfer_cudnn flashinfer_cutedsl flashinfer_cutlass flashinfer_trtllm humming machete
        marlin torch triton xpu xpu_woq
    """,
    "--log-level": "CRITICAL ERROR WARNING INFO DEBUG NOTSET",
    "--logprobs-mode": "processed_logits processed_logprobs raw_logits raw_logprobs",
    "--lora-dtype": "auto bfloat16 float16",
    "--mamba-cache-dtype": "auto bfloat16 float16 float32",
    "--mamba-cache-mode": "align none",
    "--mamba-ssm-cache-dtype": "auto bfloat16 float16 float32",
    "--mamba-ssu-algorithm": "auto horizontal simple vertical",
    "--max-lora-rank": "1 8 16 32 64 128 256 320 512",
    "--mm-encoder-attn-dtype": "fp8",
    "--mm-encoder-tp-mode": "data weights",
    "--mm-hasher-algorithm": "blake3 sha256 sha512",
    "--mm-processor-cache-type": "lru shm",
    "--mm-processor-device": "auto cpu",
    "--mm-tensor-ipc": "direct_rpc torch_shm",
    "--moe-backend": """
        aiter aiter_mega_moe aiter_triton_mxfp4_bf16 aiter_triton_mxfp4_mxfp4 auto b12x
        batched_triton cutlass deep_gemm deep_gemm_mega_moe emulation flashinfer_b12x
        flashinfer_cutedsl flashinfer_cutlass flashinfer_moe_ep_cutedsl
        flashinfer_moe_ep_mega_deep_gemm flashinfer_trtllm flydsl hpc humming marlin rdna3 triton
        triton_unfused
    """,
    "--offload-backend": "auto prefetch uva",
    "--per-request-spec-decode-metrics": "detailed none summary",
    "--performance-mode": "balanced interactivity throughput",
    "--prefix-caching-hash-algo": "sha256 sha256_cbor xxhash xxhash_cbor",
    "--runner": "auto draft generate pooling",
    "--safetensors-load-strategy": "eager lazy prefetch torchao",
    "--scheduling-policy": "fcfs priority",
    "--sparse-indexer-topk-backend": """
        aiter auto cooperative deep_select flashinfer per_row persistent torch
    """,
    "--spec-method": """
        bailing_hybrid_mtp bailing_hybrid_v3_mtp custom_class deepseek_mtp dflash dots3_note_mtp
        draft_model dspark eagle eagle3 ernie_mtp exaone4_5_mtp exaone_moe_mtp
        extract_hidden_states gemma4_mtp glm4_moe_lite_mtp glm4_moe_mtp glm5_next_mtp glm_ocr_mtp
        hy_v3_mtp hy_v4_mtp inkling_mtp kimi_k3_mtp longcat_flash_mtp mimo_mtp mimo_v2_mtp
        minimax_m3_mtp mtp nemotron_h_mtp ngram ngram_gpu pangu_ultra_moe_mtp qwen3_5_mtp
        qwen3_next_mtp qwen4_exp_mtp step3p5_mtp step5_mtp suffix
    """,
    "--tool-strict-level": "auto function parameter",
    "--uvicorn-log-level": "critical debug error info trace warning",
    "--video-pruning-method": "evs vidcom2",
}
"""Option → the values that the argument parser takes."""

LATER_CHOICES = {
    "--attention-backend": """
        auto flash_attn flash_attn_diffkv triton_attn triton_attn_diffkv triton_flash_attn
        rocm_attn rocm_segmented_attn rocm_aiter_mla rocm_aiter_triton_mla rocm_aiter_fa
        rocm_aiter_mla_sparse xpu_mla_sparse torch_sdpa flashinfer triton_flashinfer flashinfer_mla
        tokenspeed_mla flashinfer_mla_sparse flashinfer_mla_sparse_sm120 flashinfer_mla_sparse_sm90
        triton_mla cutlass_mla flashmla flashmla_sparse flashmla_sparse_dsv4
        flashinfer_mla_sparse_dsv4 rocm_flashmla_sparse_dsv4 flashmla_sparse_dsv41
        flashinfer_mla_sparse_dsv41 rocm_flashmla_sparse_dsv41 flashmla_mega_attn_dsv41 b12x
        flash_attn_mla flash_attn_mla_sparse flash_attn_mla_sparse_fa4 minimax_m3_sparse
        cutlass_msa triton_msa step5_dsa no_attention flex_attention hpc_attn
        rocm_aiter_unified_attn cpu_attn cpu_mla amx_mla turboquant rocm_octave ultraquant custom
    """,
    "--config-format": "auto hf mistral",
    "--data-parallel-backend": "mp ray",
    "--kv-cache-dtype": """
        auto float16 bfloat16 fp8 fp8_e4m3 fp8_e5m2 fp8_inc fp8_ds_mla nvfp4_ds_mla turboquant_k8v4
        turboquant_4bit_nc turboquant_k3v4_nc turboquant_3bit_nc octave_k3v4 octave_k3v3
        octave_k3v3_compact ultraquant_4bit int4_per_token_head int8_per_token_head
        fp8_per_token_head nvfp4 nvfp4_4over6
    """,
    "--mamba-backend": "triton flashinfer cpu",
    "--mm-encoder-attn-backend": """
        flash_attn flash_attn_diffkv triton_attn triton_attn_diffkv triton_flash_attn rocm_attn
        rocm_segmented_attn rocm_aiter_mla rocm_aiter_triton_mla rocm_aiter_fa
        rocm_aiter_mla_sparse xpu_mla_sparse torch_sdpa flashinfer triton_flashinfer flashinfer_mla
        tokenspeed_mla flashinfer_mla_sparse flashinfer_mla_sparse_sm120 flashinfer_mla_sparse_sm90
        triton_mla cutlass_mla flashmla flashmla_sparse flashmla_sparse_dsv4
        flashinfer_mla_sparse_dsv4 rocm_flashmla_sparse_dsv4 flashmla_sparse_dsv41
        flashinfer_mla_sparse_dsv41 rocm_flashmla_sparse_dsv41 flashmla_mega_attn_dsv41 b12x
        flash_attn_mla flash_attn_mla_sparse flash_attn_mla_sparse_fa4 minimax_m3_sparse
        cutlass_msa triton_msa step5_dsa no_attention flex_attention hpc_attn
        rocm_aiter_unified_attn cpu_attn cpu_mla amx_mla turboquant rocm_octave ultraquant custom
    """,
    "--optimization-level": "0 1 2 3",
    "--quantization": """
        awq auto_awq fp8 fbgemm_fp8 fp_quant modelopt modelopt_fp4 modelopt_mxfp8 modelopt_mixed
        auto_gptq gptq gptq_marlin awq_marlin humming compressed-tensors experts_int8 quark
        moe_wna16 torchao inc mxfp4 gpt_oss_mxfp4 deepseek_v4_fp8 online fp8_per_tensor
        fp8_per_block fp8_per_channel int8_per_channel_weight_only nvfp4_per_token mxfp8
    """,
    "--reasoning-parser": """
        none beam cohere_command3 cohere_command4 deepseek_r1 deepseek_v3 deepseek_v4 deepseek_v41
        ernie45 gemma4 glm45 glm47 granite granite_thinking_parser hf holo2 hunyuan_a13b hy_v3
        hy_v4 inkling k2_horizon kimi_k2 kimi_k3 ling3 mimo minicpmv minimax_m2
        minimax_m2_append_think minimax_m3 mistral muse muse_glimmer musespark1x nemotron_v3 olmo3
        openai_gptoss plamo3 poolside_v1 qwen3 seed_oss step3 step3p5 step5
    """,
    "--tool-call-parser": """
        apertus beam cohere_command3 cohere_command4 deepseek_v3 deepseek_v31 deepseek_v32
        deepseek_v4 deepseek_v41 dots ernie45 functiongemma gemma4 gigachat3 glm45 glm47 granite
        granite-20b-fc granite4 hermes hf hunyuan_a13b hy_v3 hy_v4 inkling internlm jamba
        k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3_json llama4_json llama4_pythonic longcat mimo
        minicpm5 minimax_m2 minimax_m3 mistral muse muse_glimmer musespark1x olmo3 openai
        phi4_mini_json plamo3 poolside_v1 pythonic qwen3_coder qwen3_json qwen3_xml seed_oss step3
        step3p5 step5 xlam
    """,
}
"""Option → the values that the engine's config takes; plugins may bring further parsers."""

FOLDED = "--linear-backend --moe-backend --sparse-indexer-topk-backend"
"""Options whose values may be spelled with capitals, and with `-` for `_`."""

CASELESS = "--attention-backend --mamba-backend --mm-encoder-attn-backend --quantization"
"""Options whose values may be spelled with capitals."""

MINIMUMS: dict[str, float] = {
    "--block-size": 1,
    "--cpu-offload-gb": 0,
    "--data-parallel-rank": 0,
    "--data-parallel-size": 1,
    "--data-parallel-size-local": 0,
    "--dbo-decode-token-threshold": 0,
    "--dbo-prefill-token-threshold": 0,
    "--decode-context-parallel-size": 1,
    "--dp-sync-interval": 1,
    "--elastic-ep-max-dp-size": 1,
    "--long-prefill-token-threshold": 0,
    "--mamba-block-size": 1,
    "--max-logprobs": -1,
    "--max-lora-cls-labels": 1,
    "--max-model-len": 1,
    "--max-num-active-seqs": 1,
    "--max-num-batched-tokens": 1,
    "--max-num-queued-reqs": 0,
    "--max-num-queued-tokens": 0,
    "--max-num-scheduled-tokens": 1,
    "--max-num-seqs": 1,
    "--max-parallel-loading-workers": 1,
    "--mm-ipc-gpu-memory-gb": 0,
    "--mm-processor-cache-gb": 0,
    "--mm-shm-cache-max-object-size-mb": 0,
    "--nnodes": 1,
    "--node-rank": 0,
    "--offload-group-size": 0,
    "--offload-num-in-group": 1,
    "--offload-prefetch-step": 0,
    "--pipeline-parallel-size": 1,
    "--prefill-context-parallel-size": 1,
    "--prefill-schedule-interval": 1,
    "--prefix-cache-retention-interval": 0,
    "--prefix-match-unit": 1,
    "--replayssm-buffer-len": 1,
    "--safetensors-prefetch-block-size": 1,
    "--safetensors-prefetch-num-threads": 1,
    "--shutdown-timeout": 0,
    "--spec-tokens": 1,
    "--stream-interval": 1,
    "--tensor-parallel-size": 1,
    "--ubatch-size": 0,
}
"""The least number that an option takes, where there is one."""

RANGES = {
    "--data-parallel-rpc-port": "[1, 65535]",
    "--gpu-memory-utilization": "(0, 1]",
    "--kv-cache-metrics-sample": "(0, 1]",
    "--mm-encoder-fp8-scale-save-margin": "(0, inf)",
    "--video-pruning-rate": "[0, 1)",
    "--watermark": "[0, 1)",
}
"""The numbers that an option takes where a least one does not say it, as intervals."""

JSON_KEYS = {
    "--attention-config": """
        backend minimax_m3_msa_decode_backend backend_per_kind flash_attn_version
        flash_attn_max_num_splits_for_cuda_graph tokenspeed_mla_min_split_kv
        tq_max_kv_splits_for_cuda_graph use_trtllm_attention disable_flashinfer_q_quantization
        mla_prefill_backend use_prefill_query_quantization trtllm_ragged_backend indexer_kv_dtype
        indexer_sparse_logits indexer_tp_shard_min_rows minimax_m3_indexer_cp hisparse_config
        use_non_causal sparse_mla_force_mqa sparse_mla_prefill_workspace_factor flex_attn_block_m
        flex_attn_block_n flex_attn_q_block_size flex_attn_kv_block_size
    """,
    "--aux-output-config": "enable_return_routed_experts max_bytes",
    "--compilation-config": """
        mode debug_dump_path cache_dir compile_cache_save_format backend custom_ops
        ir_enable_torch_wrap splitting_ops compile_mm_encoder cudagraph_mm_encoder
        encoder_cudagraph_token_budgets encoder_cudagraph_max_vision_items_per_batch
        encoder_cudagraph_max_frames_per_batch cudagraph_decoder_replay
        decoder_replay_cudagraph_capture_sizes decoder_replay_trim_threshold compile_sizes
        compile_ranges_endpoints inductor_compile_config inductor_passes cudagraph_mode
        cudagraph_num_of_warmups cudagraph_capture_sizes cudagraph_copy_inputs
        cudagraph_specialize_lora use_inductor_graph_partition pass_config
        max_cudagraph_capture_size dynamic_shapes_config fast_moe_cold_start
    """,
    "--diffusion-config": "canvas_length max_denoising_steps",
    "--ec-manager-config": "encoder_cache_manager_cls manager_config",
    "--ec-transfer-config": """
        ec_connector engine_id ec_buffer_device ec_buffer_size ec_role ec_ip ec_port
        ec_connector_extra_config ec_connector_module_path
    """,
    "--engram-config": "cpu_offload embedding_across_dp dp_shared_memory use_thp",
    "--eplb-config": """
        window_size step_interval num_redundant_experts log_balancedness log_balancedness_interval
        use_async policy communicator enable_migration_batching
    """,
    "--fault-tolerance-config": "engine_recovery_timeout_sec",
    "--ir-op-priority": "rms_norm fused_add_rms_norm gelu_and_mul_sparse",
    "--kernel-config": """
        ir_op_priority enable_flashinfer_autotune enable_rocm_segmented_attn_autotune
        enable_cutedsl_warmup enable_jit_warmup monokernel moe_backend sparse_indexer_topk_backend
        linear_backend linear_backend_per_quant
    """,
    "--kv-events-config": """
        enable_kv_cache_events publisher endpoint replay_endpoint buffer_steps hwm max_queue_size
        topic
    """,
    "--kv-transfer-config": """
        kv_connector engine_id kv_buffer_device kv_role kv_port kv_connector_extra_config
        kv_connector_module_path enable_permute_local_kv kv_load_failure_policy
    """,
    "--logging-config": "log_level formatter configure_logging pylogging_config_file",
    "--pooler-config": """
        task pooling_type seq_pooling_type tok_pooling_type use_activation
        enable_flash_late_interaction dimensions enable_chunked_processing max_embed_len logit_mean
        logit_sigma step_tag_id returned_token_ids
    """,
    "--profiler-config": """
        profiler torch_profiler_dir torch_profiler_activities proton_profiler_dir proton_context
        proton_data proton_backend proton_mode proton_hook proton_output_format
        proton_graph_attribution torch_profiler_with_stack torch_profiler_with_flops
        torch_profiler_use_gzip torch_profiler_dump_cuda_time_total torch_profiler_record_shapes
        torch_profiler_with_memory capture_torch_profiler detailed_trace_annotation ignore_frontend
        delay_iterations max_iterations warmup_iterations active_iterations wait_iterations
    """,
    "--reasoning-config": "reasoning_parser reasoning_start_str reasoning_end_str",
    "--speculative-config": """
        enforce_eager num_speculative_tokens model method draft_tensor_parallel_size
        tensor_parallel_size quantization moe_backend attention_backend kv_cache_dtype
        max_model_len revision code_revision index_share_for_mtp_iteration
        disable_padded_drafter_batch disable_eagle_block_drop disable_lookahead_block_hashes
        draft_lm_head_quantization use_local_argmax_reduction use_heterogeneous_vocab
        prompt_lookup_max prompt_lookup_min parallel_drafting target_model_config
        target_parallel_config num_speculative_tokens_per_batch_size draft_model_config
        draft_parallel_config suffix_decoding_max_tree_depth suffix_decoding_max_cached_requests
        suffix_decoding_max_spec_factor suffix_decoding_min_token_prob draft_load_config
        rejection_sample_method synthetic_acceptance_rates synthetic_acceptance_length
        enable_adaptive_verification draft_sample_method dspark_draft_topk xpress_topc
        fly_window_size fly_entropy_threshold fly_entropy_top_k
    """,
    "--structured-outputs-config": """
        backend disable_any_whitespace disable_additional_properties reasoning_parser
        reasoning_parser_plugin enable_in_reasoning
    """,
    "--watchdog-config": "timeout check_interval dump_dir",
    "--watermark-config": """
        key algorithm alpha context_width deduplicate_contexts deduplicate_contexts_max_history prf
        allow_target_only_watermarking
    """,
    "--weight-transfer-config": "backend",
}
"""The keys that a JSON object may have."""

OBJECTS = "--additional-config --hf-overrides"
"""Options that the argument parser takes as text and the config as a JSON object."""

OBJECTS_OF_TEXTS = "--default-mm-loras --model-class-overrides"
"""Options whose JSON object holds texts."""
