"""Each move against numpy, and the one that rounds against torch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from inkling_runtime.adapter import arithmetic, arrays, moves, rounding
from inkling_runtime.adapter.factors import to_float32
from inkling_runtime.adapter.moves import Read
from inkling_runtime.adapter.safetensors_file import read_header
from inkling_runtime.errors import InklingError

RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Read]:
    """Tensors of a file: `m` [4, 6], `n` [4, 6], `t` [3, 4, 5], `one` [1, 4, 5], `r` repeated."""
    base = torch.arange(60, dtype=torch.int32).view(3, 4, 5)
    tensors = {
        "m": torch.arange(24, dtype=torch.int32).view(4, 6),
        "n": torch.arange(100, 124, dtype=torch.int32).view(4, 6),
        "t": base,
        "one": base[:1].clone(),
        "r": base[:1].repeat(3, 1, 1),
        "zeros": torch.zeros(2, 3),
        "negative zeros": torch.full((2, 3), -0.0),
        "tiny": torch.full((2, 3), 1e-45),
        "nan": torch.full((2, 3), float("nan")),
    }
    path = tmp_path_factory.mktemp("moves") / "x.safetensors"
    save_file(tensors, path)
    return {name: Read(path, tensor) for name, tensor in read_header(path).tensors.items()}


M = np.arange(24).reshape(4, 6)
N = np.arange(100, 124).reshape(4, 6)
T = np.arange(60).reshape(3, 4, 5)

EXPECTED = {
    "read": (lambda s: s["t"], T),
    "reshape": (lambda s: moves.reshape(s["t"], 2, 30), T.reshape(2, 30)),
    "reshape twice": (
        lambda s: moves.reshape(moves.reshape(s["t"], 60), 6, 10),
        T.reshape(6, 10),
    ),
    "permute": (lambda s: moves.permute(s["t"], 2, 0, 1), T.transpose(2, 0, 1)),
    "reshape of a permutation": (
        lambda s: moves.reshape(moves.permute(s["t"], 2, 0, 1), 15, 4),
        T.transpose(2, 0, 1).reshape(15, 4),
    ),
    "cut": (lambda s: moves.cut(s["t"], 1, 1, 3), T[:, 1:3]),
    "entry": (lambda s: moves.entry(s["t"], 2), T[2]),
    "entry of one": (lambda s: moves.entry(s["one"], 0), T[0]),
    "every second": (lambda s: moves.every_second(s["m"], 0, 1), M[1::2]),
    "every second column": (lambda s: moves.every_second(s["m"], 1, 0), M[:, 0::2]),
    "join": (lambda s: moves.join([s["m"], s["n"]], 1), np.hstack([M, N])),
    "join of one": (lambda s: moves.join([s["m"]], 1), M),
    "stack": (lambda s: moves.stack([s["m"], s["n"]]), np.stack([M, N])),
    "expand": (lambda s: moves.expand(s["one"], 4), np.repeat(T[:1], 4, 0)),
    "pad rows": (lambda s: moves.pad(s["m"], 0, 6), np.pad(M, ((0, 2), (0, 0)))),
    "pad columns": (lambda s: moves.pad(s["m"], 1, 7), np.pad(M, ((0, 0), (0, 1)))),
    "zeros": (lambda s: moves.Zeros("I32", (2, 3)), np.zeros((2, 3))),
    "interleave rows": (
        lambda s: moves.interleave(s["m"], s["n"], 0),
        np.stack([M, N], 1).reshape(8, 6),
    ),
    "interleave columns": (
        lambda s: moves.interleave(s["m"], s["n"], 1),
        np.stack([M, N], 2).reshape(4, 12),
    ),
    "block diagonal": (
        lambda s: moves.block_diagonal([s["m"], s["n"]]),
        np.block([[M, np.zeros((4, 6))], [np.zeros((4, 6)), N]]),
    ),
    "block diagonal of three": (
        lambda s: moves.block_diagonal([s["m"], s["m"], s["n"]]),
        np.block(
            [
                [M, np.zeros((4, 12))],
                [np.zeros((4, 6)), M, np.zeros((4, 6))],
                [np.zeros((4, 12)), N],
            ]
        ),
    ),
    "block diagonal of stacks": (
        lambda s: moves.block_diagonal([s["t"], s["r"]]),
        np.concatenate(
            [
                np.concatenate([T, np.zeros((3, 4, 5))], 2),
                np.concatenate([np.zeros((3, 4, 5)), np.repeat(T[:1], 3, 0)], 2),
            ],
            1,
        ),
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_move_is_what_numpy_does(stored: dict[str, Read], name: str) -> None:
    build, expected = EXPECTED[name]
    array = build(stored)
    loaded = arrays.load(array)
    assert array.shape == expected.shape == loaded.shape
    assert array.dtype == "I32"
    np.testing.assert_array_equal(loaded, expected)


def test_moves_that_change_nothing_are_left_out(stored: dict[str, Read]) -> None:
    m = stored["m"]
    assert moves.reshape(m, 4, 6) is m
    assert moves.permute(m, 0, 1) is m
    assert moves.cut(m, 0, 0, 4) is m
    assert moves.pad(m, 1, 6) is m
    assert arithmetic.scale(m, 1.0) is m
    assert moves.expand(stored["one"], 1) is stored["one"]


def test_impossible_moves_are_refused(stored: dict[str, Read]) -> None:
    m, t, zeros = stored["m"], stored["t"], stored["zeros"]
    for build in (
        lambda: moves.reshape(m, 5, 5),
        lambda: moves.expand(t, 4),
        lambda: moves.join([m, t], 0),
        lambda: moves.join([m, moves.cut(m, 1, 0, 3)], 0),
        lambda: moves.join([moves.Zeros("BF16", (2, 3)), zeros], 0),
        lambda: moves.interleave(moves.Zeros("BF16", (2, 3)), zeros, 0),
        lambda: moves.interleave(moves.Zeros("F32", (3, 3)), zeros, 0),
    ):
        with pytest.raises(ValueError):
            build()


def test_parts_that_meet_again_are_the_array_they_came_from(stored: dict[str, Read]) -> None:
    m = stored["m"]
    assert moves.join([moves.cut(m, 1, 0, 2), moves.cut(m, 1, 2, 6)], 1) is m
    assert moves.interleave(moves.every_second(m, 0, 0), moves.every_second(m, 0, 1), 0) is m
    for other in (
        moves.join([moves.cut(m, 1, 2, 6), moves.cut(m, 1, 0, 2)], 1),
        moves.join([moves.cut(m, 1, 0, 2), moves.cut(m, 1, 3, 6)], 1),
        moves.interleave(moves.every_second(m, 0, 1), moves.every_second(m, 0, 0), 0),
    ):
        assert other != m
    swapped = moves.interleave(moves.every_second(m, 0, 1), moves.every_second(m, 0, 0), 0)
    np.testing.assert_array_equal(arrays.load(swapped), M[[1, 0, 3, 2]])


def test_questions_about_contents_look_at_bits(stored: dict[str, Read]) -> None:
    assert arrays.is_repeated(stored["r"])
    assert arrays.is_repeated(stored["one"])
    assert arrays.is_repeated(moves.expand(stored["one"], 3))
    assert not arrays.is_repeated(stored["t"])
    assert arrays.is_same(stored["r"], moves.expand(stored["one"], 3))
    assert arrays.is_same(stored["nan"], moves.reshape(stored["nan"], 2, 3))
    assert not arrays.is_same(stored["m"], stored["n"])
    assert not arrays.is_same(stored["m"], moves.reshape(stored["m"], 6, 4))
    assert not arrays.is_same(stored["zeros"], stored["negative zeros"])
    assert arrays.is_zero(stored["zeros"])
    assert arrays.is_zero(moves.Zeros("BF16", (3, 3)))
    assert not arrays.is_zero(stored["tiny"])
    assert not arrays.is_zero(stored["nan"])


def test_verbs_and_reads_describe_a_move(stored: dict[str, Read]) -> None:
    m, n = stored["m"], stored["n"]
    assert moves.verbs(m) == ("copy",)
    assert moves.verbs(moves.reshape(m, 24)) == ("copy",)
    assert moves.verbs(moves.every_second(m, 0, 0)) == ("de-interleave",)
    both = moves.Interleave(moves.cut(m, 0, 0, 2), moves.cut(n, 0, 2, 4), 0)
    assert moves.verbs(both) == ("interleave", "split")
    assert [read.tensor.name for read in moves.iter_reads(both)] == ["m", "n"]
    assert moves.verbs(moves.pad(arithmetic.scale(m, 2.0), 0, 9)) == ("join", "scale", "pad")


def test_a_file_that_shrank_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"m": torch.zeros(4, 6)}, path)
    read = Read(path, read_header(path).tensors["m"])
    with path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(InklingError, match="ended inside `m`"):
        arrays.load(read)
    path.unlink()
    with pytest.raises(InklingError, match="cannot be read"):
        arrays.load(read)


TORCH = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}


def scaled(bits: np.ndarray, dtype: str, factor: float, folder: Path) -> np.ndarray:
    path = folder / "x.safetensors"
    save_file({"x": torch.from_numpy(bits).view(TORCH[dtype])}, path)
    read = Read(path, read_header(path).tensors["x"])
    return arrays.load(arithmetic.scale(read, factor))


FACTORS = st.one_of(
    st.floats(1e-3, 1e3),
    st.sampled_from([-2.0, 0.5, 2**0.5, 1 / 3, 3.0, 1e-30, 1e30, 2.0**-120, 1 + 2**-9]),
)


@given(factor=FACTORS)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_bf16_is_rounded_once_to_nearest_even(factor: float) -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    wide = (torch.from_numpy(bits).view(torch.bfloat16).double() * factor).numpy()
    with np.errstate(over="ignore"):
        assert_nearest_even(wide, rounding.round_to_bf16(wide))


def assert_nearest_even(wide: np.ndarray, found: np.ndarray) -> None:
    """Assert the bf16 nearest to each float64; by comparing with both neighbours, in float64."""
    value = to_float32(found, "BF16").astype(np.float64)
    is_nan = np.isnan(wide)
    assert np.isnan(value[is_nan]).all()
    finite = np.isfinite(wide) & np.isfinite(value)
    magnitude = (found & 0x7FFF).astype(np.int64)
    for step in (-1, 1):
        near = np.clip(magnitude + step, 0, 0x7F80).astype(np.uint16)
        other = to_float32(near, "BF16").astype(np.float64)
        other = np.where(np.isinf(other), 2.0**128, other)
        with np.errstate(invalid="ignore"):
            error, rival = abs(abs(value) - abs(wide)), abs(other - abs(wide))
        assert (error[finite] <= rival[finite]).all()
        tie = finite & (error == rival) & (near != magnitude)
        assert (found[tie] % 2 == 0).all()
    too_large = ~is_nan & np.isinf(value)
    assert (abs(wide[too_large]) >= 2.0**128 * (1 - 2**-9)).all()
    assert (np.signbit(value) == np.signbit(wide))[~is_nan].all()


def test_scaling_bf16_agrees_with_torch_where_float32_is_exact(tmp_path: Path) -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    bits = bits[(bits & 0x7FFF) < 0x7F00]
    for factor in (0.5, 1.375, -0.0625):
        found = scaled(bits, "BF16", factor, tmp_path)
        torch_values = torch.from_numpy(bits).view(torch.bfloat16)
        expected = (torch_values.float() * factor).bfloat16()
        result = torch.from_numpy(found).view(torch.bfloat16)
        assert torch.equal(result.nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize("dtype", ["F16", "F32", "F64"])
def test_scaling_other_floats_rounds_as_torch_does_from_float64(dtype: str, tmp_path: Path) -> None:
    width = {"F16": np.uint16, "F32": np.uint32, "F64": np.uint64}[dtype]
    bits = RNG.integers(0, np.iinfo(width).max, 4096, dtype=width, endpoint=True)
    top_exponent_bit = width(1) << width(8 * bits.itemsize - 2)
    bits &= ~top_exponent_bit
    for factor in (2**0.5, 1 / 3, -8.0, 1e-3):
        found = torch.from_numpy(scaled(bits, dtype, factor, tmp_path)).view(TORCH[dtype])
        expected = (torch.from_numpy(bits).view(TORCH[dtype]).double() * factor).to(TORCH[dtype])
        assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7))


def test_scaling_beyond_what_the_dtype_holds_is_refused(tmp_path: Path) -> None:
    bits = np.array([60000.0, 1.0], np.float16).view(np.uint16)
    with pytest.raises(
        InklingError, match="1 element is beyond what F16 holds, the largest is 120000"
    ):
        scaled(bits, "F16", 2.0, tmp_path)


def test_scaling_integers_is_refused(stored: dict[str, Read]) -> None:
    with pytest.raises(InklingError, match="elements of dtype I32 cannot be computed with"):
        arrays.load(arithmetic.scale(stored["m"], 2.0))


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_widening_to_float32_is_exact(dtype: str) -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    if dtype == "F32":
        bits = bits.astype(np.uint32) << 16
    values = torch.from_numpy(bits).view(TORCH[dtype])
    found = to_float32(rounding.typed(bits, dtype), dtype)
    assert torch.equal(torch.from_numpy(found).nan_to_num(7), values.float().nan_to_num(7))
