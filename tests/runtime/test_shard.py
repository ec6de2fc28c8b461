"""The parts of all ranks are the whole model, and the whole adapter."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from nvfp4_files import write_nvfp4
from op_cases import CPU, assert_close, pair, randn
from tiny_models import TEXT, make_multimodal_model, make_text_model, save
from torch import Tensor

from inkling_runtime.adapter.model_spec import ModelSpec, parse_model_spec, read_model_spec
from inkling_runtime.adapter.sites import Group, Site, SiteKind
from inkling_runtime.errors import InklingError
from inkling_runtime.model.boxes import Part, cut, whole
from inkling_runtime.model.checkpoint import load_checkpoint
from inkling_runtime.model.parameters import dimensions, layer_parameters, parse_shape
from inkling_runtime.model.shard import Shard, require_shardable
from inkling_runtime.ops.nvfp4 import Nvfp4Weight

SIZES: dict[int, dict[str, Any]] = {
    2: {"swa_num_key_value_heads": 2},
    3: {
        "num_attention_heads": 6,
        "num_key_value_heads": 1,
        "intermediate_size": 57,
        "moe_intermediate_size": 21,
        "n_routed_experts": 9,
    },
    4: {
        "num_attention_heads": 8,
        "swa_num_attention_heads": 12,
        "swa_num_key_value_heads": 4,
        "n_routed_experts": 8,
    },
}
"""Changes of the tiny model that let it be cut for a number of ranks: with 3 the key head of
global layers is held by all, with 4 each of two is held by two; a rank of 3 begins within a shared
expert, and a rank of 4 holds half of one."""
RANKS = pytest.mark.parametrize("size", SIZES)
EXPERT_PARALLEL = pytest.mark.parametrize(
    ("size", "expert_parallel"), [(2, False), (3, False), (4, False), (3, True), (4, True)]
)


def spec_of(size: int) -> ModelSpec:
    return parse_model_spec({"model_type": "inkling_text", **TEXT, **SIZES[size]})


def shards(size: int, expert_parallel: bool = False) -> list[Shard]:
    return [Shard(rank, size, expert_parallel) for rank in range(size)]


def slices(starts: tuple[int, ...], stops: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(map(slice, starts, stops))


def put_together(parts: list[Part], values: list[Tensor], shape: tuple[int, ...]) -> Tensor:
    """Return the whole that the values of several parts are of; nan where none is."""
    result = torch.full(shape, float("nan"))
    for part, held in zip(parts, values, strict=True):
        assert held.shape == part.shape
        for box in part.boxes:
            ends = (low + b - a for low, a, b in zip(box.local, box.starts, box.stops, strict=True))
            local = held[slices(box.local, tuple(ends))].float()
            before = result[slices(box.starts, box.stops)]
            assert bool((before.isnan() | (before == local)).all()), "ranks hold other numbers"
            result[slices(box.starts, box.stops)] = local
    return result


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, str], Path]:
    """Every size in both layouts."""
    made = {}
    for size, changes in SIZES.items():
        raw, text = make_multimodal_model(**changes), make_text_model(**changes)
        made[size, "raw"] = save(raw, tmp_path_factory.mktemp(f"raw-{size}"))
        made[size, "transformers"] = save(text, tmp_path_factory.mktemp(f"text-{size}"))
    return made


@pytest.mark.parametrize("layout", ["raw", "transformers"])
@EXPERT_PARALLEL
def test_the_parts_of_all_ranks_are_the_whole_checkpoint(
    folders: dict[tuple[int, str], Path], layout: str, size: int, expert_parallel: bool
) -> None:
    folder = folders[size, layout]
    spec = read_model_spec(folder)
    full = load_checkpoint(folder, spec, CPU, torch.float32).weights
    ranks = shards(size, expert_parallel)
    held = [load_checkpoint(folder, spec, CPU, torch.float32, rank).weights for rank in ranks]
    for name, want in full.items():
        prefix, index, rest = name.split(".", 2) if "layers." in name else ("", "", name)
        letters = dimensions(spec, spec.layers[int(index)] if prefix else None)
        parts = [rank.part_of(rest, tuple(want.shape), letters) for rank in ranks]
        got = put_together(parts, [weights[name] for weights in held], tuple(want.shape))
        assert torch.equal(got, want), name


@EXPERT_PARALLEL
def test_ranks_hold_as_much_each_but_for_the_vocabulary(size: int, expert_parallel: bool) -> None:
    spec = spec_of(size)
    for layer in spec.layers:
        letters = dimensions(spec, layer)
        for name, parameter in layer_parameters(layer).items():
            shape = parse_shape(parameter.shape, letters)
            parts = [s.part_of(name, shape, letters) for s in shards(size, expert_parallel)]
            assert len({part.shape for part in parts}) == 1, name
    head = parse_shape("V H", dimensions(spec))
    rows = [s.part_of("head", head, dimensions(spec)).shape[0] for s in shards(size)]
    assert sum(rows) == 61
    assert rows[:-1] == [max(rows)] * (size - 1)


def test_what_is_cut_is_small_and_the_rest_is_whole() -> None:
    spec = spec_of(4)
    whole_ones = set()
    for layer in spec.layers[1:3]:
        letters = dimensions(spec, layer)
        for name, parameter in layer_parameters(layer).items():
            shape = parse_shape(parameter.shape, letters)
            if Shard(1, 4).part_of(name, shape, letters) == whole(shape):
                whole_ones.add(name)
    assert whole_ones == {
        *("attn_norm", "attn.q_norm", "attn.k_norm", "attn.profiles", "attn_conv", "mlp_norm"),
        *("mlp_conv", "mlp.global_scale", "mlp.gate.weight", "mlp.gate.bias"),
        "mlp.gate.global_scale",
    }


@RANKS
def test_query_heads_find_their_key_heads_on_the_same_rank(size: int) -> None:
    spec = spec_of(size)
    for layer, rank in itertools.product(spec.layers, range(size)):
        letters = dimensions(spec, layer)
        shape = parse_shape("Q+K+K+R H", letters)
        boxes = Shard(rank, size).part_of("attn.wqkvr", shape, letters).boxes
        local = Shard(rank, size).local_layer(layer)
        q, k, v, r = (
            range(box.starts[0] - begin, box.stops[0] - begin)
            for box, begin in zip(
                boxes,
                itertools.accumulate([0, letters["Q"], letters["K"], letters["K"]]),
                strict=True,
            )
        )
        assert k == v
        heads = [row // layer.head_dim for row in q[:: layer.head_dim]]
        assert heads == [row // spec.d_rel for row in r[:: spec.d_rel]]
        key_heads = [row // layer.head_dim for row in k[:: layer.head_dim]]
        assert (len(heads), len(key_heads)) == (local.num_heads, local.num_kv_heads)
        group, local_group = (x.num_heads // x.num_kv_heads for x in (layer, local))
        assert [key_heads[i // local_group] for i in range(len(heads))] == [
            head // group for head in heads
        ]


@RANKS
def test_no_piece_of_the_shared_experts_lies_in_two(size: int) -> None:
    spec = spec_of(size)
    letters = dimensions(spec, spec.layers[-1])
    shape = parse_shape("S 2*F H", letters)
    gammas, width = [], letters["F"]
    for shard in shards(size):
        boxes = shard.part_of("mlp.shared.w13", shape, letters).boxes
        gates, ups = boxes[0::2], boxes[1::2]
        assert tuple(box.starts[0] for box in gates) == shard.gamma_experts(letters)
        for gate, up in zip(gates, ups, strict=True):
            assert (gate.starts[0], gate.starts[1] + width) == (up.starts[0], up.starts[1])
            gammas += [gate.starts[0]] * (gate.stops[1] - gate.starts[1])
    assert gammas == [column // width for column in range(letters["S"] * width)]


def stack(in_features: int, out_features: int, experts: tuple[int, int] | None) -> tuple[Any, Any]:
    factors = pair(in_features, out_features, 3, experts=experts)
    return factors.a, factors.b


LAYOUTS_OF_EXPERTS = [("all", "all"), ("all", "one"), ("one", "all"), ("one", "one")]


@EXPERT_PARALLEL
@pytest.mark.parametrize("layout", LAYOUTS_OF_EXPERTS, ids="-".join)
def test_the_deltas_of_all_ranks_are_the_delta(
    size: int, expert_parallel: bool, layout: tuple[str, str]
) -> None:
    """Down and output deltas add up; all others stand side by side in the parameter's order."""
    spec = spec_of(size)
    for site, shape in spec.sites().items():
        experts = tuple(shape.experts if side == "all" else 1 for side in layout)
        a, b = stack(shape.in_features, shape.out_features, experts if shape.experts else None)
        letters = dimensions(spec, None if site.layer < 0 else spec.layers[site.layer])
        want = b @ a
        if shape.experts:
            want = want.expand(shape.experts, -1, -1)
        got = torch.zeros_like(want)
        for shard in shards(size, expert_parallel):
            own_a, own_b = shard.cut_factors(site.kind, a, b, letters)
            add_delta(got, own_a, own_b, shard, site, spec)
        assert_close(got, want)


def add_delta(got: Tensor, a: Tensor, b: Tensor, shard: Shard, site: Site, spec: ModelSpec) -> None:
    """Write (or, where ranks hold the same, check) the delta of one rank at its place."""
    letters = dimensions(spec, None if site.layer < 0 else spec.layers[site.layer])
    delta, kind = b @ a, site.kind
    if kind.group is Group.SHARED:
        boxes = shard.part_of("mlp.shared.w13", parse_shape("S 2*F H", letters), letters).boxes
        for index, box in enumerate(boxes[0::2]):
            rows, piece = slice(box.starts[1], box.stops[1]), delta[index % len(delta)]
            place = got[box.starts[0]]
            (place[:, rows] if kind.is_down else place[rows]).copy_(piece)
    elif kind.group is Group.ROUTED and shard.expert_parallel:
        mine = shard.experts(spec)
        got[mine.start : mine.stop] = delta
    else:
        width = {SiteKind.Q: "Q", SiteKind.O: "Q", SiteKind.R: "R", SiteKind.HEAD: "V"}.get(kind)
        width = width or {"attn": "K", "mlp": "F" if kind.has_experts else "D"}[kind.split(".")[0]]
        parameter, text = {
            "Q": ("attn.wo", "H Q"),
            "R": ("attn.wo", "H R"),
            "K": ("attn.k_conv", "W K"),
            "D": ("mlp.w2", "H D"),
            "F": ("mlp.experts.w2", "E H F"),
            "V": ("head", "V H"),
        }[width]
        box = shard.part_of(parameter, parse_shape(text, letters), letters).boxes[0]
        axis = 0 if width == "V" else -1
        if width == "R":  # a width per head, like queries
            scale = letters["R"] / letters["Q"]
            box_q = shard.part_of("attn.wo", parse_shape("H Q", letters), letters).boxes[0]
            span = slice(round(box_q.starts[1] * scale), round(box_q.stops[1] * scale))
        else:
            span = slice(box.starts[axis], box.stops[axis])
        got[(..., span) if kind.is_down or kind is SiteKind.O else (..., span, slice(None))] = delta


def test_factors_with_one_expert_are_not_cut_by_experts() -> None:
    spec = spec_of(4)
    letters = dimensions(spec, spec.layers[-1])
    a, b = stack(40, 20, (1, 8))
    own_a, own_b = Shard(2, 4, expert_parallel=True).cut_factors(
        SiteKind.ROUTED_GATE, a, b, letters
    )
    assert own_a is a
    assert torch.equal(own_b, b[4:6])


def test_one_rank_holds_the_factors_themselves() -> None:
    spec = spec_of(2)
    a, b = stack(20, 40, (2, 1))
    letters = dimensions(spec, spec.layers[-1])
    assert Shard().cut_factors(SiteKind.SHARED_DOWN, a, b, letters) == (a, b)


def test_arrays_are_cut_like_tensors() -> None:
    spec = spec_of(3)
    letters = dimensions(spec, spec.layers[-1])
    for kind, sizes in ((SiteKind.SHARED_DOWN, (21, 40)), (SiteKind.SHARED_UP, (40, 21))):
        a, b = stack(*sizes, (2, 2))
        tensors = Shard(1, 3).cut_factors(kind, a, b, letters)
        arrays = Shard(1, 3).cut_factors(kind, a.numpy(), b.numpy(), letters)
        for tensor, array in zip(tensors, arrays, strict=True):
            assert torch.equal(tensor, torch.from_numpy(array))


def test_packed_experts_are_cut_like_unpacked_ones(tmp_path: Path) -> None:
    changes = {**SIZES[2], "hidden_size": 48, "moe_intermediate_size": 64, "n_routed_experts": 8}
    folder = save(make_multimodal_model(**changes), tmp_path / "original")
    write_nvfp4(folder, "ModelOpt", tmp_path / "packed", tmp_path / "plain")
    spec = read_model_spec(folder)
    for shard in (*shards(2), *shards(2, expert_parallel=True)):
        packed, plain = (
            load_checkpoint(tmp_path / name, spec, CPU, torch.float32, shard).weights
            for name in ("packed", "plain")
        )
        for name in ("layers.3.mlp.experts.w13", "layers.3.mlp.experts.w2"):
            weight = packed[name]
            assert isinstance(weight, Nvfp4Weight)
            assert weight.shape == plain[name].shape
            assert torch.equal(weight.dequantize(slice(None), torch.float32), plain[name])


def test_blocks_that_a_rank_would_cut_are_refused(tmp_path: Path) -> None:
    changes = {**SIZES[2], "hidden_size": 48, "moe_intermediate_size": 80, "n_routed_experts": 8}
    folder = save(make_multimodal_model(**changes), tmp_path / "original")
    write_nvfp4(folder, "ModelOpt", tmp_path / "packed", tmp_path / "plain")
    spec = read_model_spec(folder)
    with pytest.raises(InklingError) as caught:
        load_checkpoint(tmp_path / "packed", spec, CPU, torch.float32, Shard(1, 2))
    assert caught.value.message == (
        f"`model.llm.layers.2.mlp.experts.w2_weight` of `{tmp_path}/packed/model.safetensors` "
        "is in NVFP4 and has 80 columns of which a rank holds 40, expected multiples of 16"
    )
    assert caught.value.hint == "use fewer ranks, or expert parallelism"
    experts = load_checkpoint(tmp_path / "packed", spec, CPU, torch.float32, Shard(1, 2, True))
    assert experts.weights["layers.2.mlp.experts.w2"].shape == (4, 48, 80)


@pytest.mark.parametrize(
    ("changes", "size", "expert_parallel", "reason", "works"),
    [
        ({}, 3, False, "layer 1 has 4 query heads, expected a multiple of 3", "1"),
        (
            {},
            2,
            False,
            "layer 0 has 3 key heads, expected a multiple or a divisor of 2",
            "1",
        ),
        (
            {**SIZES[2], "intermediate_size": 57},
            2,
            False,
            "the dense width is 57, expected a multiple of 2",
            "1",
        ),
        (
            {**SIZES[2], "moe_intermediate_size": 21},
            2,
            False,
            "the expert width is 21, expected a multiple of 2",
            "1",
        ),
        (SIZES[2], 2, True, "the number of experts is 7, expected a multiple of 2", "1"),
        (
            SIZES[4],
            3,
            False,
            "layer 0 has 4 key heads, expected a multiple or a divisor of 3",
            "1, 2, 4",
        ),
        (
            {**SIZES[2], "n_shared_experts": 3, "moe_intermediate_size": 21},
            2,
            True,
            "the shared experts' width together is 63, expected a multiple of 2",
            "1",
        ),
        (
            {**SIZES[4], "unpadded_vocab_size": 5},
            4,
            False,
            "the vocabulary has 5 ids, too few for every rank",
            "1, 2",
        ),
    ],
)
def test_numbers_of_ranks_that_do_not_divide_are_refused_with_those_that_do(
    changes: dict[str, Any], size: int, expert_parallel: bool, reason: str, works: str
) -> None:
    spec = parse_model_spec({"model_type": "inkling_text", **TEXT, **changes})
    with pytest.raises(InklingError) as caught:
        require_shardable(spec, size, expert_parallel=expert_parallel)
    assert caught.value.message == f"the model cannot be cut for {size} ranks: {reason}"
    assert caught.value.hint == f"numbers of ranks that work: {works}"


def test_spans_of_an_axis_follow_one_another() -> None:
    values = randn(9, 4)
    part = cut((9, 4), 0, [(1, 3), (6, 9)])
    assert part.shape == (5, 4)
    got = put_together([part], [values[[1, 2, 6, 7, 8]]], (9, 4))
    assert torch.equal(got[[1, 2, 6, 7, 8]], values[[1, 2, 6, 7, 8]])
    assert got[[0, 3, 4, 5]].isnan().all()
