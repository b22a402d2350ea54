/* SPDX-License-Identifier: Apache-2.0 */
/* What the counters of systick.c and dwt.c share: the cost of a reading, and a loop of known length. */
#include "aot/systick.h"

uint64_t aot_counter_overhead(void) {
  const uint64_t before = aot_counter();
  return aot_counter() - before;
}

uint64_t aot_counter_check(void) {
  uint32_t left = AOT_CHECK_INSTRUCTIONS / 2u;
  aot_counter_start(0xffffffu);
  const uint64_t overhead = aot_counter_overhead();
  const uint64_t before = aot_counter();
  __asm__ volatile(
      ".syntax unified\n"
      "1:\n\t"
      "subs %[left], %[left], #1\n\t"
      "bne 1b"
      : [left] "+l"(left)
      :
      : "cc", "memory");
  const uint64_t spent = aot_counter() - before - overhead;
  aot_counter_stop();
  return spent;
}
