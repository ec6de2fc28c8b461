"""A merged adapter adds the weighted sum of what its parts add, whatever their dialects."""

import tempfile
from pathlib import Path

import pytest
from combining import adapters, merge, sum_of
from deltas import read_deltas
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from resizing import UNIT
from strategies import Example

from factories import TINY

QUICK = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

WEIGHTS = st.sampled_from([1.0, 0.5, -1.0, 0.3, 2.0, -0.7])


@pytest.mark.parametrize("target", ["tinker", "vllm", "sglang", "peft"])
def test_the_weighted_sum_of_deltas(target):
    @QUICK
    @given(st.lists(st.tuples(adapters(), WEIGHTS), min_size=1, max_size=3))
    def check(drawn: list[tuple[Example, float]]) -> None:
        with tempfile.TemporaryDirectory() as name:
            examples, weights = [example for example, _ in drawn], [w for _, w in drawn]
            read_in = [example.dialect for example in examples]
            sources = [e.write(Path(name) / str(i)) for i, e in enumerate(examples)]
            out = Path(name) / "out"
            plan, _ = merge(sources, weights, out, to=target, dialects=read_in)
            before = [read_deltas(*one, TINY) for one in zip(sources, read_in, strict=True)]
            after = read_deltas(out, target, TINY)
            is_rounded = any("rounded" in change for change in plan.changes)
            unit = max(UNIT[e.dtype] for e in examples) if is_rounded else 0.0
            expected = sum_of(before, weights)
            bound = magnitude_of(before, weights)
            for site in expected.keys() | after.keys():
                if site not in expected:
                    assert not after[site].delta().any(), site
                    continue
                found = after[site].delta() if site in after else 0.0
                allowed = (1e-13 + 2.1 * unit) * bound[site]
                assert (abs(found - expected[site]) <= allowed).all(), site

    check()


def magnitude_of(deltas, weights):
    """Return a bound of every partial sum, by site."""
    total = {}
    for found, weight in zip(deltas, weights, strict=True):
        for site, factors in found.items():
            total[site] = total.get(site, 0.0) + abs(weight) * factors.magnitude()
    return total
