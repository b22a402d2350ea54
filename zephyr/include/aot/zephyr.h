/* SPDX-License-Identifier: Apache-2.0 */
/* What an application under Zephyr may want to know of a model's run. */
#ifndef AOT_ZEPHYR_H
#define AOT_ZEPHYR_H

#include <stdint.h>

#ifdef CONFIG_AOT_TIMING
#include <zephyr/timing/timing.h>

/* Starts the timing hardware; once. */
static inline void aot_zephyr_cycles_init(void) {
  timing_init();
  timing_start();
}

static inline timing_t aot_zephyr_cycles_start(void) { return timing_counter_get(); }

/* Cycles since `start`. Under QEMU they are those of its clock, not of the core. */
static inline uint64_t aot_zephyr_cycles_stop(timing_t start) {
  timing_t end = timing_counter_get();
  return timing_cycles_get(&start, &end);
}
#endif

#endif
