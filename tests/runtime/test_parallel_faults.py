"""What goes wrong with several ranks: an error that says so, and no process left behind."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections import UserDict
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import make_text_model, random_ids, save

from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.engine.build import ModelOrder
from inkling_runtime.errors import InklingError
from inkling_runtime.llm import LLM, Request, SamplingParams
from inkling_runtime.model.shard import Shard
from inkling_runtime.parallel.worker import WorkerOrder

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
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (weights,) = tmp_path.glob("*.safetensors")
    os.truncate(weights, weights.stat().st_size - 1)
    with pytest.raises(InklingError, match=f"rank 0 of 2: `{weights}` has") as caught:
        LLM(tmp_path, device="cpu", tensor_parallel=2)
    assert caught.value.hint == "the file was cut; fetch it again"


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


def test_a_rank_that_waits_for_the_others_ends_with_rank_0(folder: Path, tmp_path: Path) -> None:
    spec = read_model_spec(folder)
    model = ModelOrder(folder, spec, torch.device("cpu"), torch.float32, 1, "off")
    order = WorkerOrder(model, Shard(1, 2, False), tmp_path / "meeting", 1)
    with subprocess.Popen(
        [sys.executable, "-m", "inkling_runtime.parallel.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        pickle.dump(order, worker.stdin)
        worker.stdin.flush()
        assert worker.stdout.readline() == b"ready\n"
        worker.stdin.close()
        assert worker.wait(60) == 2


class InterruptedHere(UserDict[Any, Any]):
    """Factors whose reading Ctrl-C breaks into on rank 0; the others get none."""

    def __len__(self) -> int:
        raise KeyboardInterrupt

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, ()


def test_an_interrupt_while_an_adapter_is_loaded_ends_all_ranks(folder: Path) -> None:
    llm = LLM(folder, device="cpu", tensor_parallel=2)
    (worker,) = llm._executor._workers
    with pytest.raises(KeyboardInterrupt):
        llm._executor.load(0, InterruptedHere())
    assert worker.returncode == -signal.SIGKILL
    llm.close()


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
