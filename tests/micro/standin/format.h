/* What printf and its like of the stand-ins have in common: %s, %c, %d, %u and %lu, which is what our programs use. */
#include <stdarg.h>
#include <stdint.h>

static void put_number(void (*put)(const char *), uint32_t value) {
  char text[11];
  char *digit = text + 10;
  *digit = '\0';
  do {
    *--digit = (char)('0' + (char)(value % 10u));
    value /= 10u;
  } while (value != 0u);
  put(digit);
}

static void put_format(void (*put)(const char *), const char *format, va_list list) {
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
      put_number(put, (uint32_t)va_arg(list, unsigned long));
    } else if (*format == 'd') {
      const int value = va_arg(list, int);
      if (value < 0) put("-");
      put_number(put, value < 0 ? 0u - (uint32_t)value : (uint32_t)value);
    } else {
      text[0] = (char)(*format == 'c' ? va_arg(list, int) : '?');
      put(text);
    }
  }
}
