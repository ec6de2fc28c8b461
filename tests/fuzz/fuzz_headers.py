"""Mutated headers and configs by the million: each must end in a value or in a clear error.

`python tests/fuzz/fuzz_headers.py --runs 1000000 --seed 1` prints how the runs ended by kind of
message, where this reader and the safetensors library differ, the peak of memory and the slowest
input. It ends with 1 if anything but an `InklingError` was raised, if a file is taken that the
library refuses, or if one is refused that the library takes, for a reason that is not listed.
"""

import argparse
import json
import random
import re
import resource
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from safetensors import SafetensorError, deserialize

from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.adapter_weights import WEIGHTS_NAME
from inkling_runtime.adapter.lora_config import CONFIG_NAME
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS
from inkling_runtime.errors import InklingError

STRICTER = {
    "is not an object of dtype, shape and data_offsets": "a key that the format does not have",
    "stands twice": "a key twice",
    "is not an object of strings": "metadata that is null",
    "dimensions, expected at most": "more dimensions than any reader of arrays takes",
    "has a name of": "a name beyond 1000 characters",
    "does not begin with an opening brace": "white space before the brace",
    "whose size overflows": "sizes that overflow beside a size of 0",
}
"""Part of our message → what we refuse on purpose although the library takes it."""

PAYLOAD = bytes(range(64))

ENTRIES = {
    "base_model.model.model.layers.0.attn.wq_du.lora_A.weight": ("F32", [2, 3]),
    "language_model.layers.1.mlp.experts.w1.lora_B.weight": ("BF16", [2, 3, 2]),
    "é\u2028.lora_B.weight": ("F16", [3, 0]),
    "scalar": ("U8", []),
}

TOKENS = [
    *('"', "{", "}", "[", "]", ",", ":", "\\", "\\u", "\\ud800", "\\u0041", "null", "true", "NaN"),
    *(
        "0",
        "-0",
        "-1",
        "1e9",
        "0.5",
        "24",
        "Infinity",
        " ",
        "\n",
        "\0",
        "\ufeff",
        "é",
        "\U0001f600",
    ),
    *("F32", "BF16", "F4", "dtype", "shape", "data_offsets", "__metadata__", "lora_alpha", "r"),
]

EXTREMES = [
    *(
        "0",
        "1",
        "-1",
        "-0",
        "00",
        "1.0",
        "1e400",
        "2147483648",
        "4294967296",
        "9223372036854775807",
    ),
    *("9223372036854775808", "18446744073709551615", "18446744073709551616", "1" + "0" * 400),
    *("9" * 5000, "true", "null", '"1"', "[1]", "{}", "NaN"),
]

KEYS = [
    "wq_du",
    r".*\.w1",
    "(a+)+$",
    "(",
    "[",
    "(?=a)",
    "a{99999}",
    "a{999}",
    "x" * 2000,
    "^$",
    r"\d*",
    "é",
]


Header = dict[str, dict[str, object]]


def sound_header(rng: random.Random) -> Header:
    """Return a header of some tensors that lie one behind another."""
    names = rng.sample(sorted(ENTRIES), rng.randint(0, len(ENTRIES)))
    header: Header = {}
    position = 0
    for name in names:
        dtype, shape = ENTRIES[name]
        end = position + _size_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    return header


def _size_of(dtype: str, shape: list[int]) -> int:
    return prod(shape) * DTYPE_BITS[dtype] // 8


def sound_config(rng: random.Random) -> dict[str, object]:
    """Return an adapter_config.json with patterns."""
    keys = rng.sample(KEYS, rng.randint(0, 3))
    return {
        "peft_type": "LORA",
        "r": rng.randint(1, 64),
        "lora_alpha": rng.choice([8, 0.5, -1, 0]),
        "use_rslora": rng.random() < 0.5,
        "rank_pattern": dict.fromkeys(keys, 3),
        "alpha_pattern": dict.fromkeys(keys, 0.5),
        "target_modules": "all-linear",
    }


Mutation = Callable[[random.Random, str], str]


def _spot(rng: random.Random, text: str) -> tuple[int, int]:
    start = rng.randint(0, len(text))
    return start, min(len(text), start + rng.randint(0, 12))


def _replace_by_token(rng: random.Random, text: str) -> str:
    start, end = _spot(rng, text)
    return text[:start] + rng.choice(TOKENS) + text[end:]


def _insert_token(rng: random.Random, text: str) -> str:
    start, _ = _spot(rng, text)
    return text[:start] + rng.choice(TOKENS) + text[start:]


def _cut(rng: random.Random, text: str) -> str:
    start, end = _spot(rng, text)
    return text[:start] + text[end:]


def _repeat_part(rng: random.Random, text: str) -> str:
    start, end = sorted(rng.randint(0, len(text)) for _ in range(2))
    return text[:end] + text[start:end] + text[end:]


def _change(pattern: str, replace: Callable[[random.Random, str], str]) -> Mutation:
    """Return the mutation that changes one place that an expression finds."""
    finder = re.compile(pattern)

    def mutate(rng: random.Random, text: str) -> str:
        places = [match.span() for match in finder.finditer(text)]
        if not places:
            return text
        start, end = rng.choice(places)
        return text[:start] + replace(rng, text[start:end]) + text[end:]

    return mutate


def _swap_parts(rng: random.Random, text: str) -> str:
    parts = re.split(r"([{}\[\],:])", text)
    first, second = rng.randrange(len(parts)), rng.randrange(len(parts))
    parts[first], parts[second] = parts[second], parts[first]
    return "".join(parts)


_NUMBER, _STRING, _OBJECT, _MEMBER = r"-?\d+", r'"[^"]*"', r"\{[^{}]*\}", r'"[^"]*": ?\{[^{}]*\},'

MUTATIONS: Sequence[Mutation] = (
    _replace_by_token,
    _insert_token,
    _cut,
    _repeat_part,
    _swap_parts,
    _change(_NUMBER, lambda rng, part: rng.choice(EXTREMES)),
    _change(_NUMBER, lambda rng, part: str(int(part[:20]) + rng.choice((-8, -1, 1, 8)))),
    _change(_STRING, lambda rng, part: rng.choice(EXTREMES)),
    _change(_STRING, lambda rng, part: f'"{"n" * rng.choice((1, 900, 1001, 20_000))}"'),
    _change(_OBJECT, lambda rng, part: f'{{"a": {part}}}'),
    _change(_OBJECT, lambda rng, part: "[" * 1500 if rng.random() < 0.1 else f"[{part}]"),
    _change(_MEMBER, lambda rng, part: part * rng.randint(2, 4)),
    _change(_MEMBER, lambda rng, part: part.replace('"', '"x', 1) * rng.randint(1, 2)),
    _change(r"\[[^\[\]]*\]", lambda rng, part: part[:-1] + ",1" * rng.choice((1, 3, 40)) + "]"),
)


def mutate_text(rng: random.Random, text: str) -> bytes:
    """Return a text with up to four mutations, in UTF-8, rarely with a byte that is not."""
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        text = rng.choice(MUTATIONS)(rng, text)
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    if data and rng.random() < 0.1:
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def mutated_weights(rng: random.Random) -> bytes:
    """Return a file with a mutated header, its length and payload mostly right."""
    header = sound_header(rng)
    separators = (",", ":") if rng.random() < 0.8 else (", ", ": ")
    metadata = {"__metadata__": {"format": "pt"}} if rng.random() < 0.5 else {}
    text = json.dumps(metadata | header, ensure_ascii=rng.random() < 0.2, separators=separators)
    data = mutate_text(rng, text)
    length = len(data)
    if rng.random() < 0.05:
        length = rng.choice((0, 1, length + 1, length + 8, 10**8, 10**8 + 1, 2**63, 2**64 - 1))
    return struct.pack("<Q", length) + data + PAYLOAD[: _payload_size(rng, header)]


def _payload_size(rng: random.Random, header: Header) -> int:
    size = sum(_size_of(dtype, shape) for dtype, shape in map(ENTRIES.__getitem__, header))
    return max(0, size + rng.choice((-1, 1, 8))) if rng.random() < 0.05 else size


def mutated_config(rng: random.Random) -> bytes:
    """Return a mutated adapter_config.json."""
    return mutate_text(rng, json.dumps(sound_config(rng)))


@dataclass
class Outcomes:
    """How the runs ended."""

    kinds: Counter[str] = field(default_factory=Counter)
    stricter: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    """What must not be: other exceptions, and differences from the library that are not meant."""
    slowest_s: float = 0.0
    slowest: bytes = b""


def fuzz(runs: int, seed: int, folder: Path) -> Outcomes:
    """Return how reading mutated adapters ended; the folder is written to."""
    rng = random.Random(seed)
    outcomes = Outcomes()
    sound = {WEIGHTS_NAME: _sound_weights(), CONFIG_NAME: json.dumps(SOUND_CONFIG).encode()}
    for name, data in sound.items():
        (folder / name).write_bytes(data)
    for _ in range(runs):
        name = WEIGHTS_NAME if rng.random() < 0.8 else CONFIG_NAME
        data = mutated_weights(rng) if name == WEIGHTS_NAME else mutated_config(rng)
        (folder / name).write_bytes(data)
        start = time.perf_counter()
        error = _error_of(folder, data, outcomes)
        took = time.perf_counter() - start
        if took > outcomes.slowest_s:
            outcomes.slowest_s, outcomes.slowest = took, data
        outcomes.kinds["read" if error is None else kind_of(error, folder)] += 1
        if name == WEIGHTS_NAME:
            _compare_with_library(data, error, outcomes)
        (folder / name).write_bytes(sound[name])
    return outcomes


SOUND_CONFIG = {"r": 2, "lora_alpha": 8}


def _sound_weights() -> bytes:
    header: Header = {}
    position = 0
    for name, (dtype, shape) in ENTRIES.items():
        end = position + _size_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + PAYLOAD[:position]


def _error_of(folder: Path, data: bytes, outcomes: Outcomes) -> str | None:
    """Return the message of the error that reading an adapter ends with, None if it is read."""
    try:
        read_adapter(folder)
    except InklingError as error:
        return error.message
    except Exception as error:
        outcomes.faults.append(f"{type(error).__name__}: {error} from {data!r}")
        return f"a bug: {type(error).__name__}"
    return None


def _compare_with_library(data: bytes, error: str | None, outcomes: Outcomes) -> None:
    try:
        deserialize(data)
        is_taken = True
    except SafetensorError:
        is_taken = False
    if error is None and not is_taken:
        outcomes.faults.append(f"taken, but not by the library: {data!r}")
    if error is not None and is_taken:
        meant = next((STRICTER[part] for part in STRICTER if part in error), None)
        if meant is None:
            outcomes.faults.append(f"refused ({error}), but not by the library: {data!r}")
        outcomes.stricter[meant or "not meant"] += 1


def kind_of(message: str, folder: Path) -> str:
    """Return a message without what is particular to the file."""
    text = message.replace(str(folder), "")
    text = re.sub(r"`.*`", "`…`", text, flags=re.DOTALL)
    text = re.sub(r"(has [a-z_]+) .*, expected", r"\1 …, expected", text, flags=re.DOTALL)
    text = re.sub(r"\[.*\]|(?<= )\(.*|(?<![-A-Z])-?[0-9][0-9.e+…]*", "N", text, flags=re.DOTALL)
    return text[:100]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    place = Path("/dev/shm")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=place if place.is_dir() else None) as folder:
        before = peak_mb()
        outcomes = fuzz(options.runs, options.seed, Path(folder))
    lines = [
        f"{options.runs} runs, seed {options.seed}, {time.perf_counter() - start:.0f} s",
        f"peak of memory {peak_mb()} MB, before the first run {before} MB",
        f"slowest {outcomes.slowest_s * 1000:.1f} ms: {outcomes.slowest[:200]!r}",
    ]
    for title, counts in (("ended", outcomes.kinds), ("stricter by", outcomes.stricter)):
        lines += [f"{title} {count:8} {kind}" for kind, count in counts.most_common()]
    lines += [f"FAULT {fault[:1000]}" for fault in outcomes.faults[:20]]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if outcomes.faults else 0


def peak_mb() -> int:
    """Return the most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    sys.exit(main())
