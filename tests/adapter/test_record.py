"""`conversion.json`: says what was done, is read back as written, and bears any text."""

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from combining import merge
from conversion import convert, plan
from differences import DIALECTS, SPEC, normal

from factories import write_released_adapter
from inkling_runtime.adapter.convert.options import Options, Outer
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.json_file import MAX_JSON_BYTES, MAX_MARKS
from inkling_runtime.adapter.moves import iter_reads, verbs
from inkling_runtime.adapter.provenance.proven import Account, Action, Proven, Verification
from inkling_runtime.adapter.provenance.read_record import read_record
from inkling_runtime.adapter.provenance.record import (
    RECORD_NAME,
    Record,
    RecordedSource,
    RecordedTensor,
    format_record,
    options_object,
    options_of,
)
from inkling_runtime.adapter.sites import Group
from inkling_runtime.errors import InklingError


def digests_in(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every tensor, straight from the file."""
    path = folder / "adapter_model.safetensors"
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {
        name: hashlib.sha256(
            data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]
        ).hexdigest()
        for name, entry in header.items()
    }


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("per_expert", [False, True])
def test_every_tensor_of_both_sides_is_recorded(
    tmp_path: Path, dialect: str, per_expert: bool
) -> None:
    source = write_released_adapter(tmp_path / "source", fill=normal, per_expert=per_expert)
    conversion = convert(source, dialect, tmp_path / "out", SPEC)
    record = read_record(tmp_path / "out")
    written = {name: tensor.sha256 for name, tensor in record.tensors.items()}
    assert written == digests_in(tmp_path / "out")
    (recorded,) = record.sources
    assert recorded.tensors == digests_in(source)
    for output in conversion.outputs:
        tensor = record.tensors[output.spec.name]
        assert tensor.shape == output.spec.shape
        assert tensor.moves == verbs(output.array)
        assert [name for _, name in tensor.sources] == [
            read.tensor.name for read in iter_reads(output.array)
        ]
    for folder, sha256 in (
        (source, recorded.config_sha256),
        (tmp_path / "out", record.config_sha256),
    ):
        config = (folder / "adapter_config.json").read_bytes()
        assert hashlib.sha256(config).hexdigest() == sha256


def test_paths_are_those_that_the_user_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_released_adapter(tmp_path / "source")
    monkeypatch.chdir(tmp_path)
    convert(Path("source"), "vllm", Path("out"), SPEC)
    assert read_record(Path("out")).sources[0].path == "source"
    assert str(tmp_path) not in (tmp_path / "out" / RECORD_NAME).read_text("utf-8")


def test_a_sum_names_all_its_sources(tmp_path: Path) -> None:
    sources = [write_released_adapter(tmp_path / name, fill=normal) for name in "ab"]
    merge(sources, [1.0, 0.5], tmp_path / "out", to="tinker")
    record = read_record(tmp_path / "out")
    assert record.action is Action.MERGE
    assert [source.path for source in record.sources] == list(map(str, sources))
    assert all({n for n, _ in t.sources} == {0, 1} for t in record.tensors.values())
    assert [source.tensors for source in record.sources] == list(map(digests_in, sources))


def test_what_was_asked_for_is_recorded(tmp_path: Path) -> None:
    conversion = plan(write_released_adapter(tmp_path / "source"), "vllm", SPEC)
    wished = replace(conversion, options=Options(dropped=frozenset({Group.HEAD}), dtype="BF16"))
    account = Account(Action.RESIZE, (conversion.source,), {"rank": 2})
    write_conversion(wished, tmp_path / "out", account=account, verification=Verification.NONE)
    record = read_record(tmp_path / "out")
    assert record.action is Action.RESIZE
    assert record.options["rank"] == 2
    assert options_of(record) == wished.options
    assert set(record.modules.values()) == {Proven.NOTHING}


@pytest.mark.parametrize(
    "options",
    [Options(), Options(True, "F32", True, Outer.EXPAND, frozenset(Group))],
    ids=["none", "all"],
)
def test_a_record_is_read_back_as_it_was_written(tmp_path: Path, options: Options) -> None:
    record = record_of(3, options=options_object(options))
    (tmp_path / RECORD_NAME).write_text("\n".join(format_record(record)), "utf-8")
    assert read_record(tmp_path) == record
    assert options_of(record) == options


def record_of(count: int, **changes: Any) -> Record:
    """Return a record of as many tensors, each made of one tensor and all of zeros."""
    prefix = "base_model.model.model.language_model.layers"
    names = [f"{prefix}.{n}.mlp.experts.255.gate_proj.lora_A.weight" for n in range(count)]
    sha256 = "a5" * 32
    source = RecordedSource("adapters/source", "tinker", sha256, dict.fromkeys(names, sha256))
    tensors = {
        name: RecordedTensor(sha256, "BF16", (32, 6144), ("split",), ((0, name),)) for name in names
    }
    modules = dict.fromkeys((name.removesuffix(".lora_A.weight") for name in names), Proven.BYTES)
    record = Record(
        Action.CONVERT, "0.1.0", "vllm", {}, (source,), sha256, {"r": 32}, tensors, modules
    )
    return replace(record, **changes)


def test_the_largest_adapter_stays_within_the_bounds() -> None:
    """Tensors by the thousand, scaled to an adapter with every expert's factors apart."""
    text = "\n".join(format_record(record_of(1000))).encode()
    assert len(text) * 99_358 / 1000 < MAX_JSON_BYTES
    assert sum(text.count(mark) for mark in b"{[,:") * 99_358 / 1000 < MAX_MARKS


TEXTS, OBJECTS = ("inkling", "dialect", "config_sha256"), ("options", "effect")
OTHERS = ("version", "action", "sources", "kinds", "tensors", "modules")
VALUES = (None, 3, "text", [3], {"a": 3}, [[]], {"a": [1, 2, 3]})
WRONG = [
    (key, value)
    for key in (*TEXTS, *OBJECTS, *OTHERS)
    for value in VALUES
    if not (key in TEXTS and isinstance(value, str))
    and not (key in OBJECTS and isinstance(value, dict))
]


class TestWhatStrangersWrite:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        source = write_released_adapter(tmp_path / "source", groups={"dense"})
        convert(source, "vllm", tmp_path / "out", SPEC)
        return tmp_path / "out"

    @pytest.mark.parametrize(("key", "value"), WRONG)
    def test_values_of_another_kind_are_errors(self, folder: Path, key: str, value: Any) -> None:
        values = json.loads((folder / RECORD_NAME).read_text("utf-8"))
        values[key] = value
        self.refused(folder, values)

    @pytest.mark.parametrize(
        "change",
        [
            lambda values: values["sources"][0].pop("path"),
            lambda values: values["sources"][0]["tensors"].update(a=3),
            lambda values: values["kinds"][0].update(shape=[1.5]),
            lambda values: values["kinds"][0].update(moves="copy"),
            lambda values: values["kinds"].clear(),
            lambda values: next(iter(values["tensors"].values())).append(3),
            lambda values: next(iter(values["tensors"].values())).__setitem__(1, -1),
            lambda values: next(iter(values["tensors"].values()))[2].append(10**9),
            lambda values: values["modules"].update(a="sure"),
        ],
    )
    def test_entries_that_mean_nothing_are_errors(
        self, folder: Path, change: Callable[[Any], Any]
    ) -> None:
        values = json.loads((folder / RECORD_NAME).read_text("utf-8"))
        changed = copy.deepcopy(values)
        change(changed)
        assert changed != values
        self.refused(folder, changed)

    def refused(self, folder: Path, values: Any) -> None:
        (folder / RECORD_NAME).write_text(json.dumps(values), "utf-8")
        with pytest.raises(InklingError, match=RECORD_NAME):
            read_record(folder)

    @pytest.mark.parametrize(
        "options", [{}, {"dtype": 1}, {**options_object(Options()), "dropped": ["all"]}]
    )
    def test_options_that_mean_nothing_are_errors(self, options: dict[str, Any]) -> None:
        with pytest.raises(InklingError, match="`options` of"):
            options_of(record_of(1, options=options))


def test_an_adapter_without_a_record_is_told(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "source")
    with pytest.raises(InklingError, match=r"holds no `conversion\.json`"):
        read_record(source)
