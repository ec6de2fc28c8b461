"""What a resized adapter looks like: its rank, forms, scalings, dtypes, and what is refused."""

import json

import numpy as np
import pytest
import torch
from deltas import assert_same_deltas, read_deltas
from resizing import UNIT, assert_best, best_of, distance, resize
from safetensors.torch import load_file

from factories import TINY, normal, write_released_adapter
from inkling_runtime.adapter.resize.target_rank import TargetRank, require_target_rank
from inkling_runtime.errors import InklingError

DENSE = ("mlp.gate", "mlp.up")
W1 = "language_model.layers.1.mlp.experts.w1"
W2 = "language_model.layers.2.mlp.experts.w2"
QUERY = "language_model.layers.1.attn.wq_du"
GATE_UP = "language_model.layers.0.mlp.gate_up_proj"


def tensors_of(folder):
    return load_file(folder / "adapter_model.safetensors")


def shapes_of(folder, module):
    tensors = tensors_of(folder)
    return tuple(tuple(tensors[f"{module}.lora_{letter}.weight"].shape) for letter in "AB")


def write(folder, **options):
    return write_released_adapter(folder, fill=normal, **{"rank": 4} | options)


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "source", dtype="F32")


def reference(source):
    return best_of(read_deltas(source, "tinker", TINY), [DENSE], is_flat=True)


class TestForms:
    def test_what_is_stored_once_stays_stored_once(self, source, tmp_path):
        resize(source, tmp_path / "out", TINY, TargetRank(2))
        assert shapes_of(tmp_path / "out", W1) == ((1, 2, 40), (5, 11, 2))
        assert shapes_of(tmp_path / "out", W2) == ((5, 2, 11), (1, 40, 2))
        assert shapes_of(tmp_path / "out", GATE_UP) == ((2, 40), (72, 2))

    def test_experts_of_their_own_stay_so(self, tmp_path):
        source = write(tmp_path / "source", per_expert=True)
        resize(source, tmp_path / "out", TINY, TargetRank(3))
        assert shapes_of(tmp_path / "out", W1) == ((5, 3, 40), (5, 11, 3))
        assert shapes_of(tmp_path / "out", W2) == ((5, 3, 11), (5, 40, 3))

    @pytest.mark.parametrize("to", ["tinker", "vllm", "sglang", "peft"])
    @pytest.mark.parametrize("per_expert", [False, True])
    def test_every_module_of_any_target_has_the_rank(self, to, per_expert, tmp_path):
        source = write(tmp_path / "source", per_expert=per_expert, dtype="F32")
        plan = resize(source, tmp_path / "out", TINY, TargetRank(2), to=to)
        config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
        assert (config["r"], config.get("rank_pattern") or {}) == (2, {})
        before = read_deltas(source, "tinker", TINY)
        after = read_deltas(tmp_path / "out", to, TINY)
        for module in plan.modules:
            sites = [str(site) for site in module.sites]
            error = np.linalg.norm([distance(after.get(site), before[site]) for site in sites])
            assert error == pytest.approx(np.sqrt(module.lost), rel=1e-4), sites

    def test_names_config_and_metadata_go_on(self, source, tmp_path):
        resize(source, tmp_path / "out", TINY, TargetRank(2))
        assert tensors_of(source).keys() == tensors_of(tmp_path / "out").keys()
        config, before = (
            json.loads((folder / "adapter_config.json").read_text())
            for folder in (tmp_path / "out", source)
        )
        assert config == before | {"r": 2, "lora_alpha": 4}


class TestScaling:
    @pytest.mark.parametrize("use_rslora", [False, True])
    def test_every_module_keeps_its_own(self, use_rslora, tmp_path):
        patterns = {"alpha_pattern": {"w1": 3}, "rank_pattern": {"wq_du": 6}}
        config = {"use_rslora": use_rslora} | patterns

        def wider(tensors):
            rng = np.random.default_rng(9)
            for name, tensor in tensors.items():
                if "wq_du" in name:
                    shape = tuple(6 if size == 4 else size for size in tensor.shape)
                    tensors[name] = normal(shape, "F32", rng)

        source = write(tmp_path / "source", config=config, edit=wider, dtype="F32")
        resize(source, tmp_path / "out", TINY, TargetRank(2))
        before = read_deltas(source, "tinker", TINY)
        after = read_deltas(tmp_path / "out", "tinker", TINY)
        for site, factors in before.items():
            assert after[site].scaling == pytest.approx(factors.scaling, rel=1e-14), site


class TestLargerRanks:
    def test_are_padded_and_exact(self, source, tmp_path):
        plan = resize(source, tmp_path / "out", TINY, TargetRank(9))
        assert shapes_of(tmp_path / "out", W1) == ((1, 9, 40), (5, 11, 9))
        assert all(module.lost == 0 for module in plan.modules)
        found = read_deltas(tmp_path / "out", "tinker", TINY)
        assert_same_deltas(found, read_deltas(source, "tinker", TINY))

    def test_the_same_rank_is_the_same_bytes(self, source, tmp_path):
        resize(source, tmp_path / "out", TINY, TargetRank(4))
        before, after = tensors_of(source), tensors_of(tmp_path / "out")
        assert all(torch.equal(before[name], after[name]) for name in before)


class TestEnergy:
    @pytest.mark.parametrize("energy", [0.5, 0.8, 0.95, 0.999])
    def test_the_smallest_rank_that_keeps_it_in_every_module(self, energy, source, tmp_path):
        plan = resize(source, tmp_path / "out", TINY, TargetRank(energy=energy))
        kept = [
            [1 - one.lost(rank) / one.energy for one in reference(source)]
            for rank in (plan.rank - 1, plan.rank)
        ]
        assert min(kept[1]) >= energy > min(kept[0])
        assert plan.worst.kept == pytest.approx(min(kept[1]), rel=1e-12)
        assert plan.total.kept == pytest.approx(
            1
            - sum(one.lost(plan.rank) for one in reference(source))
            / sum(one.energy for one in reference(source)),
            rel=1e-12,
        )

    def test_all_of_it_is_the_true_rank(self, tmp_path):
        def repeat(tensors):
            for name, tensor in tensors.items():
                axis = tensor.ndim - (2 if ".lora_A." in name else 1)
                half = tensor.narrow(axis, 0, 2)
                tensors[name] = torch.cat([half, half], axis)

        source = write(tmp_path / "source", edit=repeat)
        plan = resize(source, tmp_path / "out", TINY, TargetRank(energy=1.0))
        assert plan.rank == 2
        assert all(module.lost == 0 for module in plan.modules)
        before = read_deltas(source, "tinker", TINY)
        found = read_deltas(tmp_path / "out", "tinker", TINY)
        assert_best(plan, found, before, reference(source), UNIT["BF16"])

    @pytest.mark.parametrize(("energy", "rank"), [(0.9, 1), (0.9 + 1e-9, 2), (1.0, 2)])
    def test_a_share_that_is_met_exactly_is_kept(self, energy, rank, tmp_path):
        def nine_to_one(tensors):
            for name, tensor in tensors.items():
                rows = torch.arange(2)
                values = torch.tensor([3.0, 1.0]) if ".lora_B." in name else torch.ones(2)
                tensor.zero_()[rows, rows] = values.to(tensor.dtype)

        source = write(tmp_path / "source", rank=2, groups={"attention"}, edit=nine_to_one)
        plan = resize(source, tmp_path / "out", TINY, TargetRank(energy=energy))
        assert plan.rank == rank

    def test_is_rounded_up_to_a_rank_that_is_allowed(self, source, tmp_path):
        plan = resize(source, tmp_path / "out", TINY, TargetRank(2, allowed=(1, 3, 8)))
        assert plan.rank == 3
        plan = resize(source, tmp_path / "out2", TINY, TargetRank(energy=1e-6, allowed=(1, 8)))
        assert plan.rank == 1

    def test_above_the_largest_that_is_allowed_is_refused(self, source, tmp_path):
        with pytest.raises(InklingError, match="the rank is 9, the largest that is allowed is 8"):
            resize(source, tmp_path / "out", TINY, TargetRank(9, allowed=(1, 8)))


class TestNumbers:
    def test_deltas_of_zero_stay_zero_and_can_still_be_trained(self, tmp_path):
        def untrained(tensors):
            for name, tensor in tensors.items():
                if ".lora_B." in name:
                    tensor.zero_()

        source = write(tmp_path / "source", edit=untrained)
        plan = resize(source, tmp_path / "out", TINY, TargetRank(2))
        before, after = tensors_of(source), tensors_of(tmp_path / "out")
        for name, tensor in after.items():
            if ".lora_B." in name:
                assert not tensor.any()
            else:
                assert torch.equal(tensor, before[name].narrow(tensor.ndim - 2, 0, 2)), name
        assert all((m.kept, m.relative_error) == (1, 0) for m in plan.modules)

    def test_experts_without_a_delta_beside_those_with_one(self, tmp_path):
        def unused(tensors):
            tensors[f"{W1}.lora_B.weight"][[1, 3]] = 0
            tensors[f"{W2}.lora_B.weight"][[0]] = 0

        source = write(tmp_path / "source", per_expert=True, edit=unused, dtype="F32")
        plan = resize(source, tmp_path / "out", TINY, TargetRank(2))
        before = read_deltas(source, "tinker", TINY)
        found = read_deltas(tmp_path / "out", "tinker", TINY)
        assert_best(plan, found, before, reference(source), UNIT["F32"])
        assert not found["layers.1.mlp.experts.w1"].delta()[[1, 3]].any()

    def test_components_of_very_different_size(self, tmp_path):
        """A small A beside a large B is no small component: the delta alone decides."""

        def unbalance(tensors):
            for name, tensor in tensors.items():
                sizes = torch.tensor([1e12, 1.0, 1e-12, 1e6])
                if ".lora_A." in name:
                    tensors[name] = tensor * sizes[:, None]
                else:
                    tensors[name] = tensor / sizes

        source = write(tmp_path / "source", edit=unbalance, dtype="F32")
        plan = resize(source, tmp_path / "out", TINY, TargetRank(2))
        before = read_deltas(source, "tinker", TINY)
        found = read_deltas(tmp_path / "out", "tinker", TINY)
        assert_best(plan, found, before, reference(source), UNIT["F32"])

    def test_both_factors_share_the_size_of_a_component(self, source, tmp_path):
        resize(source, tmp_path / "out", TINY, TargetRank(2))
        tensors = tensors_of(tmp_path / "out")
        a, b = (tensors[f"{QUERY}.lora_{letter}.weight"].double() for letter in "AB")
        torch.testing.assert_close(a.norm(dim=1), b.norm(dim=0), rtol=1e-6, atol=0)

    def test_a_wider_dtype_is_not_rounded_to_the_old_one_first(self, tmp_path):
        source = write(tmp_path / "source", dtype="BF16")
        plan = resize(source, tmp_path / "out", TINY, TargetRank(2), dtype="F32")
        before = read_deltas(source, "tinker", TINY)
        found = read_deltas(tmp_path / "out", "tinker", TINY)
        assert_best(plan, found, before, reference(source), UNIT["F32"])

    def test_resizing_again_changes_nothing(self, source, tmp_path):
        resize(source, tmp_path / "once", TINY, TargetRank(2))
        plan = resize(tmp_path / "once", tmp_path / "twice", TINY, TargetRank(energy=1.0))
        assert plan.rank == 2
        before, after = tensors_of(tmp_path / "once"), tensors_of(tmp_path / "twice")
        assert all(torch.equal(before[name], after[name]) for name in before)


class TestRefusals:
    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    @pytest.mark.parametrize("letter", "AB")
    def test_numbers_that_are_none(self, value, letter, tmp_path):
        def spoil(tensors):
            tensors[f"{W2}.lora_{letter}.weight"][0, 1, 1] = value

        source = write(tmp_path / "source", edit=spoil)
        message = f"{letter} of `layers.2.mlp.experts.w2` holds NaN or infinity in "
        with pytest.raises(InklingError, match=message):
            resize(source, tmp_path / "out", TINY, TargetRank(2))
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("factor", [1e100, 1e-100])
    def test_energies_that_are_no_numbers(self, factor, tmp_path):
        def wide(shape, dtype, rng):
            return torch.from_numpy(rng.standard_normal(shape) * factor)

        source = write_released_adapter(tmp_path / "source", dtype="F64", fill=wide)
        with pytest.raises(InklingError, match=r"largest singular value of .* between 1e-140 and"):
            resize(source, tmp_path / "out", TINY, TargetRank(energy=0.9))
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            (TargetRank(), "neither is given, expected one"),
            (TargetRank(2, 0.5), "both are given, expected one"),
            (TargetRank(0), "`--rank` is 0, expected a number from 1 to 65,536"),
            (TargetRank(-3), "`--rank` is -3"),
            (TargetRank(1 << 20), "`--rank` is 1048576"),
            (TargetRank(energy=0.0), "`--energy` is 0, expected a share above 0 and at most 1"),
            (TargetRank(energy=1.01), "`--energy` is 1.01"),
            (TargetRank(energy=float("nan")), "`--energy` is nan"),
        ],
    )
    def test_targets_that_are_none(self, target, message):
        with pytest.raises(InklingError) as caught:
            require_target_rank(target)
        assert message in caught.value.message
