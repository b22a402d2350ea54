/* Stand-in: see ../../../README.md. */
#ifndef STANDIN_TIMING_H
#define STANDIN_TIMING_H
#include <stdint.h>
typedef uint64_t timing_t;
void timing_init(void);
void timing_start(void);
timing_t timing_counter_get(void);
uint64_t timing_cycles_get(volatile timing_t *const start, volatile timing_t *const end);
#endif
