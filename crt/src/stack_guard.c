/* SPDX-License-Identifier: Apache-2.0 */
/* What GCC's -fstack-protector calls: a guard that is the same in every run, as counts are to be, and a fault where it was
 * overwritten. Nothing of this is linked into a program that is compiled without it. */
#include <stdint.h>

extern const uintptr_t __stack_chk_guard;
const uintptr_t __stack_chk_guard = 0x0aff000du; /* with a zero byte and ends of lines: no string runs over it unnoticed */

void __stack_chk_fail(void);

__attribute__((noreturn, optimize("no-stack-protector"))) void __stack_chk_fail(void) {
  __builtin_trap();
}
