// Rows of NVFP4 weights (`ops/nvfp4.py`), decoded as they are read.
#pragma once

#include "dot.h"

static_assert(PAIR == 16, "a block of 16 columns is one pair");

// The number that each fp8 e4m3fn stands for.
struct E4m3Table {
  float values[256];

  E4m3Table() {
    for (int code = 0; code < 256; code++) {
      int exponent = code >> 3 & 15, mantissa = code & 7;
      float value = exponent ? float(8 + mantissa) * float(1 << exponent) / 1024.0f
                             : float(mantissa) / 512.0f;
      if ((code & 127) == 127) value = __builtin_nanf("");
      values[code] = code & 128 ? -value : value;
    }
  }
};

static const E4m3Table e4m3;

// T: the dtype of the inputs, which decides their order (see Row).
template <class T> struct Nvfp4Row {
  const uint8_t *packed, *scales;
  float scale;  // of the expert

  INLINE Pair pair(int64_t i) const {
    typedef uint32_t vtwo __attribute__((vector_size(8)));
    vtwo halves;
    memcpy(&halves, packed + i / 2, sizeof halves);
    float factor = e4m3.values[scales[i / PAIR]] * scale;
    if (sizeof(T) == 2) {
      vuint both = __builtin_shufflevector(halves, halves, 0, 0, 0, 0, 1, 1, 1, 1);
      return {decode(both >> vuint{0, 8, 16, 24, 0, 8, 16, 24}, factor),
              decode(both >> vuint{4, 12, 20, 28, 4, 12, 20, 28}, factor)};
    }
    vuint shifts = {0, 4, 8, 12, 16, 20, 24, 28};
    return {decode((vuint{} + halves[0]) >> shifts, factor),
            decode((vuint{} + halves[1]) >> shifts, factor)};
  }

  INLINE Pair some(int64_t i, int64_t) const { return pair(i); }

private:
  // The numbers of the lowest four bits of each lane: a sign and one of eight sizes.
  static INLINE vfloat decode(vuint codes, float factor) {
    vfloat sizes = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    vuint size = (vuint)__builtin_shuffle(sizes, codes & 7);
    return (vfloat)(size ^ (codes & 8) << 28) * factor;
  }
};
