"""A folder of hostile adapters: each sound but for one thing, which its name tells.

`SMALL` and `ODD_FILES` cost nothing to write. Each of `LARGE` is as large as is let through, or
larger: write one, read it, delete it. `LAWFUL` are adapters that a reader must take, however odd.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from factories import released_adapter_config, safetensors_bytes, write_released_adapter
from hostile import configs, headers
from inkling_runtime.adapter.json_file import MAX_JSON_BYTES, MAX_MARKS

Change = Callable[[Path], object]
"""Breaks the sound adapter in a folder."""

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def write_hostile(folder: Path, changes: Mapping[str, Change]) -> Iterator[Path]:
    """Write hostile adapters into a folder, one after another, and yield where."""
    for name, change in changes.items():
        adapter = write_released_adapter(folder / name.replace(" ", "-"), groups=["attention"])
        change(adapter)
        yield adapter


def with_weights(data: bytes) -> Change:
    return lambda adapter: (adapter / WEIGHTS).write_bytes(data)


def with_config(data: bytes) -> Change:
    return lambda adapter: (adapter / CONFIG).write_bytes(data)


SMALL: dict[str, Change] = {
    **{f"weights of {name}": with_weights(data) for name, (data, _) in headers.CASES.items()},
    **{f"config of {name}": with_config(data) for name, (data, _) in configs.CASES.items()},
}


def instead(name: str, make: Callable[[Path], object]) -> Change:
    """Return the change that puts something else in a file's place."""

    def change(adapter: Path) -> None:
        (adapter / name).unlink()
        make(adapter / name)

    return change


def _loop(path: Path) -> None:
    other = path.with_name("other")
    path.symlink_to(other)
    other.symlink_to(path)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


KINDS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path),
    "two links in a circle": _loop,
    "a link to nothing": lambda path: path.symlink_to("absent"),
    "a link to its folder": lambda path: path.symlink_to("."),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a pipe": os.mkfifo,
    "a socket": _socket,
    "a file of no bytes": Path.touch,
}
"""What may stand in the place of a file."""

ODD_FILES: dict[str, Change] = {
    f"{name} that is {kind}": instead(name, make)
    for name in (WEIGHTS, CONFIG)
    for kind, make in KINDS.items()
} | {"weights cut by a byte": lambda adapter: _cut(adapter / WEIGHTS)}


def filled(start: str, unit: str, end: str = "") -> str:
    """Return a text as large as is parsed, the unit repeated in it."""
    marks = sum(map(unit.count, "{[,:"))
    room = (MAX_JSON_BYTES - len(start) - len(end)) // len(unit.encode())
    return start + unit * min(room, (MAX_MARKS - 20) // marks if marks else room) + end


def _numbered(start: str, entry: str, end: str, count: int) -> str:
    return start + ",".join(f'"n{number}":{entry}' for number in range(count)) + end


EMPTY = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'

LARGE_TEXTS: dict[str, Callable[[], str]] = {
    "a hundred megabytes": lambda: "{" + " " * (10**8 - 2) + "}",
    "spaces": lambda: filled("{", " ", "}"),
    "lists in lists": lambda: filled('{"a":', "["),
    "objects in objects": lambda: filled("", '{"a":'),
    "many lists": lambda: filled('{"a":[', "[],", "0]}"),
    "many texts": lambda: _numbered('{"__metadata__":{', '""', "}}", MAX_MARKS // 2 - 10),
    "many commas": lambda: '{"a":[' + "0," * (MAX_MARKS + 1) + "0]}",
    "many tensors": lambda: _numbered("{", EMPTY, "}", MAX_MARKS // 13),
    "a million keys": lambda: _numbered('{"rank_pattern":{', "1", "}}", 10**6),
    "a long text": lambda: filled('{"', "é", '":0}'),
    "a long number": lambda: filled('{"a":', "9", "}"),
    "a long fraction": lambda: filled('{"a":0.', "9", "e9999}"),
    "many escapes": lambda: filled('{"__metadata__":{"a":"', r"\ud83d\ude00", '"}}'),
}

LARGE: dict[str, Change] = {
    f"{place} of {name}": change(make)
    for name, make in LARGE_TEXTS.items()
    for place, change in {
        "header": lambda make: lambda adapter: with_weights(safetensors_bytes(make()))(adapter),
        "config": lambda make: lambda adapter: with_config(make().encode())(adapter),
    }.items()
}


def _odd_names(adapter: Path) -> None:
    names = ("a\nb", "\x1b[31mred", "\u202eback", "a\x00b", "../../x", "é" * 400, "")
    tensors = {
        f"{name}.lora_{letter}.weight": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
        for name in names
        for letter in "AB"
    }
    with_weights(safetensors_bytes(tensors))(adapter)


def _with_endless_keys(adapter: Path) -> None:
    names = [f"{letter * 900}.lora_A.weight" for letter in "abx"]
    empty = {"dtype": "F32", "shape": [0, 2], "data_offsets": [0, 0]}
    with_weights(safetensors_bytes(dict.fromkeys(names, empty)))(adapter)
    patterns = dict.fromkeys(configs.ENDLESS_KEYS, 3)
    config = released_adapter_config(rank_pattern=patterns, alpha_pattern=patterns)
    with_config(json.dumps(config).encode())(adapter)


LAWFUL: dict[str, Change] = {
    "names with control characters": _odd_names,
    "patterns that re never finishes": _with_endless_keys,
}
