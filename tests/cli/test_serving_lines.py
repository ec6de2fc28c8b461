"""How a converted adapter is served, as the commands that write one tell it."""

from pathlib import Path

import pytest

from factories import write_released_adapter
from inkling_cli.main import main


@pytest.fixture(autouse=True)
def _room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")


def served(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what a command says after `serve:`."""
    assert main([*arguments, "-o", "out"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "serve: " in line]
    return line.partition("serve: ")[2]


@pytest.mark.parametrize(("rank", "limit"), [(1, 1), (2, 8), (40, 64), (512, 512)])
def test_vllm_gets_the_next_rank_that_it_allows(capsys, rank, limit):
    write_released_adapter(Path("a"), rank=rank, groups=("attention",))
    line = served(capsys, "convert-adapter", "a", "--to", "vllm")
    assert f" --max-lora-rank {limit} " in line


@pytest.mark.parametrize(
    "command", [("convert-adapter", "a", "--to", "vllm"), ("merge", "a", "a", "--to", "vllm")]
)
def test_no_launch_is_shown_for_a_rank_beyond_all_that_vllm_allows(capsys, command):
    write_released_adapter(Path("a"), rank=600, groups=("head",))
    line = served(capsys, *command)
    assert "vllm serve" not in line
    assert line.startswith("vLLM takes ranks up to 512, this one is ")
    assert "`inkling resize out --rank 512 -o OUT`" in line
    assert main(["resize", "out", "--rank", "512", "-o", "smaller"]) == 0
    assert " --max-lora-rank 512 " in capsys.readouterr().out


@pytest.mark.parametrize(("options", "is_stacked"), [((), True), (("--expand",), False)])
def test_the_shared_outer_switch_stands_where_experts_are_stacks(capsys, options, is_stacked):
    write_released_adapter(Path("a"))
    line = served(capsys, "convert-adapter", "a", "--to", "vllm", *options)
    assert ("--enable-moe-shared-loras" in line) is is_stacked
