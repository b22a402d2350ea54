/* printf over semihosting, or over stdout_putchar: %s, %c, %d, %u and %lu, which is what our programs use. */
#include "aot/semihosting.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#ifdef STANDIN_PUTCHAR
int stdout_putchar(int ch);

static void put(const char *text) {
  while (*text != '\0') (void)stdout_putchar(*text++);
}
#else
static void put(const char *text) { aot_puts(text); }
#endif

static void put_number(uint32_t value) {
  char text[11];
  char *digit = text + 10;
  *digit = '\0';
  do {
    *--digit = (char)('0' + (char)(value % 10u));
    value /= 10u;
  } while (value != 0u);
  put(digit);
}

int printf(const char *format, ...) {
  va_list list;
  va_start(list, format);
  for (; *format != '\0'; format++) {
    char text[2] = {*format, '\0'};
    if (*format != '%') {
      put(text);
      continue;
    }
    while (*++format == 'l') {
    }
    if (*format == 's') {
      put(va_arg(list, const char *));
    } else if (*format == 'u') {
      put_number((uint32_t)va_arg(list, unsigned long));
    } else if (*format == 'd') {
      const int value = va_arg(list, int);
      if (value < 0) put("-");
      put_number(value < 0 ? 0u - (uint32_t)value : (uint32_t)value);
    } else {
      text[0] = (char)(*format == 'c' ? va_arg(list, int) : '?');
      put(text);
    }
  }
  va_end(list);
  return 0;
}
