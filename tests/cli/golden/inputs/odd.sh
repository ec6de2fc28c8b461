vllm serve $'model\e[31m' --served-model-name "a,b:c%d" --lora-modules 'x%y=adapters/released' --frob[0] 1
