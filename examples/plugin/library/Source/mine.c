#include "mine.h"

void mine_look_up(const int8_t *in, const int8_t *table, int8_t *out, int32_t count) {
  for (int32_t i = 0; i < count; ++i) out[i] = table[(uint8_t)in[i]];
}
