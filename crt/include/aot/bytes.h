/* SPDX-License-Identifier: Apache-2.0 */
/* Four bytes of a word at once: the larger and the smaller of each pair, signed (s) or unsigned (u).
 *
 * With the DSP extension two instructions each (SSUB8 or USUB8 sets a flag for each byte, SEL chooses by them), elsewhere portable C.
 */
#ifndef AOT_BYTES_H
#define AOT_BYTES_H

#include "aot/kernel.h"

#if AOT_DSP
#define AOT_DEFINE_SELECT8(name, compare, mask, first, second)                                                  \
  AOT_INLINE uint32_t aot_##name(uint32_t a, uint32_t b) {                                                      \
    uint32_t r;                                                                                                 \
    __asm(compare " %0, %1, %2\n\tsel %0, %" first ", %" second : "=&r"(r) : "r"(a), "r"(b) : "cc");            \
    return r;                                                                                                   \
  }
#else
/* The upper bit of each byte of t says whether the lower seven bits of a are at least those of b; bytes whose upper bits differ are
 * decided by these: of signed bytes the one without it is larger. */
AOT_INLINE uint32_t aot_ge8(uint32_t a, uint32_t b, uint32_t greater) {
  uint32_t t = (a | 0x80808080u) - (b & 0x7f7f7f7fu);
  uint32_t differ = a ^ b;
  uint32_t ge = ((differ & greater) | (~differ & t)) & 0x80808080u;
  return (ge << 1) - (ge >> 7);
}
#define AOT_DEFINE_SELECT8(name, compare, mask, first, second) \
  AOT_INLINE uint32_t aot_##name(uint32_t a, uint32_t b) {     \
    return b ^ ((a ^ b) & (mask));                             \
  }
#endif

AOT_DEFINE_SELECT8(smax8, "ssub8", aot_ge8(a, b, b), "1", "2")
AOT_DEFINE_SELECT8(smin8, "ssub8", ~aot_ge8(a, b, b), "2", "1")
AOT_DEFINE_SELECT8(umax8, "usub8", aot_ge8(a, b, a), "1", "2")
AOT_DEFINE_SELECT8(umin8, "usub8", ~aot_ge8(a, b, a), "2", "1")

#undef AOT_DEFINE_SELECT8

#endif
