"""Whether both sides compute the same; times of different work would say nothing.

The change by the adapter is compared, logits with it minus logits without: a lost delta would hide
in the logits themselves.
"""

import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from generation.rounds import ADAPTED, BASE, CASES, PEER_ADAPTED, PEER_BASE, UNUSED, Case
from generation.worker_process import Worker

TOLERANCES = {"float32": 1e-3, "bfloat16": 0.15}
"""Largest error of logits and of delta, relative to them: the median over a prompt's tokens.

In bf16 the two sides round in different places, and where two experts score the same the router
may choose the other one.
"""
SMALLEST_EFFECT = 0.1
"""A delta must be so large, relative to the logits, for its error to say something."""


def check_agreement(workers: Mapping[str, Worker], prompt: list[int], dtype: str) -> dict[str, Any]:
    """Return how far our logits and our delta are from transformers' and PEFT's.

    Raises:
        SystemExit: they are further away than rounding explains, or there is no delta.
    """
    logits = {case: _logits_of(case, workers[case.worker], prompt) for case in CASES}
    base, delta = logits[PEER_BASE], logits[PEER_ADAPTED] - logits[PEER_BASE]
    found = {
        "dtype": dtype,
        "logits_error": _error(logits[BASE], base),
        "delta_error": _error(logits[ADAPTED] - logits[BASE], delta),
        "effect": float(np.linalg.norm(delta) / np.linalg.norm(base)),
        "is_base_untouched": bool((logits[UNUSED] == logits[BASE]).all()),
    }
    tolerance = TOLERANCES[dtype]
    is_same = found["logits_error"] <= tolerance and found["delta_error"] <= tolerance
    if not is_same or found["effect"] < SMALLEST_EFFECT:
        raise SystemExit(
            f"the sides do not compute the same: {found}, expected errors up to {tolerance:g} "
            f"and an effect of {SMALLEST_EFFECT:g} or more"
        )
    return found


def _logits_of(case: Case, worker: Worker, prompt: list[int]) -> NDArray[np.float32]:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/logits.npy"
        worker.call("logits", prompt=prompt, is_adapted=case.is_adapted, path=path)
        logits: NDArray[np.float32] = np.load(path)
        return logits


def _error(got: NDArray[np.float32], want: NDArray[np.float32]) -> float:
    errors = np.linalg.norm(got - want, axis=1) / np.linalg.norm(want, axis=1)
    return float(np.median(errors))
