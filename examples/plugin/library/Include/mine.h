/* The library that the plug-in's code generator calls. */
#ifndef MINE_H
#define MINE_H

#include <stdint.h>

/* out[i] = table[in[i]], the entries of -128 to -1 behind those of 0 to 127. */
void mine_look_up(const int8_t *in, const int8_t *table, int8_t *out, int32_t count);

#endif
