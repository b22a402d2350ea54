/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of semihosting.h and systick.h for a program that runs on the host itself. Counts read 0. */
#include "aot/semihosting.h"
#include "aot/systick.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_FILES 4
static FILE *files[MAX_FILES];

static FILE *file_of(int32_t handle) { return handle >= 0 && handle < MAX_FILES ? files[handle] : NULL; }

void aot_puts(const char *text) { (void)fputs(text, stdout); }

int32_t aot_open(const char *path, enum aot_open_mode mode) {
  for (int32_t i = 0; i < MAX_FILES; i++) {
    if (files[i] == NULL) {
      files[i] = fopen(path, mode == AOT_OPEN_READ ? "rb" : "wb");
      return files[i] != NULL ? i : -1;
    }
  }
  return -1;
}

uint32_t aot_read(int32_t handle, void *buffer, uint32_t bytes) {
  FILE *file = file_of(handle);
  return file == NULL ? bytes : bytes - (uint32_t)fread(buffer, 1, bytes, file);
}

uint32_t aot_write(int32_t handle, const void *buffer, uint32_t bytes) {
  FILE *file = file_of(handle);
  return file == NULL ? bytes : bytes - (uint32_t)fwrite(buffer, 1, bytes, file);
}

int32_t aot_seek(int32_t handle, uint32_t position) {
  FILE *file = file_of(handle);
  return file == NULL || fseek(file, (long)position, SEEK_SET) != 0 ? -1 : 0;
}

int32_t aot_length(int32_t handle) {
  FILE *file = file_of(handle);
  if (file == NULL) return -1;
  const long here = ftell(file);
  if (here < 0 || fseek(file, 0, SEEK_END) != 0) return -1;
  const long length = ftell(file);
  return fseek(file, here, SEEK_SET) != 0 ? -1 : (int32_t)length;
}

int32_t aot_close(int32_t handle) {
  FILE *file = file_of(handle);
  if (file == NULL) return -1;
  files[handle] = NULL;
  return fclose(file) != 0 ? -1 : 0;
}

void aot_exit(int32_t code) { exit((int)code); }

void aot_counter_start(uint32_t first) { (void)first; }
void aot_counter_stop(void) {}
uint64_t aot_counter(void) { return 0; }
uint64_t aot_counter_overhead(void) { return 0; }
uint64_t aot_counter_check(void) { return 0; }


