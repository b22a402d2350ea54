/* SPDX-License-Identifier: Apache-2.0 */
/* Vector table, reset and faults of every Cortex-M, M0 to M55. The linker script (aot/template/board.ld.j2) names the regions. */
#include "aot/semihosting.h"

#include <stdint.h>

#define SCB_VTOR (*(volatile uint32_t *)0xE000ED08u)
#define SCB_CCR (*(volatile uint32_t *)0xE000ED14u)
#define SCB_CFSR (*(volatile uint32_t *)0xE000ED28u)
#define SCB_CCSIDR (*(volatile uint32_t *)0xE000ED80u)
#define SCB_CSSELR (*(volatile uint32_t *)0xE000ED84u)
#define SCB_ICIALLU (*(volatile uint32_t *)0xE000EF50u)
#define SCB_DCISW (*(volatile uint32_t *)0xE000EF60u)
#define SCB_BFAR (*(volatile uint32_t *)0xE000ED38u)
#define SCB_CPACR (*(volatile uint32_t *)0xE000ED88u)
#define MPU_TYPE (*(volatile uint32_t *)0xE000ED90u)
#define MPU_CTRL (*(volatile uint32_t *)0xE000ED94u)
#define MPU_RNR (*(volatile uint32_t *)0xE000ED98u)
#define MPU_RBAR (*(volatile uint32_t *)0xE000ED9Cu)
#define MPU_RASR (*(volatile uint32_t *)0xE000EDA0u)
#define RASR_NO_EXECUTE (1u << 28)
#define CTRL_DEFAULT_MAP (1u << 2)
#define GUARD_LOG2 16u
#define GUARD_BYTES (1u << GUARD_LOG2) /* taken where the lower end of the stack is a multiple of it */
#define CCR_LOB (1u << 19)
#define CCR_DC (1u << 16)
#define CCR_IC (1u << 17)
#define CPACR_FPU (0xfu << 20)
#define FAULT_EXIT_CODE 99

#ifndef AOT_CACHES
#define AOT_CACHES 0 /* 1: of instructions, 2: of data; off after reset */
#endif

extern uint32_t aot_stack_bottom[], aot_stack_top[];
extern uint32_t aot_data_start[], aot_data_end[], aot_data_load[];
extern uint32_t aot_bss_start[], aot_bss_end[];
extern uint32_t aot_pool_start[], aot_pool_end[];
/* Constants that lie in flash and are read from RAM, a faster one perhaps: there where the linker script has such. */
struct aot_copy {
  const uint32_t *from;
  uint32_t *to;
  uint32_t bytes;
};
extern const struct aot_copy aot_copies_start[] __attribute__((weak)), aot_copies_end[] __attribute__((weak));

int main(void);
void Reset_Handler(void);
void Fault_Handler(void);
void SysTick_Handler(void);
void aot_fault(const uint32_t *frame);

/* 0x.. in eight digits; no division, no library. */
static void put_hex(const char *label, uint32_t value) {
  char text[11] = {'0', 'x'};
  for (int i = 0; i < 8; i++) {
    const uint32_t digit = (value >> (28 - 4 * i)) & 15u;
    text[2 + i] = (char)(digit < 10u ? '0' + digit : 'a' + digit - 10u);
  }
  text[10] = '\0';
  aot_puts(label);
  aot_puts(text);
}

/* `frame` is what the core stacked: r0-r3, r12, lr, pc, xpsr. */
__attribute__((noreturn)) void aot_fault(const uint32_t *frame) {
  const int intact = frame >= aot_stack_bottom && frame < aot_stack_top; /* after an overflow nothing was stacked */
  put_hex("{\"aot\": 1, \"fault\": {\"pc\": \"", intact ? frame[6] : 0);
  put_hex("\", \"lr\": \"", intact ? frame[5] : 0);
  put_hex("\", \"sp\": \"", (uint32_t)(uintptr_t)frame);
#if __ARM_ARCH >= 7
  put_hex("\", \"cfsr\": \"", SCB_CFSR);
  put_hex("\", \"address\": \"", SCB_BFAR);
#endif
  aot_puts("\"}}\n");
  aot_exit(FAULT_EXIT_CODE);
}

/* The stack may be what is broken: report from a fresh one. */
__attribute__((naked)) void Fault_Handler(void) {
  __asm__ volatile(
      ".syntax unified\n\t"
      "mrs r0, msp\n\t"
      "ldr r1, =aot_stack_top\n\t"
      "msr msp, r1\n\t"
      "ldr r1, =aot_fault\n\t"
      "bx r1\n\t"
      ".ltorg");
}

typedef void (*aot_vector)(void);
struct vector_table {
  uint32_t *stack;
  aot_vector handlers[15];
};

__attribute__((section(".vectors"), used)) const struct vector_table aot_vectors = {
    aot_stack_top,
    {Reset_Handler, Fault_Handler, Fault_Handler, Fault_Handler, Fault_Handler, Fault_Handler, Fault_Handler, 0, 0, 0, Fault_Handler,
     Fault_Handler, 0, Fault_Handler, SysTick_Handler}};

#if AOT_CACHES
/* What a cache holds after reset is unknown, so it is invalidated first: the data cache line by line, by set and way. */
static void enable_caches(void) {
#if AOT_CACHES & 1
  __asm__ volatile("dsb\n\tisb" ::: "memory");
  SCB_ICIALLU = 0;
  __asm__ volatile("dsb\n\tisb" ::: "memory");
  SCB_CCR |= CCR_IC;
#endif
#if AOT_CACHES & 2
  SCB_CSSELR = 0; /* the data cache nearest to the core */
  __asm__ volatile("dsb" ::: "memory");
  const uint32_t shape = SCB_CCSIDR;
  const uint32_t line = (shape & 7u) + 4u, ways = (shape >> 3 & 0x3ffu) + 1u, sets = (shape >> 13 & 0x7fffu) + 1u;
  uint32_t shift = 32; /* the way's number stands in the highest bits */
  for (uint32_t most = ways - 1u; most != 0u; most >>= 1) shift--;
  for (uint32_t set = 0; set < sets; set++) {
    for (uint32_t way = 0; way < ways; way++) SCB_DCISW = set << line | (ways > 1u ? way << shift : 0u);
  }
  __asm__ volatile("dsb" ::: "memory");
  SCB_CCR |= CCR_DC;
#endif
  __asm__ volatile("dsb\n\tisb" ::: "memory");
}
#endif

static void enable_units(void) {
  SCB_VTOR = (uint32_t)(uintptr_t)&aot_vectors; /* code may begin behind a boot loader; M0 has no such register and ignores it */
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
  SCB_CPACR |= CPACR_FPU;
  __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
#if defined(__ARM_FEATURE_MVE)
  SCB_CCR |= CCR_LOB; /* low-overhead branches: DLS/WLS/LE loops */
  __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
#if AOT_CACHES
  enable_caches();
#endif
#if __ARM_ARCH <= 7
  /* The stack begins where the RAM does. What lies below may be writable on an emulated board: forbid GUARD_BYTES of it. A core
     without an MPU reads its type as 0. */
  if (((MPU_TYPE >> 8) & 0xffu) != 0u && ((uintptr_t)aot_stack_bottom & (GUARD_BYTES - 1u)) == 0u) {
    MPU_RNR = 0;
    MPU_RBAR = (uint32_t)(uintptr_t)aot_stack_bottom - GUARD_BYTES;
    MPU_RASR = RASR_NO_EXECUTE | (GUARD_LOG2 - 1u) << 1 | 1u; /* access permission 0: none */
    MPU_CTRL = CTRL_DEFAULT_MAP | 1u;
    __asm__ volatile("dsb\n\tisb" ::: "memory");
  }
#elif __ARM_ARCH >= 8
  __asm__ volatile("msr msplim, %0" ::"r"(aot_stack_bottom));
#endif
}

__attribute__((noreturn)) void Reset_Handler(void) {
  enable_units();
  const uint32_t *from = aot_data_load;
  for (uint32_t *to = aot_data_start; to < aot_data_end;) *to++ = *from++;
  for (const struct aot_copy *copy = aot_copies_start; copy != aot_copies_end; copy++) {
    for (uint32_t i = 0; i < (copy->bytes + 3u) / 4u; i++) copy->to[i] = copy->from[i];
  }
  for (uint32_t *to = aot_bss_start; to < aot_bss_end;) *to++ = 0;
  for (uint32_t *to = aot_pool_start; to < aot_pool_end;) *to++ = 0;
  aot_exit(main());
}
