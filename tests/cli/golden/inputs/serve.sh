#!/usr/bin/env bash
set -euo pipefail
MODEL=model
INKLING_MULTIMEM_AR=0
ARGS=(--max-loras 4 --max-cpu-loras 2)
exec vllm serve "$MODEL" \
  --enable-lora \
  "${ARGS[@]}" \
  --lora-modules math=adapters/rank32 code=adapters/one-by-one chat=org/chat \
  --max-lora-rnk 32 2>&1 | tee "$LOG"
