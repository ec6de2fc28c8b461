"""For every rule over launches the smallest launch that breaks it, and its clean sibling.

`{model}` and `{adapters}` stand for folders of the test world, `{root}` for the folder itself. A
case is a command unless it says which file it is.
"""

from dataclasses import dataclass

VLLM = "INKLING_MULTIMEM_AR=0 vllm serve {model}"
UPDATING = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
VLLM_LORA = f"{UPDATING} {VLLM} --enable-lora --enable-moe-shared-loras"
VLLM_ADAPTER = f"{VLLM_LORA} --lora-modules a={{adapters}}/for-vllm"
SGLANG = "sglang serve {model}"
SGLANG_ADAPTER = f"{SGLANG} --lora-backend triton --lora-paths a={{adapters}}/released"
SGLANG_LATER = f"{SGLANG} --enable-lora --lora-backend triton --max-lora-rank 2"


@dataclass(frozen=True)
class Case:
    code: str
    broken: str
    clean: str
    file: str | None = None
    """The name of the file that both launches are written to; None: they are commands."""
    clean_file: str | None = None
    """The name of the file of the clean launch, if it is another."""
    lora: tuple[str, ...] = ()
    engine_version: str | None = None
    gpu_memory: int | None = None
    also: tuple[str, ...] = ()
    """Other rules that the broken launch breaks unavoidably."""
    also_clean: tuple[str, ...] = ()
    """Rules of severity info that the clean sibling breaks unavoidably."""
