/* Stand-in: see ../../README.md. One suite in one file; a failed assertion ends its test. */
#ifndef STANDIN_ZTEST_H
#define STANDIN_ZTEST_H
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <zephyr/sys/printk.h>

struct standin_test {
  const char *name;
  void (*run)(void);
};

int standin_failed(bool ok, const char *what, const char *file, int line);

#define ZTEST_SUITE(suite, ...) extern int standin_suite_##suite
#define ZTEST(suite, name)                                                                                               \
  static void name(void);                                                                                                \
  static const struct standin_test standin_##name __attribute__((section("standin_tests"), used)) = {#name, name}; \
  static void name(void)
#define STANDIN_ASSERT(ok, ...)                                              \
  do {                                                                       \
    if (standin_failed((ok), #ok, __FILE__, __LINE__)) return;               \
  } while (0)
#define zassert_equal(a, b, ...) STANDIN_ASSERT((a) == (b))
#define zassert_not_equal(a, b, ...) STANDIN_ASSERT((a) != (b))
#define zassert_mem_equal(a, b, size, ...) STANDIN_ASSERT(memcmp((a), (b), (size)) == 0)
#endif
