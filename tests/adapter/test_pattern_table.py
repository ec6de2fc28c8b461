"""Keys of patterns match what `re` says that they match, and nothing takes for ever."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inkling_runtime.adapter import automaton, pattern_table
from inkling_runtime.adapter.pattern_table import PatternTable
from inkling_runtime.adapter.regex_syntax import PatternError

LITERALS = ["a", "b", "1", "_", "-", "é", "\n", "]", "}", "{}", r"\.", r"\_", r"\n", r"\x61"]
CLASSES = [".", r"\d", r"\w", r"\W", "[ab]", "[^a]", "[]a]", r"[a\]]", "[a-z.]"]
EDGES = ["^", "$", r"\A", ""]
REPEATS = ["*", "+", "?", "*?", "??", "{0,2}", "{2}", "{,2}", "{1,}"]
GROUPS = ["({})", "(?:{})", "{}"]

PARTS = st.sampled_from(LITERALS + CLASSES)
EXPRESSIONS = st.recursive(
    PARTS | st.tuples(PARTS, st.sampled_from(REPEATS)).map("".join) | st.sampled_from(EDGES),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.tuples(inner, inner).map("|".join)
        | st.tuples(st.sampled_from(GROUPS), inner).map(lambda pair: pair[0].format(pair[1]))
        | st.tuples(inner, st.sampled_from(REPEATS)).map(lambda pair: f"({pair[0]}){pair[1]}")
    ),
    max_leaves=8,
)
PLAIN = st.text("ab.1", max_size=6)
NAMES = st.text("ab.1_-\né]{}", max_size=8)


def first_by_re(keys: list[str], name: str) -> str | None:
    """Return what PEFT's own expression finds."""
    return next((key for key in keys if re.match(rf"(.*\.)?({key})$", name)), None)


@given(keys=st.lists(EXPRESSIONS | PLAIN, max_size=4, unique=True), names=st.lists(NAMES))
@settings(max_examples=500, deadline=None, derandomize=True)
def test_the_first_key_is_found_that_re_finds(keys: list[str], names: list[str]) -> None:
    table = PatternTable(dict.fromkeys(keys, 1))
    for name in names:
        assert table.find_key(name) == first_by_re(keys, name)


@pytest.mark.parametrize(
    ("key", "name", "is_found"),
    [
        ("q.proj", "layers.0.q_proj", True),
        (r"q\.proj", "layers.0.q_proj", False),
        (r"q\.proj", "layers.0.q.proj", True),
        ("proj", "layers.0.q_proj", False),
        ("layers.1", "model.layers.1", True),
        ("layers.1", "model.layers.11", False),
        ("layers.1", "base_model.model.layers.1", True),
        ("", "", True),
    ],
)
def test_a_dot_of_a_plain_key_is_any_character(key: str, name: str, is_found: bool) -> None:
    assert (PatternTable({key: 1}).find_key(name) == key) is is_found


def test_a_table_is_the_mapping_that_it_was_made_of() -> None:
    values = {"b.*": 1, "a": 2}
    table = PatternTable(values)
    assert dict(table) == values
    assert list(table.items()) == list(values.items())
    assert not PatternTable()


@pytest.mark.parametrize(
    "key", ["(?=a)", "(?!a)", "(?<=a)", "(?i)a", "(?i:a)", r"(a)\1", r"\ba", r"a\Z", "a*+", "(?>a)"]
)
def test_what_is_no_regular_expression_in_the_strict_sense_is_refused(key: str) -> None:
    with pytest.raises(PatternError, match="it uses"):
        PatternTable({key: 1})


def test_plain_keys_by_the_hundred_thousand_are_looked_up() -> None:
    table = PatternTable({f"layers.{number}": number for number in range(100_000)})
    for number in range(0, 100_000, 10):
        assert table.find_key(f"model.layers.{number}") == f"layers.{number}"


def test_work_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "MAX_STEPS", 1000)
    monkeypatch.setattr(pattern_table, "MAX_LOOK_UPS", 1000)
    names = ["".join("ab"[number >> bit & 1] for bit in range(10)) for number in range(1024)]
    plain = ["".join("a."[number >> bit & 1] for bit in range(10)) for number in range(1024)]
    for keys in (["(a|b)*a(a|b){8}"], plain):
        table = PatternTable(dict.fromkeys(keys, 1))
        with pytest.raises(PatternError, match="take too long to match"):
            [table.find_key(name) for name in names]


def test_forgetting_places_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["".join("ab"[number >> bit & 1] for bit in range(8)) for number in range(256)]
    keys = ["(a|b)*a(a|b){3}", "b*a*"]
    monkeypatch.setattr(automaton, "_MAX_REMEMBERED", 50)
    table = PatternTable(dict.fromkeys(keys, 1))
    assert [table.find_key(name) for name in names] == [first_by_re(keys, name) for name in names]
