"""Odd words for launches of SGLang: forms that people write by mistake. Data only."""

_T = "--lora-backend triton"
_RELEASED = "{root}/adapters/released"
_TWIN = "{root}/adapters/twin"

ODD = (
    ("released", f"{_T} --lora-paths '{{\"lora_name\"'"),
    ("released", f'{_T} --lora-paths \'{{"lora_name": null, "lora_path": "{_RELEASED}"}}\''),
    ("released", f'{_T} --lora-paths \'[{{"lora_name": "a", "lora_path": "{_RELEASED}"}}]\''),
    ("released", f"{_T} --lora-paths a={_RELEASED},b={_TWIN}"),
    ("released", f"{_T} --quantization gptq"),
    ("released", f"{_T} --moe-runner-backend flashinfer_cutedsl"),
    ("attention", f"{_T} --moe-runner-backend flashinfer_cutlass --quantization awq"),
    ("attention", f"{_T} --moe-runner-backend flashinfer_trtllm_routed --quantization awq"),
)
"""Launches with an adapter from the start, as adapter and words."""

ODD_LATER = (
    (
        "embedding",
        f"{_T} --max-lora-rank 2 --lora-target-modules qkvr wo_ud gate_up_proj down_proj",
    ),
    ("embedding", f"{_T} --lora-paths {{root}}/adapters/runtime-names"),
    ("default-names", f"{_T} --max-lora-rank 2 --lora-target-modules qkvr wo_ud"),
)
"""Launches whose adapter is loaded while the server runs."""

ODD_ENVIRONMENTS = (
    (f"{_T} --speculative-algorithm NGRAM", {"SGLANG_RAGGED_VERIFY_MODE": ""}),
    (f"{_T} --speculative-algorithm NGRAM", {"SGLANG_RAGGED_VERIFY_MODE": "STATIC"}),
    (f"{_T} --speculative-algorithm NGRAM", {"SGLANG_RAGGED_VERIFY_MODE": "compact"}),
    (_T, {"SGLANG_RAGGED_VERIFY_MODE": "STATIC"}),
    (f"{_T} --speculative-algorithm NGRAM --page-size 64", {}),
    (
        f"{_T} --speculative-algorithm NGRAM --page-size 64 --speculative-ngram-max-bfs-breadth 1",
        {},
    ),
    (f"{_T} --model-impl transformers", {}),
    (f"{_T} --lora-paths ''", {}),
    (f"{_T} --lora-paths 'a = {_RELEASED}'", {}),
    (f'{_T} --lora-paths \'{{"lora_name": "a", "lora_path": "{_RELEASED}", "pinned": null}}\'', {}),
    (
        f'{_T} --lora-paths \'{{"lora_name": "a", "lora_path": "{_RELEASED}", "pinned": "yes"}}\'',
        {},
    ),
    (f"{_T} --speculative-algorithm NGRAM --attn-dp-size 2 --tp-size 2", {}),
)
"""Environments, each with words beside which it matters."""
