/* How deep the stack went: paint what is free, run, look how much of the paint is gone. */
#ifndef AOT_STACK_H
#define AOT_STACK_H

#include <stdint.h>

/* Paints from the lower end of the stack up to a margin below the caller's frame. */
void aot_stack_paint(void);
/* Lowest address that was written since: the painted words below it are intact. */
uintptr_t aot_stack_low(void);
/* The caller's stack pointer. */
static inline uintptr_t aot_stack_pointer(void) {
#if defined(__arm__)
  uintptr_t sp;
  __asm__ volatile("mov %0, sp" : "=r"(sp));
  return sp;
#else
  return 0;
#endif
}

#endif
