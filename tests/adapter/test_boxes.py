"""A box of a lazy array is that part of the whole array, however it is put together."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file
from test_moves import EXPECTED, stored

from inkling_runtime.adapter import boxes
from inkling_runtime.adapter.arithmetic import Coefficients, Mix, Product, Sum
from inkling_runtime.adapter.arrays import iter_blocks, load, load_box
from inkling_runtime.adapter.moves import Read, join, permute, reshape
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.rounding import narrow, widen
from inkling_runtime.adapter.safetensors_file import read_header
from inkling_runtime.adapter.transpose import contiguous, transpose
from inkling_runtime.errors import InklingError

__all__ = ["stored"]


@st.composite
def boxes_of(draw: st.DrawFn, shape: tuple[int, ...]) -> boxes.Box:
    """Return a box with at least one element."""
    ranges = []
    for size in shape:
        start = draw(st.integers(0, size - 1))
        ranges.append((start, draw(st.integers(start + 1, size))))
    return tuple(ranges)


@pytest.mark.parametrize("name", EXPECTED)
@given(data=st.data())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_a_box_is_that_part_of_the_whole(
    stored: dict[str, Read], name: str, data: st.DataObject
) -> None:
    build, expected = EXPECTED[name]
    array = build(stored)
    box = data.draw(boxes_of(array.shape))
    with OpenFiles() as files:
        found = load_box(array, box, files)
    np.testing.assert_array_equal(found, expected[boxes.slices(box)])


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("nbytes", [1, 4, 12, 40, 1 << 20])
def test_blocks_in_turn_are_the_whole(stored: dict[str, Read], name: str, nbytes: int) -> None:
    build, expected = EXPECTED[name]
    with OpenFiles() as files:
        blocks = list(iter_blocks(build(stored), files, nbytes))
    assert all(block.flags.c_contiguous for block in blocks)
    joined = np.concatenate([block.reshape(-1) for block in blocks])
    np.testing.assert_array_equal(joined, np.ascontiguousarray(expected).reshape(-1))


SHAPES = st.lists(st.integers(1, 6), min_size=0, max_size=4)


@given(data=st.data())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_box_of_a_reshape_comes_out_of_a_box_of_the_source(data: st.DataObject) -> None:
    factors = data.draw(st.lists(st.sampled_from([1, 2, 3, 2, 5]), min_size=1, max_size=5))
    sides = []
    for _ in range(2):
        cuts = sorted(data.draw(st.sets(st.integers(0, len(factors)), max_size=4)))
        parts = zip([0, *cuts], [*cuts, len(factors)], strict=True)
        sides.append(tuple(int(np.prod(factors[a:b])) for a, b in parts))
    before, after = sides
    array = np.arange(int(np.prod(factors))).reshape(before)
    box = data.draw(boxes_of(after))
    part = boxes.reshaped_box(before, after, box)
    source = array[boxes.slices(part.source)].reshape(part.flat)
    found = source[boxes.slices(part.runs)].reshape(part.inner)[boxes.slices(part.cut)]
    np.testing.assert_array_equal(found, array.reshape(after)[boxes.slices(box)])


@given(
    rows=st.integers(1, 70),
    columns=st.integers(1, 300),
    dtype=st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64]),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_fast_transpose_is_the_transpose(rows: int, columns: int, dtype: type) -> None:
    matrix = np.arange(rows * columns).astype(dtype).reshape(rows, columns)
    found = transpose(matrix)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, matrix.T)


@pytest.mark.parametrize("axes", [(1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0), (0, 1, 2)])
def test_a_contiguous_copy_has_the_same_elements(axes: tuple[int, int, int]) -> None:
    array = np.arange(40 * 9 * 24, dtype=np.uint16).reshape(40, 9, 24).transpose(axes)
    found = contiguous(array)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, array)


def test_a_scattered_box_is_read_with_what_lies_between_or_without(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("wide") / "x.safetensors"
    array = np.arange(6 * 300 * 4096, dtype=np.uint16).reshape(6, 300, 4096)
    save_file({"x": array}, path)
    read = Read(path, read_header(path).tensors["x"])
    with OpenFiles() as files:
        for box in (
            ((0, 6), (7, 9), (0, 4096)),
            ((0, 6), (0, 300), (5, 6)),
            ((1, 5), (0, 300), (100, 3000)),
            ((2, 3), (1, 300), (4095, 4096)),
            ((0, 6), (0, 300), (0, 4096)),
        ):
            np.testing.assert_array_equal(files.read_box(read, box), array[boxes.slices(box)])


class Factors:
    """Random factors in a file: `a` [3, 4, 6], `b` [3, 5, 4], `one` [1, 4, 6], `w` [3, 5, 6]."""

    def __init__(self, folder: Path, dtype: str) -> None:
        rng = np.random.default_rng(5)
        shapes = {"a": (3, 4, 6), "b": (3, 5, 4), "one": (1, 4, 6), "w": (3, 5, 6)}
        self.numbers = {}
        raw = {}
        for name, shape in shapes.items():
            bits = narrow(rng.normal(size=shape), dtype)
            self.numbers[name] = widen(bits, dtype, "F64")
            raw[name] = bits
        path = folder / "f.safetensors"
        torch_dtype = {"BF16": torch.bfloat16, "F32": torch.float32}[dtype]
        tensors = {name: torch.from_numpy(bits) for name, bits in raw.items()}
        save_torch_file({name: bits.view(torch_dtype) for name, bits in tensors.items()}, path)
        self.reads = {name: Read(path, info) for name, info in read_header(path).tensors.items()}


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@given(data=st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_box_of_what_is_computed_is_that_part_rounded_once(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, data: st.DataObject
) -> None:
    factors = Factors(tmp_path_factory.mktemp("f"), dtype)
    read, numbers = factors.reads, factors.numbers
    c = np.random.default_rng(1).normal(size=(2, 4))
    each = np.random.default_rng(2).normal(size=(3, 2, 4))
    product = Product(read["a"], read["b"], 0.5, "F64")
    cases = [
        (Mix(read["a"], Coefficients(c), 1, dtype), c @ numbers["a"]),
        (Mix(read["b"], Coefficients(c), 2, "F32"), numbers["b"] @ c.T),
        (Mix(read["one"], Coefficients(each), 1, "F32"), each @ numbers["one"]),
        (Mix(read["b"], Coefficients(each), 2, dtype), numbers["b"] @ each.swapaxes(1, 2)),
        (product, 0.5 * numbers["b"] @ numbers["a"]),
        (Product(read["one"], read["b"], 2.0, "F64"), 2 * numbers["b"] @ numbers["one"]),
        (
            Sum(read["w"], (product,)),
            numbers["w"] + 0.5 * numbers["b"] @ numbers["a"],
        ),
    ]
    array, wide = data.draw(st.sampled_from(cases))
    box = data.draw(boxes_of(array.shape))
    with OpenFiles() as files:
        found = widen(load_box(array, box, files), array.dtype, "F64")
    expected = wide[boxes.slices(box)]
    precision = {"BF16": 2.0**-8, "F32": 2.0**-24, "F64": 2.0**-48}[array.dtype]
    np.testing.assert_allclose(found, expected, rtol=precision, atol=1e-13)


def test_experts_packed_for_peft_are_loaded_in_rows(stored: dict[str, Read]) -> None:
    stack = join([stored["t"], stored["t"]], 0)
    packed = reshape(permute(stack, 1, 2, 0), 4, 30)
    with OpenFiles() as files:
        rows = load_box(packed, ((1, 3), (0, 30)), files)
    np.testing.assert_array_equal(rows, load(packed)[1:3])


def test_more_files_than_stay_open_are_read_and_held_to_what_they_were(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("many")
    reads = []
    for number in range(60):
        path = folder / f"{number}.safetensors"
        save_file({"x": np.full((2, 3), number, np.int32)}, path)
        reads.append(Read(path, read_header(path).tensors["x"]))
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    with OpenFiles() as files:
        for number, read in enumerate(reads * 2):
            found = load_box(read, boxes.whole((2, 3)), files)
            assert (found == number % 60).all()
        files.require_unchanged()
        if before:
            assert len(list(Path("/proc/self/fd").iterdir())) <= before + 50
        reads[59].path.write_bytes(b"other")
        with pytest.raises(InklingError, match=r"59.safetensors` changed while it was read"):
            files.require_unchanged()
