/* printf over semihosting: %s, %c, %d, %u and %lu, which is what our programs use. */
#include "aot/semihosting.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

static void put_number(uint32_t value) {
  char text[11];
  char *digit = text + 10;
  *digit = '\0';
  do {
    *--digit = (char)('0' + (char)(value % 10u));
    value /= 10u;
  } while (value != 0u);
  aot_puts(digit);
}

int printf(const char *format, ...) {
  va_list list;
  va_start(list, format);
  for (; *format != '\0'; format++) {
    char text[2] = {*format, '\0'};
    if (*format != '%') {
      aot_puts(text);
      continue;
    }
    while (*++format == 'l') {
    }
    if (*format == 's') {
      aot_puts(va_arg(list, const char *));
    } else if (*format == 'u') {
      put_number((uint32_t)va_arg(list, unsigned long));
    } else if (*format == 'd') {
      const int value = va_arg(list, int);
      if (value < 0) aot_puts("-");
      put_number(value < 0 ? 0u - (uint32_t)value : (uint32_t)value);
    } else {
      text[0] = (char)(*format == 'c' ? va_arg(list, int) : '?');
      aot_puts(text);
    }
  }
  va_end(list);
  return 0;
}
