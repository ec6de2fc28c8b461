"""`inkling verify`: exit codes, JSON, and what it says of folders that are not what was written."""

import json
import shutil
import struct
from pathlib import Path

import pytest

from checks.adapter_cases import convert
from factories import TINY, raw_config, write_model, write_released_adapter
from inkling_cli.main import main

QUERY = "language_model.layers.1.attn.wq_du.lora_A.weight"


@pytest.fixture
def room(tmp_path, monkeypatch):
    """Run beside an adapter and what it was converted to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    write_model(tmp_path / "model", raw_config(TINY))
    write_released_adapter(Path("source"))
    convert(Path("source"), "vllm", Path("out"))
    return tmp_path


def verified(capsys, *arguments, code):
    assert main(["verify", *arguments, "--output-format", "json"]) == code
    shown = capsys.readouterr()
    assert shown.err == ""
    answer = json.loads(shown.out)
    assert answer["status"] == ("same" if code == 0 else "different")
    return answer


def shown(capsys, *arguments, code):
    assert main(["verify", *arguments]) == code
    return capsys.readouterr().out


def refused(capsys, *arguments):
    assert main(["verify", *arguments]) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    return answer.err


def change_byte(folder, tensor):
    path = Path(folder) / "adapter_model.safetensors"
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    data[8 + length + header[tensor]["data_offsets"][0] + 1] ^= 1
    path.write_bytes(data)


def change_config(folder, **values):
    path = Path(folder) / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | values), "utf-8")


def rewrite(folder, edit):
    """Write the weights of a folder again, without and with what an edit of the names says."""
    path = Path(folder) / "adapter_model.safetensors"
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    edit(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


@pytest.mark.usefixtures("room")
class TestExitCodes:
    @pytest.mark.parametrize("source", [[], ["--source", "source"]])
    def test_what_was_written_is_proven(self, capsys, source):
        answer = verified(capsys, "out", *source, code=0)
        assert answer["tensors"] == []
        assert answer["deltas"]["not_compared"] is None
        assert {module["proven"] for module in answer["deltas"]["modules"]} == {"bytes"}

    @pytest.mark.parametrize("dialect", ["tinker", "sglang", "peft"])
    def test_in_every_dialect(self, capsys, dialect):
        convert(Path("source"), dialect, Path(dialect))
        verified(capsys, dialect, "--model", "model", code=0)

    def test_without_its_source(self, capsys):
        shutil.rmtree("source")
        answer = verified(capsys, "out", code=0)
        assert answer["sources"] == [
            {
                "path": "source",
                "is_there": False,
                "in_place": False,
                "config_differs": False,
                "tensors": [],
            }
        ]
        assert answer["deltas"]["not_compared"] == "`source` holds no adapter to compare with"

    def test_a_source_that_moved(self, capsys):
        Path("source").rename("moved")
        answer = verified(capsys, "out", "--source", "moved", code=0)
        assert answer["sources"][0]["path"] == "moved"

    def test_one_byte_that_changed(self, capsys):
        change_byte("out", QUERY)
        answer = verified(capsys, "out", code=1)
        (tensor,) = answer["tensors"]
        assert (tensor["name"], tensor["change"]) == (QUERY, "changed")
        assert tensor["found"].startswith("SHA-256 ")
        apart = [m for m in answer["deltas"]["modules"] if m["proven"] == "nothing"]
        assert [module["site"] for module in apart] == ["layers.1.attn.wq_du"]

    def test_one_byte_of_the_source_that_changed(self, capsys):
        change_byte("source", QUERY)
        answer = verified(capsys, "out", code=1)
        assert answer["tensors"] == []
        assert [t["name"] for t in answer["sources"][0]["tensors"]] == [QUERY]

    def test_a_tensor_that_has_another_name(self, capsys):
        rewrite("out", lambda header: header.update({"other": header.pop(QUERY)}))
        answer = verified(capsys, "out", code=1)
        changes = {tensor["name"]: tensor["change"] for tensor in answer["tensors"]}
        assert changes == {QUERY: "missing", "other": "added"}
        assert answer["deltas"]["not_compared"] == "tensors are missing or were added"

    def test_a_tensor_that_has_another_shape(self, capsys):
        rewrite("out", lambda header: header[QUERY].update(shape=[1, 2 * TINY.hidden]))
        (tensor,) = verified(capsys, "out", code=1)["tensors"]
        assert (tensor["found"], tensor["expected"]) == ("BF16 [1, 80]", "BF16 [2, 40]")


@pytest.mark.usefixtures("room")
class TestConfigs:
    def test_a_key_that_decides_the_effect(self, capsys):
        change_config("out", lora_alpha=16)
        answer = verified(capsys, "out", code=1)
        assert answer["config"] == {
            "differs": True,
            "fault": None,
            "effect": [{"key": "lora_alpha", "found": 16, "expected": 8}],
        }
        assert {module["proven"] for module in answer["deltas"]["modules"]} == {"nothing"}
        assert "config  differs, 1 key that can change a delta\n" in shown(capsys, "out", code=1)

    def test_one_that_does_not(self, capsys):
        change_config("out", revision="main")
        answer = verified(capsys, "out", code=1)
        assert answer["config"] == {"differs": True, "fault": None, "effect": []}
        assert "config  differs, not in its effect\n" in shown(capsys, "out", code=1)

    def test_one_that_adds_more_than_lora(self, capsys):
        change_config("out", use_dora=True)
        answer = verified(capsys, "out", code=1)
        assert answer["config"]["fault"].startswith("it has use_dora True, with which the effect")

    def test_one_that_cannot_be_read(self, capsys):
        change_config("out", r="two")
        answer = verified(capsys, "out", code=1)
        assert "expected a positive integer" in answer["config"]["fault"]
        assert "expected a positive integer" in answer["deltas"]["not_compared"]

    def test_that_of_the_source(self, capsys):
        change_config("source", revision="main")
        answer = verified(capsys, "out", code=1)
        assert answer["sources"][0]["config_differs"]
        assert "source  source: the config differs\n" in shown(capsys, "out", code=1)


@pytest.mark.usefixtures("room")
class TestRefusals:
    def test_a_folder_without_a_record(self, capsys):
        message = refused(capsys, "source")
        assert (
            "`source` holds no `conversion.json`, expected an adapter that inkling wrote" in message
        )
        assert "`inkling diff`" in message

    def test_a_folder_that_is_not_there(self, capsys):
        assert "`nowhere` does not exist" in refused(capsys, "nowhere")

    def test_another_number_of_sources(self, capsys):
        message = refused(capsys, "out", "--source", "source", "--source", "source")
        assert "`out` was made of 1 adapter, `--source` is given 2 times" in message

    def test_a_source_that_is_no_adapter(self, capsys):
        assert "`model` holds no" in refused(capsys, "out", "--source", "model")

    def test_deltas_that_cannot_be_compared_where_that_was_asked_for(self, capsys):
        small = write_released_adapter(Path("small"), groups={"dense"})
        convert(small, "vllm", Path("small-out"))
        record = Path("small-out/conversion.json")
        text = record.read_text("utf-8").replace('"dialect": "tinker"', '"dialect": "peft"')
        record.write_text(text, "utf-8")
        message = refused(capsys, "small-out", "--source", "small")
        assert "the deltas of `small-out` and `small` are not compared" in message


def test_long_lists_are_cut_for_people_and_whole_for_programs(room, capsys):
    names = list(json.loads((room / "out/conversion.json").read_text("utf-8"))["tensors"])
    for name in names[:14]:
        change_byte("out", name)
    text = shown(capsys, "out", code=1)
    head = text.partition("tensors changed\n")[2].splitlines()
    assert head[10] == "  and 4 more"
    assert head[:10] == [f"  {name}" for name in sorted(names[:14])[:10]]
    assert text.endswith("\nThis is not what was recorded.\n")
    assert len(verified(capsys, "out", code=1)["tensors"]) == 14


def test_a_sum_is_checked_by_its_bytes(room, capsys):
    write_released_adapter(Path("other"))
    assert main(["merge", "source", "other", "-o", "sum"]) == 0
    capsys.readouterr()
    answer = verified(capsys, "sum", code=0)
    assert [source["path"] for source in answer["sources"]] == ["source", "other"]
    assert answer["deltas"]["not_compared"].startswith("the deltas of a merged adapter are not")
    change_byte("other", QUERY)
    answer = verified(capsys, "sum", code=1)
    assert [len(source["tensors"]) for source in answer["sources"]] == [0, 1]
