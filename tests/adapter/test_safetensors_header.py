"""A header is believed only where it is exactly what the format says."""

import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hostile.headers import CASES, GOOD, NAME, PAYLOAD, literal, one
from hostile.pipes import error_from_pipe
from safetensors import SafetensorError, safe_open

from factories import safetensors_bytes
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS, read_header
from inkling_runtime.errors import InklingError


def write(folder: Path, data: bytes) -> Path:
    path = folder / "adapter_model.safetensors"
    path.write_bytes(data)
    return path


def is_accepted_by_the_library(path: Path) -> bool:
    try:
        with safe_open(path, "np") as file:
            list(file.keys())
    except SafetensorError:
        return False
    return True


@pytest.mark.parametrize("name", CASES)
def test_a_broken_file_is_refused_by_what_is_wrong_with_it(tmp_path: Path, name: str) -> None:
    data, expected = CASES[name]
    path = write(tmp_path, data)
    with pytest.raises(InklingError) as caught:
        read_header(path)
    assert expected in caught.value.message
    assert str(path) in caught.value.message
    assert len(caught.value.message) < 10_000


def test_the_same_entry_unbroken_is_read(tmp_path: Path) -> None:
    file = read_header(write(tmp_path, one()))
    tensor = file.tensors[NAME]
    data = file.path.read_bytes()[tensor.start : tensor.end]
    assert (tensor.dtype, tensor.shape, data) == ("F32", (2, 3), PAYLOAD)


def test_spaces_behind_the_header_are_padding(tmp_path: Path) -> None:
    header = safetensors_bytes({NAME: GOOD})[8:] + b" " * 7
    assert NAME in read_header(write(tmp_path, safetensors_bytes(header, PAYLOAD))).tensors


def test_empty_tensors_are_read_wherever_they_lie_between_others(tmp_path: Path) -> None:
    empty = {"dtype": "F32", "shape": [0, 5]}
    header = {
        "z": empty | {"data_offsets": [0, 0]},
        "a": GOOD,
        "y": empty | {"data_offsets": [24, 24]},
    }
    assert len(read_header(write(tmp_path, safetensors_bytes(header, PAYLOAD))).tensors) == 3


def test_a_scalar_and_a_file_without_tensors_are_read(tmp_path: Path) -> None:
    scalar = {"s": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}
    assert (
        read_header(write(tmp_path, safetensors_bytes(scalar, bytes(4)))).tensors["s"].shape == ()
    )
    assert read_header(write(tmp_path, safetensors_bytes({}))).tensors == {}


def test_a_claim_of_a_huge_header_costs_no_memory(tmp_path: Path) -> None:
    path = write(tmp_path, safetensors_bytes({}, length=10**8))
    tracemalloc.start()
    with pytest.raises(InklingError):
        read_header(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_shape_of_many_huge_sizes_is_refused_at_once(tmp_path: Path) -> None:
    sizes = ",".join(["9" * 4000] * 300)
    path = write(tmp_path, literal(shape=f"[{sizes}]"))
    start = time.process_time()
    with pytest.raises(InklingError) as caught:
        read_header(path)
    assert time.process_time() - start < 1
    assert len(caught.value.message) < 10_000


def test_a_folder_named_like_the_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "adapter_model.safetensors"
    folder.mkdir()
    with pytest.raises(InklingError, match=r"directory|regular file"):
        read_header(folder)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InklingError, match="No such file"):
        read_header(tmp_path / "absent")


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InklingError, match="cannot be read"):
        read_header(tmp_path / "a")


def test_a_device_is_refused() -> None:
    with pytest.raises(InklingError, match="not a regular file"):
        read_header(Path("/dev/zero"))


def test_a_pipe_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    assert isinstance(error_from_pipe(read_header, tmp_path / "pipe"), InklingError)


def test_every_dtype_of_the_library_is_known(tmp_path: Path) -> None:
    for dtype, bits in {**DTYPE_BITS, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8}.items():
        entry = {"dtype": dtype, "shape": [8], "data_offsets": [0, bits]}
        path = write(tmp_path, safetensors_bytes({"x": entry}, bytes(bits)))
        assert is_accepted_by_the_library(path)
        assert read_header(path).tensors["x"].nbytes == bits


STRICTER = ("is not an object of dtype, shape and", "stands twice", "is not an object of strings")
"""Where we refuse what the library lets pass: keys it does not know, keys twice, null metadata."""


def mutations(rng: np.random.Generator, seed: bytes) -> bytes:
    """Return a header with a few random edits, its length prefix mostly put right."""
    text = bytearray(seed)
    tokens = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"0", b"24", b"-1", b"null", b"F32", b"\\u"]
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(0, len(text)))
        match rng.integers(0, 5):
            case 0:
                text[at] = rng.integers(0, 256)
            case 1:
                del text[at : at + int(rng.integers(1, 9))]
            case 2:
                text[at:at] = tokens[rng.integers(0, len(tokens))]
            case 3:
                text[at : at + 1] = tokens[rng.integers(0, len(tokens))]
            case _:
                other = int(rng.integers(0, len(text)))
                text[at:at] = text[other : other + int(rng.integers(1, 30))]
    length = len(text) if rng.random() < 0.9 else int(rng.integers(0, 2 * len(text)))
    return struct.pack("<Q", length) + bytes(text)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_headers_give_errors_or_what_the_library_reads(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    header = {
        "__metadata__": {"format": "pt"},
        "a.lora_A.weight": GOOD,
        "é\u2028.lora_B.weight": {"dtype": "BF16", "shape": [3, 0], "data_offsets": [24, 24]},
        "b": {"dtype": "U8", "shape": [], "data_offsets": [24, 25]},
    }
    good = safetensors_bytes(header)[8:]
    num_read = 0
    for _ in range(1000):
        path = write(tmp_path, mutations(rng, good) + PAYLOAD + b"x")
        try:
            read_header(path)
        except InklingError as error:
            is_stricter = any(part in error.message for part in STRICTER)
            assert is_stricter or not is_accepted_by_the_library(path), path.read_bytes()
        else:
            num_read += 1
            assert is_accepted_by_the_library(path), path.read_bytes()
    assert num_read
