"""Distances are those of the deltas, whatever form their factors are stored in.

They are held against deltas formed in float64 by the calculators of `deltas`, which share nothing
with the code under test.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from conversion import convert, spec_of
from deltas import read_deltas
from differences import (
    DIALECTS,
    PAIRS,
    QUERY,
    ROUTED,
    SPEC,
    Tensors,
    add_to,
    apart,
    compare,
    drop_query,
    edited,
    fates,
    normal,
    rng_of,
)
from lora_factors import Factors

from factories import TINY, Sizes, write_released_adapter
from inkling_runtime.adapter.comparison import Presence
from inkling_runtime.adapter.difference import Fate, ModuleDifference


def assert_distances(
    modules: Iterable[ModuleDifference], first: dict[str, Factors], second: dict[str, Factors]
) -> None:
    """Assert that every number is that of the deltas formed."""
    for module in modules:
        one, other = (side[str(module.site)].delta() for side in (first, second))
        norms = np.linalg.norm(one), np.linalg.norm(other)
        distances = np.linalg.norm((one - other).reshape(len(one), -1), axis=1)
        assert module.delta.distance == pytest.approx(np.linalg.norm(distances), rel=1e-9)
        assert module.delta.norms == pytest.approx(norms, rel=1e-9)
        relative = np.linalg.norm(distances) / max(norms)
        assert module.delta.relative == pytest.approx(relative, rel=1e-9)
        cosine = np.vdot(one, other) / norms[0] / norms[1]
        assert module.delta.cosine == pytest.approx(cosine, rel=1e-9, abs=1e-12)
        if module.experts:
            assert module.experts == len(one)
            assert module.delta.worst_expert == int(np.argmax(distances))


@pytest.mark.parametrize("per_expert", [False, True])
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_distances_are_those_of_the_formed_deltas(
    tmp_path: Path, one: str, other: str, per_expert: bool
) -> None:
    folders = []
    for seed, dialect in enumerate((one, other)):
        source = write_released_adapter(
            tmp_path / f"source{seed}",
            rank=2 + seed,
            alpha=7,
            rng=rng_of(seed),
            fill=normal,
            dtype="F32",
            per_expert=per_expert,
        )
        out = tmp_path / f"out{seed}"
        convert(source, dialect, out, SPEC)
        folders.append(out)
    difference = compare(*folders)
    assert fates(difference) == {Fate.DIFFERENT}
    formed = [
        read_deltas(folder, dialect, TINY)
        for folder, dialect in zip(folders, (one, other), strict=True)
    ]
    assert_distances(difference.modules, *formed)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("factor", "index"), [("w3.lora_B", (3, 1, 1)), ("w2.lora_A", (3, 1, 4))], ids=["B", "A"]
)
def test_one_changed_element_of_one_expert_is_found_and_named(
    tmp_path: Path, dialect: str, factor: str, index: tuple[int, ...]
) -> None:
    first, second = edited(tmp_path, add_to(f"{ROUTED}.{factor}.weight", index, 0.5))
    convert(second, dialect, tmp_path / "out", SPEC)
    found = apart(compare(first, tmp_path / "out"))
    (module,) = found.values()
    assert str(module.site) == f"layers.2.mlp.experts.{factor[:2]}"
    assert (module.delta.worst_expert, module.delta.num_experts_apart) == (3, 1)
    assert_distances(
        [module],
        read_deltas(first, "tinker", TINY),
        read_deltas(tmp_path / "out", dialect, TINY),
    )


def test_a_shared_factor_that_differs_puts_every_expert_apart(tmp_path: Path) -> None:
    found = apart(compare(*edited(tmp_path, add_to(f"{ROUTED}.w1.lora_A.weight", (0, 0, 3), 1))))
    assert found["layers.2.mlp.experts.w1"].delta.num_experts_apart == TINY.experts


def test_the_answer_is_the_same_in_both_directions(tmp_path: Path) -> None:
    first = write_released_adapter(tmp_path / "first", fill=normal, rng=rng_of(1))
    second = write_released_adapter(
        tmp_path / "second", fill=normal, rng=rng_of(2), groups={"attention", "routed"}
    )
    there, back = compare(first, second), compare(second, first)
    for one, other in zip(there.modules, back.modules, strict=True):
        assert one.delta.distance == pytest.approx(other.delta.distance, rel=1e-12)
        assert one.delta.relative == pytest.approx(other.delta.relative, rel=1e-12)
        assert one.delta.norms == pytest.approx(other.delta.norms[::-1], rel=1e-12)
        assert one.delta.worst_expert == other.delta.worst_expert


def test_permuted_components_are_near_but_not_called_equal(tmp_path: Path) -> None:
    def swap(tensors: Tensors) -> None:
        for name in (name for name in tensors if name.startswith(QUERY)):
            tensors[name] = tensors[name].flip(0 if ".lora_A." in name else 1)

    (module,) = apart(compare(*edited(tmp_path, swap))).values()
    assert module.delta.fate is Fate.DIFFERENT
    assert module.delta.relative < 1e-14
    assert module.is_within(1e-12)


def test_a_distance_far_below_the_norms_is_measured(tmp_path: Path) -> None:
    def double(tensors: Tensors) -> None:
        for name in tensors:
            tensors[name] = tensors[name].double()

    def nudge(tensors: Tensors) -> None:
        double(tensors)
        tensors[f"{QUERY}.lora_B.weight"][5, 1] += 1e-11

    first = write_released_adapter(tmp_path / "first", fill=normal, edit=double)
    second = write_released_adapter(tmp_path / "second", fill=normal, edit=nudge)
    (module,) = apart(compare(first, second)).values()
    row = read_deltas(first, "tinker", TINY)["layers.1.attn.wq_du"].a[0, 1]
    assert module.delta.distance == pytest.approx(4 * 1e-11 * np.linalg.norm(row), rel=1e-2)
    assert module.delta.relative < 1e-11


def test_a_module_that_one_side_lacks_is_as_far_as_its_delta(tmp_path: Path) -> None:
    first, second = edited(tmp_path, drop_query)
    for folders, presence in (
        ((first, second), Presence.FIRST),
        ((second, first), Presence.SECOND),
    ):
        (module,) = apart(compare(*folders)).values()
        delta = read_deltas(first, "tinker", TINY)["layers.1.attn.wq_du"].delta()
        assert module.presence is presence
        assert module.delta.distance == pytest.approx(np.linalg.norm(delta))
        assert (module.delta.relative, module.delta.cosine) == (1, None)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_comparable(tmp_path: Path, value: float) -> None:
    edit = add_to(f"{ROUTED}.w1.lora_B.weight", (4, 2, 1), value)
    (module,) = apart(compare(*edited(tmp_path, edit))).values()
    assert module.delta.fate is Fate.NOT_COMPARABLE
    assert (module.delta.distance, module.delta.worst_expert) == (None, 4)
    assert not module.is_within(1e9)


def test_matrices_of_many_rows_are_measured_in_blocks(tmp_path: Path) -> None:
    sizes = Sizes(vocab=20_000, unpadded=20_000)
    folders = [
        write_released_adapter(
            tmp_path / str(seed), sizes, rng=rng_of(seed), fill=normal, groups={"head"}, dtype="F32"
        )
        for seed in (1, 2)
    ]
    formed = [read_deltas(folder, "tinker", sizes) for folder in folders]
    assert_distances(compare(*folders, spec_of(sizes)).modules, *formed)
