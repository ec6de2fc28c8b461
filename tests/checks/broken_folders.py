"""For every rule over an adapter's folder an edit of a sound one that breaks it."""

import json
from collections.abc import Callable
from pathlib import Path

from factories import write_json

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def cut(share: float) -> Callable[[Path], None]:
    """Return an edit that keeps this share of the weights' bytes."""

    def edit(folder: Path) -> None:
        data = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).write_bytes(data[: int(len(data) * share)])

    return edit


def call(name: str) -> Callable[[Path], None]:
    """Return an edit that gives the weights another name."""

    def edit(folder: Path) -> None:
        (folder / WEIGHTS).rename(folder / name)

    return edit


def list_in(index: str) -> Callable[[Path], None]:
    """Return an edit after which an index of this name lists the weights as another file's."""

    def edit(folder: Path) -> None:
        part = "model-00001-of-00002.safetensors"
        (folder / WEIGHTS).rename(folder / part)
        name = "language_model.lm_head.lora_A.weight"
        write_json(folder / index, {"weight_map": {name: part}})

    return edit


def put_into_base_model(folder: Path) -> None:
    """Make of an adapter a base model in which its factors lie."""
    (folder / WEIGHTS).rename(folder / "model.safetensors")
    (folder / CONFIG).unlink()
    write_json(folder / "config.json", {})


def change_config(**changes: object) -> Callable[[Path], None]:
    """Return an edit of the config; a value of ... removes the key."""

    def edit(folder: Path) -> None:
        values = json.loads((folder / CONFIG).read_text()) | changes
        kept = {key: value for key, value in values.items() if value is not ...}
        write_json(folder / CONFIG, kept)

    return edit


def write_config(text: str) -> Callable[[Path], None]:
    """Return an edit that replaces the config's text."""

    def edit(folder: Path) -> None:
        (folder / CONFIG).write_text(text)

    return edit


BROKEN_FOLDERS: dict[str, Callable[[Path], None]] = {
    "ADP101": lambda folder: (folder / WEIGHTS).unlink(),
    "ADP102": call("adapter_model.bin"),
    "ADP103": call("model.safetensors"),
    "ADP104": cut(0.6),
    "ADP105": lambda folder: (folder / CONFIG).unlink(),
    "ADP106": change_config(lora_alpha=...),
    "ADP107": put_into_base_model,
    "ADP108": lambda folder: (folder / "more.safetensors").write_bytes(
        (folder / WEIGHTS).read_bytes()
    ),
    "ADP109": lambda folder: write_json(folder / "added_tokens.json", {"<think>": 200_060}),
}
