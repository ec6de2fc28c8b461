"""`inkling merge` of adapters: exit codes, JSON, weights, and what is refused."""

import json

import numpy as np
import pytest

from factories import TINY, Sizes, normal, raw_config, write_model, write_released_adapter
from inkling_cli.main import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Run beside two adapters of one base model, one of another, and that model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    write_model(tmp_path / "model", raw_config(TINY))
    for seed, name in enumerate("ab"):
        write_released_adapter(tmp_path / name, fill=normal, rng=np.random.default_rng(seed))
    write_released_adapter(tmp_path / "wide", Sizes(hidden=32))
    return tmp_path


def shown_by(capsys, *arguments, code=0):
    assert main(["merge", *arguments]) == code
    return capsys.readouterr()


def config_of(folder):
    return json.loads((folder / "adapter_config.json").read_text())


def test_the_sum_has_both_ranks_and_how_to_serve_it_is_said(folder, capsys):
    shown = shown_by(capsys, "a", "b", "--to", "vllm", "-o", "out")
    assert config_of(folder / "out")["r"] == 4
    assert shown.out.startswith("wrote out: tinker → vllm, 82 tensors")
    assert "serve: INKLING_MULTIMEM_AR=0 vllm serve MODEL" in shown.out
    assert "note: `a` times 1: 42 modules" in shown.err
    assert "note: rank 2 + 2 → 4 in 42 modules" in shown.err


def test_an_adapter_and_its_negative_leave_no_difference(folder, capsys):
    shown_by(capsys, "a", "b", "-o", "sum")
    shown_by(capsys, "sum", "b", "--weights", "1,-1", "--energy", "1", "-o", "out")
    assert main(["diff", "a", "out", "--tolerance", "0.01"]) == 0
    capsys.readouterr()


def test_a_resized_sum_says_what_it_keeps(folder, capsys):
    shown = shown_by(capsys, "a", "b", "--weights", "0.7,0.3", "--rank", "3", "-o", "out")
    assert config_of(folder / "out")["r"] == 3
    assert shown.out.split("\n", 1)[0].split()[:2] == ["modules", "number"]
    assert "wrote out: " in shown.out


def test_json_has_the_adapters_and_what_is_kept(folder, capsys):
    arguments = ("a", "b", "--weights", "2,-0.5", "-o", "out", "--output-format", "json")
    found = json.loads(shown_by(capsys, *arguments, "--dry-run").out)
    assert not (folder / "out").exists()
    assert found["adapters"] == [
        {"path": "a", "dialect": "tinker", "weight": 2.0},
        {"path": "b", "dialect": "tinker", "weight": -0.5},
    ]
    assert "energy_kept" not in found
    done = json.loads(shown_by(capsys, *arguments).out)
    assert sum(done.pop("proven").values()) == 41
    assert done == found | {"written": True}
    resized = json.loads(shown_by(capsys, *arguments, "--rank", "1", "--overwrite").out)
    assert resized["rank"] == 1
    assert 0 < resized["energy_kept"] < 1


def test_the_record_names_all_adapters_and_weights(folder, capsys):
    shown_by(capsys, "a", "b", "--weights", "1,0.5", "-o", "out")
    record = json.loads((folder / "out" / "conversion.json").read_text())
    assert record["action"] == "merge"
    assert [source["path"] for source in record["sources"]] == ["a", "b"]
    assert record["options"]["weights"] == [1.0, 0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "b", "--weights", "1", "-o", "out"], "`--weights` has 1 number for 2 adapters"),
        (["a", "b", "--weights", "1,x", "-o", "out"], "`--weights` is `1,x`, expected numbers"),
        (["a", "b", "--weights", "1,0", "-o", "out"], "`--weights` has 0, expected finite"),
        (["a", "wide", "-o", "out"], "`lm_head` maps 40 to 60 features in `a` and 32"),
        (["a", "b", "--overwrite", "-o", "b"], "`b` is the folder `b` that is being read"),
        (["a", "b", "--for", "vllm", "-o", "out"], "of `--rank` and `--energy` neither is given"),
        (
            ["a", "--into", "model", "--rank", "2", "-o", "out"],
            "`--into` and `--rank` are both given",
        ),
        (
            ["a", "--into", "model", "--to", "peft", "-o", "out"],
            "`--into` and `--to` are both given",
        ),
        (["a", "--into", "model", "--no-verify", "-o", "out"], "`--into` and `--no-verify` are"),
        (["a", "--from", "raw", "-o", "out"], "the dialect `raw` does not have"),
        (
            ["a", "b", *("--from", "tinker") * 3, "-o", "out"],
            "`--from` is given 3 times for 2 adapters, expected once for all or once for each",
        ),
        (["a", "none", "-o", "out"], "`none` does not exist"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_cannot_be_done_exits_with_2(arguments, message, capsys, tmp_path):
    shown = shown_by(capsys, *arguments, code=2)
    assert shown.out == ""
    assert message in shown.err
    assert not (tmp_path / "out").exists()
