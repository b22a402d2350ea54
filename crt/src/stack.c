#include "aot/stack.h"

#define PAINT 0x5AC3A53Cu
#define MARGIN_WORDS 16u /* below the caller: the frames of these functions themselves */

extern uint32_t aot_stack_bottom[]; /* linker script: lowest word of the stack */

__attribute__((noinline)) void aot_stack_paint(void) {
  volatile uint32_t *const end = (volatile uint32_t *)(aot_stack_pointer() & ~(uintptr_t)3) - MARGIN_WORDS;
  for (volatile uint32_t *p = aot_stack_bottom; p < end; p++) *p = PAINT;
}

uintptr_t aot_stack_low(void) {
  const volatile uint32_t *p = aot_stack_bottom;
  while (*p == PAINT) p++;
  return (uintptr_t)p;
}
