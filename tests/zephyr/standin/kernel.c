/* The few functions behind the stand-in's headers. See README.md. */
#include "../../micro/standin/format.h"
#include "aot/semihosting.h"
#include "aot/systick.h"

#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>
#include <zephyr/timing/timing.h>
#include <zephyr/ztest.h>

void printk(const char *format, ...) {
  va_list list;
  va_start(list, format);
  put_format(aot_puts, format, list);
  va_end(list);
}

/* CMSDK's UART 0 of the MPS2 boards. */
const struct device standin_console = {0x40004000u};

static volatile uint32_t *uart(const struct device *dev, uint32_t offset) {
  volatile uint32_t *const registers = (volatile uint32_t *)dev->base;
  registers[4] = 16u; /* BAUDDIV, at least 16 */
  registers[2] = 3u;  /* CTRL: receive and send */
  return &registers[offset / 4u];
}

int uart_poll_in(const struct device *dev, unsigned char *c) {
  if ((*uart(dev, 4u) & 2u) == 0u) return -1;
  *c = (unsigned char)*uart(dev, 0u);
  return 0;
}

void uart_poll_out(const struct device *dev, unsigned char c) {
  while ((*uart(dev, 4u) & 1u) != 0u) {
  }
  *uart(dev, 0u) = c;
}

int memcmp(const void *a, const void *b, size_t n) {
  const volatile uint8_t *x = a, *y = b;
  for (; n != 0u && *x == *y; n--) {
    x++;
    y++;
  }
  return n == 0u ? 0 : *x - *y;
}

void timing_init(void) {}
void timing_start(void) { aot_counter_start(0xffffffu); }
timing_t timing_counter_get(void) { return aot_counter(); }
uint64_t timing_cycles_get(volatile timing_t *const start, volatile timing_t *const end) { return *end - *start; }

static bool failing;

int standin_failed(bool ok, const char *what, const char *file, int line) {
  if (!ok) printk("    Assertion failed at %s:%d: %s\n", file, line, what);
  failing = failing || !ok;
  return !ok;
}

extern const struct standin_test __start_standin_tests[] __attribute__((weak));
extern const struct standin_test __stop_standin_tests[] __attribute__((weak));

/* An application without a main has tests. */
__attribute__((weak)) int main(void) {
  bool all = true;
  for (const struct standin_test *test = __start_standin_tests; test < __stop_standin_tests; test++) {
    failing = false;
    test->run();
    printk(" %s - %s\n", failing ? "FAIL" : "PASS", test->name);
    all = all && !failing;
  }
  printk("PROJECT EXECUTION %s\n", all ? "SUCCESSFUL" : "FAILED");
  return all ? 0 : 1;
}
