"""What is said of an adapter's numbers is what its formed deltas say, read in windows of any size.

The deltas are those of the independent calculators, and their norms and ranks are taken from
singular values in float64.
"""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from conversion import spec_of
from deltas import read_deltas
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import ADAPTERS, Example

from factories import (
    TINY,
    TORCH_DTYPES,
    released_adapter_config,
    released_modules,
    safetensors_bytes,
    write_json,
    write_released_adapter,
    write_sparse_adapter,
)
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.site_pairs import gather_sound_pairs
from inkling_runtime.adapter.sites import Group, Site, SiteKind
from inkling_runtime.adapter.values import AdapterValues
from inkling_runtime.adapter.values.delta_values import gram
from inkling_runtime.adapter.values.read import read_values
from inkling_runtime.errors import InklingError

QUICK = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
WINDOWS = (1, 300, 1 << 20)
W1_A, W1_B = (f"language_model.layers.2.mlp.experts.w1.lora_{x}.weight" for x in "AB")
WQ_B = "language_model.layers.1.attn.wq_du.lora_B.weight"
Q_SITE = Site(1, SiteKind.Q)


def read(folder: Path, sizes=TINY, dialect=None, **options) -> AdapterValues:
    adapter = read_adapter(folder, dialect)
    pairs, undecodable = gather_sound_pairs(adapter, spec_of(sizes))
    assert undecodable is None
    return read_values(adapter, pairs, **options)


def normal(shape, dtype, rng):
    return torch.from_numpy(rng.normal(0, 0.02, shape)).to(TORCH_DTYPES[dtype])


def effective_rank(matrix: np.ndarray) -> float:
    sigma = np.linalg.svd(matrix, compute_uv=False)
    shares = sigma[sigma > 1e-3 * sigma[0]] / sigma[sigma > 1e-3 * sigma[0]].sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


@pytest.mark.parametrize("dialect", sorted(ADAPTERS))
def test_norms_are_those_of_the_formed_deltas_in_every_dialect(dialect: str) -> None:
    @QUICK
    @given(ADAPTERS[dialect], st.sampled_from(WINDOWS))
    def check(example: Example, window: int) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = example.write(Path(name) / "a")
            expected = read_deltas(folder, dialect, example.sizes)
            found = read(folder, example.sizes, dialect, window_bytes=window)
        assert {str(site) for site in found.sites} == set(expected)
        assert not found.not_computed
        for site, delta in found.sites.items():
            formed = expected[str(site)].delta()
            assert delta.norm == pytest.approx(np.linalg.norm(formed), rel=1e-5)
            if len(delta.expert_norms) > 1:
                norms = np.linalg.norm(formed, axis=(1, 2))
                assert delta.expert_norms == pytest.approx(norms.tolist(), rel=1e-5)

    check()


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("per_expert", [False, True])
def test_effective_ranks_are_those_of_the_formed_deltas(tmp_path, dtype, per_expert):
    folder = write_released_adapter(
        tmp_path / "a", rank=6, dtype=dtype, per_expert=per_expert, fill=normal
    )
    expected = read_deltas(folder, "tinker", TINY)
    for site, delta in read(folder).sites.items():
        formed = expected[str(site)].delta()
        if site.kind.group is Group.SHARED:
            formed = np.concatenate(list(formed), axis=1 if site.kind.is_down else 0)[None]
        wanted = np.median([effective_rank(one) for one in formed])
        assert delta.effective_rank == pytest.approx(wanted, rel=1e-3), site
        assert 1 <= delta.effective_rank <= 6 + 1e-9


def test_a_delta_of_one_direction_has_effective_rank_one(tmp_path):
    def repeat(tensors):
        for name, tensor in tensors.items():
            if name.endswith("lora_A.weight"):
                tensors[name] = tensor[..., :1, :].expand(tensor.shape).contiguous()

    folder = write_released_adapter(tmp_path / "a", rank=4, fill=normal, edit=repeat)
    ranks = [delta.effective_rank for delta in read(folder).sites.values()]
    assert ranks == pytest.approx([1.0] * len(ranks), abs=1e-2)


def test_norms_hold_where_factors_do_not_overlap_the_pieces():
    rng = np.random.default_rng(0)
    for rank, length in ((32, 20_001), (100, 700), (3, 5)):
        a = rng.normal(size=(2, rank, length)).astype(np.float32)
        exact = a.astype(np.float64) @ a.astype(np.float64).transpose(0, 2, 1)
        for raw, is_a in ((a, True), (np.ascontiguousarray(a.transpose(0, 2, 1)), False)):
            found = gram(raw.view(np.uint32), "F32", is_a, 5.0)
            assert np.abs(found - exact).max() < 1e-5 * np.abs(exact).max()


@pytest.mark.parametrize("magnitude", [1e-30, 1e30])
def test_norms_hold_for_numbers_whose_squares_leave_float32(tmp_path, magnitude):
    def edit(tensors):
        tensors[WQ_B] = torch.full_like(tensors[WQ_B], magnitude)

    folder = write_released_adapter(tmp_path / "a", dtype="F32", fill=normal, edit=edit)
    formed = read_deltas(folder, "tinker", TINY)[str(Q_SITE)].delta()
    delta = read(folder).sites[Q_SITE]
    assert delta.norm == pytest.approx(np.linalg.norm(formed), rel=1e-5)
    assert not delta.is_zero


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_every_nan_and_inf_is_counted(tmp_path, dtype, window):
    def edit(tensors):
        flat = tensors[W1_B].view(-1)
        flat[3] = flat[20] = float("nan")
        flat[-1], flat[7] = float("inf"), -float("inf")
        flat[0] = 2.0**14

    folder = write_released_adapter(tmp_path / "a", dtype=dtype, fill=normal, edit=edit)
    values = read(folder, window_bytes=window)
    bad = {name: t for name, t in values.tensors.items() if not t.is_finite}
    assert list(bad) == [W1_B]
    assert (bad[W1_B].num_nan, bad[W1_B].num_inf, bad[W1_B].largest) == (2, 2, 2.0**14)
    assert values.not_finite == (Site(2, SiteKind.ROUTED_GATE),)
    assert not set(values.not_finite) & set(values.sites)


def test_zero_is_told_from_small(tmp_path):
    def edit(tensors):
        tensors[WQ_B].zero_()
        tensors[W1_B][1].zero_()
        tensors[W1_B][2] *= 1e-20

    folder = write_released_adapter(tmp_path / "a", dtype="F32", fill=normal, edit=edit)
    values = read(folder)
    assert values.tensors[WQ_B].is_zero
    assert values.sites[Q_SITE].is_zero
    assert values.sites[Q_SITE].effective_rank is None
    experts = values.sites[Site(2, SiteKind.ROUTED_GATE)]
    assert experts.num_zero == 1
    assert [norm == 0 for norm in experts.expert_norms] == [False, True, False, False, False]


def test_zeros_of_both_signs_are_zero(tmp_path):
    def edit(tensors):
        tensors[WQ_B] = -torch.zeros_like(tensors[WQ_B])

    values = read(write_released_adapter(tmp_path / "a", edit=edit))
    assert values.tensors[WQ_B].is_zero


@pytest.mark.parametrize("window", WINDOWS)
def test_constant_tensors_are_told(tmp_path, window):
    def edit(tensors):
        tensors[WQ_B] = torch.full_like(tensors[WQ_B], 0.5)

    values = read(write_released_adapter(tmp_path / "a", fill=normal, edit=edit))
    assert [name for name, t in values.tensors.items() if t.is_constant] == [WQ_B]


def test_f32_that_is_exactly_bf16_is_told(tmp_path):
    def edit(tensors):
        for name in (WQ_B, W1_A):
            tensors[name] = tensors[name].bfloat16().float()

    values = read(write_released_adapter(tmp_path / "a", dtype="F32", fill=normal, edit=edit))
    assert {name for name, t in values.tensors.items() if t.is_exactly_bf16} == {WQ_B, W1_A}


def test_shares_and_layers_add_up(tmp_path):
    values = read(write_released_adapter(tmp_path / "a", fill=normal))
    assert sum(values.group_shares().values()) == pytest.approx(1)
    layers = values.layer_norms()
    assert sorted(layers) == [-1, 0, 1, 2, 3]
    assert sum(norm**2 for norm in layers.values()) == pytest.approx(values.norm**2)


def test_every_byte_is_read_once(tmp_path):
    folder = write_released_adapter(tmp_path / "a")
    adapter, steps = read_adapter(folder), []
    values = read(folder, progress=steps.append, window_bytes=100)
    assert sum(steps) == values.bytes_read == sum(t.nbytes for t in adapter.file.tensors.values())
    assert list(values.tensors) == list(adapter.file.tensors)


def test_what_is_no_float_is_said_to_be_not_read(tmp_path):
    def edit(tensors):
        tensors["extra"] = torch.arange(5, dtype=torch.int32)

    values = read(write_released_adapter(tmp_path / "a", edit=edit))
    assert list(values.not_read) == ["extra"]
    assert "I32" in values.not_read["extra"]
    assert "extra" not in values.tensors


def test_a_rank_beyond_the_limit_has_no_norm_but_is_read(tmp_path):
    modules = [m for m in released_modules(TINY, ["head"]) if "lm_head" in m.name]
    folder = write_sparse_adapter(tmp_path / "a", modules, released_adapter_config(rank=1025))
    values = read(folder)
    assert not values.sites
    assert "1025" in next(iter(values.not_computed.values()))
    assert all(tensor.is_zero for tensor in values.tensors.values())


def test_numbers_too_large_to_be_squared_have_no_norm(tmp_path):
    a, b = np.full((2, TINY.hidden), 1e200), np.full((TINY.query, 2), 1.5)
    name = "language_model.layers.1.attn.wq_du.lora_{}.weight"
    header = {
        name.format("A"): {"dtype": "F64", "shape": a.shape, "data_offsets": [0, a.nbytes]},
        name.format("B"): {
            "dtype": "F64",
            "shape": b.shape,
            "data_offsets": [a.nbytes, a.nbytes + b.nbytes],
        },
    }
    write_json(tmp_path / "adapter_config.json", released_adapter_config())
    data = safetensors_bytes(header, a.tobytes() + b.tobytes())
    (tmp_path / "adapter_model.safetensors").write_bytes(data)
    values = read(tmp_path)
    assert list(values.not_computed) == [Q_SITE]
    assert not values.sites


@pytest.mark.parametrize("change", ["cut", "longer"])
def test_a_file_that_is_no_longer_as_its_header_said_is_an_error(tmp_path, change):
    folder = write_released_adapter(tmp_path / "a")
    adapter = read_adapter(folder)
    pairs, _ = gather_sound_pairs(adapter, spec_of(TINY))
    with adapter.file.path.open("r+b") as file:
        file.truncate(adapter.file.file_size + (-5 if change == "cut" else 5))
    with pytest.raises(InklingError, match="changed while it was read"):
        read_values(adapter, pairs)


def test_a_file_that_is_written_while_it_is_read_is_an_error(tmp_path):
    folder = write_released_adapter(tmp_path / "a")
    adapter = read_adapter(folder)
    pairs, _ = gather_sound_pairs(adapter, spec_of(TINY))

    def cut(_: int) -> None:
        with adapter.file.path.open("r+b") as file:
            file.truncate(adapter.file.file_size // 2)

    with pytest.raises(InklingError, match=r"changed while it was read|ended inside"):
        read_values(adapter, pairs, cut, window_bytes=64)


def test_the_answer_does_not_depend_on_the_windows(tmp_path):
    folder = write_released_adapter(tmp_path / "a", rank=3, fill=normal)
    first, *others = (read(folder, window_bytes=window) for window in WINDOWS)
    for other in others:
        assert other.tensors == first.tensors
        assert list(other.sites) == list(first.sites)
        for site, delta in other.sites.items():
            assert delta.norm == pytest.approx(first.sites[site].norm, rel=1e-5)


def test_factors_may_lie_in_any_order_in_the_file(tmp_path):
    def widen_b(tensors):
        for name in tensors:
            if name.endswith("lora_B.weight"):
                tensors[name] = tensors[name].float()

    folder = write_released_adapter(tmp_path / "a", fill=normal, edit=widen_b)
    first = min(read_adapter(folder).file.tensors.values(), key=lambda tensor: tensor.start)
    assert first.name.endswith("lora_B.weight")
    expected = read_deltas(folder, "tinker", TINY)
    values = read(folder)
    assert {str(site) for site in values.sites} == set(expected)
    for site, delta in values.sites.items():
        assert delta.norm == pytest.approx(np.linalg.norm(expected[str(site)].delta()), rel=1e-5)


def test_an_unsound_module_is_said_to_have_no_norm(tmp_path):
    def edit(tensors):
        del tensors[WQ_B]

    values = read(write_released_adapter(tmp_path / "a", edit=edit))
    assert list(values.not_computed) == [Q_SITE]
