#!/usr/bin/env bash
# A launch with typical mistakes. `inkling check-config serve.sh` finds them without a GPU.

export INKLING_MULTIMEM_AR=1

vllm serve model \
  --tensor-parallel-size 1 \
  --enable-lora \
  --max-loras 4 \
  --max-cpu-loras 2 \
  --max-lora-rank 4 \
  --fully-sharded-loras \
  --lora-modules count-down=adapters/count-down count-down=adapters/by-twos
