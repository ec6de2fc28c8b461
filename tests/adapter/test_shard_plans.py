"""Tensors are dealt to files in order, each as full as it may be, and the index says where."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inkling_runtime.adapter.adapter_weights import MAX_SHARDS
from inkling_runtime.adapter.convert.shards import plan_shards, shard_index, shard_names
from inkling_runtime.adapter.safetensors_file import TensorSpec
from inkling_runtime.errors import InklingError
from shards import WEIGHTS, shard

QUICK = settings(max_examples=60, deadline=None, derandomize=True)
SPECS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["BF16", "F32"])), max_size=30).map(
    lambda drawn: [TensorSpec(f"t{i}", dtype, (n,)) for i, (n, dtype) in enumerate(drawn)]
)


@QUICK
@given(SPECS, st.integers(1, 200))
def test_shards_hold_everything_in_order_and_as_much_as_fits(specs, size):
    shards = plan_shards(specs, size)
    assert [spec for dealt in shards for spec in dealt] == specs
    sizes = [sum(spec.nbytes for spec in dealt) for dealt in shards]
    assert all(len(dealt) == 1 or total <= size for dealt, total in zip(shards, sizes, strict=True))
    assert all(shards) or not specs
    for total, following in zip(sizes, shards[1:], strict=False):
        assert total + following[0].nbytes > size


@QUICK
@given(SPECS, st.integers(1, 200))
def test_the_index_of_shards_names_the_file_of_every_tensor(specs, size):
    shards = plan_shards(specs, size)
    index, names = shard_index(shards), shard_names(len(shards))
    assert index["metadata"]["total_size"] == sum(spec.nbytes for spec in specs)
    assert list(index["weight_map"]) == sorted(spec.name for spec in specs)
    for name, dealt in zip(names, shards, strict=True):
        assert {spec.name for spec in dealt} == {
            tensor for tensor, file in index["weight_map"].items() if file == name
        }


def test_shards_have_the_names_that_are_read():
    assert shard_names(1) == (WEIGHTS,)
    assert shard_names(3) == tuple(shard(number, 3) for number in (1, 2, 3))


def test_so_small_shards_that_nobody_opens_them_are_refused():
    specs = [TensorSpec(f"t{i}", "F32", (1,)) for i in range(MAX_SHARDS + 1)]
    assert len(plan_shards(specs[:-1], 4)) == MAX_SHARDS
    with pytest.raises(InklingError, match=f"make {MAX_SHARDS + 1} files of 804 bytes"):
        plan_shards(specs, 4)
