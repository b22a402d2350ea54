/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a model over all sets of inputs.bin and measures the second inference of set 0 (the bench rule of docs/boards.md). */
#include "aot/harness.h"

#include "aot/hooks.h"
#include "aot/semihosting.h"
#include "aot/stack.h"
#include "aot/systick.h"

#include <stddef.h>

#if defined(__arm__)
uintptr_t aot_stack_noted;
#endif

#ifndef AOT_MODE
#define AOT_MODE AOT_MODE_MEASURE
#endif
#ifndef AOT_COUNTER_FIRST
#define AOT_COUNTER_FIRST 0xffffffu /* tests put the timer's wrap where they want it */
#endif

enum { EXIT_DONE = 0, EXIT_FILES = 2, EXIT_MODEL = 4 };

int main(void);

static int32_t inputs_file, outputs_file;
#if AOT_MODE == AOT_MODE_TRACE
static int32_t trace_file;
static int32_t trace_failed;
#endif
#if AOT_MODE == AOT_MODE_PROFILE
static uint64_t probed;
static int32_t profiling; /* during the run that is measured; the sets after it are not */
#endif

static void put_number(const char *label, uint64_t value) {
  char text[21];
  uint32_t i = 20;
  text[i] = '\0';
  do {
    text[--i] = (char)('0' + (char)(value % 10u));
    value /= 10u;
  } while (value != 0u);
  aot_puts(label);
  aot_puts(text + i);
}

static int32_t fail(const char *what) {
  aot_puts("{\"aot\": 1, \"error\": \"");
  aot_puts(what);
  aot_puts("\"}\n");
  return EXIT_FILES;
}

static int32_t fail_run(uint32_t set, int32_t status) {
  put_number("{\"aot\": 1, \"set\": ", set);
  put_number(", \"status\": -", (uint32_t)-status);
  aot_puts("}\n");
  return EXIT_MODEL;
}

static uint32_t set_bytes(void) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < aot_model_inputs; i++) sum += aot_model_input(i).bytes;
  return sum;
}

/* Straight from the file to where the model wants it: an inference may have overwritten it. */
static int32_t load(uint32_t set) {
  if (aot_seek(inputs_file, set * set_bytes()) != 0) return -1;
  for (uint32_t i = 0; i < aot_model_inputs; i++) {
    const struct aot_slot slot = aot_model_input(i);
    if (slot.data != NULL && aot_read(inputs_file, slot.data, slot.bytes) != 0u) return -1;
  }
  return 0;
}

/* Of the rows that were read: units from the first to the second reading of the counter, how many, and the lowest stack before. */
static uint64_t paused;
static uint32_t rows_read;
static uintptr_t lowest;
static int32_t watching;

int32_t aot_harness_row(void *row, uint32_t bytes) {
  if (watching != 0) {
    const uintptr_t low = aot_stack_low();
    if (low < lowest) lowest = low;
  }
  const uint64_t before = aot_counter();
  const uint32_t missing = aot_read(inputs_file, row, bytes);
  paused += aot_counter() - before;
  rows_read++;
  if (watching != 0) aot_stack_paint();
  return missing == 0u ? 0 : -1;
}

static int32_t store(void) {
  for (uint32_t i = 0; i < aot_model_outputs; i++) {
    const struct aot_slot slot = aot_model_output(i);
    if (aot_write(outputs_file, slot.data, slot.bytes) != 0u) return -1;
  }
  return 0;
}

#if AOT_MODE == AOT_MODE_POISON
static uint8_t poison_value = 0xA5u;

static void poison(struct aot_interval dead) {
  uint8_t *const p = aot_model_area(dead.area).data;
  for (uint32_t i = dead.start; i < dead.end; i++) p[i] = poison_value;
}
#endif

#if AOT_HOOKS
void aot_layer_hook(int32_t layer, const void *out, uint32_t bytes) {
#if AOT_MODE == AOT_MODE_TRACE
  const uint32_t header[2] = {(uint32_t)layer, bytes};
  trace_failed |= (int32_t)aot_write(trace_file, header, sizeof header);
  trace_failed |= (int32_t)aot_write(trace_file, out, bytes);
#elif AOT_MODE == AOT_MODE_POISON
  const uint32_t end = aot_model_dead_first[layer + 1];
  (void)out;
  (void)bytes;
  for (uint32_t i = aot_model_dead_first[layer]; i < end; i++) poison(aot_model_dead[i]);
#else
  (void)layer;
  (void)out;
  (void)bytes;
#if AOT_MODE == AOT_MODE_PROFILE
  if (profiling == 0) return;
  /* layers of loops run often, those of branches perhaps never; layer -1 begins */
  const uint64_t now = aot_counter();
  aot_model_units[layer + 1] += now - probed;
  aot_model_runs[layer + 1]++;
  probed = now;
#endif
#endif
}
#endif

#if AOT_MODE == AOT_MODE_TRACE
static int32_t run_all(uint32_t sets) {
  (void)sets;
  trace_file = aot_open("trace.bin", AOT_OPEN_WRITE);
  if (trace_file < 0) return fail("cannot write trace.bin");
  if (load(0) != 0) return fail("inputs.bin is too short");
  aot_model_reset();
  const int32_t status = aot_model_run();
  if (status != 0) return fail_run(0, status);
  if (trace_failed != 0 || aot_close(trace_file) != 0) return fail("cannot write trace.bin");
  if (store() != 0) return fail("cannot write outputs.bin");
  aot_puts("{\"aot\": 1, \"status\": 0, \"sets\": 1}\n");
  return EXIT_DONE;
}
#elif AOT_MODE == AOT_MODE_POISON
/* Nothing is measured: what the plan says is dead changes after every layer, to another value in each set. */
static int32_t run_all(uint32_t sets) {
  aot_model_reset();
  for (uint32_t set = 0; set < sets; set++) {
    for (uint32_t area = 0; area < aot_model_areas; area++) {
      const struct aot_interval whole = {area, 0, aot_model_area(area).bytes};
      poison(whole);
    }
    if (load(set) != 0) return fail("inputs.bin is too short");
    const int32_t status = aot_model_run();
    if (status != 0) return fail_run(set, status);
    if (store() != 0) return fail("cannot write outputs.bin");
    poison_value = (uint8_t)(poison_value + 0x35u);
  }
  put_number("{\"aot\": 1, \"status\": 0, \"sets\": ", sets);
  aot_puts("}\n");
  return EXIT_DONE;
}
#else

/* Two different paints: what still has both was not written, whatever the model wrote (see scan). */
#define PAINT_1 0xA5u
#define PAINT_2 0x5Au

static void paint(uint8_t value) {
  for (uint32_t area = 0; area < aot_model_areas; area++) {
    const struct aot_slot slot = aot_model_area(area);
    uint8_t *const p = slot.data;
    for (uint32_t i = 0; i < slot.bytes; i++) p[i] = value;
  }
}

/* How many bytes are found to be written. A byte was if the first run took PAINT_1 away, or if it is PAINT_1 after the second
   run, which began with PAINT_2: the same inputs give the same bytes. */
static uint32_t scan(int32_t second_run) {
  uint32_t bytes = 0;
  for (uint32_t area = 0; area < aot_model_areas; area++) {
    struct aot_interval *const written = &aot_model_written[area];
    const struct aot_slot slot = aot_model_area(area);
    const uint8_t *const p = slot.data;
    if (second_run == 0) written->start = slot.bytes;
    for (uint32_t i = 0; i < slot.bytes; i++) {
      if ((p[i] == PAINT_1) != (second_run != 0)) continue;
      bytes++;
      if (i < written->start) written->start = i;
      if (i + 1u > written->end) written->end = i + 1u;
    }
  }
  return bytes;
}

/* From the first to the last byte written, of all areas together. */
static uint32_t extent(void) {
  uint32_t bytes = 0;
  for (uint32_t area = 0; area < aot_model_areas; area++) {
    const struct aot_interval written = aot_model_written[area];
    if (written.end > written.start) bytes += written.end - written.start;
  }
  return bytes;
}

#if AOT_MODE == AOT_MODE_PROFILE
/* Two probes in a row: what a probe itself costs. */
static uint64_t probe_cost(void) {
  aot_model_units[1] = 0;
  aot_layer_hook(-1, NULL, 0);
  aot_layer_hook(0, NULL, 0);
  return aot_model_units[1];
}

static void begin_layers(void) {
  for (uint32_t i = 0; i <= aot_model_layers; i++) {
    aot_model_units[i] = 0;
    aot_model_runs[i] = 0;
  }
}

static uint64_t probes(void) {
  uint64_t count = 0;
  for (uint32_t i = 0; i <= aot_model_layers; i++) count += aot_model_runs[i];
  return count;
}

/* Rows are read while the first layer runs. */
static void report_layers(uint64_t probe, uint64_t rows) {
  aot_puts(", \"layers\": [");
  for (uint32_t i = 0; i < aot_model_layers; i++) {
    const uint64_t spent = aot_model_units[i + 1u] - (i == 0u ? rows : 0u);
    const uint64_t probed_units = probe * aot_model_runs[i + 1u];
    put_number(i == 0u ? "" : ", ", spent > probed_units ? spent - probed_units : 0u);
  }
  aot_puts("]");
}
#endif

/* What the rows of the last run took, the calls of aot_harness_row included. */
static uint64_t row_units(uint64_t overhead) {
  const uint64_t spent = paused;
  const uint32_t rows = rows_read;
  uint8_t nothing = 0;
  if (rows == 0u) return 0;
  paused = 0;
  const uint64_t before = aot_counter();
  (void)aot_harness_row(&nothing, 0);
  const uint64_t call = aot_counter() - before - overhead - paused;
  return spent + rows * call;
}

struct measured {
  uint64_t units;
  uint64_t rows;
  uintptr_t stack;
  uint32_t touched; /* bytes of the workspace */
#if AOT_MODE == AOT_MODE_PROFILE
  uint64_t probe;
#endif
};

/* Set 0 twice: first for the stack, with no interrupt that could use it; then with the counter running. */
static int32_t measure(struct measured *m) {
  paint(PAINT_1);
  aot_model_reset();
  if (load(0) != 0) return fail("inputs.bin is too short");
  lowest = UINTPTR_MAX;
  watching = 1;
  aot_stack_paint();
  const uintptr_t top = aot_stack_pointer();
  int32_t status = aot_model_run();
  const uintptr_t end = aot_stack_low();
  watching = 0;
  const uintptr_t low = lowest < end ? lowest : end;
  const uintptr_t begin = AOT_STACK_TOP(top);
  m->stack = begin > low ? begin - low : 0u;
  if (status != 0) return fail_run(0, status);
  m->touched = scan(0);

  paint(PAINT_2);
  aot_model_reset();
  if (load(0) != 0) return fail("inputs.bin is too short");
  aot_counter_start(AOT_COUNTER_FIRST);
  const uint64_t overhead = aot_counter_overhead();
#if AOT_MODE == AOT_MODE_PROFILE
  profiling = 1;
  m->probe = probe_cost();
  begin_layers();
#endif
  paused = 0;
  rows_read = 0;
  const uint64_t before = aot_counter();
#if AOT_MODE == AOT_MODE_PROFILE
  aot_layer_hook(-1, NULL, 0);
#endif
  status = aot_model_run();
  m->units = aot_counter() - before - overhead;
  m->rows = row_units(overhead);
  m->units -= m->rows;
  aot_counter_stop();
#if AOT_MODE == AOT_MODE_PROFILE
  profiling = 0;
  m->units -= m->probe * probes();
#endif
  if (status != 0) return fail_run(0, status);
  m->touched += scan(1);
  return EXIT_DONE;
}

/* A run by the counter, which says nothing of the memory; models that keep a state do not take the same time each run. */
static int32_t run_counted(uint64_t *units) {
  aot_counter_start(AOT_COUNTER_FIRST);
  const uint64_t overhead = aot_counter_overhead();
  paused = 0;
  rows_read = 0;
  const uint64_t before = aot_counter();
  const int32_t status = aot_model_run();
  *units = aot_counter() - before - overhead;
  *units -= row_units(overhead);
  aot_counter_stop();
  return status;
}

static int32_t run_all(uint32_t sets) {
  struct measured m = {0};
  const uint64_t loop = aot_counter_check(); /* before anything is painted */
  const int32_t code = measure(&m);
  if (code != EXIT_DONE) return code;
  if (store() != 0) return fail("cannot write outputs.bin");
  uint64_t all = m.units, most = m.units;
  for (uint32_t set = 1; set < sets; set++) {
    uint64_t units = 0;
    if (load(set) != 0) return fail("inputs.bin is too short");
    const int32_t status = run_counted(&units);
    if (status != 0) return fail_run(set, status);
    if (store() != 0) return fail("cannot write outputs.bin");
    all += units;
    if (units > most) most = units;
  }
  put_number("{\"aot\": 1, \"status\": 0, \"sets\": ", sets);
  put_number(", \"units\": ", m.units);
  put_number(", \"all\": ", all);
  put_number(", \"most\": ", most);
  put_number(", \"loop\": ", loop);
  put_number(", \"stack\": ", m.stack);
  put_number(", \"touched\": ", m.touched);
  put_number(", \"extent\": ", extent());
#if AOT_MODE == AOT_MODE_PROFILE
  report_layers(m.probe, m.rows);
#endif
  aot_puts("}\n");
  return EXIT_DONE;
}
#endif

int32_t aot_harness(void) {
  inputs_file = aot_open("inputs.bin", AOT_OPEN_READ);
  if (inputs_file < 0) return fail("cannot read inputs.bin");
  outputs_file = aot_open("outputs.bin", AOT_OPEN_WRITE);
  if (outputs_file < 0) return fail("cannot write outputs.bin");
  const int32_t length = aot_length(inputs_file);
  const uint32_t per_set = set_bytes();
  if (length < 0 || per_set == 0u || (uint32_t)length % per_set != 0u) return fail("inputs.bin has a wrong length");
  const int32_t code = run_all((uint32_t)length / per_set);
  if (aot_close(outputs_file) != 0) return fail("cannot write outputs.bin");
  return code;
}

int main(void) { return (int)aot_harness(); }
