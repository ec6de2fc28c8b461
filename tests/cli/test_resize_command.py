"""`inkling resize`: exit codes, JSON, what it keeps, and that nothing is written too early."""

import json

import pytest

from factories import TINY, normal, raw_config, write_model, write_released_adapter
from inkling_cli.main import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Run beside an adapter of rank 4 and its base model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    write_model(tmp_path / "model", raw_config(TINY))
    write_released_adapter(tmp_path / "a", rank=4, fill=normal)
    return tmp_path


def shown_by(capsys, *arguments, code=0):
    assert main(["resize", *arguments]) == code
    return capsys.readouterr()


def config_of(folder):
    return json.loads((folder / "adapter_config.json").read_text())


def test_the_rank_is_written_and_what_it_keeps_is_said(folder, capsys):
    shown = shown_by(capsys, "a", "--rank", "2", "-o", "out")
    assert (config_of(folder / "out")["r"], config_of(folder / "out")["lora_alpha"]) == (2, 4)
    head, *rows = shown.out.splitlines()
    assert head.split() == ["modules", "number", "rank", "energy", "kept", "least", "error"]
    assert [row.split()[0] for row in rows[:3]] == ["attn.wq_du", "attn.wk_dv", "attn.wv_dv"]
    assert "the modules that keep the least" in shown.out
    assert "\nwrote out: tinker → tinker, 82 tensors" in shown.out
    assert "note: rank 4 → 2 in 41 modules" in shown.err


def test_json_has_every_module(folder, capsys):
    shown = shown_by(capsys, "a", "--energy", "0.9", "-o", "out", "--output-format", "json")
    found = json.loads(shown.out)
    assert (found["command"], found["rank"], found["written"]) == ("resize", 4, True)
    assert len(found["modules"]) == 41
    assert found["worst"] in found["modules"]
    assert ["layers.0.mlp.gate", "layers.0.mlp.up"] in [m["sites"] for m in found["modules"]]
    for module in found["modules"]:
        assert module.keys() == {"sites", "rank_before", "norm", "energy_kept", "relative_error"}
        assert module["energy_kept"] == pytest.approx(1 - module["relative_error"] ** 2)


def test_a_dry_run_writes_nothing_and_shows_the_same(folder, capsys):
    arguments = ("a", "--rank", "2", "-o", "out", "--output-format", "json")
    dry = json.loads(shown_by(capsys, *arguments, "--dry-run").out)
    assert not (folder / "out").exists()
    done = json.loads(shown_by(capsys, *arguments).out)
    assert sum(done.pop("proven").values()) == 41
    assert done == dry | {"written": True}
    assert "← mix: " in shown_by(capsys, "a", "--rank", "2", "-o", "new", "--dry-run").out


def test_a_rank_that_vllm_takes(folder, capsys):
    shown = shown_by(capsys, "a", "--rank", "2", "--for", "vllm", "--to", "vllm", "-o", "out")
    assert config_of(folder / "out")["r"] == 8
    assert "--max-lora-rank 8 " in shown.out


def test_the_record_says_what_was_asked_for(folder, capsys):
    shown_by(capsys, "a", "--energy", "0.5", "--dtype", "fp32", "-o", "out")
    record = json.loads((folder / "out" / "conversion.json").read_text())
    assert record["action"] == "resize"
    assert (record["options"]["energy"], record["options"]["dtype"]) == (0.5, "F32")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "-o", "out"], "of `--rank` and `--energy` neither is given"),
        (["a", "--rank", "2", "--energy", "1", "-o", "out"], "both are given"),
        (["a", "--rank", "0", "-o", "out"], "`--rank` is 0, expected a number from 1"),
        (["a", "--energy", "1.5", "-o", "out"], "`--energy` is 1.5, expected a share above 0"),
        (["a", "--rank", "600", "--for", "vllm", "-o", "out"], "that is allowed is 512"),
        (["a", "--rank", "2", "--to", "raw", "-o", "out"], "`raw` is a dialect that is only read"),
        (["a", "--rank", "2", "-o", "a"], "`a` is the folder `a` that is being read"),
        (["a", "--rank", "2", "-o", "model"], "`model` exists"),
        (["none", "--rank", "2", "-o", "out"], "`none` does not exist"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_cannot_be_done_exits_with_2(arguments, message, capsys, tmp_path):
    shown = shown_by(capsys, *arguments, code=2)
    assert shown.out == ""
    assert message in shown.err
    assert not (tmp_path / "out").exists()


def test_numbers_that_cannot_be_decomposed(folder, capsys):
    def spoil(tensors):
        tensors["language_model.lm_head.lora_A.weight"][1, 1] = float("nan")

    write_released_adapter(folder / "nan", rank=4, edit=spoil)
    shown = shown_by(capsys, "nan", "--rank", "2", "-o", "out", code=2)
    assert "A of `lm_head` holds NaN or infinity in `nan`, expected finite numbers" in shown.err
    assert "hint: `inkling check-adapter nan --values` shows which elements" in shown.err
    assert not (folder / "out").exists()
