/* SPDX-License-Identifier: Apache-2.0 */
/* See aot/systick.h for the idea. Every path through aot_counter() has the same number of instructions: no branch depends on data. */
#include "aot/systick.h"

#ifndef AOT_TICK_NUM
#error "AOT_TICK_NUM / AOT_TICK_DEN: instructions per SysTick tick, in lowest terms (board.toml, [systick])"
#endif

#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)
#define SCB_ICSR (*(volatile uint32_t *)0xE000ED04u)
#define ICSR_PENDSTSET_BIT 26
#define CSR_RUN 7u /* enable, interrupt, processor clock */
#define TOP 0xffffffu

#define HANDLER_INSTRUCTIONS 5u

volatile uint32_t aot_systick_wraps;

void SysTick_Handler(void);
/* Naked, so that its cost is known by reading it. */
__attribute__((naked)) void SysTick_Handler(void) {
  __asm__ volatile(
      ".syntax unified\n\t"
      "ldr r0, =aot_systick_wraps\n\t"
      "ldr r1, [r0]\n\t"
      "adds r1, r1, #1\n\t"
      "str r1, [r0]\n\t"
      "bx lr\n\t"
      ".ltorg");
}

void aot_counter_start(uint32_t first) {
  SYST_CSR = 0;
  aot_systick_wraps = 0;
  SYST_RVR = first;
  SYST_CVR = 0;
  SYST_CSR = CSR_RUN;
  while (SYST_CVR == 0) {
  }
  SYST_RVR = TOP;
}

void aot_counter_stop(void) { SYST_CSR = 0; }

__attribute__((noinline)) uint64_t aot_counter(void) {
  uint32_t mask, first, sum, value, left = AOT_TICK_NUM;
  __asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(mask)::"memory");
  __asm__ volatile(
      ".syntax unified\n\t"
      "ldr %[first], [%[cvr]]\n\t"
      "movs %[sum], #0\n"
      "1:\n\t"
      "ldr %[value], [%[cvr]]\n\t"
      "subs %[value], %[first], %[value]\n\t"
      "lsls %[value], %[value], #8\n\t" /* modulo 2^24: the timer may wrap between the reads */
      "lsrs %[value], %[value], #8\n\t"
      "adds %[sum], %[sum], %[value]\n\t"
      "subs %[left], %[left], #1\n\t"
      "bne 1b"
      : [first] "=&l"(first), [sum] "=&l"(sum), [value] "=&l"(value), [left] "+l"(left)
      : [cvr] "l"(&SYST_CVR)
      : "cc", "memory");
  const uint32_t handled = aot_systick_wraps;
  /* The timer counts down and asks for its interrupt on reaching 0, so 0 is the first tick of the next period. A request that is
     still pending counts when it came before the first read, that is when that read lies in the first half of a period. */
  const uint32_t tick = (0u - first) & TOP;
  const uint32_t wraps = handled + ((SCB_ICSR >> ICSR_PENDSTSET_BIT) & ~(tick >> 23) & 1u);
  __asm__ volatile("msr primask, %0" ::"r"(mask) : "memory");
  const uint64_t ticks = ((uint64_t)wraps << 24) + tick;
  return ticks * AOT_TICK_NUM + sum - (uint64_t)handled * (HANDLER_INSTRUCTIONS * AOT_TICK_DEN);
}
