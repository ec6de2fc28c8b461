"""Launches that were put through the engines' own code: our verdict is theirs.

`starts` rows were accepted and applied; in all other rows the engine refused to start, refused the
adapter, failed at the first request, or served the adapter wrongly, and the code says why.
"""

import pytest

from checks.launches import check
from inkling_cli.checks.finding import Severity

STARTS = None

VLLM = [
    ("for-vllm", "--enable-moe-shared-loras", STARTS),
    ("for-vllm", "", "VLM202"),
    ("one-by-one", "", STARTS),
    ("one-by-one", "--enable-moe-shared-loras", "VLM203"),
    ("attention", "", STARTS),
    ("attention", "--enable-moe-shared-loras", STARTS),
    ("released-names-for-vllm", "--enable-moe-shared-loras", STARTS),
    ("rank32-for-vllm", "--enable-moe-shared-loras", "VLM104"),
    ("rank32-for-vllm", "--enable-moe-shared-loras --max-lora-rank 32", STARTS),
    ("for-vllm", "--enable-moe-shared-loras --max-lora-rank 4", "VLM103"),
    ("for-vllm", "--enable-moe-shared-loras --max-lora-rank 1", "VLM104"),
    ("for-vllm", "--enable-moe-shared-loras --max-loras 4 --max-cpu-loras 2", "VLM102"),
    ("for-vllm", "--enable-moe-shared-loras --max-loras 4 --max-cpu-loras 0", STARTS),
    ("for-vllm", "--enable-moe-shared-loras --max-loras 4 --max-cpu-loras -1", STARTS),
    ("for-vllm", "--enable-moe-shared-loras --max-loras 4 --max-cpu-loras None", STARTS),
    ("for-vllm", "--enable-moe-shared-loras --max-loras 0", "VLM101"),
    ("for-vllm", "--enable-moe-shared-loras --moe-backend deep_gemm_mega_moe", "VLM107"),
    ("for-vllm", "--enable-moe-shared-loras --moe-backend flashinfer_moe_ep_cutedsl", "VLM107"),
    ("for-vllm", "--enable-moe-shared-loras --moe-backend aiter_mega_moe", "VLM107"),
    ("for-vllm", "--enable-moe-shared-loras --fully-sharded-loras", "VLM108"),
    (
        "for-vllm",
        "--enable-moe-shared-loras --fully-sharded-loras --lora-target-modules "
        "qkvr wo_ud gate_up_proj down_proj experts w13 w2 lm_head",
        "VLM113",
    ),
    ("for-vllm", "--enable-moe-shared-loras --max-lora 8", "LCH003"),
    ("for-vllm", "--enable-moe-shared-loras --enable-lora=true", "LCH005"),
    ("for-vllm", "--enable-moe-shared-loras --enforce-eager true", "LCH006"),
    ("for-vllm", "--enable-moe-shared-loras --lora-dtype fp16", "LCH008"),
]

SGLANG = [
    ("released", "--lora-backend triton", STARTS),
    ("released", "", "SGL204"),
    ("released", "--max-loras-per-batch 1", STARTS),
    ("released", "--max-loras-per-batch 2", "SGL204"),
    ("released", "--lora-backend torch_native", "SGL204"),
    ("attention", "", STARTS),
    ("released", "--lora-backend triton --lora-target-modules all", STARTS),
    (
        "released",
        "--lora-backend triton --lora-target-modules qkvr wo_ud gate_up_proj down_proj",
        "SGL207",
    ),
    (
        "runtime-names",
        "--lora-backend triton --lora-target-modules qkvr wo_ud gate_up_proj down_proj",
        "SGL206",
    ),
    ("released", "--lora-backend triton --lora-target-modules gate_up_proj", "SGL207"),
    ("released", "--lora-backend triton --lora-target-modules wq_du wo_ud", "SGL203"),
    ("attention", "--lora-backend triton --lora-target-modules q_proj qkvr wo_ud", "SGL203"),
    ("released", "--lora-backend triton --lora-target-modules all qkvr", "SGL202"),
    ("runtime-names", "--lora-backend triton", STARTS),
    ("no-head-name", "--lora-backend triton", "SGL208"),
    ("released-names", "--lora-backend triton", "SGL205"),
    ("released-names", "--lora-backend triton --lora-target-modules all", "SGL205"),
    ("pattern", "--lora-backend triton", "SGL205"),
    ("pattern", "--lora-backend triton --lora-target-modules all", "SGL205"),
    ("one-by-one", "--lora-backend triton", STARTS),
    ("one-by-one", "--lora-backend triton --no-experts-shared-outer-loras", STARTS),
    ("one-by-one", "--lora-backend triton --experts-shared-outer-loras", "SGL302"),
    ("stacks", "--lora-backend triton", STARTS),
    ("stacks", "--lora-backend triton --experts-shared-outer-loras", "SGL302"),
    ("both-layouts", "--lora-backend triton", "SGL301"),
    ("released", "--lora-backend triton --no-experts-shared-outer-loras", "SGL303"),
    ("released", "--lora-backend triton --max-lora-rank 1", "SGL104"),
    ("released", "--lora-backend triton --max-lora-rank 8", STARTS),
    ("released", "--lora-backend triton --max-loras-per-batch 0", "SGL101"),
    ("released", "--lora-backend triton --max-loaded-loras 4", "SGL102"),
    ("rslora", "--lora-backend triton", "SGL401"),
    ("alpha-pattern", "--lora-backend triton", "SGL402"),
    ("rank-pattern", "--lora-backend triton", "SGL403"),
    ("released", "--lora-backend triton --max_lora_rank 4", "SGL001"),
]

SGLANG_LATER = [
    ("released", "--experts-shared-outer-loras --lora-target-modules all", STARTS),
    ("released", "--lora-target-modules all", "SGL304"),
    ("released", "--experts-shared-outer-loras", "SGL201"),
    ("rank32", "--experts-shared-outer-loras --lora-target-modules all", "SGL104"),
    ("released-names", "--experts-shared-outer-loras --lora-target-modules all", "SGL205"),
    ("runtime-names", "--experts-shared-outer-loras --lora-target-modules qkvr wo_ud", "SGL206"),
    ("released", "--experts-shared-outer-loras --lora-target-modules qkvr wo_ud", "SGL207"),
    ("attention", "--lora-target-modules qkvr wo_ud", STARTS),
]


def _errors(findings) -> set[str]:
    return {finding.code for finding in findings if finding.severity is Severity.ERROR}


def _expected(code: str | None) -> set[str]:
    return set() if code is STARTS else {code}


@pytest.mark.parametrize(("adapter", "flags", "code"), VLLM)
def test_vllm_with_start_up_adapter(adapter, flags, code, world, tmp_path):
    command = (
        f"INKLING_MULTIMEM_AR=0 vllm serve {world}/model --enable-lora "
        f"--lora-modules a={world}/adapters/{adapter} {flags}"
    )
    assert _errors(check(command, tmp_path)) == _expected(code)


@pytest.mark.parametrize("value", ["", "INKLING_MULTIMEM_AR=1", "INKLING_MULTIMEM_AR=false"])
def test_vllm_wants_exactly_zero(value, world, tmp_path):
    command = f"{value} vllm serve {world}/model --enable-lora"
    assert _errors(check(command, tmp_path)) == {"VLM001"}


@pytest.mark.parametrize(("adapter", "flags", "code"), SGLANG)
def test_sglang_with_start_up_adapter(adapter, flags, code, world, tmp_path):
    command = f"sglang serve {world}/model --lora-paths a={world}/adapters/{adapter} {flags}"
    assert _errors(check(command, tmp_path)) == _expected(code)


@pytest.mark.parametrize(("adapter", "flags", "code"), SGLANG_LATER)
def test_sglang_with_adapter_loaded_later(adapter, flags, code, world, tmp_path):
    command = (
        f"sglang serve {world}/model --enable-lora --lora-backend triton --max-lora-rank 2 {flags}"
    )
    findings = check(command, tmp_path, lora=[f"{world}/adapters/{adapter}"])
    assert _errors(findings) == _expected(code)
