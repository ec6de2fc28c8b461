"""Both released models at full size, from headers alone: every name, count and parameter."""

from dataclasses import replace
from pathlib import Path

import pytest
from conversion import plan, spec_of

from factories import (
    INKLING,
    INKLING_SMALL,
    Sizes,
    released_adapter_config,
    released_modules,
    write_sparse_adapter,
)
from inkling_runtime.adapter.adapter import Adapter, read_adapter, require_understood
from inkling_runtime.adapter.coverage import compare, likely_size
from inkling_runtime.adapter.site_pairs import HEADERS_ONLY, gather_pairs
from inkling_runtime.adapter.sites import Group

PUBLISHED = {
    "Inkling": (INKLING, 1438, 154_705_920, 3_424_256, 207_168),
    "Inkling-Small": (INKLING_SMALL, 910, 64_503_808, 1_311_744, 205_120),
}
"""Tensors, and parameters per rank of MLP, attention and head (padded, as the trainer counts)."""


def read_released(folder: Path, sizes: Sizes, rank: int) -> Adapter:
    modules = released_modules(sizes, head_rows="padded")
    return read_adapter(write_sparse_adapter(folder, modules, released_adapter_config(rank, 32)))


def parameters_of(adapter: Adapter, groups: set[Group]) -> int:
    chosen = tuple(m for m in adapter.modules if m.sites[0].kind.group in groups)
    return replace(adapter, modules=chosen).num_parameters


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.parametrize("rank", [1, 32])
def test_the_published_counts_are_those_of_the_released_schema(
    tmp_path: Path, model: str, rank: int
) -> None:
    sizes, num_tensors, mlp, attention, head = PUBLISHED[model]
    adapter = read_released(tmp_path, sizes, rank)
    require_understood(adapter)
    assert len(adapter.file.tensors) == num_tensors
    assert len(adapter.modules) == num_tensors // 2
    assert parameters_of(adapter, {Group.DENSE, Group.ROUTED, Group.SHARED}) == mlp * rank
    assert parameters_of(adapter, {Group.ATTENTION}) == attention * rank
    assert parameters_of(adapter, {Group.HEAD}) == head * rank
    assert adapter.num_parameters == (mlp + attention + head) * rank


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.parametrize("head_rows", ["padded", "unpadded"])
def test_a_released_adapter_covers_every_site_of_its_model(
    tmp_path: Path, model: str, head_rows: str
) -> None:
    sizes = PUBLISHED[model][0]
    modules = released_modules(sizes, head_rows=head_rows)
    source = write_sparse_adapter(tmp_path, modules, released_adapter_config(8, 8))
    spec = spec_of(sizes)
    pairs = gather_pairs(read_adapter(source), spec, HEADERS_ONLY)
    coverage = compare(pairs, spec)
    assert (coverage.missing, coverage.surplus, coverage.misfits) == ((), (), ())
    assert set(coverage.fitting) == set(spec.sites())
    assert likely_size(pairs) == model


def test_planning_a_full_size_conversion_reads_no_payload(tmp_path: Path) -> None:
    modules = released_modules(INKLING_SMALL)
    source = write_sparse_adapter(tmp_path, modules, released_adapter_config(32, 32))
    expected = {"tinker": 910, "vllm": 910, "sglang": 910}
    for target, num_tensors in expected.items():
        conversion = plan(source, target, spec_of(INKLING_SMALL), contents=HEADERS_ONLY)
        assert len(conversion.outputs) == num_tensors
        assert conversion.nbytes == 2 * 32 * (64_503_808 + 1_311_744 + 4096 + 200_058)
    to_peft = plan(source, "peft", spec_of(INKLING_SMALL), contents=HEADERS_ONLY)
    assert len(to_peft.outputs) == 2 * (42 * 5 + 2 * 3 + 40 * (2 + 3) + 1)
    assert 14e9 < to_peft.nbytes < 16e9
    assert to_peft.config["alpha_pattern"] == {"mlp.experts.gate_up_proj": 64}
    assert to_peft.config["rank_pattern"] == {"mlp.experts.gate_up_proj": 64}
