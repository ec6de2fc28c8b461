"""How much of a GPU the engines leave alone, and how many sequences fit into the rest."""

import pytest

from inkling_cli.memory import sglang, vllm
from inkling_cli.memory.cache import CacheSizes
from inkling_cli.memory.gpu_memory import parse_gpu_memory
from inkling_cli.memory.setup import Parallel, Setup
from inkling_cli.memory.sizes import fit, sizes_of
from inkling_runtime.errors import InklingError
from memory.released import SMALL

MIB = 1 << 20

SGLANG_FRACTIONS = {
    (143771, 1, None): 0.903,
    (143771, 8, None): 0.893,
    (143771, 4, 16384): 0.811,
    (81559, 1, None): 0.83,
    (81559, 8, None): 0.812,
    (183359, 1, None): 0.854,
    (183359, 8, None): 0.849,
    (48000, 1, None): 0.849,
    (48000, 8, None): 0.825,
    (24000, 1, None): 0.697,
    (24000, 8, None): 0.65,
}
"""MiB of a GPU, tensor parallel size, tokens of a prefill step → `mem_fraction_static` as SGLang
0.5.23 itself resolved it, with the GPU's memory put in its place."""


@pytest.mark.parametrize(("mib", "tensor", "tokens"), SGLANG_FRACTIONS)
def test_sglang_guesses_its_fraction_from_the_gpu(
    mib: int, tensor: int, tokens: int | None
) -> None:
    setup = Setup("sglang", Parallel(tensor, tensor, 1, tensor), step_tokens=tokens)
    kept = sglang.reserve_bytes(setup, mib * MIB)
    assert round(1 - kept / (mib * MIB), 3) == SGLANG_FRACTIONS[mib, tensor, tokens]


def test_a_given_fraction_is_taken() -> None:
    for reserve, engine in ((vllm.reserve_bytes, "vllm"), (sglang.reserve_bytes, "sglang")):
        assert reserve(Setup(engine, memory_fraction=0.75), 1000) == 250


def test_vllm_fills_92_percent_by_default() -> None:
    assert vllm.reserve_bytes(Setup("vllm"), 100_000) == 8_000


CACHE = CacheSizes(10, 100, window=4, conv_bytes=7, conv_states=2, conv_tokens=4)


def test_a_sequence_holds_all_its_tokens_and_a_window_of_them() -> None:
    assert CACHE.sequence_bytes(3) == 3 * 10 + 3 * 100 + 14
    assert CACHE.sequence_bytes(50) == 50 * 10 + 4 * 100 + 14


def test_vllm_sequences_share_one_pool() -> None:
    setup = Setup("vllm")
    assert vllm.num_sequences(CACHE, setup, 3 * 914, 50) == 3
    assert vllm.num_sequences(CACHE, setup, 3 * 914 - 1, 50) == 2
    assert vllm.num_sequences(CACHE, setup, -5, 50) == 0


def test_sglang_sequences_are_limited_by_the_smallest_pool() -> None:
    nbytes = 11_000
    windows = Setup("sglang", conv_ratio=0.1, sliding_ratio=0.1, conv_states=2)
    # 1000 bytes of states, 10000 of tokens at 10 + 0.1 · 100 each: 500 tokens, 50 in windows
    assert sglang.num_sequences(CACHE, windows, nbytes, 8) == 500 * 0.1 // 4
    assert sglang.num_sequences(CACHE, windows, nbytes, 100) == 5
    states = Setup("sglang", conv_ratio=0.001, sliding_ratio=0.1, conv_states=2)
    assert sglang.num_sequences(CACHE, states, nbytes, 8) == 0


def test_vllm_needs_room_for_the_longest_sequence_and_steps_in_flight() -> None:
    setup = Setup("vllm", context=160, step_tokens=16)
    # 160 whole tokens, 35 of a window in 3 + 1 blocks of 16, 35 inputs in 9 + 1 blocks of 4
    assert vllm.needed_cache_bytes(CACHE, setup, 0) == 160 * 10 + 64 * 100 + 10 * 7


def test_what_fits_is_told_from_what_does_not() -> None:
    setup = Setup("vllm", Parallel(8, 8, 1, 8), max_rank=32, num_slots=4, context=32768)
    sizes = sizes_of(SMALL, setup)
    assert fit(sizes, 80 << 30).is_enough
    assert not fit(sizes, 60 << 30).is_enough


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("141GiB", 141 << 30), ("80GB", 80 * 10**9), ("80 G", 80 << 30), ("1.5gib", 3 << 29)],
)
def test_sizes_have_units(text: str, nbytes: int) -> None:
    assert parse_gpu_memory(text) == nbytes


@pytest.mark.parametrize("text", ["80", "", "GiB", "-1GiB", "0GB", "80TB5", "1e9GB", "9" * 40])
def test_sizes_without_are_errors(text: str) -> None:
    with pytest.raises(InklingError, match="is not a size"):
        parse_gpu_memory(text)
