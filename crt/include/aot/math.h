/* SPDX-License-Identifier: Apache-2.0 */
/* Elementary functions of float32 that give the same bits on every processor and with every C library: those of the GNU C library
 * from 2.28 on, with which the reference runs.  exp, log, sin and cos are its methods (Arm's optimized-routines, `expf.c`,
 * `logf.c`, `sincosf.h`: tables, polynomials and constants are from there), arranged so that nothing depends on whether a
 * processor has fused multiplications: the few products that the reference fuses are split here into exact parts.
 *
 * exp is computed with integers, which is faster than double precision in software and the same in the last bit.
 * No function sets errno or flags.  To be compiled without contraction of floating-point expressions (-std=c99 or
 * -ffp-contract=off), as all generated code with floats.
 */
#ifndef AOT_MATH_H
#define AOT_MATH_H

#include "aot/kernel.h"

#include <stdint.h>

#define AOT_MATH AOT_KERNEL static __attribute__((unused))
#define AOT_NOINLINE __attribute__((noinline))

/* By unions, because freestanding compilers call memcpy. */
typedef union {
  float number;
  uint32_t bits;
} aot_f32_t;

typedef union {
  double number;
  uint64_t bits;
} aot_f64_t;

AOT_MATH uint32_t aot_f32_bits(float x) {
  const aot_f32_t f = {.number = x};
  return f.bits;
}

AOT_MATH float aot_f32_of_bits(uint32_t bits) {
  const aot_f32_t f = {.bits = bits};
  return f.number;
}

AOT_MATH uint64_t aot_f64_bits(double x) {
  const aot_f64_t f = {.number = x};
  return f.bits;
}

AOT_MATH double aot_f64_of_bits(uint64_t bits) {
  const aot_f64_t f = {.bits = bits};
  return f.number;
}

/* 2^(i/32) with 62 fractional bits: 52 that count, and 2^-53.7, because the reference rounds to 53 bits before it rounds to 24,
 * which is the same as rounding once with this offset for every float.
 */
static const int64_t aot_exp2_32nds[32] = {
  INT64_C(0x4000000000000140), INT64_C(0x4166c34c5615d140), INT64_C(0x42d561b3e6243d40), INT64_C(0x444c0740496d4540),
  INT64_C(0x45cae0f1f545ed40), INT64_C(0x47521cc5a2e6a940), INT64_C(0x48e1e9b9d588e140), INT64_C(0x4a7a77d47f7b8540),
  INT64_C(0x4c1bf828c6dc5540), INT64_C(0x4dc69cdceaa72d40), INT64_C(0x4f7a993048d08940), INT64_C(0x513821818624b540),
  INT64_C(0x52ff6b54d8a89d40), INT64_C(0x54d0ad5a753e0940), INT64_C(0x56ac1f752150a540), INT64_C(0x5891fac0e9561540),
  INT64_C(0x5a827999fcef3540), INT64_C(0x5c7dd7a3b17dd140), INT64_C(0x5e8451cfac061d40), INT64_C(0x6096266533384d40),
  INT64_C(0x62b39508aa836d40), INT64_C(0x64dcdec337179540), INT64_C(0x6712460a8fc24140), INT64_C(0x69540ec8f8957540),
  INT64_C(0x6ba27e656b4eb540), INT64_C(0x6dfddbcbed791d40), INT64_C(0x70666f76154a7140), INT64_C(0x72dc8373be41a540),
  INT64_C(0x75606373ee921d40), INT64_C(0x77f25ccdee6d7d40), INT64_C(0x7a92be8a92436940), INT64_C(0x7d41d96db9150140),
};

/* 2^-64 * a * b for |b| < 2^63, up to 4 off. */
AOT_MATH int64_t aot_mulhi_i64(int64_t a, int64_t b) {
  const int32_t a_high = (int32_t)(a >> 32), a_low = (int32_t)((uint32_t)a >> 1);
  const int32_t b_high = (int32_t)(b >> 32), b_low = (int32_t)((uint32_t)b >> 1);
  const int64_t middle = (int64_t)a_high * b_low + (int64_t)a_low * b_high;
  return (int64_t)a_high * b_high + (int64_t)(int32_t)(middle >> 32) * 2;
}

/* 2^(k/32) * (1 + r * (c2 + r * (c1 + r * c0))) rounded to the nearest float; r has 64 fractional bits. */
AOT_MATH AOT_NOINLINE float aot_exp_exact(int32_t k, int64_t r) {
  int64_t p = ((r >> 32) * 0x71abe12e) >> 18;
  p = aot_mulhi_i64(r, INT64_C(0x000f5fe7287d6279) + p);
  p = aot_mulhi_i64(r, INT64_C(0x058b90bfc314b580) + p);
  const int64_t root = aot_exp2_32nds[k & 31];
  const uint32_t y = (uint32_t)((root + aot_mulhi_i64(p, root)) >> 32);
  const int32_t field = (k >> 5) + 126; /* of the result's exponent, less one where y has bit 30 */
  if (field <= 0) {                     /* subnormal */
    const uint32_t places = 7u - (uint32_t)field;
    return aot_f32_of_bits(places > 31 ? 0 : (y + (1u << (places - 1))) >> places);
  }
  const uint32_t places = 6u + (y >> 30);
  return aot_f32_of_bits(((y + (1u << (places - 1))) >> places) + (((uint32_t)field + places - 7u) << 23));
}

/* e^x: x * 32 / ln 2 = k + r with |r| <= 1/2 from the exact product, then as above: first with 32 bits, which settles the rounding
 * unless the 7 bits behind the result's last are within 4 of a half.
 */
AOT_MATH float aot_expf(float x) {
  const uint32_t bits = aot_f32_bits(x), size = bits & 0x7fffffffu, sign = 0u - (bits >> 31);
  if (size < 0x33800000u) { /* 2^-24 */
    return 1.0f + x;
  }
  if (size > 0x42b17217u && !(sign && size <= 0x42cff1b4u)) { /* result infinite or 0, or NaN */
    return size > 0x7f800000u ? x : sign ? 0.0f : __builtin_inff();
  }
  /* |x| * 32 / ln 2 in words, whole.part.rest; 0x2e2a8eca5705fc * 2^-48 is 32 / ln 2 */
  const uint32_t mantissa = (bits & 0x7fffffu) | 0x800000u, shift = 134u - (size >> 23);
  const uint64_t low = (uint64_t)mantissa * 0xca5705fcu, high = (uint64_t)mantissa * 0x2e2a8eu + (low >> 32);
  const uint32_t whole = (uint32_t)(high >> 32) >> shift ^ sign; /* the complement is the negative but for 2^-64 */
  const uint32_t part = ((uint32_t)high >> shift | (uint32_t)(high >> 32) << (32 - shift)) ^ sign;
  const int32_t k = (int32_t)(whole + (part >> 31)), r = (int32_t)part;
  int32_t p = aot_mulhi(r, 0x71abe12e) >> 14; /* 36 fractional bits */
  p = aot_mulhi(r, 0x00f5fe73 + p);
  p = aot_mulhi(r, 0x58b90bfc + p);
  const int32_t root = (int32_t)(aot_exp2_32nds[k & 31] >> 32);
  const uint32_t y = (uint32_t)(root + (aot_mulhi(p, root) >> 4));
  const int32_t field = (k >> 5) + 126;
  if (y >> 30 && field > 0 && ((y - 0x3du) & 0x7fu) > 4u) {
    return aot_f32_of_bits(((y + 0x40u) >> 7) + ((uint32_t)field << 23));
  }
  const uint32_t rest = ((uint32_t)low >> shift | (uint32_t)high << (32 - shift)) ^ sign;
  return aot_exp_exact(k, (int64_t)((uint64_t)part << 32 | rest));
}

/* 1 / c and ln c for a c near the centre of each sixteenth of [0.7, 1.4). */
static const double aot_log_16ths[16][2] = {
  {0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2}, {0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2},
  {0x1.49539f0f010bp+0, -0x1.01eae7f513a67p-2}, {0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3},
  {0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3}, {0x1.25e227b0b8eap+0, -0x1.1aa2bc79c81p-3},
  {0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4}, {0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4},
  {0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5}, {0x1p+0, 0x0p+0},
  {0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5}, {0x1.ca4b31f026aap-1, 0x1.c5e53aa362eb4p-4},
  {0x1.b2036576afce6p-1, 0x1.526e57720db08p-3}, {0x1.9c2d163a1aa2dp-1, 0x1.bc2860d22477p-3},
  {0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2}, {0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2},
};

/* ln x: x = 2^k * z, ln x = k ln 2 + ln c + ln(1 + r) with r = z / c - 1. */
AOT_MATH float aot_logf(float x) {
  uint32_t bits = aot_f32_bits(x);
  if (bits - 0x00800000u >= 0x7f000000u) { /* 0, subnormal, negative, infinite, NaN */
    if ((bits & 0x7fffffffu) == 0) {
      return -__builtin_inff();
    }
    if (bits == 0x7f800000u || x != x) {
      return x;
    }
    if (bits >> 31) {
      return __builtin_nanf("");
    }
    bits = aot_f32_bits(x * 0x1p23f) - (23u << 23);
  }
  const uint32_t offset = bits - 0x3f330000u;
  const int32_t k = (int32_t)offset >> 23;
  const double *entry = aot_log_16ths[(offset >> 19) & 15];
  const double z = (double)aot_f32_of_bits(bits - (offset & 0xff800000u));
  const double r = z * entry[0] - 1.0, r2 = r * r;
  const double sum = entry[1] + k * 0x1.62e42fefa39efp-1;
  const double p = 0x1.5575b0be00b6ap-2 * r + -0x1.ffffef20a4123p-2;
  return (float)((-0x1.00ea348b88334p-2 * r2 + p) * r2 + (sum + r));
}

/* Bits of 4 / pi: entry i holds 32 of them from the one at 8 * i - 24 behind the leading one on. */
static const uint32_t aot_four_over_pi[24] = {
  0x000000a2u, 0x0000a2f9u, 0x00a2f983u, 0xa2f9836eu, 0xf9836e4eu, 0x836e4e44u, 0x6e4e4415u, 0x4e441529u,
  0x441529fcu, 0x1529fc27u, 0x29fc2757u, 0xfc2757d1u, 0x2757d1f5u, 0x57d1f534u, 0xd1f534ddu, 0xf534ddc0u,
  0x34ddc0dbu, 0xddc0db62u, 0xc0db6295u, 0xdb629599u, 0x6295993cu, 0x95993c43u, 0x993c4390u, 0x3c439041u,
};

/* sin x (quadrant 0), cos x (quadrant 1): x = n * pi / 2 + r with |r| <= pi / 4, then a polynomial of r. */
AOT_MATH float aot_sin_cos(float x, int32_t quadrant) {
  const uint32_t bits = aot_f32_bits(x), size = bits & 0x7fffffffu;
  double r = (double)x;
  if (size >= 0x7f800000u) {
    return x - x;
  }
  if (size < 0x39800000u) { /* 2^-12 */
    return quadrant == 0 ? x : 1.0f;
  }
  if (size >= 0x42f00000u) { /* 120: the product's bits around the point, 62 of them behind it */
    const uint32_t *pi = &aot_four_over_pi[(size >> 26) & 15];
    const uint32_t m = ((bits & 0x7fffffu) | 0x800000u) << ((bits >> 23) & 7);
    uint64_t product = ((uint64_t)m * pi[8] >> 32 | (uint64_t)(m * pi[0]) << 32) + (uint64_t)m * pi[4];
    const uint64_t n = (product + (UINT64_C(1) << 61)) >> 62;
    product -= n << 62;
    r = (double)(int64_t)product * 0x1.921fb54442d18p-62;
    if (bits >> 31) {
      r = -r;
      quadrant -= (int32_t)n;
    } else {
      quadrant += (int32_t)n;
    }
  } else if (size >= 0x3f400000u) { /* above 0.75 */
    const int32_t n = ((int32_t)(r * 0x1.45f306dc9c883p+23) + 0x800000) >> 24;
    r = (r - n * 0x1.921fb54442p0) - n * 0x1.a3p-41; /* the first product and difference are exact */
    quadrant += n;
  }
  const double r2 = r * r;
  double y;
  if ((quadrant & 1) == 0) {
    const double r3 = r * r2;
    y = (r + r3 * -0x1.555545995a603p-3) + (r3 * r2) * (0x1.1107605230bc4p-7 + r2 * -0x1.994eb3774cf24p-13);
  } else {
    const double r4 = r2 * r2, high = -0x1.6c087e89a359dp-10 + r2 * 0x1.99343027bf8c3p-16;
    y = ((1.0 + r2 * -0x1.ffffffd0c621cp-2) + r4 * 0x1.55553e1068f19p-5) + (r4 * r2) * high;
  }
  return (float)((quadrant & 2) == 0 ? y : -y);
}

AOT_MATH float aot_sinf(float x) {
  return aot_sin_cos(x, 0);
}

AOT_MATH float aot_cosf(float x) {
  return aot_sin_cos(x, 1);
}

/* 2^v for |v| < 150, in double precision and rounded once; with the table of exp, without its offset. */
AOT_MATH float aot_exp2_of_double(double v, float sign) {
  const double moved = v + 0x1.8p+47; /* the sum is a multiple of 1/32 */
  const double r = v - (moved - 0x1.8p+47);
  const uint64_t bits = aot_f64_bits(moved);
  const uint64_t mantissa = ((uint64_t)aot_exp2_32nds[bits & 31] >> 10) & UINT64_C(0xfffffffffffff);
  const int32_t exponent = (int32_t)((uint32_t)bits << 9) >> 14; /* the whole part of the sum, in bits 5 to 22 of it */
  const uint64_t root = mantissa | (uint64_t)(exponent + 1023) << 52;
  const double scale = aot_f64_of_bits(root);
  const double p = 0x1.c6af84b912394p-5 * r + 0x1.ebfce50fac4f3p-3;
  return (float)((p * (r * r) + (0x1.62e42ff0c52d6p-1 * r + 1.0)) * scale) * sign;
}

/* log2 c for the entries of aot_log_16ths. */
static const double aot_log2_16ths[16] = {
  -0x1.efec65b963019p-2, -0x1.b0b6832d4fca4p-2, -0x1.7418b0a1fb77bp-2, -0x1.39de91a6dcf7bp-2, -0x1.01d9bf3f2b631p-2,
  -0x1.97c1d1b3b7afp-3, -0x1.2f9e393af3c9fp-3, -0x1.960cbbf788d5cp-4, -0x1.a6f9db6475fcep-5, 0x0p+0,
  0x1.338ca9f24f53dp-4, 0x1.476a9543891bap-3, 0x1.e840b4ac4e4d2p-3, 0x1.40645f0c6651cp-2, 0x1.88e9c2c1b9ff8p-2,
  0x1.ce0a44eb17bccp-2,
};

/* log2 of a positive float with these bits; the exponent may be out of range. */
AOT_MATH double aot_log2_of_bits(uint32_t bits) {
  const uint32_t offset = bits - 0x3f330000u, i = (offset >> 19) & 15;
  const int32_t k = (int32_t)offset >> 23;
  const double z = (double)aot_f32_of_bits(bits - (offset & 0xff800000u));
  const double high = aot_f64_of_bits(aot_f64_bits(aot_log_16ths[i][0]) & ~UINT64_C(0xffffff));
  const double r = (z * high - 1.0) + z * (aot_log_16ths[i][0] - high); /* z / c - 1, rounded once */
  const double r2 = r * r, sum = aot_log2_16ths[i] + k;
  const double top = 0x1.27616c9496e0bp-2 * r + -0x1.71969a075c67ap-2;
  const double middle = 0x1.ec70a6ca7baddp-2 * r + -0x1.7154748bef6c8p-1;
  return top * (r2 * r2) + (middle * r2 + (0x1.71547652ab82bp0 * r + sum));
}

/* x^y = 2^(y * log2 x). */
AOT_MATH float aot_powf(float x, float y) {
  const uint32_t bits = aot_f32_bits(x), size = bits & 0x7fffffffu, y_bits = aot_f32_bits(y), y_size = y_bits & 0x7fffffffu;
  const uint32_t field = y_size >> 23, last = y_size != 0 && field < 151 ? 1u << (150 - (field < 119 ? 119 : field)) : 0;
  const uint32_t mantissa = (y_size & 0x7fffffu) | 0x800000u;
  const int32_t whole = y_size != 0 && (field > 150 || (field >= 127 && (mantissa & (last - 1)) == 0));
  const float sign = bits >> 31 && whole && field <= 150 && (mantissa & last) ? -1.0f : 1.0f; /* of an odd power */
  if (y_size == 0 || bits == 0x3f800000u) {
    return 1.0f;
  }
  if (x != x || y != y) {
    return x + y;
  }
  if (y_size == 0x7f800000u) {
    return size == 0x3f800000u ? 1.0f : (size < 0x3f800000u) == (y_bits >> 31 == 0) ? 0.0f : __builtin_inff();
  }
  if (size == 0 || size == 0x7f800000u) {
    return ((size == 0) == (y_bits >> 31 == 0) ? 0.0f : __builtin_inff()) * sign;
  }
  if (bits >> 31 && !whole) {
    return __builtin_nanf("");
  }
  const uint32_t normal = size < 0x00800000u ? aot_f32_bits(aot_f32_of_bits(size) * 0x1p23f) - (23u << 23) : size;
  const double power = (double)y * aot_log2_of_bits(normal);
  if (power > 0x1.fffffffd1d571p+6) {
    return __builtin_inff() * sign;
  }
  return power <= -150.0 ? 0.0f * sign : aot_exp2_of_double(power, sign);
}
#endif
