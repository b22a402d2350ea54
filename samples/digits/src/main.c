/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises one image of a handwritten seven. */
#include "digits.h"

#include <aot/zephyr.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

static const uint8_t image[64] = {
      0,   0, 128, 255, 223, 239,   0,   0,
      0,   0, 207, 175, 239, 175,   0,   0,
      0,  64, 223,  16, 207,  80,   0,   0,
      0,  48, 112, 128, 255,  64,  48,   0,
      0,   0, 223, 255, 255, 207, 112,   0,
      0,   0,  80, 207,  32,   0,   0,   0,
      0,   0,  96, 159,   0,   0,   0,   0,
      0,   0, 159,  96,   0,   0,   0,   0,
};

int main(void) {
  const struct digits_inputs in = {.input = NULL};
  const struct digits_outputs out = {.softmax_7 = NULL};
  int8_t *const pixels = digits_input_0();
  for (uint32_t i = 0; i < sizeof image; i++) pixels[i] = (int8_t)((int32_t)image[i] + DIGITS_INPUT_0_ZERO_POINT);

  aot_zephyr_cycles_init();
  const timing_t start = aot_zephyr_cycles_start();
  const int32_t status = digits_run(&in, &out);
  const uint64_t cycles = aot_zephyr_cycles_stop(start);
  if (status != 0) {
    printk("the model returned %d\n", (int)status);
    return 0;
  }

  const int8_t *const score = digits_output_0();
  int best = 0;
  for (int i = 1; i < 10; i++) {
    if (score[i] > score[best]) best = i;
  }
  printk("digit %d, %u cycles, workspace %u bytes\n", best, (unsigned int)cycles, DIGITS_WORKSPACE_SIZE);
  return 0;
}
