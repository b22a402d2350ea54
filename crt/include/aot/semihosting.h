/* SPDX-License-Identifier: Apache-2.0 */
/* Files and console of the machine that debugs or emulates this one (Arm semihosting, IHI 0203).
   crt/src/hosted.c gives the same functions over stdio, so that one harness serves boards and the host. */
#ifndef AOT_SEMIHOSTING_H
#define AOT_SEMIHOSTING_H

#include <stdint.h>

enum aot_open_mode { AOT_OPEN_READ = 1, AOT_OPEN_WRITE = 5 }; /* the numbers of fopen's "rb" and "wb" in SYS_OPEN */

void aot_puts(const char *text);
/* A handle, or -1. Paths are relative to the working directory of the host's debugger or emulator. */
int32_t aot_open(const char *path, enum aot_open_mode mode);
/* Bytes NOT transferred: 0 is success. */
uint32_t aot_read(int32_t handle, void *buffer, uint32_t bytes);
uint32_t aot_write(int32_t handle, const void *buffer, uint32_t bytes);
int32_t aot_seek(int32_t handle, uint32_t position);
int32_t aot_length(int32_t handle);
int32_t aot_close(int32_t handle);
void aot_exit(int32_t code) __attribute__((noreturn));

#endif
