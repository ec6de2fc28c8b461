"""Broken adapter_config.json files by name, each with what the error must say."""

import json
from typing import Any

from factories import released_adapter_config

Case = tuple[bytes, str]


def with_values(**changes: Any) -> bytes:
    """Return a sound config with some values changed."""
    return json.dumps(released_adapter_config(**changes)).encode()


NO_OBJECTS: dict[str, Case] = {
    "nothing": (b"", "is not the JSON object it should be"),
    "not JSON": (b"{r: 8}", "is not the JSON object it should be"),
    "cut": (b'{"r": 8', "is not the JSON object it should be"),
    "a list": (b"[1]", "it holds a list, expected an object"),
    "null": (b"null", "it holds null, expected an object"),
    "a string": (b'"r"', "it holds a string, expected an object"),
    "true": (b"true", "it holds a truth value, expected an object"),
    "a number": (b"3", "it holds a number, expected an object"),
    "a key twice": (b'{"r": 8, "x": {"a": 1, "a": 1}}', "the key `a` stands twice"),
    "NaN": (b'{"lora_alpha": NaN}', "`NaN` is not a JSON number"),
    "Infinity": (b'{"lora_alpha": -Infinity}', "`-Infinity` is not a JSON number"),
    "a float above the largest": (b'{"lora_dropout": 1e999}', "1e999"),
    "not UTF-8": (b'{"r": "\xff"}', "is not the JSON object it should be: it is not UTF-8"),
    "UTF-16": ('{"r": 8}'.encode("utf-16"), "is not the JSON object it should be"),
    "a byte order mark": (b'\xef\xbb\xbf{"r": 8}', "is not the JSON object it should be"),
    "NUL bytes": (bytes(64), "is not the JSON object it should be"),
    "deep lists": (b'{"a":' + b"[" * 200_000, "is nested too deeply"),
    "deep objects": (b'{"a":' * 200_000, "is nested too deeply"),
    "lists as deep as Python reads": (
        with_values(x=0).replace(b'"x": 0', b'"x": ' + b"[" * 900 + b"]" * 900),
        "is nested too deeply",
    ),
    "rank as deep as Python reads": (
        with_values(r=0).replace(b'"r": 0', b'"r": ' + b"[" * 980 + b"]" * 980),
        "is nested too deeply",
    ),
    "five thousand digits": (b'{"r": ' + b"9" * 5000 + b"}", "a number has more than 4300 digits"),
    "half a surrogate pair": (rb'{"base_model_name_or_path": "\ud800"}', "surrogate"),
    "half a surrogate pair in a key": (rb'{"x": [{"\udc00": 1}]}', "surrogate"),
    "the halves of a pair turned round": (rb'{"x": "\ude00\ud83d"}', "surrogate"),
    "half a surrogate pair before a whole one": (rb'{"x": "\ud83d\ud83d\ude00"}', "surrogate"),
}

DIGITS = int("9" * 4000)

VALUES: dict[str, Case] = {
    "rank of four thousand digits": (with_values(r=DIGITS), "expected a positive integer"),
    "rank of a long text": (with_values(r="8" * 100_000), "expected a positive integer"),
    "rank of a long list": (with_values(r=[8] * 100_000), "expected a positive integer"),
    "pattern with a long key": (
        with_values(rank_pattern={"(a)" * 1000: 4}),
        "it has 3000 characters, expected at most 1000",
    ),
    "pattern with deep groups": (
        with_values(rank_pattern={"(" * 30 + ")" * 30: 4}),
        "it has groups more than 20 deep",
    ),
    "pattern that counts to millions": (
        with_values(rank_pattern={"((a{1000}){1000}){1000}": 4}),
        "too large together",
    ),
    "pattern that repeats nothing": (
        with_values(rank_pattern={"((){1000}){1000}": 4}),
        "too large together",
    ),
    "pattern that repeats a million times": (
        with_values(rank_pattern={"a{1000000}": 4}),
        "it repeats with `{1000000}`, expected at most 1000 times",
    ),
    "pattern that looks ahead": (with_values(rank_pattern={"(?=a)b": 4}), "it uses `(?=`"),
    "pattern that refers to a group": (
        with_values(alpha_pattern={r"(.*)\1": 4}),
        r"it uses `\1`",
    ),
}

CASES: dict[str, Case] = NO_OBJECTS | VALUES

ENDLESS_KEYS = (
    "(a+)+$",
    "(a|a)*b",
    "(.*)*x",
    "(.*.*.*.*.*.*)*x",
    "(.*a.{20})x",
    "(a?){40}a{40}",
    r"(\w+\.?)+x",
)
"""Expressions that `re` would try for ever on a name of some length."""
