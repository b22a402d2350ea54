/* SPDX-License-Identifier: Apache-2.0 */
/* Arm semihosting calls (IHI 0203): BKPT 0xAB with the operation in r0 and a parameter block in r1. */
#include "aot/semihosting.h"

#include <stddef.h>

enum {
  SYS_OPEN = 0x01,
  SYS_CLOSE = 0x02,
  SYS_WRITE0 = 0x04,
  SYS_WRITE = 0x05,
  SYS_READ = 0x06,
  SYS_SEEK = 0x0a,
  SYS_FLEN = 0x0c,
  SYS_EXIT_EXTENDED = 0x20
};
#define APPLICATION_EXIT 0x20026u

/* One place for all calls: a debugger that serves them needs one breakpoint, of the four that some cores have. */
int32_t aot_semihosting_call(int32_t operation, const void *parameters);
__attribute__((noinline)) int32_t aot_semihosting_call(int32_t operation, const void *parameters) {
  register int32_t r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = parameters;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

static uint32_t address(const void *p) { return (uint32_t)(uintptr_t)p; }

/* Weak: a program may have another console and another end, as on a board without a debugger. */
__attribute__((weak)) void aot_puts(const char *text) { (void)aot_semihosting_call(SYS_WRITE0, text); }

int32_t aot_open(const char *path, enum aot_open_mode mode) {
  uint32_t length = 0;
  while (path[length] != '\0') length++;
  const uint32_t block[3] = {address(path), (uint32_t)mode, length};
  return aot_semihosting_call(SYS_OPEN, block);
}

uint32_t aot_read(int32_t handle, void *buffer, uint32_t bytes) {
  const uint32_t block[3] = {(uint32_t)handle, address(buffer), bytes};
  return (uint32_t)aot_semihosting_call(SYS_READ, block);
}

uint32_t aot_write(int32_t handle, const void *buffer, uint32_t bytes) {
  const uint32_t block[3] = {(uint32_t)handle, address(buffer), bytes};
  return (uint32_t)aot_semihosting_call(SYS_WRITE, block);
}

int32_t aot_seek(int32_t handle, uint32_t position) {
  const uint32_t block[2] = {(uint32_t)handle, position};
  return aot_semihosting_call(SYS_SEEK, block);
}

int32_t aot_length(int32_t handle) {
  const uint32_t block[1] = {(uint32_t)handle};
  return aot_semihosting_call(SYS_FLEN, block);
}

int32_t aot_close(int32_t handle) {
  const uint32_t block[1] = {(uint32_t)handle};
  return aot_semihosting_call(SYS_CLOSE, block);
}

__attribute__((weak)) void aot_exit(int32_t code) {
  const uint32_t block[2] = {APPLICATION_EXIT, (uint32_t)code};
  (void)aot_semihosting_call(SYS_EXIT_EXTENDED, block);
  for (;;) {
  }
}
