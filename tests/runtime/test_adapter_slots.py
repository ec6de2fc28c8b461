"""More adapters than slots, other contents under old names, files that change: who gets what."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import save_file
from tiny_adapters import random_factors
from tiny_models import random_ids

from inkling_runtime.adapter.factors import SiteFactors
from inkling_runtime.adapter.load_factors import LazyFactors
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.moves import Read
from inkling_runtime.adapter.pairs import Form, Pair
from inkling_runtime.adapter.safetensors_file import read_header
from inkling_runtime.adapter.sites import Site, SiteKind
from inkling_runtime.errors import InklingError
from inkling_runtime.llm import LLM, SamplingParams
from inkling_runtime.lora.adapter_store import AdapterStore
from inkling_runtime.lora.content_hash import HashedFactors

MakeLLM = Callable[..., LLM]
Factors = Mapping[Site, SiteFactors]
GREEDY = SamplingParams(max_tokens=6, temperature=0)
PROMPT = random_ids(9)
Q, OUT = Site(0, SiteKind.Q), Site(1, SiteKind.O)


@dataclass
class Slots:
    """Remembers what was loaded into which slot."""

    contents: dict[int, Factors] = field(default_factory=dict)
    num_loads: int = 0

    def load(self, slot: int, factors: Factors) -> None:
        self.contents[slot] = dict(factors)
        self.num_loads += 1

    def clear(self, slot: int) -> None:
        del self.contents[slot]


def adapter(spec: ModelSpec, seed: int) -> dict[Site, SiteFactors]:
    return random_factors(spec, seed, kinds=[SiteKind.Q, SiteKind.O])


def make_store(spec: ModelSpec, num_slots: int) -> tuple[AdapterStore, Slots]:
    slots = Slots()
    return AdapterStore(slots, num_slots, spec), slots


@pytest.fixture
def spec(llm: LLM) -> ModelSpec:
    return llm.spec


def test_the_same_numbers_are_the_same_content_in_any_order(spec: ModelSpec) -> None:
    factors = adapter(spec, 1)
    want = HashedFactors(factors).content_hash()
    turned = HashedFactors(dict(reversed(factors.items())))
    assert [site for site, _ in turned.items()] == list(reversed(factors))
    assert turned.content_hash() == want
    copies = {site: replace(pair, a=pair.a.copy()) for site, pair in factors.items()}
    assert HashedFactors(copies).content_hash() == want


@pytest.mark.parametrize(
    "change",
    [
        lambda pair: {"scaling": pair.scaling * 2},
        lambda pair: {"a": pair.a * 2},
        lambda pair: {"b": pair.b * 2},
        lambda pair: {"a": pair.a.reshape(-1, 2), "b": pair.b},
        lambda pair: {"dtype": "F64"},
    ],
    ids=["scaling", "A", "B", "shape", "dtype"],
)
def test_whatever_changes_the_numbers_is_another_content(
    spec: ModelSpec, change: Callable[[SiteFactors], dict[str, Any]]
) -> None:
    factors = adapter(spec, 1)
    changed = {**factors, Q: replace(factors[Q], **change(factors[Q]))}
    moved = {**{site: pair for site, pair in factors.items() if site != Q}, OUT: factors[Q]}
    hashes = {HashedFactors(each).content_hash() for each in (factors, changed, moved)}
    assert len(hashes) == 3


def test_an_adapter_has_its_slot_until_the_last_sequence_gives_it_back(spec: ModelSpec) -> None:
    store, slots = make_store(spec, 1)
    store.add("a", adapter(spec, 1))
    store.add("b", adapter(spec, 2))
    assert (store.names, store.loaded) == (["a", "b"], ["a"])
    assert store.acquire("a") == store.acquire("a") == 0
    store.release(0)
    assert store.acquire("b") is None
    store.release(0)
    assert store.acquire("b") == 0
    assert store.loaded == ["b"]
    assert slots.contents[0].keys() == adapter(spec, 2).keys()
    assert (slots.contents[0][Q].a == adapter(spec, 2)[Q].a).all()


def test_the_adapter_that_was_not_used_for_longest_makes_room(spec: ModelSpec) -> None:
    store, slots = make_store(spec, 2)
    for seed, name in enumerate("abc"):
        store.add(name, adapter(spec, seed))
    for name, loaded in (("a", "ab"), ("c", "ac"), ("a", "ac"), ("b", "ab"), ("c", "bc")):
        slot = store.acquire(name)
        assert slot is not None
        store.release(slot)
        assert store.loaded == list(loaded)
    assert slots.num_loads == 2 + 3


def test_what_is_pinned_stays(spec: ModelSpec) -> None:
    store, _ = make_store(spec, 2)
    for seed, name in enumerate("abc"):
        store.add(name, adapter(spec, seed))
    store.pin("a")
    for _ in range(2):
        for name in "bc":
            slot = store.acquire(name)
            assert slot is not None
            store.release(slot)
    assert store.loaded == ["a", "c"]
    store.pin("c")
    with pytest.raises(InklingError) as caught:
        store.acquire("b")
    assert caught.value.message == "`b` has no slot, all 2 are pinned"
    with pytest.raises(InklingError) as caught:
        store.pin("b")
    assert caught.value.message == "no slot can be emptied for `b`, all 2 are in use"
    store.unpin("a")
    store.pin("b")
    assert store.loaded == ["b", "c"]


def test_the_same_content_under_two_names_shares_a_slot(spec: ModelSpec) -> None:
    store, slots = make_store(spec, 3)
    store.add("a", adapter(spec, 1))
    store.add("again", adapter(spec, 1))
    assert store.acquire("a") == store.acquire("again") == 0
    assert list(slots.contents) == [0]
    assert store.content_of("a") == store.content_of("again")
    store.remove("a")
    store.reset()
    assert store.acquire("again") == 0
    store.release(0)
    store.remove("again")
    assert slots.contents == {}


def test_a_name_that_gets_another_content_leaves_running_sequences_theirs(
    spec: ModelSpec,
) -> None:
    store, slots = make_store(spec, 3)
    store.add("a", adapter(spec, 1))
    old = store.acquire("a")
    assert old is not None
    store.add("a", adapter(spec, 2))
    new = store.acquire("a")
    assert new not in (old, None)
    assert (slots.contents[old][Q].a == adapter(spec, 1)[Q].a).all()
    store.release(old)
    assert list(slots.contents) == [new]


def test_the_same_content_under_its_own_name_changes_nothing(spec: ModelSpec) -> None:
    store, slots = make_store(spec, 2)
    store.add("a", adapter(spec, 1))
    slot = store.acquire("a")
    store.add("a", adapter(spec, 1))
    assert store.acquire("a") == slot
    assert list(slots.contents) == [slot]


def test_factors_that_do_not_fit_leave_the_name_what_it_was(make_llm: MakeLLM) -> None:
    for num_slots in (1, 2):
        llm = make_llm(max_loras=num_slots)
        factors = adapter(llm.spec, 1)
        llm.load_adapter("a", factors)
        want = llm.logits(PROMPT, "a")
        with pytest.raises(InklingError, match="takes 39, expected 40"):
            llm.load_adapter("a", {**factors, Q: replace(factors[Q], a=factors[Q].a[:, 1:])})
        assert torch.equal(llm.logits(PROMPT, "a"), want)


def alone(make_llm: MakeLLM, factors: Factors) -> list[int]:
    """Return what an adapter generates with nothing beside it."""
    llm = make_llm()
    llm.load_adapter("only", factors)
    (completion,) = llm.generate([PROMPT], GREEDY, "only")
    return completion.token_ids


def test_more_adapters_than_slots_give_what_each_gives_alone(make_llm: MakeLLM) -> None:
    llm = make_llm(max_loras=2)
    names = [f"adapter {seed}" for seed in range(5)]
    for seed, name in enumerate(names):
        llm.load_adapter(name, random_factors(llm.spec, seed, scaling=2.0))
    got = llm.generate([PROMPT] * 15, GREEDY, names * 3)
    want = [alone(make_llm, random_factors(llm.spec, seed, scaling=2.0)) for seed in range(5)]
    assert [completion.token_ids for completion in got] == want * 3
    assert len({tuple(tokens) for tokens in want}) > 1


def test_swapping_an_adapter_does_not_disturb_a_running_stream(make_llm: MakeLLM) -> None:
    llm = make_llm()
    first, second = (random_factors(llm.spec, seed, scaling=2.0) for seed in (1, 2))
    llm.load_adapter("a", first)
    stream = llm.stream([PROMPT], GREEDY, "a")
    next(stream)
    llm.load_adapter("a", second)
    (new,) = llm.generate([PROMPT], GREEDY, "a")
    assert [event.token_id for event in stream] == alone(make_llm, first)[1:]
    assert new.token_ids == alone(make_llm, second) != alone(make_llm, first)


def test_a_running_stream_finishes_with_an_adapter_that_is_unloaded(make_llm: MakeLLM) -> None:
    llm = make_llm()
    factors = random_factors(llm.spec, 1, scaling=2.0)
    llm.load_adapter("a", factors)
    stream = llm.stream([PROMPT], GREEDY, "a")
    next(stream)
    llm.unload_adapter("a")
    assert [event.token_id for event in stream] == alone(make_llm, factors)[1:]
    assert llm.adapters == []


def write_pairs(path: Path, spec: ModelSpec, seed: int) -> dict[Site, Pair]:
    """Write a file with the factors of two sites and return them as pairs over it."""
    factors, tensors = adapter(spec, seed), {}
    for site in (Q, OUT):
        tensors[f"{site}.a"], tensors[f"{site}.b"] = factors[site].a, factors[site].b
    save_file(tensors, path)
    file = read_header(path)
    return {
        site: Pair(*(Read(path, file.tensors[f"{site}.{side}"]) for side in "ab"), 2.0, Form.MATRIX)
        for site in (Q, OUT)
    }


@pytest.fixture
def changed(make_llm: MakeLLM, tmp_path: Path) -> LLM:
    """Return a model of one slot whose adapter `a` is not in it and whose file has changed."""
    llm, path = make_llm(max_loras=1), tmp_path / "a.safetensors"
    llm.load_adapter("a", LazyFactors(write_pairs(path, llm.spec, 1), llm.spec))
    llm.load_adapter("b", adapter(llm.spec, 2))
    assert llm.generate([PROMPT], GREEDY, "b")[0].error is None
    write_pairs(path, llm.spec, 3)
    return llm


def test_an_adapter_whose_file_changed_fails_its_requests_and_no_others(changed: LLM) -> None:
    names = ["b", "a", None]
    want = [changed.generate([PROMPT], GREEDY, name)[0].token_ids for name in ("b", None)]
    b, a, base = changed.generate([PROMPT] * 3, GREEDY, names)
    assert [b.token_ids, base.token_ids] == want
    assert a.error is not None
    assert a.error.message == (
        "the files of `a` changed since it was loaded, expected the same numbers"
    )
    assert a.error.hint == "load `a` again to run it as it is now"


def test_an_adapter_whose_file_is_gone_fails_its_requests_and_no_others(
    changed: LLM, tmp_path: Path
) -> None:
    (tmp_path / "a.safetensors").unlink()
    a, base = changed.generate([PROMPT] * 2, GREEDY, ["a", None])
    assert base.error is None
    assert a.error is not None
    assert a.error.message.startswith("the files of `a` changed since it was loaded: `/")


def test_an_adapter_is_loaded_again_from_its_file(make_llm: MakeLLM, tmp_path: Path) -> None:
    llm = make_llm(max_loras=1)
    pairs = write_pairs(tmp_path / "a.safetensors", llm.spec, 1)
    llm.load_adapter("a", LazyFactors(pairs, llm.spec))
    want = llm.logits(PROMPT, "a")
    llm.load_adapter("b", adapter(llm.spec, 2))
    assert not torch.equal(llm.logits(PROMPT, "b"), want)
    assert torch.equal(llm.logits(PROMPT, "a"), want)
