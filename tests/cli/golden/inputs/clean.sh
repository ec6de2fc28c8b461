export INKLING_MULTIMEM_AR=0
vllm serve model --enable-lora --enable-moe-shared-loras --lora-modules math=adapters/for-vllm
