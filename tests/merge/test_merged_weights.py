"""Every weight of a merged checkpoint is the base's plus the deltas, rounded once."""

from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import FORMS, deltas_of, headers_of, merge, reference, save_base, tensors_of
from checkpoints import write_normal_adapter as write_adapter

from adapter.conversion import convert
from factories import GROUPS, TINY
from inkling_runtime.adapter.model_spec import read_model_spec

SPACING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}
"""Half a unit in the last place, relative to the number at the most."""
SUBNORMAL = {torch.bfloat16: 0.0, torch.float16: 2.0**-25, torch.float32: 0.0}
"""The same below the smallest normal number; the others have none of this size here."""
COMPUTED = {torch.bfloat16: 2.0**-22, torch.float16: 2.0**-22, torch.float32: 2.0**-50}
"""What computing in F32 or F64 adds, relative to the sum of all magnitudes."""


def half_ulp(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Return half of the distance between neighbours of a dtype around each value."""
    exponent = np.floor(np.log2(np.maximum(np.abs(values), 2.0**-126)))
    return np.maximum(SPACING[dtype] * 2.0**exponent, SUBNORMAL[dtype])


def assert_rounded_once(
    got: dict[str, torch.Tensor], want: dict[str, np.ndarray], largest: float
) -> None:
    assert got.keys() == want.keys()
    for name, tensor in got.items():
        error = np.abs(tensor.double().numpy() - want[name])
        allowed = half_ulp(want[name], tensor.dtype) + COMPUTED[tensor.dtype] * largest
        assert (error <= allowed).all(), f"{name}: {error.max()}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_each_element_is_base_plus_delta_rounded_once(
    tmp_path: Path, form: str, dtype: torch.dtype
) -> None:
    base = save_base(tmp_path / "base", form, dtype, max_shard_size="40KB")
    adapter = write_adapter(tmp_path / "adapter", dtype="F32", rank=6)
    plan = merge(base, tmp_path / "out", adapter)
    before, got = tensors_of(base), tensors_of(tmp_path / "out")
    want = reference(before, form, deltas_of(adapter))
    assert_rounded_once(got, want, largest=8.0)
    changed = {name for name in got if not torch.equal(got[name], before[name])}
    assert changed == {name for shard in plan.shards for name in shard.targets}
    assert {name: tensor.dtype for name, tensor in got.items()} == {
        name: tensor.dtype for name, tensor in before.items()
    }


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("form", FORMS)
def test_one_group_changes_its_own_tensors_and_no_other(
    tmp_path: Path, form: str, group: str
) -> None:
    base = save_base(tmp_path / "base", form)
    adapter = write_adapter(tmp_path / "adapter", groups=[group])
    merge(base, tmp_path / "out", adapter)
    before, got = tensors_of(base), tensors_of(tmp_path / "out")
    assert_rounded_once(got, reference(before, form, deltas_of(adapter)), largest=8.0)


@pytest.mark.parametrize("dropped", ["w1", "w3"])
@pytest.mark.parametrize("form", FORMS)
def test_gate_without_up_leaves_the_rows_of_up_as_they_are(
    tmp_path: Path, form: str, dropped: str
) -> None:
    base = save_base(tmp_path / "base", form)

    def drop(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if f"experts.{dropped}." in name]:
            del tensors[name]

    adapter = write_adapter(tmp_path / "adapter", groups=["routed", "shared"], edit=drop)
    merge(base, tmp_path / "out", adapter)
    want = reference(tensors_of(base), form, deltas_of(adapter))
    assert_rounded_once(tensors_of(tmp_path / "out"), want, largest=8.0)


@pytest.mark.parametrize("form", FORMS)
def test_experts_with_factors_of_their_own_land_in_their_own_expert(
    tmp_path: Path, form: str
) -> None:
    base = save_base(tmp_path / "base", form)
    adapter = write_adapter(tmp_path / "adapter", groups=["routed"], per_expert=True)
    merge(base, tmp_path / "out", adapter)
    want = reference(tensors_of(base), form, deltas_of(adapter))
    assert_rounded_once(tensors_of(tmp_path / "out"), want, largest=8.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_several_adapters_add_up_with_their_weights_in_one_rounding(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    base = save_base(tmp_path / "base", "raw", dtype)
    first = write_adapter(tmp_path / "first", seed=1, rank=3, groups=["routed", "head"])
    second = write_adapter(tmp_path / "second", seed=2, dtype="F32", head_rows="padded")
    merge(base, tmp_path / "out", first, second, weights=(1.0, -0.3))
    deltas = {site: -0.3 * delta for site, delta in deltas_of(second).items()}
    for site, delta in deltas_of(first).items():
        deltas[site][..., : delta.shape[-2], :] += delta
    want = reference(tensors_of(base), "raw", deltas)
    assert_rounded_once(tensors_of(tmp_path / "out"), want, largest=8.0)


@pytest.mark.parametrize("form", FORMS)
def test_the_order_of_adapters_changes_no_more_than_the_last_digit(
    tmp_path: Path, form: str
) -> None:
    base = save_base(tmp_path / "base", form)
    one = write_adapter(tmp_path / "one", seed=1)
    two = write_adapter(tmp_path / "two", seed=2)
    merge(base, tmp_path / "a", one, two)
    merge(base, tmp_path / "b", two, one)
    first, second = tensors_of(tmp_path / "a"), tensors_of(tmp_path / "b")
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=2.0**-23, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shard", ["1GB", "40KB"])
def test_headers_metadata_and_the_order_of_tensors_are_those_of_the_base(
    tmp_path: Path, form: str, shard: str
) -> None:
    base = save_base(tmp_path / "base", form, max_shard_size=shard)
    merge(base, tmp_path / "out", write_adapter(tmp_path / "adapter"))
    assert headers_of(tmp_path / "out") == headers_of(base)
    assert len(headers_of(base)) == 1 or shard == "40KB"


def test_a_zero_delta_leaves_every_weight(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", "raw", torch.bfloat16)

    def clear(tensors: dict[str, torch.Tensor]) -> None:
        for name, tensor in tensors.items():
            if ".lora_B." in name:
                tensor.zero_()

    merge(base, tmp_path / "out", write_adapter(tmp_path / "adapter", edit=clear))
    before, got = tensors_of(base), tensors_of(tmp_path / "out")
    assert all(torch.equal(got[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("adapter_rows", ["padded", "unpadded"])
@pytest.mark.parametrize("base_rows", [TINY.vocab, TINY.unpadded])
def test_the_head_is_padded_or_cut_by_rows_of_zero(
    tmp_path: Path, adapter_rows: str, base_rows: int
) -> None:
    from safetensors.torch import save_file

    base = save_base(tmp_path / "base", "raw")
    tensors = tensors_of(base)
    name = "model.llm.unembed.weight"
    tensors[name] = tensors[name][:base_rows].clone()
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})

    def clear_padding(tensors: dict[str, torch.Tensor]) -> None:
        tensors["language_model.lm_head.lora_B.weight"][TINY.unpadded :] = 0

    adapter = write_adapter(tmp_path / "adapter", head_rows=adapter_rows, edit=clear_padding)
    merge(base, tmp_path / "out", adapter)
    deltas = deltas_of(adapter)
    deltas["lm_head"] = deltas["lm_head"][:base_rows]
    assert_rounded_once(tensors_of(tmp_path / "out"), reference(tensors, "raw", deltas), 8.0)


@pytest.mark.parametrize("dialect", ["tinker", "vllm", "sglang", "peft"])
@pytest.mark.parametrize("form", ["mm", "raw"])
def test_every_dialect_of_an_adapter_gives_the_same_weights(
    tmp_path: Path, form: str, dialect: str
) -> None:
    base = save_base(tmp_path / "base", form, torch.bfloat16)
    released = write_adapter(tmp_path / "released", groups=GROUPS, config={"lora_alpha": 3})
    convert(released, dialect, tmp_path / "adapter", read_model_spec(base))
    merge(base, tmp_path / "out", tmp_path / "adapter")
    want = reference(tensors_of(base), form, deltas_of(released))
    assert_rounded_once(tensors_of(tmp_path / "out"), want, largest=8.0)
