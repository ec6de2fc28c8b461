"""The benchmark of generation runs, and writes what it says it writes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
CASES = {
    "inkling",
    "transformers",
    "inkling, adapter unused",
    "inkling + adapter",
    "transformers + PEFT",
}


def run(*words):
    command = [sys.executable, BENCHMARKS / "bench_generate.py", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.slow
def test_generation_is_timed_beside_its_peer_and_its_limit(tmp_path):
    done = run("--quick", "--shared-outer", "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["settings"]["model"] == "tiny"
    (agreement,) = found["agreement"]
    assert agreement["delta_error"] < 1e-4 < agreement["effect"]
    assert agreement["is_base_untouched"]
    (limit,) = found["limits"]
    assert limit["read_gb_per_s"] > 0
    assert {(row["batch"], row["case"]) for row in found["rows"]} == {
        (batch, case) for batch in (1, 3) for case in CASES
    }
    assert all(is_sound(row, limit) for row in found["rows"])
    assert len(found["aims"]) == 8
    for row in found["rows"]:
        assert row["case"] in done.stdout


def is_sound(row, limit):
    """Whether a row's figures fit each other and what was run: 12 tokens of prompt, 4 or 5 new."""
    (one,) = row["runs"]
    steps = 3 if "PEFT" in row["case"] else 4
    step_s = row["batch"] / row["decode_tokens_per_s"]
    share = row["step_read_mb"] / 1e3 / step_s / limit["read_gb_per_s"]
    return (
        one["decode_tokens"] == steps * row["batch"]
        and row["decode_tokens_per_s"] == pytest.approx(one["decode_tokens"] / one["decode_s"])
        and row["first_token_s"] == one["first_token_s"] > 0
        and row["prefill_tokens_per_s"] == pytest.approx(12 * row["batch"] / row["first_token_s"])
        and row["share_of_limit"] == pytest.approx(share)
        and row["peak_mb"] > 100
    )


def test_an_unknown_model_is_refused():
    done = run("--model", "huge")
    assert done.returncode == 2
    assert "huge" in done.stderr
