/* SPDX-License-Identifier: Apache-2.0 */
/* What generated kernels call: typed memory access, fixed-point helpers and the DSP instructions with portable stand-ins.
 *
 * Typed access: AOT_LD_I32(ptr, index) is element `index` of the memory at `ptr` seen as int32_t, whatever its declared type is;
 * AOT_ST_I32(ptr, index, value) stores one.  I8 U8 I16 U16 I32 U32 I64 U64 F16 F32 F64 exist (F16: the bits of one); `ptr` must be aligned for the type
 * (64-bit ones: to 4 bytes).  The access may alias any other.
 *
 * DSP: functions named after the instruction (aot_smlad for SMLAD).  Where the core has it (__ARM_FEATURE_DSP) they are that one
 * instruction, elsewhere C of the same meaning, free of undefined behaviour.  Operands of the halfword and byte instructions are
 * uint32_t, accumulators int32_t; accumulation wraps as the instruction does.
 */
#ifndef AOT_KERNEL_H
#define AOT_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define AOT_INLINE static inline __attribute__((always_inline, unused))
#define AOT_MAY_ALIAS __attribute__((may_alias))
#define AOT_ALIGN(bytes) __attribute__((aligned(bytes)))
#ifdef AOT_WORKSPACE_SECTION /* given when <name>.c is compiled: where the workspace is to lie instead */
#define AOT_SECTION(name) __attribute__((section(AOT_WORKSPACE_SECTION)))
#else
#define AOT_SECTION(name) __attribute__((section(name)))
#endif
#define AOT_MAY_ALIAS4 __attribute__((may_alias, aligned(4)))
#else
#error "generated kernels need a compiler with GNU attributes (gcc, clang, armclang)"
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "generated kernels and their constants are for little-endian processors: compile without -mbig-endian"
#endif

/* AOT_REPEAT_16(s) is sixteen times the string s: repeated lines of inline assembly whose number the compiler can count. */
#define AOT_REPEAT_1(s) s
#define AOT_REPEAT_2(s) AOT_REPEAT_1(s) AOT_REPEAT_1(s)
#define AOT_REPEAT_3(s) AOT_REPEAT_1(s) AOT_REPEAT_2(s)
#define AOT_REPEAT_4(s) AOT_REPEAT_2(s) AOT_REPEAT_2(s)
#define AOT_REPEAT_5(s) AOT_REPEAT_2(s) AOT_REPEAT_3(s)
#define AOT_REPEAT_6(s) AOT_REPEAT_3(s) AOT_REPEAT_3(s)
#define AOT_REPEAT_7(s) AOT_REPEAT_3(s) AOT_REPEAT_4(s)
#define AOT_REPEAT_8(s) AOT_REPEAT_4(s) AOT_REPEAT_4(s)
#define AOT_REPEAT_9(s) AOT_REPEAT_4(s) AOT_REPEAT_5(s)
#define AOT_REPEAT_10(s) AOT_REPEAT_5(s) AOT_REPEAT_5(s)
#define AOT_REPEAT_11(s) AOT_REPEAT_5(s) AOT_REPEAT_6(s)
#define AOT_REPEAT_12(s) AOT_REPEAT_6(s) AOT_REPEAT_6(s)
#define AOT_REPEAT_13(s) AOT_REPEAT_6(s) AOT_REPEAT_7(s)
#define AOT_REPEAT_14(s) AOT_REPEAT_7(s) AOT_REPEAT_7(s)
#define AOT_REPEAT_15(s) AOT_REPEAT_7(s) AOT_REPEAT_8(s)
#define AOT_REPEAT_16(s) AOT_REPEAT_8(s) AOT_REPEAT_8(s)
#define AOT_REPEAT_17(s) AOT_REPEAT_8(s) AOT_REPEAT_9(s)
#define AOT_REPEAT_18(s) AOT_REPEAT_9(s) AOT_REPEAT_9(s)
#define AOT_REPEAT_19(s) AOT_REPEAT_9(s) AOT_REPEAT_10(s)
#define AOT_REPEAT_20(s) AOT_REPEAT_10(s) AOT_REPEAT_10(s)
#define AOT_REPEAT_21(s) AOT_REPEAT_10(s) AOT_REPEAT_11(s)
#define AOT_REPEAT_22(s) AOT_REPEAT_11(s) AOT_REPEAT_11(s)
#define AOT_REPEAT_23(s) AOT_REPEAT_11(s) AOT_REPEAT_12(s)
#define AOT_REPEAT_24(s) AOT_REPEAT_12(s) AOT_REPEAT_12(s)
#define AOT_REPEAT_25(s) AOT_REPEAT_12(s) AOT_REPEAT_13(s)
#define AOT_REPEAT_26(s) AOT_REPEAT_13(s) AOT_REPEAT_13(s)
#define AOT_REPEAT_27(s) AOT_REPEAT_13(s) AOT_REPEAT_14(s)
#define AOT_REPEAT_28(s) AOT_REPEAT_14(s) AOT_REPEAT_14(s)
#define AOT_REPEAT_29(s) AOT_REPEAT_14(s) AOT_REPEAT_15(s)
#define AOT_REPEAT_30(s) AOT_REPEAT_15(s) AOT_REPEAT_15(s)
#define AOT_REPEAT_31(s) AOT_REPEAT_15(s) AOT_REPEAT_16(s)
#define AOT_REPEAT_32(s) AOT_REPEAT_16(s) AOT_REPEAT_16(s)

#if defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP
#define AOT_DSP 1
#else
#define AOT_DSP 0
#endif

/* SSAT and USAT exist from Armv7-M on, also without the DSP extension. */
#if defined(__ARM_FEATURE_SAT) && __ARM_FEATURE_SAT
#define AOT_SAT 1
#else
#define AOT_SAT 0
#endif

/* Armv6-M, and Armv8-M Baseline (Cortex-M23) which has all its instructions. */
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
#define AOT_V6M 1
#else
#define AOT_V6M 0
#endif

#if defined(__ARM_FP) && (__ARM_FP & 4)
#define AOT_FPU 1
#else
#define AOT_FPU 0
#endif

/* What every function of a kernel is compiled with, whatever the flags are: without a frame pointer, which would take a register
 * from the blocks, and without contraction of a product and a sum, which would round once where the reference rounds twice.  GCC
 * knows these flags as attributes, but with one forgets that -ffreestanding keeps it from making loops into calls of memset, so that
 * is repeated; Clang has a pragma for the second, and the blocks that need the register are not for it.  Equal functions with such
 * attributes are not to be merged (no_icf): with -flto GCC 12 loses their stores. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#define AOT_KERNEL
#elif !defined(__OPTIMIZE__)
#define AOT_KERNEL
#elif __STDC_HOSTED__
#define AOT_KERNEL __attribute__((no_icf, noclone, optimize("omit-frame-pointer", "fp-contract=off")))
#else
#define AOT_KERNEL \
  __attribute__((no_icf, noclone, optimize("omit-frame-pointer", "fp-contract=off", "no-tree-loop-distribute-patterns")))
#endif

/* Core registers that the compiler can give to one block of inline assembly; where a block wants more, the C beside it is compiled.
 * GCC gives all 14 but sp and pc where it optimises.  Elsewhere there are 11: one is the frame pointer, and two may be needed for
 * the addresses of operands in memory; at -O0 for a core with an FPU, GCC reads operands into r0 to r6 only.  Blocks name r9, which
 * position-independent builds keep for themselves, and load words at any address, so such builds, and those with
 * -mno-unaligned-access, have none of them; blocks for Armv6-M load no such words.  At -Os GCC 12 finds no
 * registers for some blocks of Armv6-M: compile its kernels at -O2, which is much faster than the C.  Of -ffixed-r9 and the like
 * the compiler says nothing here: a build with such flags has to give -DAOT_REGISTERS=0. */
#ifndef AOT_REGISTERS
#if !(AOT_V6M || defined(__ARM_FEATURE_UNALIGNED)) || defined(__PIC__) || defined(__APCS_RWPI)
#define AOT_REGISTERS 0
#elif AOT_V6M && defined(__OPTIMIZE_SIZE__) && !defined(__clang__)
#define AOT_REGISTERS 10
#elif defined(__OPTIMIZE__) && !defined(__clang__)
#define AOT_REGISTERS 14
#elif AOT_FPU && !defined(__clang__)
#define AOT_REGISTERS 7
#else
#define AOT_REGISTERS 11
#endif
#endif

typedef int8_t AOT_MAY_ALIAS aot_i8;
typedef uint8_t AOT_MAY_ALIAS aot_u8;
typedef int16_t AOT_MAY_ALIAS aot_i16;
typedef uint16_t AOT_MAY_ALIAS aot_u16;
typedef int32_t AOT_MAY_ALIAS aot_i32;
typedef uint32_t AOT_MAY_ALIAS aot_u32;
typedef int64_t AOT_MAY_ALIAS4 aot_i64;
typedef uint64_t AOT_MAY_ALIAS4 aot_u64;
typedef float AOT_MAY_ALIAS aot_f32;
typedef double AOT_MAY_ALIAS4 aot_f64;

#define AOT_LD_I8(ptr, index) (((const aot_i8 *)(const void *)(ptr))[(index)])
#define AOT_LD_U8(ptr, index) (((const aot_u8 *)(const void *)(ptr))[(index)])
#define AOT_LD_I16(ptr, index) (((const aot_i16 *)(const void *)(ptr))[(index)])
#define AOT_LD_U16(ptr, index) (((const aot_u16 *)(const void *)(ptr))[(index)])
#define AOT_LD_I32(ptr, index) (((const aot_i32 *)(const void *)(ptr))[(index)])
#define AOT_LD_U32(ptr, index) (((const aot_u32 *)(const void *)(ptr))[(index)])
#define AOT_LD_I64(ptr, index) (((const aot_i64 *)(const void *)(ptr))[(index)])
#define AOT_LD_U64(ptr, index) (((const aot_u64 *)(const void *)(ptr))[(index)])
#define AOT_LD_F16(ptr, index) AOT_LD_U16(ptr, index)
#define AOT_LD_F32(ptr, index) (((const aot_f32 *)(const void *)(ptr))[(index)])
#define AOT_LD_F64(ptr, index) (((const aot_f64 *)(const void *)(ptr))[(index)])
#define AOT_ST_I8(ptr, index, value) ((void)(((aot_i8 *)(void *)(ptr))[(index)] = (value)))
#define AOT_ST_U8(ptr, index, value) ((void)(((aot_u8 *)(void *)(ptr))[(index)] = (value)))
#define AOT_ST_I16(ptr, index, value) ((void)(((aot_i16 *)(void *)(ptr))[(index)] = (value)))
#define AOT_ST_U16(ptr, index, value) ((void)(((aot_u16 *)(void *)(ptr))[(index)] = (value)))
#define AOT_ST_I32(ptr, index, value) ((void)(((aot_i32 *)(void *)(ptr))[(index)] = (value)))
#define AOT_ST_U32(ptr, index, value) ((void)(((aot_u32 *)(void *)(ptr))[(index)] = (value)))
#define AOT_ST_I64(ptr, index, value) ((void)(((aot_i64 *)(void *)(ptr))[(index)] = (value)))
#define AOT_ST_U64(ptr, index, value) ((void)(((aot_u64 *)(void *)(ptr))[(index)] = (value)))
#define AOT_ST_F16(ptr, index, value) AOT_ST_U16(ptr, index, value)
#define AOT_ST_F32(ptr, index, value) ((void)(((aot_f32 *)(void *)(ptr))[(index)] = (value)))
#define AOT_ST_F64(ptr, index, value) ((void)(((aot_f64 *)(void *)(ptr))[(index)] = (value)))

/* Conversions that C leaves to the implementation, spelled out: keep the low bits. Compilers reduce them to nothing. */
AOT_INLINE int32_t aot_i32_bits(uint32_t x) {
  return x <= 0x7fffffffu ? (int32_t)x : -1 - (int32_t)(0xffffffffu - x);
}
AOT_INLINE int32_t aot_low16(uint32_t x) {
  return (int32_t)((x & 0xffffu) ^ 0x8000u) - 0x8000;
}
AOT_INLINE int32_t aot_high16(uint32_t x) {
  return aot_low16(x >> 16);
}
AOT_INLINE uint32_t aot_pack16(int32_t low, int32_t high) {
  return ((uint32_t)low & 0xffffu) | ((uint32_t)high << 16);
}
AOT_INLINE int32_t aot_clamp(int64_t x, int32_t low, int32_t high) {
  return x < low ? low : x > high ? high : (int32_t)x;
}

#define AOT_DEFINE_MINMAX(suffix, type)                   \
  AOT_INLINE type aot_min_##suffix(type a, type b) { \
    return a < b ? a : b;                                 \
  }                                                       \
  AOT_INLINE type aot_max_##suffix(type a, type b) { \
    return a > b ? a : b;                                 \
  }

AOT_DEFINE_MINMAX(i32, int32_t)
AOT_DEFINE_MINMAX(u32, uint32_t)
AOT_DEFINE_MINMAX(i64, int64_t)
AOT_DEFINE_MINMAX(u64, uint64_t)
AOT_DEFINE_MINMAX(f32, float)
AOT_DEFINE_MINMAX(f64, double)

#undef AOT_DEFINE_MINMAX

/* float16 (IEEE 754 binary16), as bits: C99 has no type for it.  The FPU's own conversions where there are any; they neither
 * flush subnormal halves nor make any, whatever FPSCR says of float32 (FZ), and the result is a number of float32 that is normal.
 * They take FPSCR.AHP to be 0, as it is after reset and for every ABI but the old alternative one. */
#if defined(__ARM_FP) && (__ARM_FP & 2)
#define AOT_FP16 1
#else
#define AOT_FP16 0
#endif

typedef union {
  uint32_t bits;
  float value;
} aot_float_bits;

AOT_INLINE float aot_f32_of_f16(uint16_t half) {
  aot_float_bits x;
#if AOT_FP16
  x.bits = half;
  __asm("vcvtb.f32.f16 %0, %0" : "+t"(x.value));
#else
  uint32_t rest = half & 0x7fffu;
  if (rest >= 0x0400u) {
    x.bits = (rest << 13) + (rest >= 0x7c00u ? 0x70000000u : 0x38000000u);
  } else { /* a subnormal: the fraction of a number between 1/2 and 1, less that half */
    x.bits = 0x3f000000u | rest;
    x.value -= 0.5f;
  }
  x.bits |= (uint32_t)(half & 0x8000u) << 16;
#endif
  return x.value;
}

/* Rounded to nearest, ties to even; what is too large becomes infinite. */
AOT_INLINE uint16_t aot_f16_of_f32(float value) {
  aot_float_bits x;
  x.value = value;
#if AOT_FP16
  __asm("vcvtb.f16.f32 %0, %0" : "+t"(x.value));
  return (uint16_t)(x.bits & 0xffffu);
#else
  uint32_t sign = (x.bits >> 16) & 0x8000u;
  uint32_t rest = x.bits & 0x7fffffffu;
  if (rest > 0x7f800000u) {
    return (uint16_t)(sign | 0x7e00u);
  }
  if (rest >= 0x47800000u) {
    return (uint16_t)(sign | 0x7c00u);
  }
  if (rest >= 0x38800000u) {
    return (uint16_t)(sign | ((rest - 0x38000000u + 0x0fffu + ((rest >> 13) & 1u)) >> 13));
  }
  /* a subnormal half: adding 1/2 rounds to its last place, 2^-24 */
  x.bits = rest;
  x.value += 0.5f;
  return (uint16_t)(sign | (x.bits - 0x3f000000u));
#endif
}

/* Fixed point ------------------------------------------------------------------------------------------------------------- */

/* floor(a * m / 2^32), and the same rounded half up. */
AOT_INLINE int32_t aot_mulhi(int32_t a, int32_t m) {
  return (int32_t)(((int64_t)a * m) >> 32);
}
AOT_INLINE int32_t aot_mulhi_round(int32_t a, int32_t m) {
  return (int32_t)(((int64_t)a * m + ((int64_t)1 << 31)) >> 32);
}

/* gemmlowp's SaturatingRoundingDoublingHighMul: a * m / 2^31 rounded half up; only INT32_MIN squared saturates. */
AOT_INLINE int32_t aot_srdhm(int32_t a, int32_t m) {
  int64_t rounded = ((int64_t)a * m + ((int64_t)1 << 30)) >> 31;
  return rounded > INT32_MAX ? INT32_MAX : (int32_t)rounded;
}

/* gemmlowp's RoundingDivideByPOT: x / 2^n rounded half away from zero, 0 <= n <= 31. */
AOT_INLINE int32_t aot_rdbpot(int32_t x, int32_t n) {
  int32_t mask = (int32_t)(((int64_t)1 << n) - 1);
  int32_t threshold = (mask >> 1) + (x < 0 ? 1 : 0);
  return (x >> n) + ((x & mask) > threshold ? 1 : 0);
}

/* TFLite's MultiplyByQuantizedMultiplier with two roundings: x * m / 2^31 * 2^shift, -31 <= shift <= 30. */
AOT_INLINE int32_t aot_requantize_double(int32_t x, int32_t m, int32_t shift) {
  int32_t left = shift > 0 ? shift : 0;
  int32_t right = shift > 0 ? 0 : -shift;
  return aot_rdbpot(aot_srdhm(aot_i32_bits((uint32_t)x << left), m), right);
}

/* The same with one rounding, half up (TFLITE_SINGLE_ROUNDING); the result must fit, -31 <= shift <= 30. */
AOT_INLINE int32_t aot_requantize_single(int32_t x, int32_t m, int32_t shift) {
  int32_t total = 31 - shift;
  return (int32_t)(((int64_t)x * m + ((int64_t)1 << (total - 1))) >> total);
}

/* Saturation -------------------------------------------------------------------------------------------------------------- */

/* aot_ssat8(x): x clamped to int8; aot_ssat8_asr5(x): x >> 5 clamped; the same for 16 bits and for the unsigned usat. */
#if AOT_SAT
#define AOT_DEFINE_SAT(op, bits, low, high)                     \
  AOT_INLINE int32_t aot_##op##bits(int32_t x) {                \
    int32_t r;                                                  \
    __asm(#op " %0, #" #bits ", %1" : "=r"(r) : "r"(x) : "cc"); \
    return r;                                                   \
  }
#define AOT_DEFINE_SAT_ASR(op, bits, low, high, n)                        \
  AOT_INLINE int32_t aot_##op##bits##_asr##n(int32_t x) {                 \
    int32_t r;                                                            \
    __asm(#op " %0, #" #bits ", %1, asr #" #n : "=r"(r) : "r"(x) : "cc"); \
    return r;                                                             \
  }
#else
#define AOT_DEFINE_SAT(op, bits, low, high)      \
  AOT_INLINE int32_t aot_##op##bits(int32_t x) { \
    return aot_clamp(x, low, high);              \
  }
#define AOT_DEFINE_SAT_ASR(op, bits, low, high, n)        \
  AOT_INLINE int32_t aot_##op##bits##_asr##n(int32_t x) { \
    return aot_clamp(x >> n, low, high);                  \
  }
#endif

#define AOT_DEFINE_SAT_ALL(op, bits, low, high)  \
  AOT_DEFINE_SAT(op, bits, low, high)            \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 1)     \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 2)     \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 3)     \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 4)     \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 5)     \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 6)     \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 7)     \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 8)     \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 9)     \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 10)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 11)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 12)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 13)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 14)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 15)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 16)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 17)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 18)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 19)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 20)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 21)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 22)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 23)    \
  AOT_DEFINE_SAT_ASR(op, bits, low, high, 24)

AOT_DEFINE_SAT_ALL(ssat, 8, -128, 127)
AOT_DEFINE_SAT_ALL(ssat, 16, -32768, 32767)
AOT_DEFINE_SAT_ALL(usat, 8, 0, 255)

#undef AOT_DEFINE_SAT
#undef AOT_DEFINE_SAT_ASR
#undef AOT_DEFINE_SAT_ALL

/* DSP extension ----------------------------------------------------------------------------------------------------------- */

#if AOT_DSP
#define AOT_DEFINE_DSP1(name, result, type_a, text, portable) \
  AOT_INLINE result aot_##name(type_a a) {                    \
    result r;                                                 \
    __asm(text : "=r"(r) : "r"(a));                           \
    return r;                                                 \
  }
#define AOT_DEFINE_DSP2(name, result, type_a, type_b, text, portable) \
  AOT_INLINE result aot_##name(type_a a, type_b b) {                  \
    result r;                                                         \
    __asm(text : "=r"(r) : "r"(a), "r"(b));                           \
    return r;                                                         \
  }
#define AOT_DEFINE_DSP3(name, type, text, portable)               \
  AOT_INLINE int32_t aot_##name(type a, type b, int32_t acc) {    \
    int32_t r;                                                    \
    __asm(text : "=r"(r) : "r"(a), "r"(b), "r"(acc));             \
    return r;                                                     \
  }
#else
#define AOT_DEFINE_DSP1(name, result, type_a, text, portable) \
  AOT_INLINE result aot_##name(type_a a) {                    \
    return portable;                                          \
  }
#define AOT_DEFINE_DSP2(name, result, type_a, type_b, text, portable) \
  AOT_INLINE result aot_##name(type_a a, type_b b) {                  \
    return portable;                                                  \
  }
#define AOT_DEFINE_DSP3(name, type, text, portable)            \
  AOT_INLINE int32_t aot_##name(type a, type b, int32_t acc) { \
    return portable;                                           \
  }
#endif

/* Stand-ins for the parts. Products of two halfwords fit 32 bits, but for (-2^15)^2 twice, so sums go through uint32_t. */
#define AOT_MUL(x, y) ((uint32_t)((x) * (y)))
#define AOT_LL (AOT_MUL(aot_low16(a), aot_low16(b)))
#define AOT_HH (AOT_MUL(aot_high16(a), aot_high16(b)))
#define AOT_ACC(sum) aot_i32_bits((uint32_t)acc + (sum))
#define AOT_BYTE(x, n) ((int32_t)((((x) >> (8 * (n))) & 0xffu) ^ 0x80u) - 0x80)
#define AOT_TOP(x) aot_i32_bits((uint32_t)((uint64_t)(x) >> 32))
#define AOT_PRODUCT ((uint64_t)((int64_t)a * b))
#define AOT_ROUND ((uint64_t)1 << 31)
#define AOT_ACC32 ((uint64_t)(uint32_t)acc << 32)

AOT_DEFINE_DSP3(smlad, uint32_t, "smlad %0, %1, %2, %3", AOT_ACC(AOT_LL + AOT_HH))
AOT_DEFINE_DSP3(smmla, int32_t, "smmla %0, %1, %2, %3", AOT_TOP(AOT_ACC32 + AOT_PRODUCT))
AOT_DEFINE_DSP3(smmlar, int32_t, "smmlar %0, %1, %2, %3", AOT_TOP(AOT_ACC32 + AOT_PRODUCT + AOT_ROUND))
AOT_DEFINE_DSP2(smmulr, int32_t, int32_t, int32_t, "smmulr %0, %1, %2", AOT_TOP(AOT_PRODUCT + AOT_ROUND))

/* Bytes 0 and 2 (ror8: bytes 1 and 3) to two halfwords, with sign (s) or without (u); the a forms add to halfwords of a. */
AOT_DEFINE_DSP1(sxtb16, uint32_t, uint32_t, "sxtb16 %0, %1", aot_pack16(AOT_BYTE(a, 0), AOT_BYTE(a, 2)))
AOT_DEFINE_DSP1(sxtb16_ror8, uint32_t, uint32_t, "sxtb16 %0, %1, ror #8", aot_pack16(AOT_BYTE(a, 1), AOT_BYTE(a, 3)))
AOT_DEFINE_DSP1(uxtb16, uint32_t, uint32_t, "uxtb16 %0, %1", a & 0x00ff00ffu)
AOT_DEFINE_DSP1(uxtb16_ror8, uint32_t, uint32_t, "uxtb16 %0, %1, ror #8", (a >> 8) & 0x00ff00ffu)
AOT_DEFINE_DSP2(sxtab16, uint32_t, uint32_t, uint32_t, "sxtab16 %0, %1, %2",
                aot_pack16(aot_low16(a) + AOT_BYTE(b, 0), aot_high16(a) + AOT_BYTE(b, 2)))
AOT_DEFINE_DSP2(sxtab16_ror8, uint32_t, uint32_t, uint32_t, "sxtab16 %0, %1, %2, ror #8",
                aot_pack16(aot_low16(a) + AOT_BYTE(b, 1), aot_high16(a) + AOT_BYTE(b, 3)))

/* pkhbt: low half of a, high half of b; pkhtb: high half of a, low half of b. */
AOT_DEFINE_DSP2(pkhbt, uint32_t, uint32_t, uint32_t, "pkhbt %0, %1, %2", (a & 0xffffu) | (b & 0xffff0000u))
AOT_DEFINE_DSP2(pkhtb, uint32_t, uint32_t, uint32_t, "pkhtb %0, %1, %2", (a & 0xffff0000u) | (b & 0xffffu))

/* Two halfwords at once: wrapping, saturating (q). */
AOT_DEFINE_DSP2(sadd16, uint32_t, uint32_t, uint32_t, "sadd16 %0, %1, %2",
                aot_pack16(aot_low16(a) + aot_low16(b), aot_high16(a) + aot_high16(b)))
AOT_DEFINE_DSP2(ssub16, uint32_t, uint32_t, uint32_t, "ssub16 %0, %1, %2",
                aot_pack16(aot_low16(a) - aot_low16(b), aot_high16(a) - aot_high16(b)))
AOT_DEFINE_DSP2(qsub16, uint32_t, uint32_t, uint32_t, "qsub16 %0, %1, %2",
                aot_pack16(aot_clamp(aot_low16(a) - aot_low16(b), -32768, 32767),
                           aot_clamp(aot_high16(a) - aot_high16(b), -32768, 32767)))

/* acc + a * b in 64 bits; every core from Armv7-M on has SMLAL, which compilers find. */
AOT_INLINE int64_t aot_smlal(int32_t a, int32_t b, int64_t acc) {
  uint64_t r = (uint64_t)acc + (uint64_t)((int64_t)a * b);
  return r <= (uint64_t)INT64_MAX ? (int64_t)r : -1 - (int64_t)(UINT64_MAX - r);
}

#undef AOT_DEFINE_DSP1
#undef AOT_DEFINE_DSP2
#undef AOT_DEFINE_DSP3
#undef AOT_MUL
#undef AOT_LL
#undef AOT_HH
#undef AOT_ACC
#undef AOT_BYTE
#undef AOT_TOP
#undef AOT_PRODUCT
#undef AOT_ROUND
#undef AOT_ACC32

#endif
