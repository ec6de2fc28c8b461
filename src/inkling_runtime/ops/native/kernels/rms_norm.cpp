// Normalisation of rows, alone or after adding a residual (ops/rms_norm.py).

#include "rms_norm.h"

namespace {

constexpr int64_t SMALL_WORK = 1 << 16;  // elements below which one thread is faster than several

template <class T>
void add_row(const T *x, const T *residual, T *total, int64_t size) {
  int64_t i = 0;
  for (; i + WIDTH <= size; i += WIDTH) store(total + i, load(x + i) + load(residual + i));
  for (; i < size; i++) store(total + i, to_float(x[i]) + to_float(residual[i]));
}

// Without a residual `total` is not written.
template <class T>
void rms_norm(const T *x, const T *residual, const T *weight, T *y, T *total, int64_t rows,
              int64_t size, float eps, int64_t threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * size > SMALL_WORK)
  for (int64_t row = 0; row < rows; row++) {
    const T *input = x + row * size;
    if (residual) {
      add_row(input, residual + row * size, total + row * size, size);
      input = total + row * size;
    }
    normalize(input, weight, y + row * size, size, eps);
  }
}

}  // namespace

#define DEFINE(NAME, T)                                                                           \
  extern "C" void NAME(const T *x, const T *residual, const T *weight, T *y, T *total,            \
                       int64_t rows, int64_t size, float eps, int64_t threads) {                  \
    rms_norm(x, residual, weight, y, total, rows, size, eps, threads);                            \
  }

DEFINE(rms_norm_f32, float)
DEFINE(rms_norm_bf16, bf16)
