"""Shell scripts against bash: what it starts is what was read, before `--fix` and after it."""

import pytest
from hypothesis import HealthCheck, given, settings

from checks.bash_oracle import BASH, Started, compare, fixed, run_in_bash
from checks.shell_grammar import BROKEN, SCRIPTS

pytestmark = pytest.mark.skipif(BASH is None, reason="bash is not here")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=SCRIPTS)
def test_scripts_are_read_as_bash_runs_them(script):
    compare(script)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=BROKEN)
def test_corrected_scripts_are_run_as_they_are_read(script):
    compare(script)
    corrected = fixed(script)
    compare(corrected)
    assert fixed(corrected) == corrected


def changed(script: str) -> tuple[list[Started], list[Started]]:
    """Return what bash starts before and after a script is corrected."""
    return run_in_bash(script), run_in_bash(fixed(script))


@pytest.mark.parametrize(
    ("script", "words", "variables"),
    [
        (
            "vllm serve org/Inkling --enable-lora --max-loras 4 \\\n  --max-cpu-loras 2 # x\n",
            ("--max-cpu-loras", "4"),
            {"INKLING_MULTIMEM_AR": "0"},
        ),
        (
            "R=24\nINKLING_MULTIMEM_AR=1\nvllm serve org/Inkling --enable-lora --max-lora-rank $R",
            ("--max-lora-rank", "32"),
            {"INKLING_MULTIMEM_AR": "0"},
        ),
        (
            "docker run -e VLLM_X=1 vllm/vllm-openai org/Inkling --enable-lora --max-lora-rank 24",
            ("--max-lora-rank", "32"),
            {"INKLING_MULTIMEM_AR": "0", "VLLM_X": "1"},
        ),
    ],
)
def test_bash_runs_what_was_corrected(script, words, variables):
    (before,), (after,) = changed(script)
    old = list(before.words)
    position = old.index(words[0])
    expected = [*old[: position + 1], words[1], *old[position + 2 :]]
    if "docker" in old:
        expected[expected.index("vllm/vllm-openai") : 0] = []
    assert [w for w in after.words if w not in ("-e", "INKLING_MULTIMEM_AR=0")] == [
        w for w in expected if w != "-e"
    ]
    assert dict(after.variables) == variables
