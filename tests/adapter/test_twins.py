"""Factors are compared a part at a time: parts cover them, change no answer, and bound memory."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from conversion import convert, spec_of
from differences import (
    DIALECTS,
    ROUTED,
    SPEC,
    Tensors,
    add_to,
    by_site,
    compare,
    edited,
    normal,
    rng_of,
)
from hypothesis import given
from hypothesis import strategies as st

from factories import Sizes, any_bits, write_released_adapter
from inkling_runtime.adapter import distance, equality, twins
from inkling_runtime.adapter.difference import Difference, Fate
from inkling_runtime.adapter.moves import Zeros, permute
from inkling_runtime.adapter.twins import StoredFactor, iter_parts

SMALL = st.integers(1, 9)


@given(experts=SMALL, width=SMALL, rank=SMALL, limit=st.integers(1, 300), is_packed=st.booleans())
def test_parts_cover_every_element_once_within_the_limit(
    experts: int, width: int, rank: int, limit: int, is_packed: bool
) -> None:
    stored = Zeros("BF16", (experts, width, rank))
    packed = permute(Zeros("BF16", (width, rank, experts)), 2, 0, 1)
    factor = StoredFactor(packed if is_packed else stored, 1.0, is_a=False)
    assert factor.is_split_by_rows is is_packed
    seen = np.zeros((experts, width), int)
    for part in iter_parts((factor,), limit, (0, experts)):
        seen[slice(*part.experts), slice(*part.rows)] += 1
        num_experts, num_rows = (last - first for first, last in (part.experts, part.rows))
        assert num_experts * num_rows * rank <= max(limit, rank * (experts if is_packed else 1))
    assert (seen == 1).all()


def measured(difference: Difference) -> list[tuple[object, ...]]:
    """Return what is said of each module, numbers rounded."""
    return [
        (
            str(module.site),
            module.delta.fate,
            module.delta.worst_expert,
            module.delta.num_experts_apart,
            round(module.delta.relative or 0.0, 12),
            [f"{norm:.9g}" for norm in module.delta.norms or ()],
        )
        for module in difference.modules
    ]


def spoil(tensors: Tensors) -> None:
    """Change one expert of one module, and scale another so that it stays what it is."""
    add_to(f"{ROUTED}.w3.lora_B.weight", (3, 1, 1), 0.5)(tensors)
    add_to(f"{ROUTED}.w2.lora_A.weight", (2, 1, 4), 0.5)(tensors)
    tensors["language_model.layers.1.attn.wq_du.lora_A.weight"] *= 2
    tensors["language_model.layers.1.attn.wq_du.lora_B.weight"] /= 2


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("size", [1, 7, 133])
def test_the_size_of_a_part_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str, size: int
) -> None:
    first, second = edited(tmp_path, spoil)
    convert(second, dialect, tmp_path / "out", SPEC)
    whole = measured(compare(first, tmp_path / "out"))
    assert {fate for _, fate, *_ in whole} >= {Fate.IDENTICAL, Fate.DIFFERENT}
    monkeypatch.setattr(twins, "RAW_BYTES", 2 * size)
    monkeypatch.setattr(equality, "WIDE_ELEMENTS", size)
    monkeypatch.setattr(distance, "WIDE_ELEMENTS", 2 * size)
    monkeypatch.setattr(distance, "_TRIANGLE_ELEMENTS", 33 * size)
    assert measured(compare(first, tmp_path / "out")) == whole


@pytest.mark.parametrize("other", ["same", "scaled", "changed"])
def test_memory_does_not_grow_with_a_packed_factor(tmp_path: Path, other: str) -> None:
    sizes = Sizes(hidden=1024, inner=1536, experts=128, layers=2, local=(0,))
    spec = spec_of(sizes)
    source = write_released_adapter(
        tmp_path / "source", sizes, rank=32, fill=normal, groups={"routed"}
    )

    def edit(tensors: Tensors) -> None:
        for name, tensor in tensors.items():
            if other == "scaled":
                tensor *= 0.5 if ".lora_A." in name else 2
            elif ".w2.lora_A." in name:
                tensor[5, 3, 7] += 1

    changed = write_released_adapter(
        tmp_path / "changed",
        sizes,
        rank=32,
        fill=normal,
        groups={"routed"},
        edit=None if other == "same" else edit,
    )
    convert(source, "peft", tmp_path / "first", spec)
    convert(changed, "peft", tmp_path / "second", spec)
    tracemalloc.start()
    difference = compare(tmp_path / "first", tmp_path / "second", spec)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found = by_site(difference)["layers.1.mlp.experts.w2"].delta.fate
    assert found is (Fate.IDENTICAL if other == "same" else Fate.DIFFERENT)
    assert (tmp_path / "first" / "adapter_model.safetensors").stat().st_size > 80e6
    assert peak < 80e6


def test_shared_factors_with_other_components_for_each_expert(tmp_path: Path) -> None:
    """B of each expert has another column of zeros, so that A counts by expert."""

    def clear(tensors: Tensors) -> None:
        b = tensors[f"{ROUTED}.w1.lora_B.weight"]
        for expert in range(len(b)):
            b[expert, :, expert % 2] = 0

    def exchange(tensors: Tensors) -> None:
        clear(tensors)
        a = tensors[f"{ROUTED}.w1.lora_A.weight"]
        a[:, 1] *= 3

    first = write_released_adapter(tmp_path / "first", fill=normal, rng=rng_of(3), edit=clear)
    second = write_released_adapter(tmp_path / "second", fill=normal, rng=rng_of(3), edit=exchange)
    assert by_site(compare(first, first))["layers.2.mlp.experts.w1"].delta.fate is Fate.IDENTICAL
    delta = by_site(compare(first, second))["layers.2.mlp.experts.w1"].delta
    assert (delta.fate, delta.num_experts_apart) == (Fate.DIFFERENT, 3)


def test_an_adapter_is_itself_whatever_it_holds(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "source", fill=any_bits, per_expert=True)
    copy = write_released_adapter(tmp_path / "copy", fill=any_bits, per_expert=True)
    convert(source, "vllm", tmp_path / "out", SPEC)
    for other in (copy, tmp_path / "out"):
        assert {module.delta.fate for module in compare(source, other).modules} == {Fate.IDENTICAL}
