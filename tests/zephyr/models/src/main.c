/* Two models in one application: bit-exact, again and again, one after the other. */
#include "digits.h"
#include "golden.h"
#include "pair.h"

#include <string.h>
#include <zephyr/ztest.h>

#ifndef AOT_TEST_WRONG
#define AOT_TEST_WRONG 0
#endif

enum { IMAGES = sizeof digits_out / sizeof digits_out[0] };

static void check_digit(int image) {
  int8_t score[sizeof digits_out[0]];
  const struct digits_inputs in = {.input = digits_in[image]};
  const struct digits_outputs out = {.softmax_7 = score};
  zassert_equal(digits_run(&in, &out), 0, "status");
  score[0] = (int8_t)(score[0] ^ AOT_TEST_WRONG);
  zassert_mem_equal(score, digits_out[image], sizeof score, "image %d", image);
}

static void check_pair(void) {
  memcpy(pair_input_0(), pair_in0, sizeof pair_in0);
  memcpy(pair_input_1(), pair_in1, sizeof pair_in1);
  static const struct pair_inputs in;
  static const struct pair_outputs out;
  zassert_equal(pair_run(&in, &out), 0, "status");
  zassert_mem_equal(pair_output_0(), pair_out0, sizeof pair_out0, "output 0");
  zassert_mem_equal(pair_output_1(), pair_out1, sizeof pair_out1, "output 1");
}

ZTEST(aot, test_bit_exact) {
  for (int i = 0; i < IMAGES; i++) check_digit(i);
  check_pair();
}

ZTEST(aot, test_same_result_when_run_again) {
  for (int i = 0; i < 2 * IMAGES; i++) check_digit(i % IMAGES);
}

ZTEST(aot, test_models_do_not_disturb_each_other) {
  for (int i = 0; i < IMAGES; i++) {
    check_digit(i);
    check_pair();
  }
}

ZTEST(aot, test_without_structs_the_slots_are_used) { zassert_equal(digits_run(NULL, NULL), 0, "status"); }

ZTEST_SUITE(aot, NULL, NULL, NULL, NULL, NULL);
