"""What may be asked of a written adapter beyond its dialect: every delta, but for what is said."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conversion import payload, spec_of
from deltas import read_deltas
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from strategies import ADAPTERS, Example

from factories import TINY, write_released_adapter
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.combine.plan import gather_parts, plan_sum
from inkling_runtime.adapter.convert.config import DROPPED_KEY
from inkling_runtime.adapter.convert.options import Options, Outer
from inkling_runtime.adapter.convert.plan import Conversion, plan_conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.dialects import require_dialect
from inkling_runtime.adapter.resize.coefficient_store import CoefficientStore
from inkling_runtime.adapter.resize.plan import Destination
from inkling_runtime.adapter.safetensors_file import read_header
from inkling_runtime.adapter.sites import Group
from inkling_runtime.errors import InklingError

PRECISION = {"BF16": 2.0**-8, "F16": 2.0**-10, "F32": 2.0**-23}


def convert(source: Path, target: str, out: Path, sizes: Any = TINY, **options: Any) -> Conversion:
    adapter = read_adapter(source)
    plan = plan_conversion(
        adapter, require_dialect(target), spec_of(sizes), CONTENTS, Options(**options)
    )
    write_conversion(plan, out)
    return plan


def normal(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> torch.Tensor:
    """Return numbers that every narrower dtype must round."""
    return torch.from_numpy(rng.normal(size=shape)).float()


def formed(folder: Path, dialect: str, sizes: Any = TINY) -> dict[str, np.ndarray]:
    """Return each site's delta, formed in float64; sites without effect left out."""
    deltas = {
        site: found.scaling * (found.b @ found.a)
        for site, found in read_deltas(folder, dialect, sizes).items()
    }
    return {site: delta for site, delta in deltas.items() if delta.any()}


def dtypes_of(folder: Path) -> set[str]:
    tensors = read_header(folder / "adapter_model.safetensors").tensors
    return {tensor.dtype for tensor in tensors.values()}


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text())
    return config


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("target", ["tinker", "vllm", "sglang", "peft"])
def test_a_dtype_is_written_and_each_element_rounded_once(
    tmp_path: Path, dtype: str, target: str
) -> None:
    source = write_released_adapter(tmp_path / "in", dtype="F32", fill=normal)
    plan = convert(source, target, tmp_path / "out", dtype=dtype)
    assert dtypes_of(tmp_path / "out") == {dtype}
    before, after = formed(source, "tinker"), formed(tmp_path / "out", target)
    assert before.keys() == after.keys()
    for site, delta in before.items():
        size = max(abs(delta).max(), 1e-30)
        assert abs(after[site] - delta).max() <= 3 * PRECISION[dtype] * size
    said = " ".join(plan.changes)
    assert ("rounded to nearest even" in said) is (dtype != "F32")


def test_a_number_beyond_the_dtype_is_refused_with_its_tensor(tmp_path: Path) -> None:
    def edit(tensors: dict[str, Any]) -> None:
        tensors["language_model.lm_head.lora_A.weight"][0, 0] = 70000.0

    source = write_released_adapter(tmp_path / "in", dtype="F32", edit=edit)
    with pytest.raises(InklingError, match=r"`language_model.lm_head.lora_A.weight`: 1 element"):
        convert(source, "tinker", tmp_path / "out", dtype="F16")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


@pytest.mark.parametrize("dialect", ADAPTERS)
@pytest.mark.parametrize("target", ["tinker", "vllm", "sglang", "peft"])
@given(data=st.data())
@settings(max_examples=8, deadline=None, derandomize=True)
def test_a_folded_scaling_is_one_and_keeps_every_delta(
    tmp_path_factory: pytest.TempPathFactory, dialect: str, target: str, data: st.DataObject
) -> None:
    example: Example = data.draw(ADAPTERS[dialect])
    folder = tmp_path_factory.mktemp("fold")
    source = example.write(folder / "in")
    adapter = read_adapter(source, dialect)
    plan = plan_conversion(
        adapter,
        require_dialect(target),
        spec_of(example.sizes),
        CONTENTS,
        Options(fold_scaling=True, dtype="F32"),
    )
    write_conversion(plan, folder / "out")
    config = config_of(folder / "out")
    assert not config.get("use_rslora")
    assert config["lora_alpha"] == config["r"]
    assert config.get("alpha_pattern", {}) == config.get("rank_pattern", {})
    before = formed(source, dialect, example.sizes)
    after = formed(folder / "out", target, example.sizes)
    assert before.keys() == after.keys()
    for site, delta in before.items():
        np.testing.assert_allclose(after[site], delta, rtol=1e-5, atol=1e-6 * abs(delta).max())


def test_expanded_experts_are_stored_one_by_one_and_collapse_to_the_same_bytes(
    tmp_path: Path,
) -> None:
    source = write_released_adapter(tmp_path / "in")
    convert(source, "vllm", tmp_path / "expanded", outer=Outer.EXPAND)
    names = read_header(tmp_path / "expanded" / "adapter_model.safetensors").tensors
    assert any(".experts.0.gate_proj." in name for name in names)
    assert not any(".experts.w1." in name for name in names)
    assert formed(tmp_path / "expanded", "vllm").keys() == formed(source, "tinker").keys()
    convert(tmp_path / "expanded", "tinker", tmp_path / "back", outer=Outer.COLLAPSE)
    assert payload(tmp_path / "back") == payload(source)
    assert config_of(tmp_path / "back") == config_of(source)


@pytest.mark.parametrize("target", ["tinker", "sglang"])
def test_expanded_stacks_hold_every_expert(tmp_path: Path, target: str) -> None:
    source = write_released_adapter(tmp_path / "in")
    convert(source, target, tmp_path / "out", outer=Outer.EXPAND)
    tensors = read_header(tmp_path / "out" / "adapter_model.safetensors").tensors
    stacks = [t for t in tensors.values() if ".mlp.experts.w" in t.name]
    assert stacks
    assert {tensor.shape[0] for tensor in stacks} == {TINY.experts}


def test_copies_that_differ_do_not_collapse(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "in", per_expert=True)
    with pytest.raises(InklingError, match=r"the hidden-side factors of `layers.1.* differ"):
        convert(source, "vllm", tmp_path / "out", outer=Outer.COLLAPSE)


@pytest.mark.parametrize("target", ["tinker", "vllm", "sglang", "peft"])
@pytest.mark.parametrize("group", list(Group))
def test_a_dropped_group_is_gone_and_said_everywhere(
    tmp_path: Path, target: str, group: Group
) -> None:
    source = write_released_adapter(tmp_path / "in")
    plan = convert(source, target, tmp_path / "out", dropped=frozenset({group}))
    kept = {s for s in formed(source, "tinker") if group_of(s) is not group}
    assert formed(tmp_path / "out", target).keys() == kept
    config = config_of(tmp_path / "out")
    if target == "peft":
        assert config["exclude_modules"]
        assert DROPPED_KEY not in config
    else:
        assert config[DROPPED_KEY] == [group.value]
    assert any(change.startswith("DROPPED: ") for change in plan.changes)


def test_what_the_adapter_never_held_is_not_called_dropped(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "in", groups=("attention", "dense"))
    convert(source, "vllm", tmp_path / "out", dropped=frozenset(Group) - {Group.ATTENTION})
    assert config_of(tmp_path / "out")[DROPPED_KEY] == ["dense"]


def test_what_was_dropped_before_is_still_told(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "in")
    convert(source, "tinker", tmp_path / "first", dropped=frozenset({Group.SHARED}))
    convert(tmp_path / "first", "vllm", tmp_path / "second", dropped=frozenset({Group.HEAD}))
    assert config_of(tmp_path / "second")[DROPPED_KEY] == ["head", "shared"]
    convert(tmp_path / "second", "peft", tmp_path / "third")
    assert DROPPED_KEY not in config_of(tmp_path / "third")
    assert config_of(tmp_path / "third")["exclude_modules"] == ["lm_head", "mlp.shared_experts"]


def test_what_a_merge_brings_back_is_not_called_dropped(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "in")
    without = tmp_path / "without"
    convert(source, "tinker", without, dropped=frozenset({Group.SHARED, Group.HEAD}))
    only = write_released_adapter(tmp_path / "shared", groups=("shared",))
    parts = gather_parts([read_adapter(without), read_adapter(only)], (1.0, 1.0), None, CONTENTS)
    destination = Destination(require_dialect("vllm"))
    with CoefficientStore() as store:
        merged, _ = plan_sum(parts, None, destination, CONTENTS, store)
        assert merged.config[DROPPED_KEY] == ["head"]


def group_of(site: str) -> Group:
    """Return the group of a site of `read_deltas`."""
    for part, group in (
        (".attn.", Group.ATTENTION),
        (".shared", Group.SHARED),
        (".experts.", Group.ROUTED),
        (".mlp.", Group.DENSE),
    ):
        if part in site:
            return group
    return Group.HEAD


def test_dropping_everything_is_refused(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "in")
    with pytest.raises(InklingError, match="nothing is left of the adapter"):
        convert(source, "vllm", tmp_path / "out", dropped=frozenset(Group))


def test_a_scaling_and_a_dtype_round_once_together(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "in", dtype="F32", rank=4, alpha=3, fill=normal)
    convert(source, "tinker", tmp_path / "out", dtype="BF16", fold_scaling=True)
    name = "language_model.lm_head.lora_B.weight"
    before = load_file(source / "adapter_model.safetensors")[name]
    after = load_file(tmp_path / "out" / "adapter_model.safetensors")[name]
    expected = (before.double() * 0.75).bfloat16()
    assert after.equal(expected)
