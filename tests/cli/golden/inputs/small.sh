export INKLING_MULTIMEM_AR=0
vllm serve thinkingmachines/Inkling-Small --tensor-parallel-size 8 --max-model-len 32k \
  --enable-lora --enable-moe-shared-loras --max-lora-rank 64 --max-loras 4 --max-cpu-loras 8
