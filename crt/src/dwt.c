/* SPDX-License-Identifier: Apache-2.0 */
/* The counter of aot/systick.h by the core's own cycle counter, DWT_CYCCNT (M3 and larger): units are cycles of its clock. */
#include "aot/systick.h"

#define DEMCR (*(volatile uint32_t *)0xE000EDFCu)
#define DEMCR_TRCENA (1u << 24)
#define DWT_CTRL (*(volatile uint32_t *)0xE0001000u)
#define DWT_CYCCNT (*(volatile uint32_t *)0xE0001004u)
#define DWT_LAR (*(volatile uint32_t *)0xE0001FB0u)
#define LAR_KEY 0xC5ACCE55u
#define CTRL_CYCCNTENA 1u
#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)
#define CSR_RUN 7u
#define TOP 0xffffffu

/* CYCCNT wraps after 2^32 cycles, 20 seconds at 200 MHz: SysTick looks at it long before, some cycles in 16 million. */
static volatile uint32_t high, last;

static void look(void) {
  const uint32_t now = DWT_CYCCNT;
  if (now < last) high++;
  last = now;
}

void SysTick_Handler(void);
void SysTick_Handler(void) { look(); }

void aot_counter_start(uint32_t first) {
  (void)first;
  DEMCR |= DEMCR_TRCENA;
  DWT_LAR = LAR_KEY; /* Cortex-M7 keeps the unit locked; others ignore it */
  DWT_CTRL |= CTRL_CYCCNTENA;
  DWT_CYCCNT = 0;
  high = 0;
  last = 0;
  SYST_RVR = TOP;
  SYST_CVR = 0;
  SYST_CSR = CSR_RUN;
}

void aot_counter_stop(void) { SYST_CSR = 0; }

__attribute__((noinline)) uint64_t aot_counter(void) {
  uint32_t mask;
  __asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(mask)::"memory");
  look();
  const uint64_t count = ((uint64_t)high << 32) | last;
  __asm__ volatile("msr primask, %0" ::"r"(mask) : "memory");
  return count;
}
