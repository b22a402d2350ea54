/* Audio in, words out: two compiled models, the front end and a network, run in sequence every 20 ms. */
#include "frontend.h"
#include "network.h"

#include "audio.h"

#include "aot/semihosting.h"

#include <stddef.h>
#include <string.h>

/* Print a word once it leads for STEADY steps, then stay silent for SILENT steps. */
#define STEADY 3u
#define SILENT 12u
#define MILLISECONDS 20u

static const char *const words[] = {"background", "rise", "fall", "warble"};

static void print_number(uint32_t value) {
  char text[11];
  char *digit = text + 10;
  *digit = '\0';
  do {
    *--digit = (char)('0' + (char)(value % 10u));
    value /= 10u;
  } while (value != 0u);
  aot_puts(digit);
}

static uint32_t largest(const int8_t *scores) {
  uint32_t best = 0u;
  for (uint32_t i = 1u; i < NETWORK_OUTPUT_0_SIZE; i++) {
    if (scores[i] > scores[best]) {
      best = i;
    }
  }
  return best;
}

/* The answer for one step of audio, or -1. */
static int32_t listen(const int16_t *samples) {
  static const struct frontend_inputs audio_in = {0};
  static const struct frontend_outputs features_out = {0};
  static const struct network_inputs features_in = {0};
  static const struct network_outputs scores_out = {0};
  int8_t scores[NETWORK_OUTPUT_0_SIZE];
  memcpy(frontend_input_0(), samples, FRONTEND_INPUT_0_SIZE);
  if (frontend_run(&audio_in, &features_out) != 0) {
    return -1;
  }
  memcpy(network_input_0(), frontend_output_0(), NETWORK_INPUT_0_SIZE);
  if (network_run(&features_in, &scores_out) != 0) {
    return -1;
  }
  memcpy(scores, network_output_0(), sizeof(scores));
  return (int32_t)largest(scores);
}

int main(void) {
  uint32_t right = 0u, steady = 0u, quiet = 0u;
  int32_t last = 0;
  for (uint32_t step = 0u; step < AUDIO_STEPS; step++) {
    const int32_t now = listen(audio[step]);
    if (now < 0) {
      aot_puts("a model returned an error\n");
      return 1;
    }
    right += now == answers[step] ? 1u : 0u;
    steady = now == last ? steady + 1u : 1u;
    last = now;
    quiet = quiet > 0u ? quiet - 1u : 0u;
    if (now != 0 && steady == STEADY && quiet == 0u) {
      print_number(step * MILLISECONDS);
      aot_puts(" ms: ");
      aot_puts(words[now]);
      aot_puts("\n");
      quiet = SILENT;
    }
  }
  print_number(right);
  aot_puts(" of ");
  print_number(AUDIO_STEPS);
  aot_puts(" steps right\n");
  return 0;
}
