// Short convolution with the residual stream folded in (ops/short_conv.py).

#include "short_conv.h"

#include <algorithm>

namespace {

constexpr int64_t BLOCK = 64;            // channels that a thread takes at a time
constexpr int64_t SMALL_WORK = 1 << 15;  // outputs below which one thread is faster than several

template <class T> void write(const T *row, const T *residual, T *y, int64_t width) {
  if (!residual) {
    memcpy(y, row, width * sizeof(T));
    return;
  }
  int64_t c = 0;
  for (; c + WIDTH <= width; c += WIDTH) store(y + c, load(row + c) + load(residual + c));
  for (; c < width; c++) store(y + c, to_float(row[c]) + to_float(residual[c]));
}

template <class T>
void short_conv(const ShortConv<T> &conv, const ConvPlan &plan, const T *residual, T *y,
                int64_t threads) {
  const int64_t channels = conv.channels, blocks = (channels + BLOCK - 1) / BLOCK;
  const int64_t work = plan.bounds[plan.num_sequences] * channels;
#pragma omp parallel num_threads(threads) if (work > SMALL_WORK)
  {
    const Share share(blocks);
    const int64_t from = share.begin * BLOCK, to = std::min(share.end * BLOCK, channels);
    if (from < to)
      conv.run(plan, from, to, [&](int64_t t, const T *row) {
        const int64_t place = t * channels + from;
        write(row, residual ? residual + place : nullptr, y + place, to - from);
      });
  }
}

}  // namespace

#define DEFINE(NAME, T)                                                                           \
  extern "C" void NAME(const T *x, int64_t stride, const float *weight, T *state,                 \
                       const int32_t *bounds, const int64_t *read_slots,                          \
                       const int64_t *write_slots, const int64_t *write_sequences,                \
                       const int64_t *write_ends, int64_t num_sequences, int64_t num_writes,      \
                       int64_t channels, int64_t taps, const T *residual, T *y,                   \
                       int64_t threads) {                                                         \
    const ConvPlan plan{bounds,     read_slots,    write_slots, write_sequences,                  \
                        write_ends, num_sequences, num_writes};                                   \
    short_conv(ShortConv<T>{x, stride, weight, state, channels, taps}, plan, residual, y,         \
               threads);                                                                          \
  }

DEFINE(short_conv_f32, float)
DEFINE(short_conv_bf16, bf16)
