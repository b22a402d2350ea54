/* SPDX-License-Identifier: Apache-2.0 */
/* Cycle counts of a model's run, for Zephyr applications. */
#ifndef AOT_ZEPHYR_H
#define AOT_ZEPHYR_H

#include <stdint.h>

#ifdef CONFIG_AOT_TIMING
#include <zephyr/timing/timing.h>

/* Starts the timing hardware; call it once. */
static inline void aot_zephyr_cycles_init(void) {
  timing_init();
  timing_start();
}

static inline timing_t aot_zephyr_cycles_start(void) { return timing_counter_get(); }

/* Cycles since `start`. Under QEMU these are cycles of its clock, not of the core. */
static inline uint64_t aot_zephyr_cycles_stop(timing_t start) {
  timing_t end = timing_counter_get();
  return timing_cycles_get(&start, &end);
}
#endif

#endif
