"""The script that checks and times the kernels on a GPU runs, at a tiny size, without one."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from triton_device import MARKS

from inkling_runtime.ops.kernels.launch import INTERPRETED

pytestmark = [*MARKS, pytest.mark.skipif(not INTERPRETED, reason="the script itself is run there")]
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu

    yield gpu
    for name in ("gpu", *(name for name in sys.modules if name.startswith("gpu_layer"))):
        sys.modules.pop(name)


@pytest.mark.slow
def test_every_check_is_good_and_every_batch_is_timed(
    gpu: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gpu.json"
    code = gpu.main(["--dry-run", "--seconds", "3000", "--json", str(file)])
    found = json.loads(file.read_text())
    assert [c["name"] for c in found["checks"] if not c["error"] <= c["tolerance"]] == []
    assert code == 0
    assert found["skipped"] == []
    assert {(t["batch"], t["rank"] > 0) for t in found["timings"]} == {(2, False), (2, True)}
    base, adapted = found["timings"]
    assert base["megabytes"] < adapted["megabytes"]
    assert adapted["launches"] - base["launches"] <= 3
    names = " ".join(check["name"] for check in found["checks"])
    for op in ("rms_norm", "short_conv", "qkvr_prologue", "relative_attention", "route_tokens"):
        assert op in names
    for op in ("lora_linear", "routed_experts", "shared_experts", "NVFP4", "swap"):
        assert op in names
    assert "| 2 | rank 16 |" in capsys.readouterr().out


def test_parts_that_no_time_is_left_for_are_named(gpu: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    assert gpu.main(["--dry-run", "--seconds", "-1", "--json", str(file)]) == 1
    found = json.loads(file.read_text())
    assert len(found["skipped"]) >= 4
    assert found["checks"] == found["timings"] == []


def test_a_part_that_breaks_is_a_bad_check_and_not_the_end(gpu: ModuleType) -> None:
    results = gpu.Results("device", {})

    def broken() -> None:
        raise RuntimeError("no such kernel")

    gpu._run_part("part", broken, results)
    assert [check.is_good for check in results.checks] == [False]
    assert not results.is_good
    assert "**wrong**" in results.to_markdown()


def test_an_error_that_is_no_number_is_not_good(gpu: ModuleType) -> None:
    assert not gpu.Check("nan", float("nan"), 1.0).is_good
