/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles of each layer inside a program of the user's (aot/layer_profile.h). */
#include "aot/layer_profile.h"

#ifdef AOT_PROFILE_CLOCK
uint32_t AOT_PROFILE_CLOCK(void);
static void start_clock(void) {}
static uint32_t now(void) { return AOT_PROFILE_CLOCK(); }
#else
#ifndef AOT_PROFILE_REGISTER
#define AOT_PROFILE_REGISTER(address) (*(volatile uint32_t *)(address))
#endif
#define DEMCR AOT_PROFILE_REGISTER(0xE000EDFCu)
#define DEMCR_TRCENA (1u << 24)
#define DWT_CTRL AOT_PROFILE_REGISTER(0xE0001000u)
#define DWT_CYCCNT AOT_PROFILE_REGISTER(0xE0001004u)
#define DWT_LAR AOT_PROFILE_REGISTER(0xE0001FB0u)
#define LAR_KEY 0xC5ACCE55u
#define CTRL_CYCCNTENA 1u

static void start_clock(void) {
  DEMCR |= DEMCR_TRCENA;
  DWT_LAR = LAR_KEY; /* Cortex-M7 keeps the unit locked; others ignore it */
  DWT_CTRL |= CTRL_CYCCNTENA;
}
static uint32_t now(void) { return DWT_CYCCNT; }
#endif

#define PROBES 8u

static struct aot_layer_cycles *layers;
static uint32_t count, runs, last, spent, cost, checksum;

void aot_profile_run(void) {
  runs++;
  aot_profile_resume();
}

void aot_profile_resume(void) { last = now(); }

void aot_profile_layer(int32_t layer, uint32_t bytes) {
  spent = now() - last;
  if (layer >= 0 && (uint32_t)layer < count) {
    struct aot_layer_cycles *const entry = &layers[layer];
    entry->cycles += spent > cost ? spent - cost : 0u;
    entry->calls++;
    entry->bytes = bytes;
  }
  last = now();
}

/* What two calls in a row find between them is what a call itself adds to a layer; an interrupt may make one of them longer. */
static void measure_cost(void) {
  cost = UINT32_MAX;
  aot_profile_resume();
  for (uint32_t i = 0; i < PROBES; i++) {
    aot_profile_layer(-1, 0);
    if (spent < cost) cost = spent;
  }
}

int32_t aot_profile_start(struct aot_layer_cycles *into, uint32_t length) {
  start_clock();
  const uint32_t before = now();
  measure_cost();
  const int32_t moved = now() != before;
  layers = into;
  count = length;
  runs = 0;
  for (uint32_t i = 0; i < length; i++) {
    layers[i].cycles = 0;
    layers[i].calls = 0;
    layers[i].bytes = 0;
  }
  return moved ? 0 : -1;
}

static char *put_text(char *at, const char *text, uint32_t most) {
  while (*text != '\0' && most-- != 0u) *at++ = *text++;
  *at = '\0';
  return at;
}

static char *put_number(char *at, uint64_t value) {
  char digits[21];
  char *digit = digits + 20;
  *digit = '\0';
  do {
    *--digit = (char)('0' + (char)(value % 10u));
    value /= 10u;
  } while (value != 0u);
  return put_text(at, digit, 20);
}

static char *put_field(char *at, const char *label, uint64_t value) { return put_number(put_text(at, label, 16), value); }

/* FNV-1a over the characters of a line and one end of line. */
static void add_to_checksum(const char *line) {
  for (; *line != '\0'; line++) checksum = (checksum ^ (uint8_t)*line) * 16777619u;
  checksum = (checksum ^ (uint8_t)'\n') * 16777619u;
}

int aot_profile_line(uint32_t index, const char *name, uint32_t hz, char line[AOT_PROFILE_LINE]) {
  char *at = line;
  if (index == 0u) {
    checksum = 2166136261u;
    at = put_text(put_text(at, "aot-profile 1 ", 16), name, 31);
    at = put_field(put_field(put_field(at, " layers ", count), " runs ", runs), " hz ", hz);
  } else if (index <= count) {
    const struct aot_layer_cycles *const entry = &layers[index - 1u];
    at = put_field(put_field(at, "aot-layer ", index - 1u), " ", entry->cycles);
    at = put_field(put_field(at, " ", entry->calls), " ", entry->bytes);
  } else if (index == count + 1u) {
    at = put_field(at, "aot-profile-end ", checksum);
  } else {
    return 0;
  }
  add_to_checksum(line);
  return 1;
}
