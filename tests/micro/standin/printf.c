/* printf over semihosting, or over stdout_putchar. */
#include "aot/semihosting.h"
#include "format.h"

#include <stdio.h>

#ifdef STANDIN_PUTCHAR
int stdout_putchar(int ch);

static void put(const char *text) {
  while (*text != '\0') (void)stdout_putchar(*text++);
}
#else
static void put(const char *text) { aot_puts(text); }
#endif

int printf(const char *format, ...) {
  va_list list;
  va_start(list, format);
  put_format(put, format, list);
  va_end(list);
  return 0;
}
