"""Options of `inkling convert-adapter` as people give them: refused together, told, in place."""

import json
import struct
from pathlib import Path

import pytest

from factories import TINY, raw_config, write_model, write_released_adapter
from inkling_cli.main import main


@pytest.fixture(autouse=True)
def _room(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    write_model(tmp_path / "model", raw_config(TINY))
    write_released_adapter(Path("a"))


def run(capsys, *arguments, code=0, command="convert-adapter"):
    assert main([command, *arguments]) == code
    return capsys.readouterr()


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


class TestWhatIsOfNoUseTogether:
    @pytest.mark.parametrize(
        ("others", "name"),
        [
            (["--dry-run"], "--dry-run"),
            (["--to", "vllm", "-o", "out"], "--to"),
            (["--no-verify"], "--no-verify"),
            (["--in-place"], "--in-place"),
            (["--drop", "head"], "--drop"),
        ],
    )
    def test_undo_is_given_alone_and_changes_nothing_otherwise(self, capsys, others, name):
        run(capsys, "a", "--to", "vllm", "--in-place")
        before = bytes_of("a")
        shown = run(capsys, "a", "--undo", *others, code=2)
        assert f"`--undo` and `{name}` are both given, expected one of them" in shown.err
        assert bytes_of("a") == before

    @pytest.mark.parametrize(
        ("others", "name"),
        [
            (["-o", "out"], "-o"),
            (["--overwrite"], "--overwrite"),
            (["--shard-size", "1KB"], "--shard-size"),
            (["--verify"], "--verify"),
        ],
    )
    def test_in_place_takes_no_option_of_a_new_folder(self, capsys, others, name):
        before = bytes_of("a")
        shown = run(capsys, "a", "--to", "sglang", "--in-place", *others, code=2)
        assert f"`--in-place` and `{name}` are both given, expected one of them" in shown.err
        assert bytes_of("a") == before

    def test_in_place_without_a_proof_is_what_it_is_anyway(self, capsys):
        run(capsys, "a", "--to", "vllm", "--in-place", "--no-verify")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["a"], "`--to` is not given, expected the dialect to write"),
            (["a", "--to", "vllm"], "`-o` is not given, expected the folder to write"),
        ],
    )
    def test_what_is_missing_is_named_with_a_command_that_has_it(self, capsys, arguments, message):
        shown = run(capsys, *arguments, code=2)
        assert message in shown.err
        assert "hint: `inkling convert-adapter a --to vllm -o OUT`" in shown.err


class TestGroups:
    @pytest.mark.parametrize(
        "only", [["--only", "dense,head"], ["--only", "head", "--only", " dense"]]
    )
    def test_they_are_given_with_commas_or_one_by_one(self, capsys, only):
        run(capsys, "a", "--to", "vllm", "-o", "out", *only)
        config = json.loads(Path("out/adapter_config.json").read_text("utf-8"))
        assert config["inkling_dropped_groups"] == ["attention", "routed", "shared"]

    @pytest.mark.parametrize("value", ["experts", "head,", "Head"])
    def test_an_unknown_one_is_refused_with_all_there_are(self, capsys, value):
        shown = run(capsys, "a", "--to", "vllm", "-o", "out", "--drop", value, code=2)
        assert f"`--drop` has `{value.split(',')[-1]}`, expected groups of modules" in shown.err
        assert "the groups are `attention`, `dense`, `routed`, `shared`, `head`" in shown.err

    def test_what_is_dropped_is_said_before_and_in_the_result(self, capsys):
        shown = run(capsys, "a", "--to", "sglang", "-o", "out", "--drop", "head,dense")
        said = "DROPPED: 1 head module; the result has another effect"
        assert f"warning: {said}" in shown.err
        assert f"\n  {said}\n" in shown.out
        data = run(
            capsys, "a", "--to", "sglang", "-o", "x", "--drop", "head", "--output-format", "json"
        )
        assert json.loads(data.out)["dropped"] == ["head"]

    def test_verify_says_what_was_dropped(self, capsys):
        run(capsys, "a", "--to", "sglang", "-o", "out", "--drop", "head,dense")
        shown = run(capsys, "out", command="verify")
        assert "dropped dense, head: left out when it was written" in shown.out
        assert shown.out.endswith("every delta is the source's. Left out: dense, head.\n")


class TestThePlan:
    def test_tensors_that_are_alike_have_one_line_and_all_bytes_are_counted(self, capsys):
        arguments = ("a", "--to", "vllm", "-o", "out", "--dry-run")
        shown = run(capsys, *arguments).out.splitlines()
        data = json.loads(run(capsys, *arguments, "--output-format", "json").out)
        lines = [line for line in shown if " ← " in line]
        assert len(lines) < len(data["tensors"]) / 2
        counts = [int(line.split(" × ")[0]) if " × " in line else 1 for line in lines]
        assert sum(counts) == len(data["tensors"])
        nbytes = [int(line.split()[-2].replace(",", "")) for line in lines]
        assert sum(nbytes) == data["bytes"]

    def test_a_single_tensor_keeps_its_name(self, capsys):
        shown = run(capsys, "a", "--to", "vllm", "-o", "out", "--dry-run").out
        name = "language_model.layers.0.mlp.gate_up_proj.lora_B.weight"
        assert f"\n{name} [" in shown
        assert f"interleave, split: {name}, " in shown

    def test_the_number_of_files_is_said(self, capsys):
        arguments = ("a", "--to", "sglang", "-o", "out", "--shard-size", "10KB")
        planned = json.loads(run(capsys, *arguments, "--dry-run", "--output-format", "json").out)
        assert planned["files"] > 1
        said = f" tensors in {planned['files']} files, "
        assert said in run(capsys, *arguments, "--dry-run").out
        assert said in run(capsys, *arguments).out
        assert len(list(Path("out").glob("*.safetensors"))) == planned["files"]


class TestInPlace:
    def test_what_changed_and_how_to_take_it_back_is_said(self, capsys):
        shown = run(capsys, "a", "--to", "vllm", "--in-place")
        assert shown.out.startswith("changed a: tinker → vllm, a new header")
        assert ", rows of 1 tensor in another order (" in shown.out
        assert "  undo: inkling convert-adapter a --undo\n" in shown.out
        again = run(capsys, "a", "--to", "vllm", "--in-place")
        assert again.out.startswith("unchanged: a is vllm already\n")

    def test_verify_of_a_folder_that_was_converted_in_place_since_names_undo(self, capsys):
        run(capsys, "a", "--to", "vllm", "-o", "out of it")
        run(capsys, "out of it", "--to", "tinker", "--in-place")
        shown = run(capsys, "out of it", command="verify", code=1)
        assert "`out of it` was converted in place since" in shown.out
        assert shown.out.endswith("  undo: inkling convert-adapter 'out of it' --undo\n")
        run(capsys, "out of it", "--undo")
        assert "in place" not in run(capsys, "out of it", command="verify").out

    def test_verify_names_a_source_that_was_converted_in_place_since(self, capsys):
        run(capsys, "a", "--to", "vllm", "-o", "out")
        run(capsys, "a", "--to", "vllm", "--in-place")
        shown = run(capsys, "out", command="verify", code=1)
        assert "`a` was converted in place since" in shown.out
        assert shown.out.endswith("  undo: inkling convert-adapter a --undo\n")
        data = json.loads(
            run(capsys, "out", "--output-format", "json", command="verify", code=1).out
        )
        assert (data["in_place"], data["sources"][0]["in_place"]) == (False, True)


def test_a_name_of_any_form_is_quoted_where_it_is_loaded(capsys):
    name = 'a "b" \\'
    shown = run(capsys, "a", "--to", "peft", "--model", "model", "-o", name).out
    call = shown.rpartition("from_pretrained(")[2]
    assert json.loads(call[call.index('"') : call.rindex(")")]) == name


def test_two_readings_are_asked_for_before_a_base_is_changed(capsys):
    run(capsys, "a", "--to", "peft", "--model", "model", "-o", "packed")
    path = Path("packed/adapter_model.safetensors")
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    del header["__metadata__"]["inkling.dialect"]
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    config = Path("packed/adapter_config.json")
    values = json.loads(config.read_text("utf-8")) | {"auto_mapping": {"unsloth_fixed": True}}
    config.write_text(json.dumps(values), "utf-8")
    shown = run(capsys, "packed", "--into", "model", "-o", "out", command="merge", code=2)
    assert "say how it is to be read: `--from peft` or `--from peft-unsloth`" in shown.err
    assert not Path("out").exists()
