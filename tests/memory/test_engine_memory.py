"""Our sizes against the engines' own: buffers, parameters and caches that they really built.

`engine_memory_*.jsonl` hold what record_engine_memory.py measured: vLLM 0.33.0 and SGLang 0.5.23
built each model on the CPU, one process for each rank, and the sizes are those of rank 0. Equal to
the byte, with the launch read as `inkling plan` reads it.
"""

import json
import shlex
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from checks.launches import launch_of
from factories import write_model
from inkling_cli.checks.launch.memory_setup import read_setup
from inkling_cli.checks.launch.subject import resolve_launch
from inkling_cli.memory import vllm
from inkling_cli.memory.sizes import Sizes, sizes_of
from inkling_cli.memory.slots import BYTES_PER_ELEMENT, ModuleKind
from memory.engine_models import LAUNCHES, MODELS, serve_words
from memory.released import RELEASED


def _measured(engine: str) -> list[dict[str, Any]]:
    text = (Path(__file__).parent / f"engine_memory_{engine}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


MEASURED = {engine: _measured(engine) for engine in LAUNCHES}
CASES = [(engine, case) for engine, cases in MEASURED.items() for case in cases]
IDS = [f"{engine}-{case['model']} {case['options']}" for engine, case in CASES]

KINDS = {
    "model.layers.attn.qkvr": ModuleKind.QKVR,
    "model.layers.attn.wo_ud": ModuleKind.WO,
    "model.layers.mlp.gate_up_proj": ModuleKind.DENSE_GATE_UP,
    "model.layers.mlp.down_proj": ModuleKind.DENSE_DOWN,
    "model.layers.mlp.experts.w13": ModuleKind.ROUTED_GATE_UP,
    "model.layers.mlp.experts.w2": ModuleKind.ROUTED_DOWN,
    "model.layers.mlp.sink_experts.w13": ModuleKind.SHARED_GATE_UP,
    "model.layers.mlp.sink_experts.w2": ModuleKind.SHARED_DOWN,
    "lm_head": ModuleKind.HEAD,
    "qkvr": ModuleKind.QKVR,
    "wo_ud": ModuleKind.WO,
    "gate_up_proj": ModuleKind.DENSE_GATE_UP,
    "down_proj": ModuleKind.DENSE_DOWN,
    "gate_up_proj_moe": ModuleKind.ROUTED_GATE_UP,
    "down_proj_moe": ModuleKind.ROUTED_DOWN,
    "gate_up_proj_shared_moe": ModuleKind.SHARED_GATE_UP,
    "down_proj_shared_moe": ModuleKind.SHARED_DOWN,
    "embedding_A_buffer.embed_tokens": ModuleKind.EMBEDDING,
    "embedding_B_buffer.embed_tokens": ModuleKind.EMBEDDING,
    "lm_head_A_buffer.embed_tokens": ModuleKind.EMBEDDING,
    "lm_head_B_buffer.embed_tokens": ModuleKind.EMBEDDING,
    "embedding_A_buffer.lm_head": ModuleKind.HEAD,
    "embedding_B_buffer.lm_head": ModuleKind.HEAD,
    "lm_head_A_buffer.lm_head": ModuleKind.HEAD,
    "lm_head_B_buffer.lm_head": ModuleKind.HEAD,
}
"""The engines' buffers, and what they are here."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, config in MODELS.items():
        write_model(folder / name, config)
    return folder


def planned(models: Path, engine: str, case: dict[str, Any]) -> Sizes:
    words = serve_words(engine, str(models / case["model"]))
    subject = resolve_launch(launch_of(f"{shlex.join(words)} {case['options']}"))
    assert subject.model.spec is not None
    setup = read_setup(subject, subject.model.spec).setup
    return sizes_of(subject.model.spec, setup)


def test_every_launch_was_measured() -> None:
    for engine, launches in LAUNCHES.items():
        found = [(case["model"], case["options"]) for case in MEASURED[engine]]
        assert found == list(launches)


@pytest.mark.parametrize(("engine", "case"), CASES, ids=IDS)
def test_slots_are_the_engines_buffers(models: Path, engine: str, case: dict[str, Any]) -> None:
    sizes = planned(models, engine, case)
    buffers: dict[ModuleKind, list[int]] = defaultdict(lambda: [0, 0])
    for name, (a, b) in case["slots"].items():
        buffers[KINDS[name]][0] += a
        buffers[KINDS[name]][1] += b
    scale = BYTES_PER_ELEMENT * sizes.setup.num_slots
    assert {part.kind: [scale * part.a, scale * part.b] for part in sizes.slot} == buffers
    assert scale * sum(part.derived for part in sizes.slot) == case["derived"]


@pytest.mark.parametrize(("engine", "case"), CASES, ids=IDS)
def test_base_weights_are_the_engines_parameters(
    models: Path, engine: str, case: dict[str, Any]
) -> None:
    assert planned(models, engine, case).base_bytes == case["weights"]


@pytest.mark.parametrize("case", MEASURED["vllm"], ids=lambda case: case["options"])
def test_cache_is_vllms_own_specification(models: Path, case: dict[str, Any]) -> None:
    cache = planned(models, "vllm", case).cache
    assert case["caches"] == {
        "convolution": [cache.conv_tokens, cache.conv_bytes],
        "SlidingWindowSpec": [16, 16 * cache.sliding_bytes_per_token],
        "FullAttentionSpec": [16, 16 * cache.global_bytes_per_token],
    }


LIMITED = [
    case
    for case in MEASURED["vllm"]
    if "--max-model-len" in case["options"] or case["model"] in RELEASED
]
"""Where the longest sequence is known."""

SMALL_GPU = 60 << 30
"""Steps have 2048 tokens there by default, as they had where this was measured (no server)."""


@pytest.mark.parametrize("case", LIMITED, ids=lambda case: case["options"])
def test_needed_cache_is_what_vllm_asks_for(models: Path, case: dict[str, Any]) -> None:
    sizes = planned(models, "vllm", case)
    needed = vllm.needed_cache_bytes(sizes.cache, sizes.setup, SMALL_GPU)
    assert needed == case["needed_cache"]


@pytest.mark.parametrize("case", MEASURED["sglang"], ids=lambda case: case["options"])
def test_convolution_state_is_sglangs_own(models: Path, case: dict[str, Any]) -> None:
    assert planned(models, "sglang", case).cache.conv_bytes == case["conv_state"]
