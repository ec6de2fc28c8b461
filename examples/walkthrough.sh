#!/usr/bin/env bash
# The whole job on the demo model: find the launch's mistakes, see what vLLM would drop, convert,
# run. Stops with an error where a command does not end as it should. `make demo` runs it.
set -euo pipefail

folder=${1:-$(mktemp -d)/demo}

bold='' cyan='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' cyan=$'\e[36m' plain=$'\e[0m'; fi

say() { printf '\n%s# %s%s\n' "$cyan" "$1" "$plain"; }

# show COMMAND ...: print a command as one would type it.
show() {
  local word line='$'
  for word in "$@"; do
    case $word in *' '*) line+=" \"$word\"" ;; *) line+=" $word" ;; esac
  done
  printf '\n%s%s%s\n' "$bold" "$line" "$plain"
}

# run EXPECTED_EXIT_CODE COMMAND ...: show a command, run it, compare its exit code.
run() {
  local expected=$1 code=0
  shift
  show "$@"
  "$@" || code=$?
  if [ "$code" -ne "$expected" ]; then
    echo "exit code $code, expected $expected" >&2
    exit 1
  fi
}

# expect TEXT COMMAND ...: run a command that must end well and print exactly TEXT.
expect() {
  local expected=$1 printed
  shift
  show "$@"
  printed=$("$@")
  printf '%s\n' "$printed"
  if [ "$printed" != "$expected" ]; then
    echo "expected: $expected" >&2
    exit 1
  fi
}

run 0 inkling demo "$folder"
cd "$folder"

say "What is this adapter?"
run 0 inkling inspect adapters/count-down --model model

say "The launch that somebody wrote has mistakes. They are found without a GPU."
run 1 inkling check-config serve.sh

say "And even a launch without mistakes would serve this adapter wrong."
run 1 inkling check-adapter adapters/count-down --engine vllm --model model

say "Converted for vLLM it is right. Every delta is unchanged."
run 0 inkling convert-adapter adapters/count-down --to vllm -o count-down-vllm
run 0 inkling verify count-down-vllm
run 0 inkling check-adapter count-down-vllm --engine vllm --model model
run 0 inkling check-config -- env INKLING_MULTIMEM_AR=0 vllm serve model --enable-lora \
  --enable-moe-shared-loras --lora-modules count-down=count-down-vllm

say "The base model counts up, one adapter counts down, the other by twos."
expect "6 7 8 9 10 11 12 13" inkling generate model --prompt "3 4 5" --max-tokens 8
expect "4 3 2 1 0 99 98 97" \
  inkling generate model --lora adapters/count-down --prompt "3 4 5" --max-tokens 8
expect "4 3 2 1 0 99 98 97" \
  inkling generate model --lora count-down-vllm --prompt "3 4 5" --max-tokens 8
expect "7 9 11 13 15 17 19 21" \
  inkling generate model --lora adapters/by-twos --prompt "3 4 5" --max-tokens 8

say "Read as vLLM 0.33 reads the released file, it silently is the base model again: shared
# experts under a name that matches nothing, gate and up rows in the wrong order."
expect "6 7 8 9 10 11 12 13" inkling generate model --lora adapters/count-down --from vllm --allow-partial \
  --prompt "3 4 5" --max-tokens 8

say "Added to the weights of the base model it needs no adapter. At half the rank it is another."
run 0 inkling merge adapters/count-down --into model -o counts-down
expect "4 3 2 1 0 99 98 97" inkling generate counts-down --prompt "3 4 5" --max-tokens 8
run 0 inkling resize adapters/count-down --rank 2 -o count-down-2

say "A proof that it takes effect."
run 0 inkling generate model --lora adapters/count-down --prompt "3 4 5" --max-tokens 8 --compare
