"""A resized adapter is the best approximation that its rank allows, and says how good that is."""

import tempfile
from pathlib import Path

import forms
import pytest
from deltas import read_deltas
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from resizing import UNIT, assert_best, best_of, resize
from strategies import ADAPTERS, Example

from factories import TINY, normal, write_adapter, write_released_adapter
from inkling_runtime.adapter.resize.target_rank import TargetRank

DENSE = ("mlp.gate", "mlp.up")
ROUTED = ("mlp.experts.w1", "mlp.experts.w3")
SHARED = ("mlp.shared_experts.w1", "mlp.shared_experts.w3")
FUSED = {"tinker": [DENSE], "vllm": [DENSE], "sglang": [DENSE], "peft": [ROUTED]}
"""What each dialect writes over one A."""
WRITTEN_AS = {"raw": "tinker", "peft-0.18": "peft", "peft-unsloth": "peft"}

QUICK = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def fused_of(example: Example) -> list[tuple[str, str]]:
    """Return the gates and ups over one A: as the source has them, or the result needs them."""
    names = [module.name for module in example.modules]
    found = list(FUSED[WRITTEN_AS.get(example.dialect, example.dialect)])
    for pair, ends in (
        (ROUTED, ("experts.gate_up_proj", "experts.w13")),
        (SHARED, ("shared_w13",)),
    ):
        if any(name.removesuffix("_weight").endswith(ends) for name in names):
            found.append(pair)
    return found


@pytest.mark.parametrize("dialect", ADAPTERS)
def test_no_approximation_of_the_rank_is_nearer(dialect):
    written = WRITTEN_AS.get(dialect, dialect)

    @QUICK
    @given(ADAPTERS[dialect], st.integers(1, 4))
    def check(example: Example, rank: int) -> None:
        with tempfile.TemporaryDirectory() as name:
            source, out = example.write(Path(name) / "source"), Path(name) / "out"
            plan = resize(source, out, example.sizes, TargetRank(rank), dialect=dialect)
            before = read_deltas(source, dialect, example.sizes)
            after = read_deltas(out, written, example.sizes)
            is_flat = written in ("tinker", "vllm")
            best = best_of(before, fused_of(example), is_flat=is_flat)
            assert plan.rank == rank
            assert_best(plan, after, before, best, UNIT[example.dtype])

    check()


@pytest.mark.parametrize(
    ("target", "per_expert"), [("tinker", False), ("peft", False), ("peft", True)]
)
def test_gate_and_up_of_other_scalings_come_over_one_basis(target, per_expert, tmp_path):
    """What the target fuses may have two scalings in the source."""
    alphas = {".*gate_proj": 2, ".*up_proj": 7, ".*w1": 3, ".*w3": 11}
    source = write_source(tmp_path / "source", target, per_expert, alphas)
    origin = "peft" if target == "tinker" else "tinker"
    before = read_deltas(source, origin, TINY)
    gate, up = FUSED[target][0]
    scalings = {before[site].scaling for site in before for end in (gate, up) if site.endswith(end)}
    assert len(scalings) == 2
    plan = resize(source, tmp_path / "out", TINY, TargetRank(3), to=target, dialect=origin)
    after = read_deltas(tmp_path / "out", target, TINY)
    best = best_of(before, FUSED[target], is_flat=target == "tinker")
    assert_best(plan, after, before, best, UNIT["F32"])


def write_source(folder, target, per_expert, alphas):
    if target == "peft":
        changes = {"config": {"alpha_pattern": alphas}, "groups": {"routed"}}
        changes["per_expert"] = per_expert
        return write_released_adapter(folder, rank=4, dtype="F32", fill=normal, **changes)
    modules = forms.peft_modules(TINY, {"dense", "attention"})
    config = forms.peft_config(modules, 4, 8, alpha_pattern=alphas)
    return write_adapter(folder, modules, config, dtype="F32", fill=normal)
