/* Two models, each from a thread of its own, preempted anywhere; WAY says how they keep apart. */
#include "a.h"
#include "aot/semihosting.h"
#include "aot/status.h"
#include "b.h"
#include "scheduler.h"

#define RUNS 6u
#define LOCKED 0   /* one workspace, a mutex around each run */
#define RETRIED 1  /* one workspace, a run that comes in between is tried again */
#define SEPARATE 2 /* a workspace each, nothing else */
#define IN_STEPS 3 /* one workspace, runs in steps, a mutex from begin to end */
#define ALIGNED __attribute__((aligned(16)))

static int8_t ax[A_INPUT_0_SIZE] ALIGNED, bx[B_INPUT_0_SIZE] ALIGNED;
static int8_t ay[A_OUTPUT_0_SIZE] ALIGNED, by[B_OUTPUT_0_SIZE] ALIGNED;
static uint32_t found[2][RUNS];
static volatile uint32_t done, busy;

static void fill(void *p, uint32_t n, uint32_t seed) {
  for (uint32_t i = 0; i < n; i++) ((uint8_t *)p)[i] = (uint8_t)(seed + i * 37u + (i >> 3));
}

static uint32_t hash(const void *p, uint32_t n) {
  uint32_t h = 5381u;
  for (uint32_t i = 0; i < n; i++) h = h * 33u + ((const uint8_t *)p)[i];
  return h;
}

#if WAY == IN_STEPS
#define RUN(m, in, out) (m##_run_begin(in, out) == AOT_OK ? steps(m##_run_step) : AOT_ERROR_BUSY)
static int32_t steps(int32_t (*step)(void)) {
  int32_t status;
  do status = step();
  while (status == AOT_MORE);
  return status;
}
#else
#define RUN(m, in, out) m##_run(in, out)
#endif

static int32_t run(uint32_t model) {
  const struct a_inputs ai = {(const void *)ax};
  const struct a_outputs ao = {(void *)ay};
  const struct b_inputs bi = {(const void *)bx};
  const struct b_outputs bo = {(void *)by};
  return model == 0u ? RUN(a, &ai, &ao) : RUN(b, &bi, &bo);
}

static void work(uint32_t model) {
  for (uint32_t k = 0; k < RUNS; k++) {
    int32_t status = 0;
    if (model == 0u) fill(ax, sizeof ax, k);
    if (model == 1u) fill(bx, sizeof bx, k);
    if (WAY == LOCKED || WAY == IN_STEPS) lock();
    while ((status = run(model)) == AOT_ERROR_BUSY) {
      busy++;
      yield();
    }
    if (WAY == LOCKED || WAY == IN_STEPS) unlock();
    found[model][k] = status != 0 ? 0u : model == 0u ? hash(ay, sizeof ay) : hash(by, sizeof by);
  }
  done++;
}

static void put(const char *label, uint32_t value) {
  char text[12] = "0x00000000\n";
  for (uint32_t i = 0; i < 8u; i++) text[2u + i] = "0123456789abcdef"[(value >> (28u - 4u * i)) & 15u];
  aot_puts(label);
  aot_puts(text);
}

static void first(void) {
  work(0);
  while (done < 2u) yield();
  __asm__ volatile("cpsid i");
  for (uint32_t k = 0; k < RUNS; k++) {
    put("a ", found[0][k]);
    put("b ", found[1][k]);
  }
  put("switches ", switches);
  put("busy ", busy);
  aot_exit(0);
}

static void second(void) {
  work(1);
  for (;;) yield();
}

int main(void) {
  start(first, second, 20u); /* 800 instructions a slice */
  return 0;
}
