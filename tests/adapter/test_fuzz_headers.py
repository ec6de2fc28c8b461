"""A few thousand runs of the fuzz target; a million are run by hand (docs/log.md)."""

from pathlib import Path

import pytest

from fuzz.fuzz_headers import fuzz

RUNS = 3000


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_files_end_in_an_adapter_or_a_clear_error(tmp_path: Path, seed: int) -> None:
    outcomes = fuzz(RUNS, seed, tmp_path)
    assert outcomes.faults == []
    assert sum(outcomes.kinds.values()) == RUNS
    assert outcomes.kinds["read"] > RUNS // 20
    assert len(outcomes.kinds) > 20
    assert outcomes.slowest_s < 30
