/* SPDX-License-Identifier: Apache-2.0 */
/* Sigmoid and tanh of 16-bit fixed-point numbers in integers, as gemmlowp computes them (`fixedpoint.h`): exp by a barrel shifter
 * over a polynomial, reciprocals by three Newton steps.  Numbers are int32_t within the range of int16_t; `bits` are the integer
 * bits of the argument, results have none.
 */
#ifndef AOT_FIXED16_H
#define AOT_FIXED16_H

#include "aot/kernel.h"

#include <stdint.h>

#define AOT_FIXED16 AOT_KERNEL static inline __attribute__((unused))

AOT_FIXED16 int32_t aot_fixed16_mul(int32_t a, int32_t b) {
  return (a * b + 0x4000) >> 15;
}

AOT_FIXED16 int32_t aot_fixed16_saturate(int32_t x) {
  return x > 32767 ? 32767 : x < -32768 ? -32768 : x;
}

/* x / 2^n, halves away from zero. */
AOT_FIXED16 int32_t aot_fixed16_divide(int32_t x, int32_t n) {
  return (x + (1 << (n - 1)) + (x >> 31)) >> n;
}

/* e^a for a <= 0. */
AOT_FIXED16 int32_t aot_fixed16_exp(int32_t a, int32_t bits) {
  const int32_t fraction = 15 - bits, quarter = 1 << (fraction - 2), last = (a & (quarter - 1)) - quarter, rest = last - a;
  const int32_t x = last * (1 << bits) + 4096, x2 = aot_fixed16_mul(x, x);
  const int32_t x3 = aot_fixed16_mul(x2, x), x4 = aot_fixed16_mul(x2, x2);
  const int32_t third = aot_fixed16_mul(aot_fixed16_divide(x4, 2) + x3, 10923);
  int32_t value = aot_fixed16_saturate(28918 + aot_fixed16_mul(x + aot_fixed16_divide(third + x2, 1), 28918));
  value = (rest & (1 << (fraction - 2))) != 0 ? aot_fixed16_mul(value, 25520) : value;
  value = bits > -1 && (rest & (1 << (fraction - 1))) != 0 ? aot_fixed16_mul(value, 19875) : value;
  value = bits > 0 && (rest & (1 << fraction)) != 0 ? aot_fixed16_mul(value, 12055) : value;
  value = bits > 1 && (rest & (2 << fraction)) != 0 ? aot_fixed16_mul(value, 4435) : value;
  value = bits > 2 && (rest & (4 << fraction)) != 0 ? aot_fixed16_mul(value, 600) : value;
  value = bits > 3 && (rest & (8 << fraction)) != 0 ? aot_fixed16_mul(value, 11) : value;
  value = bits > 4 && (rest & (16 << fraction)) != 0 ? 0 : value;
  value = bits > 5 && a < -(1 << (20 - (bits > 5 ? bits : 6))) ? 0 : value;
  return a == 0 ? 32767 : value;
}

/* 2 / (1 + a) for a in [0, 1], with 13 fractional bits. */
AOT_FIXED16 int32_t aot_fixed16_reciprocal(int32_t a) {
  const int32_t half = (a + 32768) >> 1;
  int32_t x = 23130 + aot_fixed16_mul(half, -15420);
  for (int32_t i = 0; i < 3; ++i) {
    x += aot_fixed16_saturate(aot_fixed16_mul(x, 8192 - aot_fixed16_mul(half, x)) * 4);
  }
  return x;
}

/* 1 / (1 + e^-x) of x with three integer bits. */
AOT_FIXED16 int32_t aot_sigmoid16(int32_t x) {
  const int32_t value = aot_fixed16_saturate(2 * aot_fixed16_reciprocal(aot_fixed16_exp(x < 0 ? x : -x, 3)));
  return x == 0 ? 16384 : x > 0 ? value : 32767 - value;
}

/* tanh of x with 0 to 6 integer bits. */
AOT_FIXED16 int32_t aot_tanh16(int32_t x, int32_t bits) {
  const int32_t below = x < 0 ? x : -x;
  const int32_t value = aot_fixed16_saturate(4 * (aot_fixed16_reciprocal(aot_fixed16_exp(below, bits + 1)) - 8192));
  return x == 0 ? 0 : x < 0 ? -value : value;
}

#endif
