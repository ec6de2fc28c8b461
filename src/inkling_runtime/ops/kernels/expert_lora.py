"""The two LoRA products of expert matrices inside a kernel, for a tile of rows of any adapters.

No kernels of their own. A tile of one row is multiplied without `tl.dot`, whose tiles have 16.
Factors are read where the slots' table says (`LoraSlots`); B is one row per output, so its rows
have the adapter's own rank as stride.

The first product of an input, z, is fp32 [SPLITS, T, copies, RANK]: partial sums over the input,
RANK a power of two ≥ every rank, zero beyond the adapter's own. A shared A has copy 0 alone.
"""

import triton
import triton.language as tl

from inkling_runtime.ops.kernels.slots_table import TABLE_COLUMNS


@triton.jit
def _multiply(x, y, DTYPE: tl.constexpr, TOKENS: tl.constexpr):
    """Return x [TOKENS, D] times y [N, D] transposed, fp32 [TOKENS, N].

    In a model of 16 bits fp32 operands are rounded to the 11 significant bits of tf32.
    """
    if TOKENS == 1:
        product = tl.sum(x.to(tl.float32)[:, None, :] * y.to(tl.float32)[None, :, :], 2)
    elif DTYPE.primitive_bitwidth == 32:
        product = tl.dot(x, tl.trans(y), input_precision="ieee")
    else:
        product = tl.dot(x, tl.trans(y), input_precision="tf32")
    return product


@triton.jit
def load_site(
    table, slot, expert, FACTOR: tl.constexpr, DTYPE: tl.constexpr, ALIGNED: tl.constexpr
):
    """Return where A (FACTOR 0) or B (1) of an expert is, and the adapter's rank."""
    entry = table + slot * TABLE_COLUMNS
    factor = tl.load(entry + FACTOR).to(tl.pointer_type(DTYPE))
    rank = tl.load(entry + 2).to(tl.int32)
    stride = tl.load(entry + 3 + FACTOR)
    if ALIGNED:
        factor, rank = tl.multiple_of(factor, 16), tl.multiple_of(rank, 8)
        stride = tl.multiple_of(stride, 8)
    return factor + expert.to(tl.int64) * stride, rank


@triton.jit
def add_expanded(
    y, mine, z, token, copy, table, scalings, slot, expert, column, in_columns,
    split_stride, token_stride, splits, DTYPE: tl.constexpr, TOKENS: tl.constexpr,
    RANK: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Return y [TOKENS, N] plus scaling · B_e · z in the rows `mine`, which are of one adapter.

    Rows that are not `mine` keep their bits. `splits` is a constant if TOKENS is 1.
    """
    CHUNK: tl.constexpr = RANK if TOKENS == 1 else min(RANK, 32)
    b, rank = load_site(table, slot, expert, 1, DTYPE, ALIGNED)
    copy = tl.where(tl.load(table + slot * TABLE_COLUMNS + 3) != 0, copy, 0)
    z += token.to(tl.int64)[:, None] * token_stride + copy[:, None] * RANK
    delta = tl.zeros((TOKENS, column.shape[0]), tl.float32)
    for first in range(0, rank, CHUNK):
        feature = first + tl.arange(0, CHUNK)
        inside = (feature < rank)[None, :]
        part = z + feature[None, :]
        values = tl.zeros((TOKENS, CHUNK), tl.float32)
        if TOKENS == 1:
            for _ in tl.static_range(splits):
                values += tl.load(part, mask=mine[:, None] & inside, other=0.0)
                part += split_stride
        else:
            for _ in range(splits):
                values += tl.load(part, mask=mine[:, None] & inside, other=0.0)
                part += split_stride
        factor = tl.load(
            b + column[:, None] * rank + feature[None, :],
            mask=in_columns[:, None] & inside,
            other=0.0,
        )
        delta += _multiply(values, factor.to(tl.float32), DTYPE, TOKENS)
    return tl.where(mine[:, None], y + delta * tl.load(scalings + slot), y)


@triton.jit
def shrink_columns(
    x, table, slot, expert, column, in_columns, width,
    DTYPE: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, ALIGNED: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    """Return A_e · x over some columns of an input of that width, fp32 [TOKENS, RANK].

    x is [TOKENS, N] and 0 outside of `in_columns`.
    """
    a, rank = load_site(table, slot, expert, 0, DTYPE, ALIGNED)
    feature = tl.arange(0, RANK)
    a = tl.load(
        a + feature[:, None] * width + column[None, :],
        mask=(feature < rank)[:, None] & in_columns[None, :],
        other=0.0,
    )
    return _multiply(x, a.to(tl.float32) if UPCAST else a, DTYPE, TOKENS)


@triton.jit
def expand_gated(
    gate, up, adapter, token, copy, gate_z, up_z, gate_table, gate_scalings, up_table, up_scalings,
    num_slots, expert, column, in_columns, split_stride, token_stride,
    DTYPE: tl.constexpr, GATE: tl.constexpr, UP: tl.constexpr, TOKENS: tl.constexpr,
    RANK: tl.constexpr, SPLITS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Return gate and up of a tile with the deltas of all its adapters."""
    if GATE or UP:
        for slot in range(num_slots):
            mine = adapter == slot
            if tl.max(mine.to(tl.int32), 0) > 0:
                if GATE:
                    gate = add_expanded(
                        gate, mine, gate_z, token, copy, gate_table, gate_scalings, slot, expert,
                        column, in_columns, split_stride, token_stride, SPLITS, DTYPE, TOKENS,
                        RANK, ALIGNED,
                    )  # fmt: skip
                if UP:
                    up = add_expanded(
                        up, mine, up_z, token, copy, up_table, up_scalings, slot, expert,
                        column, in_columns, split_stride, token_stride, SPLITS, DTYPE, TOKENS,
                        RANK, ALIGNED,
                    )  # fmt: skip
    return gate, up
