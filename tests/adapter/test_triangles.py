"""The triangle of a factor keeps its norms and angles, however many pieces it comes in."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from inkling_runtime.adapter.arithmetic import Coefficients, Mix
from inkling_runtime.adapter.arrays import load
from inkling_runtime.adapter.moves import Read, permute, reshape
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.resize.coefficient_store import CoefficientStore
from inkling_runtime.adapter.resize.triangles import find_triangles, reduce
from inkling_runtime.adapter.safetensors_file import read_header


def stored(folder, **arrays):
    path = folder / "f.safetensors"
    save_file(arrays, path)
    return {name: Read(path, info) for name, info in read_header(path).tensors.items()}


def triangles_of(array, *, is_a, is_common):
    with OpenFiles() as files:
        return find_triangles(array, is_a=is_a, is_common=is_common, files=files, name="it")


def assert_triangles(found, rows):
    """Assert RᵀR = XᵀX for each X [rows, R]: relative to the norm, as float64 allows."""
    assert len(found) == len(rows)
    for triangle, wide in zip(found, rows, strict=True):
        assert triangle.shape == (min(wide.shape), wide.shape[1])
        size = np.linalg.norm(wide) ** 2
        np.testing.assert_allclose(triangle.T @ triangle, wide.T @ wide, rtol=0, atol=1e-14 * size)


SHAPES = [(3, 5, 7), (1, 2, 9), (4, 3, 700_000 // 4), (3, 8, 50_000), (900, 6, 250)]
"""[E, R, length]: fewer elements than a piece, more in one expert, more in all experts."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_common", [False, True])
@pytest.mark.parametrize("layout", ["A", "B", "packed B"])
def test_triangles_keep_norms_and_angles(shape, is_common, layout, tmp_path):
    experts, rank, length = shape
    wide = np.random.default_rng(1).standard_normal((experts, length, rank)).astype(np.float32)
    if layout == "A":
        array = stored(tmp_path, x=np.ascontiguousarray(wide.swapaxes(1, 2)))["x"]
    elif layout == "B":
        array = stored(tmp_path, x=wide)["x"]
    else:
        packed = np.ascontiguousarray(wide.transpose(1, 2, 0)).reshape(length, -1)
        read = stored(tmp_path, x=packed)["x"]
        array = permute(reshape(read, length, rank, experts), 2, 0, 1)
    found = triangles_of(array, is_a=layout == "A", is_common=is_common)
    rows = wide.astype(np.float64)
    assert_triangles(found, rows.reshape(1, -1, rank) if is_common else rows)


def test_a_matrix_counts_as_one_expert(tmp_path):
    wide = np.random.default_rng(2).standard_normal((30, 4))
    found = triangles_of(stored(tmp_path, x=wide)["x"], is_a=False, is_common=True)
    assert_triangles(found, wide[None])


def test_small_singular_values_are_not_lost_by_squaring():
    rng = np.random.default_rng(3)
    left, _ = np.linalg.qr(rng.standard_normal((5000, 3)))
    right, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    rows = left @ np.diag([1.0, 1e-6, 1e-11]) @ right.T
    sigma = np.linalg.svd(reduce(rows[None])[0], compute_uv=False)
    np.testing.assert_allclose(sigma, [1.0, 1e-6, 1e-11], rtol=1e-4)


class TestCoefficientStore:
    def test_what_is_kept_is_read_in_parts_and_padded(self):
        values = np.random.default_rng(4).standard_normal((5, 3, 4))
        other = values + 1
        with CoefficientStore() as store:
            kept, second = store.reserve(values.shape), store.reserve(other.shape)
            second.put(0, other)
            kept.put(2, values[2:])
            kept.put(0, values[:2])
            assert (len(kept), kept.shape, kept.ndim) == (5, (5, 3, 4), 3)
            np.testing.assert_array_equal(kept[1:3], values[1:3])
            np.testing.assert_array_equal(kept[..., 1:2, :], values[:, 1:2])
            np.testing.assert_array_equal(second[0:5], other)
            np.testing.assert_array_equal(kept.seen(2)[0:5], values[:, :2])
            padded = kept.seen(5)[3:5]
            np.testing.assert_array_equal(padded[:, :3], values[3:])
            assert padded.shape == (2, 5, 4)
            assert not padded[:, 3:].any()

    def test_they_mix_like_matrices_in_memory(self, tmp_path):
        rng = np.random.default_rng(5)
        factor = stored(tmp_path, a=rng.standard_normal((5, 4, 6)))["a"]
        values = rng.standard_normal((5, 3, 4))
        with CoefficientStore() as store:
            kept = store.reserve(values.shape)
            kept.put(0, values)
            found = load(Mix(factor, Coefficients(kept.seen(2)), 1, "F32"))
        expected = load(Mix(factor, Coefficients(values[:, :2]), 1, "F32"))
        np.testing.assert_array_equal(found, expected)
