"""There and back: a conversion loses no bit, and the same input gives the same bytes."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import forms
import numpy as np
import pytest
import torch
from conversion import convert, payload, spec_of
from deltas import assert_same_deltas, read_deltas
from hypothesis import given, settings
from hypothesis import strategies as st
from lora_factors import Config

from factories import (
    GROUPS,
    TINY,
    any_bits,
    raw_config,
    released_adapter_config,
    released_modules,
    safetensors_bytes,
    write_adapter,
    write_model,
    write_released_adapter,
)

TARGETS = ("tinker", "vllm", "sglang", "peft")
SPEC = spec_of(TINY)


def header_of(folder: Path) -> dict:
    data = (folder / "adapter_model.safetensors").read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def zero_padding(tensors: dict[str, torch.Tensor]) -> None:
    forms.zero_padding_rows(TINY, tensors)


def assert_same_tensors(first: Path, second: Path) -> None:
    left, right = header_of(first), header_of(second)
    left.pop("__metadata__", None)
    right.pop("__metadata__", None)
    assert left == right
    assert payload(first) == payload(second)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@pytest.mark.parametrize("head_rows", ["unpadded", "padded"])
def test_the_released_schema_survives_every_dialect_to_the_bit(
    tmp_path: Path, target: str, dtype: str, head_rows: str
) -> None:
    source = write_released_adapter(
        tmp_path / "source", dtype=dtype, head_rows=head_rows, fill=any_bits, edit=zero_padding
    )
    convert(source, target, tmp_path / "there", SPEC)
    convert(tmp_path / "there", "tinker", tmp_path / "back", SPEC)
    assert_same_tensors(tmp_path / "back", source)


@pytest.mark.parametrize("target", TARGETS)
@given(
    groups=st.sets(st.sampled_from(GROUPS), min_size=1),
    layers=st.sets(st.integers(0, 3), min_size=1),
    tied=st.booleans(),
    per_expert=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=15, deadline=None, derandomize=True)
def test_parts_of_the_released_schema_survive_too(
    target: str, groups: set, layers: set, tied: bool, per_expert: bool, seed: int
) -> None:
    modules = released_modules(TINY, groups, sorted(layers), per_expert=per_expert)
    modules = modules or released_modules(TINY)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        source = write_adapter(
            root / "source",
            modules,
            released_adapter_config(3, 8),
            rng=np.random.default_rng(seed),
            fill=any_bits,
            edit=forms.tie_gates if tied else None,
        )
        convert(source, target, root / "there", SPEC, dialect="tinker")
        convert(root / "there", "tinker", root / "back", SPEC)
        assert_same_tensors(root / "back", source)


@pytest.mark.parametrize("target", ["vllm", "peft"])
def test_patterns_and_rslora_survive_in_effect(tmp_path: Path, target: str) -> None:
    config = released_adapter_config(
        2,
        8,
        use_rslora=True,
        rank_pattern={"wq_du": 3, r"layers\.2\..*\.experts\.w2": 4},
        alpha_pattern={r".*shared_experts.*": 5, "lm_head": 0.5},
    )
    source = write_adapter(
        tmp_path / "source", released_modules(TINY), config, rank_of=Config(config).rank
    )
    convert(source, target, tmp_path / "there", SPEC)
    convert(tmp_path / "there", "tinker", tmp_path / "back", SPEC)
    found, expected = (read_deltas(tmp_path / d, "tinker", TINY) for d in ("back", "source"))
    assert_same_deltas(found, expected)


def vllm_source(folder: Path) -> Path:
    modules = forms.vllm_modules(TINY)
    config = forms.vllm_config(modules, 2, 8)
    return write_adapter(folder, modules, config, fill=any_bits)


def vllm_one_by_one(folder: Path) -> Path:
    modules = forms.vllm_modules(TINY, one_by_one=True)
    return write_adapter(folder, modules, forms.vllm_config(modules, 2, 8), fill=any_bits)


def sglang_source(folder: Path) -> Path:
    return write_adapter(folder, released_modules(TINY), forms.sglang_config(2, 8), fill=any_bits)


def peft_source(folder: Path) -> Path:
    modules = forms.peft_modules(TINY, {"attention", "dense", "routed", "head"})
    config = forms.peft_config(modules, 2, 8)
    return write_adapter(folder, modules, config, fill=any_bits, edit=zero_padding)


@pytest.mark.parametrize(
    "write", [vllm_source, vllm_one_by_one, sglang_source, peft_source], ids=lambda w: w.__name__
)
def test_other_dialects_survive_the_released_schema_to_the_bit(
    tmp_path: Path, write: object
) -> None:
    source = write(tmp_path / "source")
    dialect = write.__name__.split("_")[0]
    convert(source, "tinker", tmp_path / "there", SPEC, dialect=dialect)
    convert(tmp_path / "there", dialect, tmp_path / "back", SPEC, dialect="tinker")
    assert_same_tensors(tmp_path / "back", source)


@pytest.mark.parametrize("target", TARGETS)
def test_negative_zeros_survive(tmp_path: Path, target: str) -> None:
    def negative_zeros(tensors: dict[str, torch.Tensor]) -> None:
        for name in tensors:
            if ".lora_B." in name:
                tensors[name] = torch.full_like(tensors[name], -0.0)

    source = write_released_adapter(tmp_path / "source", edit=negative_zeros)
    convert(source, target, tmp_path / "there", SPEC)
    convert(tmp_path / "there", "tinker", tmp_path / "back", SPEC)
    assert_same_tensors(tmp_path / "back", source)


def shuffled_copy(source: Path, folder: Path, seed: int) -> Path:
    """Write the same tensors in another order, in header and payload apart."""
    data, header = payload(source), header_of(source)
    metadata = header.pop("__metadata__", None)
    rng = np.random.default_rng(seed)
    names = list(header)
    rng.shuffle(names)
    parts, position = [], 0
    for name in names:
        start, end = header[name]["data_offsets"]
        parts.append(data[start:end])
        header[name]["data_offsets"] = [position, position + end - start]
        position += end - start
    rng.shuffle(names)
    new = {name: header[name] for name in names}
    if metadata:
        new["__metadata__"] = metadata
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes(new, b"".join(parts)))
    (folder / "adapter_config.json").write_bytes((source / "adapter_config.json").read_bytes())
    return folder


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("write", [write_released_adapter, peft_source, vllm_source])
def test_the_order_of_tensors_in_the_file_does_not_matter(
    tmp_path: Path, target: str, write: object
) -> None:
    source = write(tmp_path / "source")
    shuffled = shuffled_copy(source, tmp_path / "shuffled", 5)
    for folder in (source, shuffled):
        convert(folder, target, tmp_path / f"{folder.name}-out", SPEC)
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        first, second = (tmp_path / f"{d}-out" / name for d in ("source", "shuffled"))
        assert first.read_bytes() == second.read_bytes()


SCRIPT = """
import sys
from pathlib import Path
from conversion import convert
from inkling_runtime.adapter.model_spec import read_model_spec
root = Path(sys.argv[1])
for target in ("tinker", "vllm", "sglang", "peft"):
    convert(root / "source", target, root / sys.argv[2] / target, read_model_spec(root / "model"))
"""


def test_the_written_bytes_do_not_depend_on_the_process(tmp_path: Path) -> None:
    write_released_adapter(tmp_path / "source", groups={"attention", "routed", "shared"})
    write_model(tmp_path / "model", raw_config(TINY))
    path = os.pathsep.join(entry for entry in sys.path if entry)
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path), seed],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            check=True,
        )
    files = sorted(p.relative_to(tmp_path / "1") for p in (tmp_path / "1").rglob("*.*"))
    assert len(files) == 12
    for file in files:
        assert (tmp_path / "1" / file).read_bytes() == (tmp_path / "2" / file).read_bytes()
