/* A round-robin scheduler of two threads on a Cortex-M4, with preemption by SysTick: enough to try generated code under it. */
#include "scheduler.h"

#define ICSR (*(volatile uint32_t *)0xE000ED04u)
#define VTOR (*(volatile uint32_t *)0xE000ED08u)
#define SHPR3 (*(volatile uint32_t *)0xE000ED20u)
#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)
#define PENDSVSET (1u << 28)
#define VECTORS 16u
#define PENDSV 14u
#define WORDS 2048u
#define TO_THREAD 0xfffffffdu /* EXC_RETURN: thread mode, PSP, no floating-point frame */

extern const uint32_t aot_vectors[VECTORS];
static uint32_t vectors[VECTORS] __attribute__((aligned(512)));
static uint32_t stacks[2][WORDS] __attribute__((aligned(8)));
static uint32_t *pointers[2];
static volatile uint32_t current;
volatile uint32_t switches;

void SysTick_Handler(void);
void SysTick_Handler(void) { ICSR = PENDSVSET; }

uint32_t *next_thread(uint32_t *stack);
__attribute__((used)) uint32_t *next_thread(uint32_t *stack) {
  pointers[current] = stack;
  current ^= 1u;
  switches++;
  return pointers[current];
}

/* r4 to r11 and lr, and what the core leaves of the floating-point registers where the thread has used them. */
static __attribute__((naked)) void switch_threads(void) {
  __asm__ volatile(
      "mrs r0, psp\n\t"
      "tst lr, #16\n\t"
      "it eq\n\t"
      "vstmdbeq r0!, {s16-s31}\n\t"
      "stmdb r0!, {r4-r11, lr}\n\t"
      "bl next_thread\n\t"
      "ldmia r0!, {r4-r11, lr}\n\t"
      "tst lr, #16\n\t"
      "it eq\n\t"
      "vldmiaeq r0!, {s16-s31}\n\t"
      "msr psp, r0\n\t"
      "bx lr");
}

void yield(void) {
  ICSR = PENDSVSET;
  __asm__ volatile("dsb\n\tisb" ::: "memory");
}

static volatile uint32_t locked;

void lock(void) {
  for (;;) {
    __asm__ volatile("cpsid i" ::: "memory");
    const uint32_t taken = locked;
    locked = 1u;
    __asm__ volatile("cpsie i" ::: "memory");
    if (taken == 0u) return;
    yield();
  }
}

void unlock(void) {
  __asm__ volatile("" ::: "memory");
  locked = 0u;
}

void start(void (*first)(void), void (*second)(void), uint32_t ticks) {
  for (uint32_t i = 0; i < VECTORS; i++) vectors[i] = aot_vectors[i];
  vectors[PENDSV] = (uint32_t)(uintptr_t)switch_threads | 1u;
  VTOR = (uint32_t)(uintptr_t)vectors;
  SHPR3 = 0xffff0000u; /* both handlers at the lowest priority */
  uint32_t *const frame = &stacks[1][WORDS - 17u];
  frame[8] = TO_THREAD;
  frame[15] = (uint32_t)(uintptr_t)second & ~1u;
  frame[16] = 1u << 24; /* Thumb */
  pointers[1] = frame;
  SYST_RVR = ticks;
  SYST_CVR = 0;
  SYST_CSR = 7u;
  __asm__ volatile(
      "msr psp, %0\n\t"
      "movs r0, #2\n\t"
      "msr control, r0\n\t"
      "isb\n\t"
      "bx %1" ::"r"(&stacks[0][WORDS]), "r"(first) : "r0", "memory");
}
