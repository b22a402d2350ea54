/* SPDX-License-Identifier: Apache-2.0 */
/* A 64-bit instruction counter over the 24-bit SysTick of a machine whose virtual time is its instruction count.

   A SysTick tick is AOT_TICK_NUM / AOT_TICK_DEN instructions (lowest terms). aot_counter() resolves below a tick: it reads the
   timer AOT_TICK_NUM times, 7 instructions apart. As 7 and AOT_TICK_DEN are coprime to AOT_TICK_NUM, the reads fall once on each
   phase of the tick, and by Hermite's identity the sum of the readings is the time itself, in units of 1/AOT_TICK_DEN instruction. */
#ifndef AOT_SYSTICK_H
#define AOT_SYSTICK_H

#include <stdint.h>

/* Starts the counter `first` ticks (1 ... 0xffffff) before its first wrap; only tests need anything but 0xffffff. */
void aot_counter_start(uint32_t first);
void aot_counter_stop(void);
/* Units of 1/AOT_TICK_DEN instruction since some moment. The cost of the interrupts is already taken off. */
uint64_t aot_counter(void);
/* The difference of two readings in a row with nothing between them: the cost of one reading. */
uint64_t aot_counter_overhead(void);
/* What the counter makes of a loop of AOT_CHECK_INSTRUCTIONS: a machine whose ticks are not AOT_TICK_NUM / AOT_TICK_DEN
   instructions long gives another number. Starts and stops the counter. */
#define AOT_CHECK_INSTRUCTIONS 200000u
uint64_t aot_counter_check(void);

#endif
