"""An adapter in several files is the same adapter as in one, or an error says what is wrong."""

import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from conversion import convert, factors_of, payload, spec_of
from differences import compare, fates, normal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from factories import (
    TINY,
    released_adapter_config,
    safetensors_bytes,
    write_json,
    write_released_adapter,
)
from inkling_runtime.adapter.adapter import Adapter, read_adapter
from inkling_runtime.adapter.adapter_weights import (
    MAX_SHARDS,
    MAX_TENSORS,
    read_weights,
    weights_among,
)
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.difference import Fate
from inkling_runtime.adapter.inspection import inspect_adapter
from inkling_runtime.adapter.site_pairs import gather_sound_pairs
from inkling_runtime.adapter.values import AdapterValues
from inkling_runtime.adapter.values.read import read_values
from inkling_runtime.errors import InklingError
from shards import INDEX, WEIGHTS, shard, split_weights

SPEC = spec_of(TINY)
QUICK = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
FORMS = ["index", "no index", "one of one", "by factor"]


@pytest.fixture
def single(tmp_path):
    return write_released_adapter(tmp_path / "single", rank=3, fill=normal)


def copy(folder: Path, name: str) -> Path:
    return Path(shutil.copytree(folder, folder.parent / name))


def split(folder: Path, form: str) -> Path:
    """Return a copy of an adapter in shards."""
    other = copy(folder, "sharded")
    if form == "by factor":
        return split_weights(other, 2, number_of=lambda _, name: 1 + ("lora_B" in name))
    count = 1 if form == "one of one" else 3
    return split_weights(other, count, with_index=form != "no index")


def values_of(adapter: Adapter, **options) -> AdapterValues:
    return read_values(adapter, gather_sound_pairs(adapter, SPEC)[0], **options)


def in_any_order(values: AdapterValues) -> tuple[object, ...]:
    norms = {site: (delta.rank, delta.num_zero) for site, delta in values.sites.items()}
    return dict(values.tensors), norms, values.bytes_read, values.not_read, values.not_computed


def error_of(folder: Path) -> InklingError:
    with pytest.raises(InklingError) as caught:
        read_adapter(folder)
    return caught.value


@pytest.mark.parametrize("form", FORMS)
class TestSameAdapter:
    def test_it_is_inspected_alike(self, single, form):
        one, several = (
            inspect_adapter(read_adapter(folder), SPEC, CONTENTS)
            for folder in (single, split(single, form))
        )
        assert (several.groups, several.sites) == (one.groups, one.sites)
        assert several.coverage == one.coverage
        assert several.undecodable is None
        assert several.adapter.file.tensors.keys() == one.adapter.file.tensors.keys()
        assert several.adapter.num_parameters == one.adapter.num_parameters
        assert not several.adapter.problems

    def test_its_numbers_are_the_same(self, single, form):
        one, several = (read_adapter(f) for f in (single, split(single, form)))
        first = values_of(one)
        for window_bytes in (1, 300, 1 << 20):
            found = values_of(several, window_bytes=window_bytes)
            assert in_any_order(found) == in_any_order(first)
            for site, delta in found.sites.items():
                assert delta.norm == pytest.approx(first.sites[site].norm, rel=1e-5)

    def test_each_byte_is_read_once(self, single, form):
        adapter, steps = read_adapter(split(single, form)), []
        values = values_of(adapter, progress=steps.append, window_bytes=200)
        total = sum(tensor.nbytes for tensor in adapter.file.tensors.values())
        assert sum(steps) == values.bytes_read == total

    def test_no_difference_is_found(self, single, form):
        difference = compare(single, split(single, form))
        assert fates(difference) == {Fate.IDENTICAL}

    def test_the_runtime_loads_the_same_factors(self, single, form):
        one, several = (
            factors_of(read_adapter(folder), SPEC) for folder in (single, split(single, form))
        )
        assert one.keys() == several.keys()
        for site, factors in several.items():
            assert factors.scaling == one[site].scaling
            assert (factors.a == one[site].a).all()
            assert (factors.b == one[site].b).all()

    @pytest.mark.parametrize("target", ["tinker", "vllm", "sglang", "peft"])
    def test_it_is_converted_to_the_same_bytes(self, single, form, target, tmp_path):
        convert(single, target, tmp_path / "a", SPEC)
        convert(split(single, form), target, tmp_path / "b", SPEC)
        names = sorted(path.name for path in (tmp_path / "a").iterdir())
        assert names == sorted(path.name for path in (tmp_path / "b").iterdir())
        assert WEIGHTS in names
        assert payload(tmp_path / "a") == payload(tmp_path / "b")
        for name in ("adapter_config.json", WEIGHTS):
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@QUICK
@given(st.data())
def test_however_tensors_are_dealt_each_is_found_in_its_file(data):
    count = data.draw(st.integers(1, 6))
    with tempfile.TemporaryDirectory() as name:
        folder = write_released_adapter(Path(name) / "a", groups=["attention"], layers=[0, 1])
        expected = load_file(folder / WEIGHTS)
        numbers = data.draw(
            st.lists(st.integers(1, count), min_size=len(expected), max_size=len(expected)).filter(
                lambda drawn: set(drawn) == set(range(1, count + 1))
            )
        )
        split_weights(folder, count, number_of=lambda place, _: numbers[place])
        weights = read_weights(folder)
        assert weights.tensors.keys() == expected.keys()
        assert weights.file_names == tuple(shard(n, count) for n in range(1, count + 1))
        for tensor in weights.tensors.values():
            path = weights.path_of(tensor.name)
            assert tensor.name in load_file(path)
            data_there = path.read_bytes()[tensor.start : tensor.end]
            assert data_there == expected[tensor.name].view(torch.uint8).numpy().tobytes()
        assert weights.file_size == sum(
            path.stat().st_size for path in folder.glob("*.safetensors")
        )


def test_the_one_file_is_read_where_shards_lie_beside_it(single):
    split_weights(single, 3, keeps_single=True)
    (single / shard(2, 3)).write_bytes(b"torn")
    weights = read_adapter(single).file
    assert (weights.file_names, weights.is_sharded) == ((WEIGHTS,), False)


def test_the_index_decides_which_of_two_sets_is_read(single):
    old = copy(single, "old")
    split_weights(old, 2)
    split_weights(single, 3)
    for number in (1, 2):
        shutil.copy(old / shard(number, 2), single)
    assert read_adapter(single).file.file_names == tuple(shard(n, 3) for n in (1, 2, 3))


def test_an_index_may_name_its_files_as_it_likes(single):
    split_weights(single, 2)
    (single / shard(1, 2)).rename(single / "first.safetensors")
    text = (single / INDEX).read_text().replace(shard(1, 2), "first.safetensors")
    (single / INDEX).write_text(text)
    assert read_adapter(single).file.file_names == (shard(2, 2), "first.safetensors")


def test_shards_may_be_links(single):
    split_weights(single, 2)
    for name in (shard(1, 2), shard(2, 2), INDEX):
        (single / name).rename(single.parent / name)
        (single / name).symlink_to(Path("..") / name)
    assert len(read_adapter(single).file.files) == 2


def test_metadata_is_what_all_files_say(single):
    said = {1: {"format": "pt", "a": "1", "b": "2"}, 2: {"format": "pt", "a": "2", "c": "3"}}
    split_weights(single, 2, metadata=said)
    assert read_adapter(single).file.metadata == {"format": "pt"}


@pytest.mark.parametrize("with_index", [True, False])
def test_a_missing_shard_is_named(single, with_index):
    split_weights(single, 3, with_index=with_index)
    (single / shard(2, 3)).unlink()
    error = error_of(single)
    assert f"`{shard(2, 3)}`" in error.message
    assert error.hint == "fetch the adapter again, with all of its files"


def test_shards_of_two_saves_without_an_index_are_refused(single):
    old = copy(single, "old")
    split_weights(old, 2, with_index=False)
    split_weights(single, 3, with_index=False)
    shutil.copy(old / shard(1, 2), single)
    assert "holds shards of 2 files and of 3" in error_of(single).message


@pytest.mark.parametrize("with_index", [True, False])
def test_a_tensor_in_two_files_is_refused(single, with_index):
    split_weights(single, 2, with_index=with_index)
    first, second = (load_file(single / shard(n, 2)) for n in (1, 2))
    name = sorted(first)[0]
    save_file({**second, name: first[name]}, single / shard(2, 2))
    message = error_of(single).message
    assert f"tensor `{name}` is in `{single / shard(2, 2)}` and in `{shard(1, 2)}`" in message


def test_a_tensor_that_is_not_where_the_index_says_is_named(single):
    split_weights(single, 2)
    first = load_file(single / shard(1, 2))
    name = sorted(first)[0]
    del first[name]
    save_file(first, single / shard(1, 2))
    message = error_of(single).message
    assert f"lists `{name}` in `{shard(1, 2)}`, which does not hold it" in message


def test_tensors_that_changed_places_are_counted(single):
    split_weights(single, 2)
    (single / shard(1, 2)).rename(single / "x")
    (single / shard(2, 2)).rename(single / shard(1, 2))
    (single / "x").rename(single / shard(2, 2))
    total = len(read_weights_without_index(single).tensors)
    assert f"(and {total - 1} more tensors)" in error_of(single).message


def read_weights_without_index(folder):
    other = copy(folder, "without-index")
    (other / INDEX).unlink()
    return read_weights(other)


def test_a_tensor_that_the_index_does_not_list_is_named(single):
    split_weights(single, 2)
    first = load_file(single / shard(1, 2))
    save_file({**first, "more": torch.ones(2)}, single / shard(1, 2))
    message = error_of(single).message
    assert "tensors that the index does not list: `more`" in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "is not the JSON object"),
        ("{}", "has no `weight_map`"),
        ('{"weight_map": {}}', "is empty"),
        ('{"weight_map": {"a": "../b.safetensors"}}', "outside its folder"),
        ('{"weight_map": {"a": "gone.safetensors"}}', "not there: `gone.safetensors`"),
        ('{"weight_map": {"a": 7}}', "not there: `7`"),
        ('{"weight_map": {"a": "adapter_model.safetensors"}}', "not there: `adapter_model.safe"),
    ],
)
def test_a_broken_index_is_named(single, text, part):
    split_weights(single, 2)
    (single / INDEX).write_text(text)
    error = error_of(single)
    assert INDEX in error.message
    assert part in error.message


def test_a_torn_shard_is_named(single):
    split_weights(single, 2)
    data = (single / shard(2, 2)).read_bytes()
    (single / shard(2, 2)).write_bytes(data[:-5])
    assert shard(2, 2) in error_of(single).message


@pytest.mark.parametrize("with_index", [True, False])
def test_more_files_than_can_be_open_are_refused(tmp_path, with_index):
    count = MAX_SHARDS + 1
    names = [shard(number, count) for number in range(1, count + 1)]
    for name in names:
        save_file({}, tmp_path / name)
    if with_index:
        write_json(tmp_path / INDEX, {"weight_map": {name: name for name in names}})
    write_json(tmp_path / "adapter_config.json", released_adapter_config())
    assert f"has {count} shards, expected at most {MAX_SHARDS}" in error_of(tmp_path).message


@pytest.mark.slow
def test_more_tensors_than_any_adapter_has_are_refused(tmp_path):
    entry = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    for number in (1, 2):
        header = {f"{number}.{place}": entry for place in range(MAX_TENSORS // 2 + number - 1)}
        (tmp_path / shard(number, 2)).write_bytes(safetensors_bytes(header))
    write_json(tmp_path / "adapter_config.json", released_adapter_config())
    assert f"has {MAX_TENSORS + 1} tensors and more" in error_of(tmp_path).message


@pytest.mark.parametrize(
    "name",
    [
        "adapter_model-00003-of-00002.safetensors",
        "adapter_model-00000-of-00002.safetensors",
        "adapter_model-1-of-2.safetensors",
        "adapter_model-00001-of-00002.safetensors.tmp",
        "model-00001-of-00002.safetensors",
    ],
)
def test_other_names_are_no_shards(name):
    assert weights_among([name]) == ()


@pytest.mark.parametrize("change", ["cut", "gone"])
def test_a_shard_that_changed_since_its_header_was_read_is_an_error(single, change):
    adapter = read_adapter(split(single, "index"))
    path = adapter.path / shard(3, 3)
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InklingError) as caught:
        values_of(adapter)
    assert shard(3, 3) in caught.value.message
