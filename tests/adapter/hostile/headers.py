"""Broken safetensors files by name, each with what the error must say."""

import json
import struct
from typing import Any

from factories import safetensors_bytes

GOOD = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
NAME = "language_model.lm_head.lora_A.weight"
PAYLOAD = bytes(range(24))

Case = tuple[bytes, str]


def one(**changes: Any) -> bytes:
    """Return a file with one tensor whose entry is changed; a value of None drops the key."""
    entry = {key: value for key, value in (GOOD | changes).items() if value is not None}
    return safetensors_bytes({NAME: entry}, PAYLOAD)


def two(first: list[int], second: list[int], payload: bytes = bytes(48)) -> bytes:
    """Return a file with two tensors of six floats at these offsets."""
    header = {"a": GOOD | {"data_offsets": first}, "b": GOOD | {"data_offsets": second}}
    return safetensors_bytes(header, payload)


def text(header: str | bytes, payload: bytes = b"") -> bytes:
    """Return a file with this very header text."""
    return safetensors_bytes(header, payload)


def literal(shape: str = "[2,3]", offsets: str = "[0,24]", extra: str = "") -> bytes:
    """Return a file whose entry has literal JSON that `json.dumps` would not write."""
    entry = f'{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}{extra}}}'
    return text(f'{{"{NAME}":{entry}}}', PAYLOAD)


DEEP = '{"a":' + "[" * 200_000
DIGITS = "9" * 4000

LENGTHS: dict[str, Case] = {
    "no bytes at all": (b"", "has 0 bytes, a safetensors file has at least 8"),
    "seven bytes": (b"\x01" * 7, "has 7 bytes, a safetensors file has at least 8"),
    "a length and nothing else": (struct.pack("<Q", 2), "claims a header of 2 bytes but only 0"),
    "header beyond the file": (safetensors_bytes({}, length=3), "header of 3 bytes but only 2"),
    "hundred megabytes claimed": (safetensors_bytes({}, length=10**8), "but only 2 follow"),
    "above the limit": (safetensors_bytes({}, length=10**8 + 1), "the format allows 100000000"),
    "the largest length": (b"\xff" * 8 + b"{}", "header of 18446744073709551615 bytes"),
    "empty header": (text(b""), "does not begin with an opening brace"),
    "a zip archive": (b"PK\x03\x04" + bytes(60), "header of"),
    "an HTML page": (b"<!DOCTYPE html><html></html>", "header of"),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\n", "header of"),
}

TEXTS: dict[str, Case] = {
    "not UTF-8": (text(b'{"\xff": 1}'), "is not UTF-8"),
    "UTF-16": (text("{}".encode("utf-16")), "does not begin with an opening brace"),
    "not JSON": (text("{nope}"), "is not valid JSON"),
    "cut in the middle": (text('{"a":{"dtype":"F32","sha'), "is not valid JSON"),
    "a list": (text("[]"), "does not begin with an opening brace"),
    "a number": (text("12"), "does not begin with an opening brace"),
    "something behind the object": (text("{} {}"), "is not valid JSON"),
    "NUL padding": (text(b"{}\0\0"), "is not valid JSON"),
    "a key twice": (text('{"a":{"x":1,"x":2}}'), "the key `x` stands twice"),
    "a tensor twice": (
        text(f'{{"a":{json.dumps(GOOD)},"a":{json.dumps(GOOD)}}}', PAYLOAD),
        "the key `a` stands twice",
    ),
    "deep nesting": (text(DEEP), "is nested too deeply"),
    "NaN": (literal(shape="[NaN,3]"), "`NaN` is not a JSON number"),
    "Infinity": (literal(offsets="[0,Infinity]"), "`Infinity` is not a JSON number"),
    "minus Infinity": (literal(extra=',"x":-Infinity'), "`-Infinity` is not a JSON number"),
    "an integer of five thousand digits": (literal(shape=f"[{'9' * 5000}]"), "not valid JSON"),
    "half a surrogate pair in a name": (
        text(rf'{{"\ud800":{json.dumps(GOOD)}}}', PAYLOAD),
        "header",
    ),
    "half a surrogate pair in the metadata": (
        text(r'{"__metadata__":{"x":"\udfff"}}'),
        "header",
    ),
}

ENTRIES: dict[str, Case] = {
    "a tensor that is a list": (text(f'{{"{NAME}":[]}}'), "is not an object of dtype, shape and"),
    "a tensor that is null": (text(f'{{"{NAME}":null}}'), "is not an object of dtype, shape and"),
    "no dtype": (one(dtype=None), "is not an object of dtype, shape and data_offsets"),
    "no shape": (one(shape=None), "is not an object of dtype, shape and data_offsets"),
    "no offsets": (one(data_offsets=None), "is not an object of dtype, shape and data_offsets"),
    "a fourth key": (one(strides=[3, 1]), "is not an object of dtype, shape and data_offsets"),
    "unknown dtype": (one(dtype="F31"), "has the unknown dtype `F31`"),
    "lower case dtype": (one(dtype="bf16"), "has the unknown dtype `bf16`"),
    "dtype that is a number": (one(dtype=32), "has the unknown dtype `32`"),
    "dtype that is a list": (one(dtype=["F32"]), "has the unknown dtype"),
    "negative size": (one(shape=[-2, -3]), "has the shape [-2, -3], expected a list of sizes"),
    "size of true": (one(shape=[True, 6]), "has the shape [True, 6], expected a list of sizes"),
    "size that is a float": (one(shape=[2.0, 3]), "has the shape [2.0, 3], expected a list"),
    "size that is a string": (one(shape=["2", 3]), "has the shape ['2', 3], expected a list"),
    "shape that is a number": (one(shape=6), "has the shape 6, expected a list of sizes"),
    "shape that is an object": (one(shape={"0": 6}), "expected a list of sizes"),
    "negative offset": (one(data_offsets=[-24, 0]), "has the offsets [-24, 0], expected two sizes"),
    "offset of false": (one(data_offsets=[False, 24]), "has the offsets [False, 24]"),
    "offset that is a float": (one(data_offsets=[0, 24.0]), "has the offsets [0, 24.0]"),
    "three offsets": (one(data_offsets=[0, 12, 24]), "has the offsets [0, 12, 24], expected two"),
    "reversed offsets": (
        one(data_offsets=[24, 0]),
        "spans -24 bytes, F32 of shape [2, 3] needs 24",
    ),
    "span of another size": (one(shape=[2, 4]), "spans 24 bytes, F32 of shape [2, 4] needs 32"),
    "half a byte": (one(dtype="F4", shape=[47]), "spans 24 bytes, F4 of shape [47] needs 23.5"),
    "size that wraps to the span": (
        one(shape=[2**62 + 2, 3, 2**2]),
        "has a shape whose size overflows",
    ),
    "size above 64 bits": (one(shape=[2**40, 2**40]), "has a shape whose size overflows"),
    "sizes that overflow behind a 0": (
        one(shape=[0, 2**40, 2**40], data_offsets=[0, 0]),
        "has a shape whose size overflows",
    ),
    "a hundred dimensions": (one(shape=[1] * 100), "has 100 dimensions, expected at most 32"),
    "minus zero": (literal(offsets="[-0,24]"), "`-0` is not a size"),
    "dtype of a long text": (one(dtype="F" * 100_000), "has the unknown dtype `FFF"),
    "offset of a long text": (one(data_offsets=["0" * 100_000, 24]), "expected two sizes"),
    "shape that is nested": (literal(shape="[" * 500 + "]" * 500), "expected a list of sizes"),
    "name of a hundred thousand characters": (
        text(json.dumps({"n" * 100_000: GOOD}), PAYLOAD),
        "has a name of 100000 characters, expected at most 1000",
    ),
    "a long key twice": (text('{"' + "k" * 99_999 + '":1,"' + "k" * 99_999 + '":1}'), "twice"),
    "size of four thousand digits": (literal(shape=f"[{DIGITS}]"), "has a shape whose size overfl"),
    "offset of four thousand digits": (literal(offsets=f"[0,{DIGITS}]"), "needs 24"),
}

TILINGS: dict[str, Case] = {
    "overlap": (
        two([0, 24], [12, 36], bytes(36)),
        "tensor `b` of `",
    ),
    "the same bytes twice": (two([0, 24], [0, 24], bytes(24)), "overlaps another tensor"),
    "gap": (two([0, 24], [32, 56], bytes(56)), "has 8 bytes before `b` in no tensor"),
    "gap at the start": (two([8, 32], [32, 56], bytes(56)), "has 8 bytes before `a` in no tensor"),
    "bytes behind the last tensor": (two([0, 24], [24, 48], bytes(49)), "has 1 bytes after its"),
    "payload cut": (two([0, 24], [24, 48], bytes(47)), "its header describes"),
    "no payload": (one()[:-24], "its header describes"),
    "empty tensor inside another": (
        safetensors_bytes(
            {"a": GOOD, "z": {"dtype": "F32", "shape": [0], "data_offsets": [12, 12]}}, PAYLOAD
        ),
        "overlaps another tensor",
    ),
    "bytes and no tensor": (text("{}", b"x"), "has 1 bytes after its last tensor"),
}

METADATA: dict[str, Case] = {
    "metadata that is a list": (text('{"__metadata__":[]}'), "is not an object of strings"),
    "metadata that is null": (text('{"__metadata__":null}'), "is not an object of strings"),
    "metadata with a number": (text('{"__metadata__":{"x":1}}'), "is not an object of strings"),
    "metadata with an object": (text('{"__metadata__":{"x":{}}}'), "is not an object of strings"),
    "metadata with null": (text('{"__metadata__":{"x":null}}'), "is not an object of strings"),
}

CASES: dict[str, Case] = LENGTHS | TEXTS | ENTRIES | TILINGS | METADATA
