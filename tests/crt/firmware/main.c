/* A program of the user's on mps2-an386: a model with a hook between its layers, the board's watchdog running.
   WAY: 0 runs and prints the profile, 1 the same without feeding the watchdog, 2 runs in steps and sleeps in between. */
#include "aot/hooks.h"
#include "aot/layer_profile.h"
#include "aot/semihosting.h"
#include "aot/status.h"
#include "aot/systick.h"
#include "m.h"
#include "m_test.h"

#define RUNS 3
#define BUDGET 200000u
#define PERIOD 2500u /* of SysTick, in ticks of 40 instructions */
#define CLOCK 25000000u
#define WATCHDOG_LOAD (*(volatile uint32_t *)0x40008000u)
#define WATCHDOG_CONTROL (*(volatile uint32_t *)0x40008008u)
#define WATCHDOG_CLEAR (*(volatile uint32_t *)0x4000800cu)
#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)

static const struct m_inputs in;
static const struct m_outputs out;

uint32_t board_clock(void);

static void feed_watchdog(void) {
#if WAY != 1
  WATCHDOG_CLEAR = 1;
#endif
}

void aot_layer_hook(int32_t layer, const void *result, uint32_t bytes) {
  (void)result;
#if WAY == 2
  (void)layer;
  (void)bytes;
#else
  aot_profile_layer(layer, bytes);
#endif
  feed_watchdog();
}

#if WAY == 2
static volatile uint32_t ticks;
static uint32_t naps;
void SysTick_Handler(void);
void SysTick_Handler(void) { ticks++; }

static int32_t run(void) {
  int32_t status = m_run_begin(&in, &out) == AOT_OK ? AOT_MORE : AOT_ERROR_BUSY;
  for (uint32_t seen = ticks; status == AOT_MORE; naps++) {
    while (ticks == seen) __asm__ volatile("wfi");
    seen = ticks;
    status = m_run_until(BUDGET);
  }
  return status;
}

static void start(void) {
  SYST_RVR = PERIOD - 1u;
  SYST_CVR = 0;
  SYST_CSR = 7;
}

static void say(void) { aot_puts(naps > 5u ? "slept\n" : "did not sleep\n"); }
#else
static struct aot_layer_cycles layers[M_LAYERS];
uint32_t board_clock(void) { return (uint32_t)aot_counter(); }

static int32_t run(void) {
  aot_profile_run();
  return m_run(&in, &out);
}

static void start(void) {
  aot_counter_start(0xffffffu);
  if (aot_profile_start(layers, M_LAYERS) != 0) aot_puts("the counter stands still\n");
}

static void say(void) {
  char line[AOT_PROFILE_LINE];
  for (uint32_t i = 0; aot_profile_line(i, "m", CLOCK, line); i++) {
    aot_puts("[app] ");
    aot_puts(line);
    aot_puts("\r\n");
  }
}
#endif

int main(void) {
  start();
  WATCHDOG_LOAD = TIMEOUT / 40u; /* 25 MHz: a tick is 40 instructions */
  WATCHDOG_CONTROL = 1;
  for (int i = 0; i < RUNS; i++) {
    m_test_load();
    const int32_t status = run();
    aot_puts(status == AOT_OK && m_test_differences() == 0u ? "exact\n" : "wrong\n");
  }
  WATCHDOG_CONTROL = 0;
  say();
  return 0;
}
