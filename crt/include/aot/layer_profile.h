/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles of each layer, counted inside a program of your own; `aot profile MODEL --from LOG` reads the text.

   Compile the model with -DAOT_HOOKS=1, give it a hook, and begin each run with aot_profile_run():

     static struct aot_layer_cycles layers[KWS_LAYERS];
     void aot_layer_hook(int32_t layer, const void *out, uint32_t bytes) {
       (void)out;
       aot_profile_layer(layer, bytes);
     }
     ...
     aot_profile_start(layers, KWS_LAYERS);
     aot_profile_run();
     kws_run(&in, &out);
     char line[AOT_PROFILE_LINE];
     for (uint32_t i = 0; aot_profile_line(i, "kws", 64000000u, line); i++) puts(line);
*/
#ifndef AOT_LAYER_PROFILE_H
#define AOT_LAYER_PROFILE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AOT_PROFILE_LINE 96 /* bytes of a line, its end included */

/* What the layers took in all runs together. */
struct aot_layer_cycles {
  uint64_t cycles;
  uint32_t calls;
  uint32_t bytes; /* of its first result: tells the compiler that the text is of the same model */
};

/* Forgets what was counted and starts the counter: DWT_CYCCNT of a Cortex-M3 or larger, or the function that AOT_PROFILE_CLOCK
   names, `uint32_t clock(void)`, which counts up and wraps at 2^32. Returns 0, or -1 where the counter stands still. */
int32_t aot_profile_start(struct aot_layer_cycles *layers, uint32_t count);
/* A run begins with the next call of the model. */
void aot_profile_run(void);
/* A run goes on: before every step of a run in steps but the first, or what was between the steps is counted as the next layer's. */
void aot_profile_resume(void);
/* The hook's part of it. The time that the hook takes is in no layer. */
void aot_profile_layer(int32_t layer, uint32_t bytes);
/* Line `index` of the text for the model `name` (31 characters of it), without an end of line; 0 if there is none left. `hz` is
   the core's clock, 0 if it is not known. Ask for all lines in their order: the last one has their checksum. */
int aot_profile_line(uint32_t index, const char *name, uint32_t hz, char line[AOT_PROFILE_LINE]);

#ifdef __cplusplus
}
#endif

#endif
