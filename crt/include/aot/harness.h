/* SPDX-License-Identifier: Apache-2.0 */
/* What the measuring harness (crt/src/harness.c) needs to know of a model; the generated main.c answers. */
#ifndef AOT_HARNESS_H
#define AOT_HARNESS_H

#include <stdint.h>

#define AOT_MODE_MEASURE 0
#define AOT_MODE_PROFILE 1
#define AOT_MODE_TRACE 2
#define AOT_MODE_POISON 3

struct aot_slot {
  void *data; /* NULL: the input comes row by row */
  uint32_t bytes;
};

extern const uint32_t aot_model_inputs;
extern const uint32_t aot_model_outputs;
extern const uint32_t aot_model_layers;
extern const uint32_t aot_model_areas; /* the arrays of the workspace: one, or one for each pool */
extern uint64_t aot_model_units[]; /* of each layer, from [1] on, the counter's units of all its runs; profile mode only */
extern uint32_t aot_model_runs[];  /* how often each layer has run */

/* Bytes of an area, from start up to end. */
struct aot_interval {
  uint32_t area, start, end;
};
extern struct aot_interval aot_model_written[]; /* of each area, what lies between the first and the last byte written */

/* What holds nothing after a layer, by the plan; poison mode only. Layer i has the entries aot_model_dead_first[i] up to
   aot_model_dead_first[i + 1]. */
extern const struct aot_interval aot_model_dead[];
extern const uint32_t aot_model_dead_first[];

struct aot_slot aot_model_input(uint32_t index);
struct aot_slot aot_model_output(uint32_t index);
struct aot_slot aot_model_area(uint32_t index);
void aot_model_reset(void);
int32_t aot_model_run(void);

/* The next row of the input, for a model that is fed by rows: straight from inputs.bin, so that no copy of the input is in RAM.
   What that takes is left out of instructions and stack. 0, or -1. */
int32_t aot_harness_row(void *row, uint32_t bytes);

/* Reads inputs.bin, runs every set, writes outputs.bin and prints one line of JSON. Returns the exit code. */
int32_t aot_harness(void);

#endif
