"""What a merged adapter looks like: ranks, forms, dtypes, scalings, and what is refused."""

import json

import numpy as np
import pytest
import torch
from combining import SPEC, merge, sum_of
from deltas import read_deltas
from resizing import Best
from safetensors.torch import load_file

from factories import TINY, Sizes, normal, write_released_adapter
from inkling_runtime.adapter.resize.target_rank import TargetRank
from inkling_runtime.errors import InklingError

W1 = "language_model.layers.1.mlp.experts.w1"
W2 = "language_model.layers.2.mlp.experts.w2"
QUERY = "language_model.layers.1.attn.wq_du"
HEAD = "language_model.lm_head"


def write(folder, seed=0, **options):
    return write_released_adapter(folder, fill=normal, rng=np.random.default_rng(seed), **options)


def merged(folder, *sources, weights=None, to="tinker", **options):
    """Merge into `folder`/out; return the plan, the result's deltas and the sum that is wanted."""
    weights = weights or [1.0] * len(sources)
    plan, resize = merge(sources, weights, folder / "out", to=to, **options)
    found = read_deltas(folder / "out", to, TINY)
    expected = sum_of([read_deltas(source, "tinker", TINY) for source in sources], weights)
    return plan, resize, found, expected


def assert_exact(found, expected):
    """Assert the same numbers but for the order of summation in float64."""
    assert found.keys() == expected.keys()
    for site, wanted in expected.items():
        np.testing.assert_allclose(found[site].delta(), wanted, rtol=0, atol=1e-12, err_msg=site)


def tensor(folder, name):
    return load_file(folder / "out" / "adapter_model.safetensors")[name]


def shapes(folder, module):
    return tuple(tuple(tensor(folder, f"{module}.lora_{x}.weight").shape) for x in "AB")


class TestForms:
    def test_ranks_add_up_and_what_is_shared_stays_shared(self, tmp_path):
        sources = write(tmp_path / "a"), write(tmp_path / "b", 1, rank=3, alpha=12)
        _, _, found, expected = merged(tmp_path, *sources)
        assert shapes(tmp_path, W1) == ((1, 5, 40), (5, 11, 5))
        assert shapes(tmp_path, W2) == ((5, 5, 11), (1, 40, 5))
        assert_exact(found, expected)

    def test_shared_with_per_expert_is_per_expert(self, tmp_path):
        sources = write(tmp_path / "a"), write(tmp_path / "b", 1, per_expert=True)
        plan, _, found, expected = merged(tmp_path, *sources)
        assert shapes(tmp_path, W1) == ((5, 4, 40), (5, 11, 4))
        assert shapes(tmp_path, W2) == ((5, 4, 11), (5, 40, 4))
        assert_exact(found, expected)
        assert any("stored for each expert in 9 modules" in change for change in plan.changes)

    def test_gate_and_up_stay_over_one_a(self, tmp_path):
        sources = write(tmp_path / "a"), write(tmp_path / "b", 1)
        merged(tmp_path, *sources)
        assert shapes(tmp_path, "language_model.layers.0.mlp.gate_up_proj") == ((4, 40), (72, 4))

    def test_the_factors_are_the_sources_side_by_side(self, tmp_path):
        sources = write(tmp_path / "a"), write(tmp_path / "b", 1)
        merged(tmp_path, *sources)
        for letter, axis in (("A", 0), ("B", 1)):
            name = f"{QUERY}.lora_{letter}.weight"
            parts = [load_file(s / "adapter_model.safetensors")[name] for s in sources]
            assert torch.equal(tensor(tmp_path, name), torch.cat(parts, axis))

    def test_what_one_lacks_has_the_rank_of_the_other(self, tmp_path):
        sources = (
            write(tmp_path / "a", groups=("attention",)),
            write(tmp_path / "b", 1, rank=3, alpha=12),
        )
        plan, _, found, expected = merged(tmp_path, *sources)
        assert shapes(tmp_path, QUERY) == ((5, 40), (48, 5))
        assert shapes(tmp_path, W1) == ((1, 3, 40), (5, 11, 3))
        assert_exact(found, expected)
        assert any("22 of all are not in it" in change for change in plan.changes)

    @pytest.mark.parametrize("first", ["padded", "unpadded"])
    def test_heads_of_both_vocabularies(self, first, tmp_path):
        second = {"padded": "unpadded", "unpadded": "padded"}[first]
        sources = write(tmp_path / "a", head_rows=first), write(tmp_path / "b", 1, head_rows=second)
        _, _, found, expected = merged(tmp_path, *sources)
        assert shapes(tmp_path, HEAD) == ((4, 40), (64, 4))
        assert_exact(found, expected)


class TestWeights:
    def test_powers_of_two_are_exact(self, tmp_path):
        sources = [write(tmp_path / name, seed) for seed, name in enumerate("abc")]
        plan, _, found, expected = merged(tmp_path, *sources, weights=[0.5, -4.0, 1.0])
        assert_exact(found, expected)
        assert not any("rounded" in change for change in plan.changes)

    def test_equal_products_of_weight_and_scaling_are_exact(self, tmp_path):
        sources = write(tmp_path / "a", alpha=6), write(tmp_path / "b", 1, alpha=2)
        plan, _, found, expected = merged(tmp_path, *sources, weights=[0.1, 0.3])
        assert_exact(found, expected)
        assert not any("rounded" in change for change in plan.changes)

    def test_most_are_exact_where_one_is_not(self, tmp_path):
        sources = [write(tmp_path / name, seed) for seed, name in enumerate("abc")]
        plan, _, _, _ = merged(tmp_path, *sources, weights=[1.0, 0.7, 1.4])
        scaled = tensor(tmp_path, f"{QUERY}.lora_B.weight")
        for seed in (1, 2):
            own = load_file(sources[seed] / "adapter_model.safetensors")[f"{QUERY}.lora_B.weight"]
            ratio = scaled[:, 2 * seed : 2 * seed + 2].double() / own.double()
            assert ratio.unique().tolist() == [float(seed)]
        assert any("B is rounded in 42 modules" in change for change in plan.changes)

    def test_an_adapter_less_itself_is_nothing(self, tmp_path):
        source = write(tmp_path / "a")
        _, _, found, _ = merged(tmp_path, source, source, weights=[1.0, -1.0])
        assert not any(factors.delta().any() for factors in found.values())

    def test_one_adapter_is_scaled(self, tmp_path):
        source = write(tmp_path / "a")
        _, _, found, expected = merged(tmp_path, source, weights=[-0.25])
        assert_exact(found, expected)
        assert json.loads((tmp_path / "out" / "adapter_config.json").read_text())["lora_alpha"] == 2


class TestDtypes:
    @pytest.mark.parametrize(
        ("first", "second", "result"),
        [("BF16", "F32", "F32"), ("BF16", "F16", "F32"), ("F16", "F16", "F16")],
    )
    def test_the_narrowest_that_holds_both(self, first, second, result, tmp_path):
        sources = write(tmp_path / "a", dtype=first), write(tmp_path / "b", 1, dtype=second)
        plan, _, found, expected = merged(tmp_path, *sources)
        assert {output.spec.dtype for output in plan.outputs} == {result}
        assert_exact(found, expected)
        is_said = any(f"→ {result} in all factors" in change for change in plan.changes)
        assert is_said == (first != second)


class TestResized:
    @pytest.mark.parametrize("weights", [[1.0, 1.0], [0.7, -0.3]])
    def test_the_sum_is_approximated_as_well_as_can_be(self, weights, tmp_path):
        sources = write(tmp_path / "a", dtype="F32"), write(tmp_path / "b", 1, dtype="F32")
        _, resize, found, expected = merged(
            tmp_path, *sources, weights=weights, target=TargetRank(3)
        )
        for module in resize.modules:
            if module.sites[0].kind.has_experts or len(module.sites) > 1:
                continue
            (site,) = map(str, module.sites)
            (delta,) = expected[site]
            best = Best((site,), (np.linalg.svd(delta, compute_uv=False),))
            error = np.linalg.norm(found[site].delta() - delta)
            assert error == pytest.approx(np.sqrt(best.lost(3)), rel=1e-5), site
            assert module.lost == pytest.approx(best.lost(3), rel=1e-9), site
        assert shapes(tmp_path, W1) == ((1, 3, 40), (5, 11, 3))

    def test_the_dtype_is_the_sources(self, tmp_path):
        sources = write(tmp_path / "a"), write(tmp_path / "b", 1)
        plan, _, _, _ = merged(tmp_path, *sources, weights=[1, 0.3], target=TargetRank(3))
        assert {output.spec.dtype for output in plan.outputs} == {"BF16"}


class TestConfigs:
    def test_the_first_goes_on_and_another_base_is_said(self, tmp_path):
        sources = (
            write(tmp_path / "a", config={"revision": "main"}),
            write(tmp_path / "b", 1, config={"base_model_name_or_path": "other"}),
        )
        plan, _, _, _ = merged(tmp_path, *sources)
        assert (plan.config["base_model_name_or_path"], plan.config["revision"]) == ("tiny", "main")
        (said,) = [change for change in plan.changes if "base_model_name_or_path" in change]
        assert "is `tiny` in" in said
        assert "and `other` in" in said


class TestRefusals:
    @pytest.mark.parametrize("spec", [SPEC, None])
    def test_models_of_other_sizes(self, spec, tmp_path):
        sources = write(tmp_path / "a"), write(tmp_path / "b", sizes=Sizes(hidden=32))
        with pytest.raises(InklingError, match="features"):
            merge(sources, [1, 1], tmp_path / "out", to="tinker", spec=spec)

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([1.0], "`--weights` has 1 number for 2 adapters, expected one for each"),
            ([1.0, 0.0], "`--weights` has 0, expected finite numbers other than 0"),
            ([float("nan"), 1.0], "`--weights` has nan"),
        ],
    )
    def test_weights_that_are_none(self, weights, message, tmp_path):
        sources = write(tmp_path / "a"), write(tmp_path / "b")
        with pytest.raises(InklingError) as caught:
            merge(sources, weights, tmp_path / "out", to="tinker")
        assert message in caught.value.message

    def test_more_than_plain_lora(self, tmp_path):
        sources = write(tmp_path / "a"), write(tmp_path / "b", config={"use_dora": True})
        with pytest.raises(InklingError, match="use_dora True") as caught:
            merge(sources, [1, 1], tmp_path / "out", to="tinker")
        assert caught.value.hint == "only plain LoRA adapters can be merged"
