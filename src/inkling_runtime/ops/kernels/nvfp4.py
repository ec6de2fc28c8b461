"""NVFP4 weights inside a kernel: half bytes and scales become fp32 in registers.

Both formats are put into the bits of an fp16 number, whose exponent has more bits and another
bias, and a multiplication by a power of two corrects the bias. This is exact, subnormal numbers
included, and needs neither a table nor an instruction that only some GPUs have. The product of
number and scale has six significant bits, so it is exact in bf16 and fp16, too.
"""

import triton
import triton.language as tl


@triton.jit
def decode_numbers(half_bytes):
    """Return the e2m1 numbers of uint8 values below 16, fp32."""
    sign, rest = (half_bytes & 8).to(tl.uint16) << 12, (half_bytes & 7).to(tl.uint16) << 9
    return (sign | rest).to(tl.float16, bitcast=True).to(tl.float32) * 16384.0


@triton.jit
def decode_scales(scale_bytes):
    """Return the e4m3 scales of uint8 values, fp32; they are no NaN."""
    sign, rest = (scale_bytes & 128).to(tl.uint16) << 8, (scale_bytes & 127).to(tl.uint16) << 7
    return (sign | rest).to(tl.float16, bitcast=True).to(tl.float32) * 256.0


@triton.jit
def load_pairs(
    packed, scales, row, in_rows, first_column, depth,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Return the even and the odd columns of a tile, each fp32 [ROWS, COLUMNS / 2].

    Without the scale per expert. `packed` and `scales` are those of the expert, whose rows have
    `depth` columns; what is outside is 0.
    """
    byte = first_column // 2 + tl.arange(0, COLUMNS // 2)
    mask = in_rows[:, None] & (byte < depth // 2)[None, :]
    halves = tl.load(packed + row[:, None] * (depth // 2) + byte[None, :], mask=mask, other=0)
    block = first_column // 16 + tl.arange(0, COLUMNS // 16)
    mask = in_rows[:, None] & (block < depth // 16)[None, :]
    scale = tl.load(scales + row[:, None] * (depth // 16) + block[None, :], mask=mask, other=0)
    scale = tl.broadcast_to(decode_scales(scale)[:, :, None], (ROWS, COLUMNS // 16, 8))
    scale = tl.reshape(scale, (ROWS, COLUMNS // 2))
    return decode_numbers(halves & 15) * scale, decode_numbers(halves >> 4) * scale
