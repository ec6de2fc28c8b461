"""A conversion leaves the effect of an adapter as it is, for every pair of dialects.

The effect is what the consumer of each dialect computes, by a calculator that shares nothing with
the code under test.
"""

import tempfile
from pathlib import Path

import forms
import numpy as np
import pytest
from conversion import convert, factors_of, is_folded, spec_of
from deltas import assert_same_deltas, read_deltas
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lora_factors import Factors
from strategies import ADAPTERS, Example

from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.dialects import TARGETS
from inkling_runtime.adapter.factors import to_float32
from inkling_runtime.adapter.site_pairs import HEADERS_ONLY, Contents

DIALECTS = tuple(ADAPTERS)
PAIRS = [(source, target) for source in DIALECTS for target in TARGETS]

ROUNDING = {"BF16": 2**-8, "F16": 2**-10, "F32": 2**-23}
"""Relative error of one rounding of B, where the plan says that scaling was folded into it."""

QUICK = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def check_conversion(example: Example, target: str, contents: Contents) -> None:
    with tempfile.TemporaryDirectory() as name:
        source = example.write(Path(name) / "source")
        expected = read_deltas(source, example.dialect, example.sizes)
        out, spec = Path(name) / "out", spec_of(example.sizes)
        conversion = convert(source, target, out, spec, dialect=example.dialect, contents=contents)
        found = read_deltas(out, target, example.sizes)
        rounding = ROUNDING[example.dtype] if is_folded(conversion) else 0.0
        assert_same_deltas(found, expected, rounding)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_pair_of_dialects_keeps_the_deltas(source: str, target: str) -> None:
    @QUICK
    @given(ADAPTERS[source])
    def check(example: Example) -> None:
        check_conversion(example, target, CONTENTS)

    check()


@pytest.mark.parametrize("target", TARGETS)
def test_a_plan_from_headers_alone_keeps_the_deltas_too(target: str) -> None:
    @QUICK
    @given(st.sampled_from([d for d in DIALECTS if d != "sglang"]).flatmap(ADAPTERS.__getitem__))
    def check(example: Example) -> None:
        if "padded" in repr(example) or (target == "sglang" and _has_padded_head(example)):
            return
        check_conversion(example, target, HEADERS_ONLY)

    check()


def _has_padded_head(example: Example) -> bool:
    rows = [m.out_features for m in example.modules if m.name.endswith(forms.HEADS)]
    return any(n > example.sizes.unpadded for n in rows)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_loaded_factors_are_what_the_consumer_applies(dialect: str) -> None:
    @QUICK
    @given(ADAPTERS[dialect])
    def check(example: Example) -> None:
        with tempfile.TemporaryDirectory() as name:
            source = example.write(Path(name) / "source")
            expected = read_deltas(source, dialect, example.sizes)
            loaded = factors_of(read_adapter(source, dialect), spec_of(example.sizes))
            assert_same_deltas(_widen(loaded, expected), expected)

    check()


def _widen(loaded: dict, expected: dict[str, Factors]) -> dict[str, Factors]:
    """Return loaded factors in the calculator's form: experts in front, the head padded."""
    result = {}
    for site, factors in loaded.items():
        a, b = (to_float32(x, factors.dtype).astype(float) for x in (factors.a, factors.b))
        if a.ndim == 2:
            a, b = a[None], b[None]
        rows = expected[site].b.shape[1]
        padded = [(0, 0), (0, rows - b.shape[1]), (0, 0)]
        result[site] = Factors(a, np.pad(b, padded), factors.scaling)
    return result
