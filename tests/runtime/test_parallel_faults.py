"""What goes wrong with several ranks: an error that says so, and no process left behind."""

import os
import signal
from pathlib import Path

import pytest
from tiny_models import make_text_model, random_ids, save

from inkling_runtime.errors import InklingError
from inkling_runtime.llm import LLM, Request, SamplingParams

GREEDY = SamplingParams(max_tokens=5, temperature=0)
SIZES = {"swa_num_attention_heads": 8, "swa_num_key_value_heads": 4, "n_shared_experts": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(make_text_model(**SIZES), tmp_path_factory.mktemp("parallel"))


def test_a_number_of_ranks_that_does_not_divide_is_refused_with_those_that_do(folder: Path) -> None:
    with pytest.raises(InklingError, match="cannot be cut for 3 ranks") as caught:
        LLM(folder, device="cpu", tensor_parallel=3)
    assert caught.value.hint is not None
    assert "1, 2, 4" in caught.value.hint


def test_a_checkpoint_that_a_rank_cannot_read_ends_all_ranks(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(InklingError):
        LLM(tmp_path, device="cpu", tensor_parallel=2)


def test_a_rank_that_is_killed_is_an_error_and_not_a_wait(folder: Path) -> None:
    llm = LLM(folder, device="cpu", tensor_parallel=2)
    (worker,) = llm._executor._workers
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    with pytest.raises(InklingError, match="rank"):
        llm.generate([Request(random_ids(5), GREEDY)])
    with pytest.raises(InklingError, match="ended"):
        llm.generate([Request(random_ids(5), GREEDY)])
    assert worker.returncode == -signal.SIGKILL


def test_closing_ends_the_other_processes(folder: Path) -> None:
    llm = LLM(folder, device="cpu", tensor_parallel=2)
    (worker,) = llm._executor._workers
    llm.close()
    assert worker.returncode == 0


def test_a_second_model_over_several_ranks_is_refused(folder: Path) -> None:
    llm = LLM(folder, device="cpu", tensor_parallel=2)
    with pytest.raises(InklingError, match="already holds"):
        LLM(folder, device="cpu", tensor_parallel=2)
    llm.close()
