"""Deltas that are the same are proven to be, through every dialect and rewriting of factors."""

import tempfile
from pathlib import Path

import pytest
import torch
from conversion import convert, is_folded, spec_of
from differences import (
    DIALECTS,
    PAIRS,
    QUERY,
    SPEC,
    Tensors,
    apart,
    by_site,
    compare,
    drop_query,
    edited,
    fates,
    normal,
    rng_of,
)
from hypothesis import HealthCheck, given, settings
from strategies import ADAPTERS, Example

from factories import TINY, any_bits, write_released_adapter
from inkling_runtime.adapter.comparison import Presence
from inkling_runtime.adapter.difference import Fate

QUICK = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_conversion_makes_no_difference(source: str, target: str) -> None:
    @QUICK
    @given(ADAPTERS[source])
    def check(example: Example) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = example.write(Path(name) / "source")
            out, spec = Path(name) / "out", spec_of(example.sizes)
            conversion = convert(folder, target, out, spec, dialect=source)
            difference = compare(folder, out, spec, (source, target))
            allowed = {Fate.IDENTICAL, Fate.EQUAL}
            if is_folded(conversion):
                allowed.add(Fate.ROUNDED)
            assert fates(difference) <= allowed
            assert all(m.delta.distance == 0 for m in difference.modules if m.is_within(0))

    check()


@pytest.mark.parametrize("target", DIALECTS)
def test_numbers_of_experts_need_no_model_where_one_side_has_a_stack(
    tmp_path: Path, target: str
) -> None:
    source = write_released_adapter(tmp_path / "source")
    convert(source, target, tmp_path / "out", SPEC)
    assert not apart(compare(source, tmp_path / "out", spec=None))
    shared = by_site(compare(source, tmp_path / "out", None))["layers.1.mlp.shared_experts.w2"]
    assert shared.experts == (TINY.shared if target == "peft" else 0)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_adapter_is_identical_with_itself(tmp_path: Path, dialect: str) -> None:
    source = write_released_adapter(tmp_path / "source", fill=normal)
    convert(source, dialect, tmp_path / "out", SPEC)
    difference = compare(tmp_path / "out", tmp_path / "out")
    assert fates(difference) == {Fate.IDENTICAL}
    assert difference.config == ()
    assert (difference.names.only_first, difference.names.only_second) == ((), ())


def test_the_same_bytes_are_identical_whatever_they_are(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "source", fill=any_bits)
    assert fates(compare(source, source)) == {Fate.IDENTICAL}


def test_expanded_copies_are_identical_with_the_shared_factor(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "source", groups={"routed"})

    def expand(tensors: Tensors) -> None:
        for name, tensor in tensors.items():
            if tensor.shape[0] == 1:
                tensors[name] = tensor.expand(TINY.experts, -1, -1).contiguous()

    expanded = write_released_adapter(tmp_path / "expanded", groups={"routed"}, edit=expand)
    assert fates(compare(source, expanded)) == {Fate.IDENTICAL}


def test_a_scale_folded_into_b_is_equal(tmp_path: Path) -> None:
    def halve(tensors: Tensors) -> None:
        for name in tensors:
            if ".lora_B." in name:
                tensors[name] /= 2

    assert fates(compare(*edited(tmp_path, halve, alpha=16))) == {Fate.EQUAL}


def test_a_padded_rank_is_equal_whatever_stands_beside_the_zeros(tmp_path: Path) -> None:
    def pad(tensors: Tensors) -> None:
        for name, tensor in tensors.items():
            axis = -2 if ".lora_A." in name else -1
            extra = tensor * 3 if ".lora_A." in name else torch.zeros_like(tensor)
            tensors[name] = torch.cat([extra, tensor], axis)

    first, second = edited(tmp_path, pad, alpha=16)
    config = (second / "adapter_config.json").read_text().replace('"r": 2', '"r": 4')
    (second / "adapter_config.json").write_text(config)
    assert fates(compare(first, second)) == {Fate.EQUAL}


def test_two_deltas_of_zero_are_equal_whatever_a_is(tmp_path: Path) -> None:
    def clear(tensors: Tensors) -> None:
        for name in tensors:
            if ".lora_B." in name:
                tensors[name].zero_()

    folders = [
        write_released_adapter(tmp_path / str(seed), fill=normal, rng=rng_of(seed), edit=clear)
        for seed in (1, 2)
    ]
    assert fates(compare(*folders)) == {Fate.EQUAL}


def test_a_cast_that_changes_no_number_is_equal(tmp_path: Path) -> None:
    def widen(tensors: Tensors) -> None:
        for name in tensors:
            tensors[name] = tensors[name].float()

    assert fates(compare(*edited(tmp_path, widen))) == {Fate.EQUAL}


def test_a_cast_that_rounds_is_told_from_other_changes(tmp_path: Path) -> None:
    def change(tensors: Tensors) -> None:
        for name in tensors:
            tensors[name] = tensors[name].bfloat16()
        tensors[f"{QUERY}.lora_A.weight"][0, 0] *= 1.05

    first = write_released_adapter(tmp_path / "first", fill=normal, dtype="F32")
    second = write_released_adapter(tmp_path / "second", fill=normal, dtype="F32", edit=change)
    difference = compare(first, second)
    assert by_site(difference)["layers.1.attn.wq_du"].delta.fate is Fate.DIFFERENT
    assert fates(difference) == {Fate.DIFFERENT, Fate.ROUNDED}
    assert all(0 < module.delta.relative < 2**-7 for module in difference.modules)


@pytest.mark.parametrize("letters", ["B", "AB"])
def test_a_module_of_zero_delta_may_be_missing(tmp_path: Path, letters: str) -> None:
    def clear(tensors: Tensors) -> None:
        for letter in letters:
            tensors[f"{QUERY}.lora_{letter}.weight"].zero_()

    first = write_released_adapter(tmp_path / "first", edit=clear)
    second = write_released_adapter(tmp_path / "second", edit=drop_query)
    module = by_site(compare(first, second))["layers.1.attn.wq_du"]
    assert (module.delta.fate, module.presence) == (Fate.EQUAL, Presence.FIRST)


def test_rows_of_the_head_that_one_side_lacks_are_zero(tmp_path: Path) -> None:
    def clear(tensors: Tensors) -> None:
        tensors["language_model.lm_head.lora_B.weight"][TINY.unpadded :] = 0

    def cut(tensors: Tensors) -> None:
        name = "language_model.lm_head.lora_B.weight"
        tensors[name] = tensors[name][: TINY.unpadded].contiguous()

    head = {"groups": {"head"}, "head_rows": "padded", "fill": normal}
    cut_ = write_released_adapter(tmp_path / "cut", edit=cut, **head)
    zero = write_released_adapter(tmp_path / "zero", edit=clear, **head)
    full = write_released_adapter(tmp_path / "full", **head)
    assert fates(compare(cut_, zero)) == {Fate.IDENTICAL}
    assert fates(compare(cut_, full)) == {Fate.DIFFERENT}
