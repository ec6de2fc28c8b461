"""What we write is, byte for byte, what the safetensors library writes."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from factories import safetensors_bytes, write_json
from inkling_runtime.adapter.safetensors_file import (
    TensorSpec,
    format_header,
    read_header,
    sort_for_file,
)
from inkling_runtime.adapter.weight_files import iter_weight_files
from inkling_runtime.errors import InklingError

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "F32": torch.float32,
    "F64": torch.float64,
    "I64": torch.int64,
}

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(
    tensors=st.dictionaries(
        NAMES.filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 3), max_size=3)),
        max_size=8,
    ),
    metadata=st.dictionaries(NAMES, NAMES, max_size=1),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_headers_are_those_of_the_library(tensors: dict, metadata: dict) -> None:
    values = {
        name: torch.zeros(shape).to(DTYPES[dtype]) for name, (dtype, shape) in tensors.items()
    }
    expected = save(values, metadata or None)
    specs = [TensorSpec(name, dtype, tuple(shape)) for name, (dtype, shape) in tensors.items()]
    header = format_header(sort_for_file(specs), metadata)
    assert expected[: len(header)] == header
    assert len(expected) == len(header) + sum(spec.nbytes for spec in specs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.safetensors"
        path.write_bytes(expected)
        file = read_header(path)
    assert {n: (t.dtype, list(t.shape)) for n, t in file.tensors.items()} == tensors
    assert file.metadata == metadata


def test_a_written_file_is_read_by_the_library(tmp_path: Path) -> None:
    specs = sort_for_file([TensorSpec("b", "F32", (2,)), TensorSpec("a", "I64", (1,))])
    payload = np.array([7], np.int64).tobytes() + np.array([1.5, 2], np.float32).tobytes()
    path = tmp_path / "x.safetensors"
    path.write_bytes(format_header(specs, {"format": "pt"}) + payload)
    loaded = load_file(path)
    assert loaded["a"].tolist() == [7]
    assert loaded["b"].tolist() == [1.5, 2.0]


def checkpoint(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_bytes(safetensors_bytes({}))
    return folder


def test_the_files_of_a_folder_come_sorted(tmp_path: Path) -> None:
    checkpoint(tmp_path, "b.safetensors", "a.safetensors", "c.bin")
    assert [p.name for p in iter_weight_files(tmp_path)] == ["a.safetensors", "b.safetensors"]


def test_an_index_decides_which_files_belong_to_a_checkpoint(tmp_path: Path) -> None:
    checkpoint(tmp_path, "a.safetensors", "stale.safetensors")
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": {"x": "a.safetensors"}})
    assert [p.name for p in iter_weight_files(tmp_path)] == ["a.safetensors"]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "has no `weight_map` object"),
        ({"weight_map": ["a"]}, "has no `weight_map` object"),
        (
            {"weight_map": {str(i): f"{i}.safetensors" for i in range(5)}},
            "not there: `0.safetensors`, `1.safetensors`, `2.safetensors` and 2 more",
        ),
        ({"weight_map": {"x": "n" * 5000}}, "cannot be read: File name too long"),
        ({"weight_map": {"x": "n" * 5000 + "/a"}}, "names files outside its folder: `nnn"),
        ([], "is not the JSON object it should be"),
    ],
)
def test_a_broken_index_is_refused(tmp_path: Path, index: object, message: str) -> None:
    write_json(tmp_path / "model.safetensors.index.json", index)
    with pytest.raises(InklingError) as caught:
        list(iter_weight_files(tmp_path))
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/hostname"])
def test_an_index_cannot_point_outside_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside.safetensors").write_bytes(safetensors_bytes({}))
    folder = tmp_path / "model"
    write_json(folder / "model.safetensors.index.json", {"weight_map": {"x": name}})
    with pytest.raises(InklingError):
        list(iter_weight_files(folder))


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InklingError, match=r"holds no `.safetensors` file"):
        list(iter_weight_files(tmp_path))


def test_the_header_is_padded_to_eight_bytes() -> None:
    for n in range(9):
        header = format_header([TensorSpec("x" * n, "U8", (1,))], {})
        assert len(header) % 8 == 0
        json.loads(header[8:])
