/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the reference computes in steps of float32, here with the same steps: the same bits wherever expressions are
 * not contracted.  expm1, tanh and atan2 are fdlibm's (`s_expm1.c`, ... in the float versions of Ian Lance Taylor), which the
 * GNU C library has up to 2.40; erfc and tanh of GELU, tanh and logistic of LSTM are Eigen's (`SpecialFunctionsImpl.h`,
 * `GenericPacketMathTrig.h`, `GenericPacketMathFunctions.h`, `UnaryFunctors.h`).  Methods and coefficients are from there.
 */
#ifndef AOT_MATH_FLOAT_H
#define AOT_MATH_FLOAT_H

#include "aot/math.h"

/* 2^n for -126 <= n <= 127. */
AOT_MATH float aot_power_of_2(int32_t n) {
  return aot_f32_of_bits((uint32_t)(n + 127) << 23);
}

/* e^(r + rest) * 2^k - 1, with the formula that rounds least for each k; -27 <= k <= 128. */
AOT_MATH float aot_expm1_scaled(float r, float rest, int32_t k) {
  const float half = 0.5f * r, z = r * half;
  float q = 4.0082177293e-06f + z * -2.0109921195e-07f;
  q = -7.9365076090e-05f + z * q;
  q = 1.5873016091e-03f + z * q;
  q = -3.3333335072e-02f + z * q;
  q = 1.0f + z * q;
  const float t = 3.0f - q * half;
  float e = z * ((q - t) / (6.0f - r * t));
  if (k == 0) {
    return r - (r * e - z);
  }
  e = (r * (e - rest) - rest) - z;
  if (k == -1) {
    return 0.5f * (r - e) - 0.5f;
  }
  if (k == 1) {
    return r < -0.25f ? -2.0f * (e - (r + 0.5f)) : 1.0f + 2.0f * (r - e);
  }
  if (k == 128) {
    return (1.0f - (e - r)) * 2.0f * 0x1p127f - 1.0f;
  }
  const float scale = aot_power_of_2(k);
  if (k <= -2 || k > 56) {
    return (1.0f - (e - r)) * scale - 1.0f;
  }
  const float below = aot_power_of_2(-k);
  return (k < 23 ? (1.0f - below) - (e - r) : (r - (e + below)) + 1.0f) * scale;
}

/* e^x - 1: x = k ln 2 + r with |r| <= ln 2 / 2. */
AOT_MATH float aot_expm1f(float x) {
  const uint32_t size = aot_f32_bits(x) & 0x7fffffffu;
  float k = 0.0f;
  if (x != x || size < 0x33000000u) { /* 2^-25 */
    return x;
  }
  if (x >= 0x1.62e43p+6f) { /* 128 ln 2 */
    return __builtin_inff();
  }
  if (x <= -0x1.2b7088p+4f) { /* -27 ln 2 */
    return -1.0f;
  }
  if (size > 0x3eb17218u) { /* ln 2 / 2 */
    k = x < 0.0f ? -1.0f : 1.0f;
    if (size >= 0x3f851592u) { /* 3/2 ln 2 */
      k = (float)(int32_t)(1.4426950216e+00f * x + 0.5f * k);
    }
  } else {
    return aot_expm1_scaled(x, 0.0f, 0);
  }
  const float high = x - k * 6.9313812256e-01f, low = k * 9.0580006145e-06f, r = high - low;
  return aot_expm1_scaled(r, (high - r) - low, (int32_t)k);
}

/* tanh x from e^(2|x|) - 1 or, below 1, e^(-2|x|) - 1. */
AOT_MATH float aot_tanhf(float x) {
  const uint32_t bits = aot_f32_bits(x), sign = bits & 0x80000000u;
  const float size = aot_f32_of_bits(bits ^ sign);
  float y = 1.0f;
  if (x != x || size < 0x1p-55f) {
    return x;
  }
  if (size < 1.0f) {
    const float t = aot_expm1f(-2.0f * size);
    y = -t / (t + 2.0f);
  } else if (size < 22.0f) {
    y = 1.0f - 2.0f / (aot_expm1f(2.0f * size) + 2.0f);
  }
  return aot_f32_of_bits(aot_f32_bits(y) | sign);
}

/* atan x: of (x - c) / (1 + c x) for the nearest c of 0, 1/2, 1, 3/2, infinity, and a polynomial. */
AOT_MATH float aot_atanf(float x) {
  static const float high[4] = {4.6364760399e-01f, 7.8539812565e-01f, 9.8279368877e-01f, 1.5707962513e+00f};
  static const float low[4] = {5.0121582440e-09f, 3.7748947079e-08f, 3.4473217170e-08f, 7.5497894159e-08f};
  const uint32_t bits = aot_f32_bits(x), size = bits & 0x7fffffffu, sign = bits ^ size;
  int32_t centre = -1;
  if (size > 0x7f800000u || size < 0x31000000u) { /* 2^-29 */
    return x;
  }
  float r = aot_f32_of_bits(size);
  if (size >= 0x4c000000u) { /* 2^25 */
    return aot_f32_of_bits(aot_f32_bits(high[3] + low[3]) | sign);
  }
  if (size >= 0x401c0000u) { /* 39/16 */
    centre = 3;
    r = -1.0f / r;
  } else if (size >= 0x3f980000u) { /* 19/16 */
    centre = 2;
    r = (r - 1.5f) / (1.0f + 1.5f * r);
  } else if (size >= 0x3f300000u) { /* 11/16 */
    centre = 1;
    r = (r - 1.0f) / (r + 1.0f);
  } else if (size >= 0x3ee00000u) { /* 7/16 */
    centre = 0;
    r = (2.0f * r - 1.0f) / (2.0f + r);
  }
  const float z = r * r, w = z * z;
  float even = 4.9768779427e-02f + w * 1.6285819933e-02f;
  even = 6.6610731184e-02f + w * even;
  even = 9.0908870101e-02f + w * even;
  even = 1.4285714924e-01f + w * even;
  even = z * (3.3333334327e-01f + w * even);
  float odd = -5.8335702866e-02f + w * -3.6531571299e-02f;
  odd = -7.6918758452e-02f + w * odd;
  odd = -1.1111110449e-01f + w * odd;
  odd = w * (-2.0000000298e-01f + w * odd);
  const float rest = r * (even + odd);
  const float y = centre < 0 ? r - rest : high[centre] - ((rest - low[centre]) - r);
  return aot_f32_of_bits(aot_f32_bits(y) ^ sign);
}

/* The angle of the point (x, y): atan |y / x| and the quadrant. */
AOT_MATH float aot_atan2f(float y, float x) {
  const float pi = 3.1415927410e+00f, half_pi = 1.5707963705e+00f, rest = -8.7422776573e-08f;
  const uint32_t x_bits = aot_f32_bits(x), y_bits = aot_f32_bits(y), sign = y_bits & 0x80000000u;
  const uint32_t x_size = x_bits & 0x7fffffffu, y_size = y_bits ^ sign, left = x_bits >> 31;
  float z;
  if (x_size > 0x7f800000u || y_size > 0x7f800000u) {
    return x + y;
  }
  if (x_bits == 0x3f800000u) {
    return aot_atanf(y);
  }
  if (y_size == 0) {
    z = left ? pi : 0.0f;
  } else if (x_size == 0) {
    z = half_pi;
  } else if (x_size == 0x7f800000u) {
    z = y_size == 0x7f800000u ? (left ? 3.0f * 7.8539818525e-01f : 7.8539818525e-01f) : left ? pi : 0.0f;
  } else if (y_size == 0x7f800000u) {
    z = half_pi;
  } else {
    const int32_t k = ((int32_t)y_size - (int32_t)x_size) >> 23; /* how many powers of two apart */
    if (k > 60) {
      z = half_pi + 0.5f * rest;
    } else if (left && k < -60) {
      z = 0.0f;
    } else {
      z = aot_atanf(aot_f32_of_bits(aot_f32_bits(y / x) & 0x7fffffffu));
    }
    if (left) { /* the reference subtracts pi from the negative, which is the same but for the sign */
      z = pi - (z - rest);
    }
  }
  return aot_f32_of_bits(aot_f32_bits(z) ^ sign);
}

/* e^x for -121 <= x <= 0, Eigen's: x = m ln 2 + r and a polynomial of r. */
AOT_MATH float aot_eigen_exp(float x) {
  x = x < -104.0f ? -104.0f : x;
  const float scaled = x * 1.44269504088896341f;
  const float m = (scaled + 0x1.8p+23f) - 0x1.8p+23f; /* to the nearest whole number, halves to the even one */
  const float r = m * 2.12194440e-4f + (m * -0.693359375f + x), r2 = r * r;
  const float even = r2 * (r2 * 1.37449637986719608306884765625e-3f + 4.166965186595916748046875e-2f) + 0.49999988079071044921875f;
  const float odd = r2 * 8.36894474923610687255859375e-3f + 0.16666518151760101318359375f;
  const float y = r2 * (r * odd + even) + (r + 1.0f);
  const int32_t exponent = (int32_t)m, part = exponent >> 1;
  return y * aot_power_of_2(part) * aot_power_of_2(exponent - part);
}

/* 1 - erf x for |x| <= 1, Eigen's: a polynomial. */
AOT_MATH float aot_eigen_erfc_near(float x, float x2) {
  float p = 5.61802298761904239654541015625e-04f;
  p = p * x2 + -4.91381669417023658752441406250e-03f;
  p = p * x2 + 2.67075151205062866210937500000e-02f;
  p = p * x2 + -1.12800106406211853027343750000e-01f;
  p = p * x2 + 3.76122951507568359375000000000e-01f;
  p = p * x2 + -1.12837910652160644531250000000e+00f;
  return x * p + 1.0f;
}

/* 1 - erf x beyond, Eigen's: e = e^(-x^2), times a quotient of polynomials of 1 / x^2, by x. */
AOT_MATH float aot_eigen_erfc_far(float x, float x2, float e) {
  const float wide = 4097.0f * x, upper = (x - wide) + wide, lower = x - upper;
  const float rest = lower * lower + (lower * upper + (upper * lower + (upper * upper - x2))); /* x * x - x2, exactly */
  const float q = 1.0f / x2;
  float p = 1.0208116471767425537109375e-01f;
  p = p * q + 4.2920666933059692382812500e-01f;
  p = p * q + 3.2379078865051269531250000e-01f;
  p = p * q + 5.3971976041793823242187500e-02f;
  float d = 1.7251677811145782470703125e-02f;
  d = d * q + 3.9137163758277893066406250e-01f;
  d = d * q + 1.0000000000000000000000000e+00f;
  d = d * q + 6.2173241376876831054687500e-01f;
  d = d * q + 9.5662862062454223632812500e-02f;
  return (e - e * rest) * (p / (x * d)) + (x < 0.0f ? 2.0f : 0.0f);
}

/* 1 - erf x, as Eigen computes it for the elements of a vector. */
AOT_MATH float aot_eigen_erfcf(float x) {
  x = x < -11.0f ? -11.0f : x > 11.0f ? 11.0f : x;
  const float x2 = x * x;
  return x2 > 1.0f ? aot_eigen_erfc_far(x, x2, aot_eigen_exp(-x2)) : aot_eigen_erfc_near(x, x2);
}

/* 1 - erf x, as Eigen computes it for a single element, where it takes the exponential of the C library. */
AOT_MATH float aot_eigen_scalar_erfcf(float x) {
  x = x < -11.0f ? -11.0f : x > 11.0f ? 11.0f : x;
  const float x2 = x * x;
  return x2 > 1.0f ? aot_eigen_erfc_far(x, x2, aot_expf(-x2)) : aot_eigen_erfc_near(x, x2);
}

/* tanh x, Eigen's: a quotient of polynomials. */
AOT_MATH float aot_eigen_tanhf(float x) {
  x = x < -7.90738964080810547f ? -7.90738964080810547f : x > 7.90738964080810547f ? 7.90738964080810547f : x;
  const float x2 = x * x;
  float p = 1.394553628e-8f;
  p = p * x2 + 2.102733560e-5f;
  p = p * x2 + 3.520756727e-3f;
  p = p * x2 + 1.340216100e-1f;
  float d = 8.015776984e-7f;
  d = d * x2 + 3.326951409e-4f;
  d = d * x2 + 2.597254514e-2f;
  d = d * x2 + 4.673548340e-1f;
  d = d * x2 + 1.0f;
  return ((x2 * x) * p + x) / d;
}

/* 1 / (1 + e^-x), as Eigen computes it for the elements of a vector: e^(x / 2), squared. */
AOT_MATH float aot_eigen_logisticf(float x) {
  const float half = (x < -104.0f ? -104.0f : x > 16.6355324f ? 16.6355324f : x) * 0.5f;
  const float scaled = half * 1.44269504088896341f + 0.5f;
  const int32_t whole = scaled > -1024.0f ? (int32_t)scaled : 0; /* of no number: it stays one through `half` */
  const int32_t exponent = whole - ((float)whole > scaled ? 1 : 0); /* the floor */
  const float m = (float)exponent, r = m * 2.12194440e-4f + (m * -0.693359375f + half), r2 = r * r;
  const float even = r2 * 4.1898667812347412109375e-2f + 0.49999141693115234375f;
  const float odd = r2 * 8.33471305668354034423828125e-3f + 0.16666877269744873046875f;
  const float root = (r2 * (r * odd + even) + (r + 1.0f)) * aot_power_of_2(exponent), e = root * root;
  return x < -104.0f ? 0.0f : e / (1.0f + e);
}

/* 1 / (1 + e^-x), as Eigen computes it for a single element, where it takes the exponential of the C library. */
AOT_MATH float aot_eigen_scalar_logisticf(float x) {
  const float e = aot_expf(x > 16.6355324f ? 16.6355324f : x);
  return e / (1.0f + e);
}
#endif
