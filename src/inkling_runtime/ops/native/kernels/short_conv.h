// Short convolution of a range of channels over all sequences of a step.
//
// Channels do not see each other, so threads that take different channels share nothing.
#pragma once

#include <vector>

#include "vector.h"

// Which states a step reads and writes; see ops/conv_plan.py.
struct ConvPlan {
  const int32_t *bounds;  // of the sequences' tokens, num_sequences + 1
  const int64_t *read_slots;
  const int64_t *write_slots, *write_sequences, *write_ends;
  int64_t num_sequences, num_writes;
};

template <class T> struct ShortConv {
  const T *x;
  int64_t stride;       // elements from one row of x to the next
  const float *weight;  // [taps, channels]
  T *state;             // [slots, taps - 1, channels]
  int64_t channels, taps;

  // Calls emit(token, row) with the convolved channels [from, to) of every token, then writes the
  // states. All states are read before one is written: a slot may be among both.
  template <class Emit>
  void run(const ConvPlan &plan, int64_t from, int64_t to, Emit emit) const {
    static thread_local std::vector<T> history, row;
    static thread_local std::vector<const T *> window;
    const int64_t width = to - from;
    history.resize(plan.num_sequences * (taps - 1) * width);
    row.resize(width);
    window.resize(taps);
    for (int64_t b = 0; b < plan.num_sequences; b++)
      for (int64_t j = 0; j < taps - 1; j++)
        memcpy(history.data() + (b * (taps - 1) + j) * width,
               state + (plan.read_slots[b] * (taps - 1) + j) * channels + from,
               width * sizeof(T));
    for (int64_t b = 0; b < plan.num_sequences; b++)
      for (int64_t t = plan.bounds[b]; t < plan.bounds[b + 1]; t++) {
        for (int64_t j = 0; j < taps; j++)
          window[j] = input(plan, history.data(), b, t - plan.bounds[b] + j - (taps - 1), from, to);
        convolve(window.data(), from, width, row.data());
        emit(t, row.data());
      }
    for (int64_t w = 0; w < plan.num_writes; w++)
      for (int64_t j = 0; j < taps - 1; j++)
        memcpy(state + (plan.write_slots[w] * (taps - 1) + j) * channels + from,
               input(plan, history.data(), plan.write_sequences[w],
                     plan.write_ends[w] + j - (taps - 1), from, to),
               width * sizeof(T));
  }

private:
  // Token `index` of a sequence; negative ones are history.
  const T *input(const ConvPlan &plan, const T *history, int64_t sequence, int64_t index,
                 int64_t from, int64_t to) const {
    if (index < 0) return history + ((sequence + 1) * (taps - 1) + index) * (to - from);
    return x + (plan.bounds[sequence] + index) * stride + from;
  }

  void convolve(const T *const *inputs, int64_t from, int64_t width, T *y) const {
    int64_t c = 0;
    for (; c + WIDTH <= width; c += WIDTH) {
      vfloat total = {};
      for (int64_t j = 0; j < taps; j++)
        total += load(weight + j * channels + from + c) * load(inputs[j] + c);
      store(y + c, load(inputs[taps - 1] + c) + total);
    }
    for (; c < width; c++) {
      float total = 0;
      for (int64_t j = 0; j < taps; j++)
        total += weight[j * channels + from + c] * to_float(inputs[j][c]);
      store(y + c, to_float(inputs[taps - 1][c]) + total);
    }
  }
};
