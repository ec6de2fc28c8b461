"""Remedies that are a conversion with options: run as they are printed, they remedy."""

import json
import re
import shlex
from pathlib import Path

import pytest

from factories import TINY, raw_config, write_model, write_released_adapter
from inkling_cli.main import main

VLLM = "INKLING_MULTIMEM_AR=0 vllm serve model --enable-lora --max-loras 2 --lora-modules"
SGLANG = "sglang serve model --lora-backend triton --lora-paths"


@pytest.fixture(autouse=True)
def _room(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "model", raw_config(TINY))
    write_released_adapter(Path("a b"))


def findings(capsys, *words):
    """Return code → remedy of what a command finds."""
    main([*words[:1], "--output-format", "json", *words[1:]])
    found = json.loads(capsys.readouterr().out)["findings"]
    return {finding["code"]: finding["help"] for finding in found}


def run_remedy(capsys, remedy, out):
    (command,) = re.findall(r"`(inkling [^`]*)`", remedy)
    words = [{"OUT": out, "MODEL": "model"}.get(word, word) for word in shlex.split(command)]
    assert main(words[1:]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("dialect", ["tinker", "vllm", "sglang", "peft"])
def test_numbers_that_are_wider_than_needed(capsys, dialect):
    wide = ("a b", "--to", dialect, "--model", "model", "--dtype", "fp32", "-o", "wide")
    assert main(["convert-adapter", *wide]) == 0
    capsys.readouterr()
    check = ("check-adapter", "--values", "--engine", "native", "--model", "model")
    remedy = findings(capsys, *check, "wide")["VAL007"]
    run_remedy(capsys, remedy, "out")
    assert "VAL007" not in findings(capsys, *check, "out")
    assert main(["diff", "wide", "out"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("code", "engine", "launch"),
    [
        ("SGL301", "sglang", f"{SGLANG} one=expanded two='a b'"),
        ("VLM202", "vllm", f"{VLLM} one=expanded two='a b'"),
        ("VLM203", "vllm", f"{VLLM} one=expanded two='a b' --enable-moe-shared-loras"),
    ],
)
def test_two_layouts_of_experts_in_one_server(capsys, code, engine, launch):
    expanded = ("a b", "--to", engine, "--expand", "--model", "model", "-o", "expanded")
    assert main(["convert-adapter", *expanded]) == 0
    capsys.readouterr()
    before = findings(capsys, "check-config", "--", *shlex.split(launch))
    run_remedy(capsys, before.pop(code), "out")
    both = launch.replace("'a b'", "out").replace(" --enable-moe-shared-loras", "")
    assert findings(capsys, "check-config", "--", *shlex.split(both)).keys() <= before.keys()
