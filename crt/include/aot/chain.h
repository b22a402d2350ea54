/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of the SMLAL chain (docs/kernels.md): three sums of 21 bits in a 64-bit accumulator. */
#ifndef AOT_CHAIN_H
#define AOT_CHAIN_H

#include "aot/kernel.h"

/* Bits 21 to 41 of the accumulator {hi, lo}: its middle lane. */
AOT_INLINE uint32_t aot_chain_mid(uint32_t lo, uint32_t hi) {
  uint32_t mid = lo >> 21;
#if AOT_SAT
  __asm("bfi %0, %1, #11, #10" : "+r"(mid) : "r"(hi));
#else
  mid |= (hi & 0x3ffu) << 11;
#endif
  return mid;
}

#endif
