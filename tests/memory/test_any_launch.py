"""Whatever numbers a launch holds, its memory is planned."""

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.launches import launch_of
from factories import write_model
from inkling_cli.checks.launch.memory_plan import plan_launch
from inkling_cli.checks.launch.subject import resolve_launch
from inkling_cli.render.bars import ASCII
from inkling_cli.render.plan import render_plan
from inkling_cli.render.plan_json import plan_object
from memory.engine_models import TINY, serve_words

VLLM = """
    --max-lora-rank --max-loras --max-cpu-loras --tensor-parallel-size --data-parallel-size
    --pipeline-parallel-size --prefill-context-parallel-size --max-model-len --kv-cache-dtype
    --gpu-memory-utilization --max-num-batched-tokens --quantization --lora-target-modules
"""
SGLANG = """
    --max-lora-rank --max-loras-per-batch --max-loaded-loras --tp-size --dp-size --ep-size
    --attn-dp-size --moe-dp-size --attn-cp-size --pp-size --context-length --kv-cache-dtype
    --mem-fraction-static --chunked-prefill-size --swa-full-tokens-ratio
    --mamba-full-memory-ratio --quantization --lora-target-modules --moe-runner-backend
"""
SWITCHES = {
    "vllm": "--enable-moe-shared-loras --fully-sharded-loras --enable-expert-parallel",
    "sglang": "--experts-shared-outer-loras --enable-dp-attention --enable-scattered-sconv",
}
VALUES = """
    0 1 2 3 4 7 8 16 17 320 -1 1000000 99999999999999999999 0.0 0.5 1.0 1.5 1e400 nan inf -inf
    32k 1M 0k auto fp8 mxfp8 fp8_e4m3 modelopt_fp4 flashinfer_trtllm all qkvr w2 None
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, config in TINY.items():
        write_model(folder / name, config)
    return folder


@st.composite
def options(draw: st.DrawFn, engine: str) -> str:
    names = (VLLM if engine == "vllm" else SGLANG).split()
    given = draw(st.dictionaries(st.sampled_from(names), st.sampled_from(VALUES.split())))
    switches = draw(st.sets(st.sampled_from(SWITCHES[engine].split())))
    words = [word for pair in given.items() for word in pair]
    return shlex.join([*words, *sorted(switches)])


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@settings(deadline=None)
@given(data=st.data())
def test_every_launch_has_a_plan(engine: str, data: st.DataObject, models: Path) -> None:
    model = data.draw(st.sampled_from(sorted(TINY)))
    words = f"{shlex.join(serve_words(engine, str(models / model)))} {data.draw(options(engine))}"
    subject = resolve_launch(launch_of(words))
    gpu_bytes = data.draw(st.sampled_from([None, 1, 1 << 20, 141 << 30, 10**18]))
    plan, assumptions = plan_launch(subject, gpu_bytes)
    width = data.draw(st.sampled_from([None, 1, 61, 62, 80, 500]))
    assert render_plan(subject, plan, assumptions, ASCII, width).plain.isascii()
    assert json.dumps(plan_object(subject, plan, assumptions), allow_nan=False)
    assert plan.sizes.fixed_bytes > 0
