/* SPDX-License-Identifier: Apache-2.0 */
/* A probe after each layer of the main function; no code at all unless compiled with -DAOT_HOOKS=1. */
#ifndef AOT_HOOKS_H
#define AOT_HOOKS_H

#include <stdint.h>

#ifndef AOT_HOOKS
#define AOT_HOOKS 0
#endif

#if AOT_HOOKS
#ifdef __cplusplus
extern "C" {
#endif
/* Whoever compiles with AOT_HOOKS=1 provides this: `layer` has just written `bytes` bytes at `out`. */
void aot_layer_hook(int32_t layer, const void *out, uint32_t bytes);
#ifdef __cplusplus
}
#endif
#define AOT_LAYER(layer, out, bytes) aot_layer_hook((layer), (out), (bytes))
#else
#define AOT_LAYER(layer, out, bytes) ((void)0)
#endif

#endif
