// The exponential function of a vector.
#pragma once

#include "vector.h"

// e to the power of every element, off by less than 2 units in the last place; exactly 0 below
// -87.3, where the result would have fewer digits. NaN gives NaN.
//
// 2^n · e^r with n the nearest integer to x / ln 2, so that |r| ≤ ln 2 / 2, where a polynomial of
// degree 6 is as exact as fp32. Adding 1.5 · 2^23 rounds to an integer in the lowest bits.
static INLINE vfloat exponential(vfloat x) {
  typedef int32_t vint __attribute__((vector_size(VECTOR_BYTES)));
  const vint vanishes = x < -87.3f, overflows = x > 88.7f;
  const vfloat zero = {};
  vfloat clamped = vanishes ? zero - 87.3f : x;
  clamped = overflows ? zero + 88.7f : clamped;
  const vfloat shifted = clamped * 1.44269504f + 12582912.0f;
  const vfloat n = shifted - 12582912.0f;
  const vfloat r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  vfloat p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const vuint exponent = (vuint)shifted << 23;
  const vfloat y = (vfloat)((vuint)p + exponent);
  return vanishes ? zero : y;
}
