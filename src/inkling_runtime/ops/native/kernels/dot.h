// Products of weight rows with the inputs of several tokens.
//
// Weights are read in pairs of vectors, and each of the two has its own sum, for every token. So a
// result is the same whatever is computed beside it. One row at a time: several at once would be
// several streams of short reads, which memory serves at little more than half the rate.
#pragma once

#include <algorithm>

#include "vector.h"

constexpr int PAIR = 2 * WIDTH;   // numbers in a pair
constexpr int MAX_TILE = 6;       // tokens whose sums fit the registers

struct Pair {
  vfloat first, second;
};

// A row of plain numbers. In a pair of bf16 the even numbers are first and the odd ones second:
// that takes a shift and a mask instead of two conversions. `place` tells where inputs go to match.
template <class T> struct Row;

template <> struct Row<float> {
  const float *start;

  static INLINE int64_t place(int64_t i) { return i; }

  INLINE Pair pair(int64_t i) const { return {load(start + i), load(start + i + WIDTH)}; }

  INLINE Pair some(int64_t i, int64_t count) const {
    if (count == WIDTH) return {load(start + i), vfloat{}};
    float padded[PAIR] = {};
    memcpy(padded, start + i, count * sizeof(float));
    return {load(padded), load(padded + WIDTH)};
  }
};

template <> struct Row<bf16> {
  const bf16 *start;

  static INLINE int64_t place(int64_t i) {
    return (i & ~int64_t(PAIR - 1)) + (i & 1) * WIDTH + (i & (PAIR - 1)) / 2;
  }

  INLINE Pair pair(int64_t i) const {
    vuint both;
    memcpy(&both, start + i, sizeof both);
    return split(both);
  }

  INLINE Pair some(int64_t i, int64_t count) const {
    typedef uint32_t vquarter __attribute__((vector_size(16)));
    if (count == WIDTH) {
      vquarter low;
      memcpy(&low, start + i, sizeof low);
      return split(__builtin_shufflevector(low, vquarter{}, 0, 1, 2, 3, 4, 5, 6, 7));
    }
    vuint both = {};
    memcpy(&both, start + i, count * sizeof(bf16));
    return split(both);
  }

private:
  static INLINE Pair split(vuint both) {
    return {(vfloat)(both << 16), (vfloat)(both & 0xffff0000)};
  }
};

static INLINE int64_t padded(int64_t size) { return (size + PAIR - 1) & ~int64_t(PAIR - 1); }

// fp32 copies of inputs in the order of the rows that they meet, zeros up to a whole pair.
template <class T> static INLINE void lay_out(const T *source, float *target, int64_t size) {
  int64_t i = 0;
  Row<T> row{source};
  for (; i + PAIR <= size; i += PAIR) {
    Pair pair = row.pair(i);
    store(target + i, pair.first);
    store(target + i + WIDTH, pair.second);
  }
  if (i < size) {
    Pair pair = row.some(i, size - i);
    store(target + i, pair.first);
    store(target + i + WIDTH, pair.second);
  }
}

// The sum of a row with one input.
template <class R> static INLINE vfloat multiply_one(R row, int64_t size, const float *x) {
  vfloat first = {}, second = {};
  auto step = [&](Pair w, int64_t i) {
    first += w.first * load(x + i);
    second += w.second * load(x + i + WIDTH);
  };
  int64_t i = 0;
  for (; i + PAIR <= size; i += PAIR) step(row.pair(i), i);
  if (i < size) step(row.some(i, size - i), i);
  return first + second;
}

// The sums of a row with TOKENS inputs, one vector each.
template <int TOKENS, class R>
static INLINE void multiply_tile(R row, int64_t size, const float *const *x, vfloat *sums) {
  vfloat first[TOKENS] = {}, second[TOKENS] = {};
  auto step = [&](Pair w, int64_t i) {
#pragma GCC unroll 8
    for (int t = 0; t < TOKENS; t++) {
      first[t] += w.first * load(x[t] + i);
      second[t] += w.second * load(x[t] + i + WIDTH);
    }
  };
  int64_t i = 0;
  for (; i + PAIR <= size; i += PAIR) step(row.pair(i), i);
  if (i < size) step(row.some(i, size - i), i);
#pragma GCC unroll 8
  for (int t = 0; t < TOKENS; t++) sums[t] = first[t] + second[t];
}

// B · z of one token, which joins the sum of a weight's row; rank 0: nothing.
template <class T> struct Extra {
  const T *b;
  const float *z;
  int64_t rank;
};

// results[t] = row · x[t] + extras[t].b[n] · extras[t].z for all tokens, a tile at a time.
// Compiled once per kind of row, neither inlined nor specialised: it is most of the library.
template <class R, class T>
__attribute__((noinline, noclone)) void multiply(R row, int64_t size, const float *const *x,
                                                 int64_t tokens, const Extra<T> *extras, int64_t n,
                                                 float *results) {
  int64_t tiles = (tokens + MAX_TILE - 1) / MAX_TILE, start = 0;
  for (int64_t tile = 1; tile <= tiles; tile++) {
    int64_t stop = tokens * tile / tiles;
    vfloat sums[MAX_TILE];
    switch (stop - start) {
    case 1: multiply_tile<1>(row, size, x + start, sums); break;
    case 2: multiply_tile<2>(row, size, x + start, sums); break;
    case 3: multiply_tile<3>(row, size, x + start, sums); break;
    case 4: multiply_tile<4>(row, size, x + start, sums); break;
    case 5: multiply_tile<5>(row, size, x + start, sums); break;
    case 6: multiply_tile<6>(row, size, x + start, sums); break;
    }
    for (int64_t t = start; t < stop; t++) {
      vfloat total = sums[t - start];
      if (extras && extras[t].rank) {
        const Extra<T> &extra = extras[t];
        total += multiply_one(Row<T>{extra.b + n * extra.rank}, extra.rank, extra.z);
      }
      results[t] = sum(total);
    }
    start = stop;
  }
}
