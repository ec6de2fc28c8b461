"""From each dialect that is read to each that is written and back: what can be held comes back.

A target holds an adapter where the plan only moves its numbers: none is rounded, and neither
modules nor ranks nor rows of the vocabulary are added. First the source is written in its own
canonical form, since names and forms that several spellings share are not kept.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from conversion import convert, plan, refusal_of, spec_of
from deltas import assert_same_deltas, read_deltas
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import ADAPTERS, Example
from test_conversion_round_trips import TARGETS, assert_same_tensors

from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.moves import verbs

WRITTEN_AS = {"raw": "tinker", "peft-0.18": "peft", "peft-unsloth": "peft"}

QUICK = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def without_patterns(example: Example) -> Example:
    """Return an adapter of one rank and one scaling, which every target can say."""
    plain = {"rank_pattern": {}, "alpha_pattern": {}}
    return replace(example, config=example.config | plain)


def is_held(conversion: Conversion) -> bool:
    """Return whether a target takes all that there is, and nothing else."""
    found = {verb for output in conversion.outputs for verb in verbs(output.array)}
    return {"scale", "cast", "pad"}.isdisjoint(found)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", ADAPTERS)
def test_what_a_target_can_hold_comes_back_to_the_bit(source: str, target: str) -> None:
    own = WRITTEN_AS.get(source, source)
    held = 0

    @QUICK
    @given(ADAPTERS[source].map(without_patterns), st.booleans())
    def check(example: Example, any_bits: bool) -> None:
        nonlocal held
        example, spec = replace(example, any_bits=any_bits), spec_of(example.sizes)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            start, there, back = folder / "start", folder / "there", folder / "back"
            convert(example.write(folder / "source"), own, start, spec, dialect=source)
            refusal = refusal_of(start, target, there, spec, dialect=own)
            if refusal is not None:
                assert "beyond what" in refusal.message
                return
            convert(there, own, back, spec, dialect=target)
            if is_held(plan(start, target, spec, dialect=own)):
                assert_same_tensors(back, start)
                held += 1
            elif not any_bits:
                found = read_deltas(back, own, example.sizes)
                assert_same_deltas(found, read_deltas(start, own, example.sizes))

    check()
    assert held >= 3
