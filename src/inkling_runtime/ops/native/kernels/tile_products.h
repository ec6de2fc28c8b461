// Products of a few fp32 rows with a tile of keys or values, fp32 or bf16.
//
// A sum is taken in one order whatever is computed beside it: dot products lane by lane, products
// with a tile row after row.
#pragma once

#include "vector.h"

constexpr int64_t TILE = 64;  // keys in a tile; scores have rows of this length
// Columns are taken in pairs of vectors: for a sum that is alone in its loop GCC may choose another
// rounding (no fused multiply-add) than for the same sum among others.
constexpr int64_t STEP = 2 * WIDTH;

inline int64_t down(int64_t value, int64_t step) { return value / step * step; }
inline int64_t up(int64_t value, int64_t step) { return down(value + step - 1, step); }

typedef float Four __attribute__((vector_size(16)));

#if defined(__clang__) || __GNUC__ >= 12
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else  // GCC before 12
#define PICK(a, b, ...) __builtin_shuffle(a, b, decltype(a == b){__VA_ARGS__})
#endif

inline vfloat reversed(vfloat v) { return PICK(v, v, 7, 6, 5, 4, 3, 2, 1, 0); }

inline Four fold(vfloat v) {
  Four parts[WIDTH / 4];
  memcpy(parts, &v, sizeof v);
  Four sum = parts[0];
  for (int i = 1; i < WIDTH / 4; ++i) sum += parts[i];
  return sum;
}

// The sums of the lanes of four vectors.
inline Four sums(const vfloat v[4]) {
  const Four a = fold(v[0]), b = fold(v[1]), c = fold(v[2]), d = fold(v[3]);
  const Four ab = PICK(a, b, 0, 4, 1, 5) + PICK(a, b, 2, 6, 3, 7);
  const Four cd = PICK(c, d, 0, 4, 1, 5) + PICK(c, d, 2, 6, 3, 7);
  return PICK(ab, cd, 0, 1, 4, 5) + PICK(ab, cd, 2, 3, 6, 7);
}

// scores[r][j] = queries[r] · keys[j] for four keys at a time.
template <int R, class K>
void dot_rows(const float* queries, const K* keys, int64_t stride, float* scores, int64_t dim,
              int64_t from, int64_t to) {
  for (int64_t j = from; j < to; j += 4) {
    vfloat a[R][4] = {};
    for (int64_t d = 0; d < dim; d += WIDTH) {
      vfloat k[4];
      for (int c = 0; c < 4; ++c) k[c] = load(keys + (j + c) * stride + d);
      for (int r = 0; r < R; ++r) {
        const vfloat q = load(queries + r * dim + d);
        for (int c = 0; c < 4; ++c) a[r][c] += q * k[c];
      }
    }
    for (int r = 0; r < R; ++r) {
      const Four s = sums(a[r]);
      memcpy(scores + r * TILE + j, &s, sizeof s);
    }
  }
}

// y[r][c] += Σ_i weights[r][i] · values[i][c] for i in [from, to), in the order of i.
template <int R, int C, class V>
inline void add_products(const float* weights, int64_t ld_weights, const V* values,
                         int64_t ld_values, float* y, int64_t ld_y, int64_t from, int64_t to) {
  vfloat a[R][C];
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) a[r][c] = load(y + r * ld_y + c * WIDTH);
  for (int64_t i = from; i < to; ++i) {
    vfloat v[C];
    for (int c = 0; c < C; ++c) v[c] = load(values + i * ld_values + c * WIDTH);
    for (int r = 0; r < R; ++r) {
      const float w = weights[r * ld_weights + i];
      for (int c = 0; c < C; ++c) a[r][c] += w * v[c];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) store(y + r * ld_y + c * WIDTH, a[r][c]);
}

template <int R, int C, class V>
void add_columns(const float* weights, int64_t ld_weights, const V* values, int64_t ld_values,
                 float* y, int64_t ld_y, int64_t from, int64_t to, int64_t num_columns) {
  int64_t c = 0;
  for (; c + C * WIDTH <= num_columns; c += C * WIDTH)
    add_products<R, C>(weights, ld_weights, values + c, ld_values, y + c, ld_y, from, to);
  for (; c < num_columns; c += STEP)
    add_products<R, 2>(weights, ld_weights, values + c, ld_values, y + c, ld_y, from, to);
}

// The same for any number of rows; `num_columns` is a multiple of STEP.
template <class V>
void add_product(const float* weights, int64_t ld_weights, const V* values, int64_t ld_values,
                 float* y, int64_t ld_y, int64_t rows, int64_t from, int64_t to,
                 int64_t num_columns) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4)
    add_columns<4, 2>(weights + r * ld_weights, ld_weights, values, ld_values, y + r * ld_y,
                      ld_y, from, to, num_columns);
  for (; r + 2 <= rows; r += 2)
    add_columns<2, 4>(weights + r * ld_weights, ld_weights, values, ld_values, y + r * ld_y,
                      ld_y, from, to, num_columns);
  for (; r < rows; ++r)
    add_columns<1, 8>(weights + r * ld_weights, ld_weights, values, ld_values, y + r * ld_y,
                      ld_y, from, to, num_columns);
}
