"""Widths against the base model, layer by layer, and factors whose sides are swapped."""

import pytest
import torch

from checks.adapter_cases import SPEC, W1, convert, find, replace_with
from factories import (
    INKLING,
    INKLING_SMALL,
    TINY,
    raw_config,
    released_adapter_config,
    released_modules,
    write_released_adapter,
    write_sparse_adapter,
)
from inkling_cli.checks.adapter import Consumer
from inkling_runtime.adapter.model_spec import parse_model_spec

H, E, S, INNER = TINY.hidden, TINY.experts, TINY.shared, TINY.inner
L0, L1 = "language_model.layers.0", "language_model.layers.1"
ATTENTION, SHARED = ["attention"], ["shared"]


def only(folder, spec=SPEC):
    (finding,) = find(folder, Consumer.NATIVE, spec=spec)
    return finding


def with_factor(folder, name, *shape, **kwargs):
    return write_released_adapter(folder, edit=replace_with(name, torch.ones(*shape)), **kwargs)


@pytest.mark.parametrize(
    ("layer", "rows", "told"),
    [
        (1, TINY.key(0), "B gives 24 features, the base model takes 12 (layer 1 is global: 1 K/V "),
        (0, TINY.key(1), "B gives 12 features, the base model takes 24 (layer 0 is sliding: 2 K/V"),
    ],
)
def test_heads_of_the_other_kind_of_layer_are_told(tmp_path, layer, rows, told):
    name = f"language_model.layers.{layer}.attn.wk_dv.lora_B.weight"
    finding = only(with_factor(tmp_path / "a", name, rows, 2))
    assert finding.code == "ADP007"
    assert told in finding.message


def test_a_wrong_number_of_routed_experts_is_told(tmp_path):
    name = f"{W1}.lora_B.weight"
    finding = only(with_factor(tmp_path / "a", name, E - 1, INNER, 2))
    assert finding.code == "ADP007"
    assert f"it holds {E - 1} experts, the base model has {E}" in finding.message


def test_a_wrong_number_of_shared_experts_is_told(tmp_path):
    name = f"{L1}.mlp.shared_experts.w1.lora_B.weight"
    finding = only(with_factor(tmp_path / "a", name, (S - 1) * INNER, 2, groups=SHARED))
    assert f"the base model takes {S * INNER} ({S} experts of {INNER} side by side)" in (
        finding.message
    )


@pytest.mark.parametrize("rows", [TINY.unpadded - 1, TINY.unpadded + 1, TINY.vocab + 1])
def test_other_rows_of_the_head_than_the_two_vocabularies_are_told_with_both(tmp_path, rows):
    name = "language_model.lm_head.lora_B.weight"
    finding = only(with_factor(tmp_path / "a", name, rows, 2))
    assert f"B gives {rows} features, the base model takes 60 or 64" in finding.message


@pytest.mark.parametrize("sizes", [INKLING, INKLING_SMALL], ids=["Inkling", "Inkling-Small"])
@pytest.mark.parametrize(("rows", "codes"), [(200_058, []), (201_024, []), (200_000, ["ADP007"])])
def test_the_released_vocabularies_are_those_that_fit(tmp_path, sizes, rows, codes):
    (head,) = released_modules(sizes, ["head"])
    from dataclasses import replace

    module = replace(head, out_features=rows)
    folder = write_sparse_adapter(tmp_path / "a", [module], released_adapter_config(rank=1))
    found = find(folder, Consumer.NATIVE, spec=parse_model_spec(raw_config(sizes)))
    assert [finding.code for finding in found] == codes


@pytest.mark.parametrize(
    ("sizes", "base", "named"),
    [(INKLING, INKLING_SMALL, "Inkling"), (INKLING_SMALL, INKLING, "Inkling-Small")],
)
def test_an_adapter_of_another_released_size_is_named(tmp_path, sizes, base, named):
    folder = write_sparse_adapter(
        tmp_path / "a", released_modules(sizes), released_adapter_config(rank=1)
    )
    found = find(folder, Consumer.NATIVE, spec=parse_model_spec(raw_config(base)))
    (misfit,) = (finding for finding in found if finding.code == "ADP007")
    assert misfit.message.startswith(
        f"`layers.0.attn.wk_dv`: A takes {sizes.hidden} features, "
        f"the base model gives {base.hidden} (and "
    )
    assert {finding.help for finding in found if finding.code in ("ADP006", "ADP007")} == {
        f"the adapter's widths are those of {named}"
    }


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (f"{L1}.attn.wq_du.lora_A.weight", (H, 2)),
        (f"{L1}.attn.wq_du.lora_B.weight", (2, TINY.query)),
        (f"{W1}.lora_A.weight", (1, H, 2)),
        (f"{W1}.lora_B.weight", (E, 2, INNER)),
    ],
)
def test_a_transposed_factor_is_told_with_both_shapes(tmp_path, name, shape):
    finding = only(with_factor(tmp_path / "a", name, *shape))
    assert finding.code == "ADP018"
    swapped = [*shape[:-2], shape[-1], shape[-2]]
    assert f"{list(shape)}, expected {swapped}" in finding.message


def test_an_adapter_that_is_transposed_throughout_is_told_once(tmp_path):
    def transpose(tensors):
        for name in tensors:
            tensors[name] = tensors[name].transpose(-1, -2).contiguous()

    folder = write_released_adapter(tmp_path / "a", groups=ATTENTION, edit=transpose)
    finding = only(folder)
    assert finding.code == "ADP018"
    assert finding.message.endswith("the last two sizes are swapped (and 19 more modules)")


def test_another_rank_is_not_called_transposed(tmp_path):
    name = f"{L1}.attn.wq_du.lora_A.weight"
    assert only(with_factor(tmp_path / "a", name, 3, H)).code == "ADP003"


def test_packed_experts_with_in_and_out_exchanged_are_told(tmp_path):
    released = write_released_adapter(tmp_path / "a", groups=["routed"], layers=[1])
    folder = convert(released, "peft", tmp_path / "b")
    from safetensors.torch import load_file, save_file

    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    stem = "base_model.model.model.language_model.layers.1.mlp.experts"
    a, b = (tensors[f"{stem}.lora_{factor}.weight"] for factor in "AB")
    tensors[f"{stem}.lora_A.weight"] = torch.ones(a.shape[0], b.shape[0])
    tensors[f"{stem}.lora_B.weight"] = torch.ones(a.shape[1], b.shape[1])
    save_file(tensors, file)
    finding = only(folder)
    assert finding.code == "ADP007"
    assert "its sides in and out are swapped" in finding.message
