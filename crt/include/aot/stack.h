/* SPDX-License-Identifier: Apache-2.0 */
/* How deep the stack went: paint what is free, run, look how much of the paint is gone. */
#ifndef AOT_STACK_H
#define AOT_STACK_H

#include <stdint.h>

#define AOT_STACK_PAINT 0x5AC3A53Cu

#if defined(__arm__)
extern uint32_t aot_stack_bottom[]; /* linker script: lowest word of the stack */

/* The caller's stack pointer. */
static inline uintptr_t aot_stack_pointer(void) {
  uintptr_t sp;
  __asm__ volatile("mov %0, sp" : "=r"(sp));
  return sp;
}

/* Paints all below the caller's frame. Inline, so that there is no frame below that one; no interrupt may come. */
static inline __attribute__((always_inline)) void aot_stack_paint(void) {
  const uintptr_t end = aot_stack_pointer();
  for (volatile uint32_t *p = aot_stack_bottom; (uintptr_t)p < end; p++) *p = AOT_STACK_PAINT;
}

/* Lowest address that was written since: the painted words below it are intact. */
static inline uintptr_t aot_stack_low(void) {
  const volatile uint32_t *p = aot_stack_bottom;
  while (*p == AOT_STACK_PAINT) p++;
  return (uintptr_t)p;
}

/* On Armv6-M the harness's wrapper of the model cannot end in a jump, so it has a frame of its own, which is not the model's: the
   wrapper notes where that frame ends; so it does where flags of the user's may keep it from jumping (AOT_OWN_FLAGS: -Og, say).
   Elsewhere there is none, and nothing to execute, unless the wrapper feeds rows. */
extern uintptr_t aot_stack_noted;
#define AOT_NOTE_FRAME() ((void)(aot_stack_noted = aot_stack_pointer()))
#if defined(__ARM_ARCH_6M__) || defined(AOT_OWN_FLAGS)
#define AOT_NOTE_STACK() AOT_NOTE_FRAME()
#else
#define AOT_NOTE_STACK() ((void)0)
#endif
#define AOT_STACK_TOP(top) (aot_stack_noted != 0u ? aot_stack_noted : (top))
#else
#define AOT_NOTE_FRAME() ((void)0)
#define AOT_NOTE_STACK() ((void)0)
#define AOT_STACK_TOP(top) (top)
static inline uintptr_t aot_stack_pointer(void) { return 0; }
static inline void aot_stack_paint(void) {}
static inline uintptr_t aot_stack_low(void) { return 0; }
#endif

#endif
