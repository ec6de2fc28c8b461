// Vectors, numbers and dot products that the kernels share.
//
// A row's result must not depend on the other rows of the batch, nor on the number of threads: all
// sums here are taken in one order, whatever is computed beside them. Sums are fp32 always.
#pragma once

#include <cstdint>
#include <cstring>

#include <omp.h>

// 256 bits everywhere: what is bound by memory gains nothing from wider ones, and every machine runs
// the code that is tested.
#define VECTOR_BYTES 32

#define INLINE inline __attribute__((always_inline))

struct bf16 {
  uint16_t bits;
};

constexpr int WIDTH = 8;  // floats in a vector

typedef float vfloat __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vuint __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t vhalf __attribute__((vector_size(VECTOR_BYTES / 2)));

static INLINE float to_float(float value) { return value; }

static INLINE float to_float(bf16 value) {
  uint32_t bits = uint32_t(value.bits) << 16;
  float result;
  memcpy(&result, &bits, 4);
  return result;
}

static INLINE void store(float *target, float value) { *target = value; }

// Round to nearest, ties to even; a NaN stays a NaN.
static INLINE void store(bf16 *target, float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (value != value)
    target->bits = uint16_t(bits >> 16 | 0x40);
  else
    target->bits = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// WIDTH numbers from an address of any alignment.
static INLINE vfloat load(const float *source) {
  vfloat result;
  memcpy(&result, source, sizeof result);
  return result;
}

static INLINE vfloat load(const bf16 *source) {
  vhalf halves;
  memcpy(&halves, source, sizeof halves);
  return (vfloat)(__builtin_convertvector(halves, vuint) << 16);
}

static INLINE void store(float *target, vfloat value) { memcpy(target, &value, sizeof value); }

static INLINE void store(bf16 *target, vfloat value) {
  vuint bits = (vuint)value;
  vuint rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  vuint nan = bits >> 16 | 0x40;
  vuint is_nan = (vuint)(value != value);
  vhalf halves = __builtin_convertvector((rounded & ~is_nan) | (nan & is_nan), vhalf);
  memcpy(target, &halves, sizeof halves);
}

// The first `count` < WIDTH numbers, zeros behind them.
template <class T> static INLINE vfloat load_some(const T *source, int64_t count) {
  T padded[WIDTH] = {};
  memcpy(padded, source, count * sizeof(T));
  return load(padded);
}

static INLINE float sum(vfloat v) {
  typedef float vquarter __attribute__((vector_size(16)));
  typedef int32_t vorder __attribute__((vector_size(16)));
  vquarter low, high;
  memcpy(&low, &v, 16);
  memcpy(&high, (const char *)&v + 16, 16);
  low += high;
  low += __builtin_shuffle(low, vorder{2, 3, 0, 1});
  return low[0] + low[1];
}

// fp32 copies of numbers, and back.
template <class T> static INLINE void to_floats(const T *source, float *target, int64_t count) {
  int64_t i = 0;
  for (; i + WIDTH <= count; i += WIDTH) store(target + i, load(source + i));
  for (; i < count; i++) target[i] = to_float(source[i]);
}

// The share of `count` items that one of the threads of a region takes.
struct Share {
  int64_t begin, end;

  explicit Share(int64_t count) {
    int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    begin = count * thread / threads;
    end = count * (thread + 1) / threads;
  }
};
