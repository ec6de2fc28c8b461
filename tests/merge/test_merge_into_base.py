"""What `inkling merge --into` shows, and what it writes."""

import json
from pathlib import Path

import pytest
import torch
from checkpoints import headers_of, save_base, write_normal_adapter

from inkling_cli.commands.merge_base import merge_into_base
from inkling_cli.output import Output, PlainFormat


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_base(tmp_path / "base", "raw", torch.bfloat16, max_shard_size="40KB")
    write_normal_adapter(tmp_path / "adapter", groups=["attention", "head"])
    return Path("base")


def run(base: Path, *, dry_run: bool = False, style: PlainFormat = PlainFormat.FULL) -> int:
    return merge_into_base(
        [Path("adapter")],
        base,
        Path("out"),
        weights=[0.5],
        dialects=[None],
        overwrite=False,
        dry_run=dry_run,
        output=Output("merge", style),
    )


def test_a_dry_run_shows_each_shard_the_counts_and_the_time(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (base / "model.gguf").write_bytes(b"")
    assert run(base, dry_run=True) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    shards = headers_of(base)
    lines = shown.out.splitlines()
    assert [line.partition(" ")[0] for line in lines[: len(shards)]] == list(shards)
    assert sum(line.endswith("copied") for line in lines) > 0
    total = sum(path.stat().st_size for path in base.glob("*.safetensors"))
    heading, *facts = lines[len(shards) :]
    assert heading.startswith(f"raw layout, {len(shards)} files, {total:,} bytes, 21 of ")
    assert facts == [
        "  0.5 × adapter (tinker)",
        "  with a delta: attention 20, head 1",
        "  expected time: 1 s, at 0.3 GB/s of sums and 1 GB/s of copies",
        "  not copied from `base`: `model.gguf`",
    ]
    assert not Path("out").exists()


def test_json_names_every_tensor_that_changes_and_its_sites(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(base, style=PlainFormat.JSON) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["command"], shown["layout"], shown["written"]) == ("merge", "raw", True)
    assert shown["adapters"] == [{"path": "adapter", "dialect": "tinker", "weight": 0.5}]
    assert shown["into"] == "base"
    changed = {
        tensor["name"]: tensor["sites"] for shard in shown["shards"] for tensor in shard["changed"]
    }
    assert len(changed) == 21
    assert changed["model.llm.unembed.weight"] == ["lm_head"]
    assert changed["model.llm.layers.2.attn.wk_dv.weight"] == ["layers.2.attn.wk_dv"]


def test_the_result_is_named_and_notes_go_to_stderr(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (base / "model.gguf").write_bytes(b"")
    assert run(base) == 0
    shown = capsys.readouterr()
    assert shown.err == "note: not copied from `base`: `model.gguf`\n"
    assert shown.out.startswith("wrote out: raw layout, ")
    assert headers_of(Path("out")) == headers_of(base)
