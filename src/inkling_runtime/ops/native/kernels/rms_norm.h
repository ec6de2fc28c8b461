// Root mean square normalisation of one row.
#pragma once

#include <cmath>

#include "vector.h"

// y = weight · x · rsqrt(mean(x²) + eps); y may be x.
template <class T>
static INLINE void normalize(const T *x, const T *weight, T *y, int64_t size, float eps) {
  vfloat even = {}, odd = {};
  int64_t i = 0;
  for (; i + 2 * WIDTH <= size; i += 2 * WIDTH) {
    const vfloat a = load(x + i), b = load(x + i + WIDTH);
    even += a * a;
    odd += b * b;
  }
  float squares = sum(even + odd);
  for (; i < size; i++) squares += to_float(x[i]) * to_float(x[i]);
  const float scale = 1 / std::sqrt(squares / float(size) + eps);
  for (i = 0; i + WIDTH <= size; i += WIDTH)
    store(y + i, load(weight + i) * load(x + i) * scale);
  for (; i < size; i++) store(y + i, to_float(weight[i]) * to_float(x[i]) * scale);
}
