"""Artifacts written by pass in the form of the generated code, so that the run side is tested without the compiler."""

from __future__ import annotations

from typing import Any

import numpy as np

from aot.executor.artifact import Artifact

HEADER = """\
#ifndef TINY_H
#define TINY_H
#include <stdint.h>
#define TINY_WORKSPACE_SIZE 64u
struct tiny_inputs { const int8_t *a; const int16_t *b; };
struct tiny_outputs { int16_t *y; };
int32_t tiny_run(const struct tiny_inputs *in, const struct tiny_outputs *out);
%(accessors)s
extern uint8_t tiny_workspace[];
#endif
"""

ACCESSORS = """\
int8_t *tiny_input_0(void);
int16_t *tiny_input_1(void);
int16_t *tiny_output_0(void);
"""

# a at 0 (8 bytes), b at 16 (16 bytes), t at 32 (8 bytes, written by layer 0), y at 0: overwrites the inputs.
# 48 to 63 is never touched.
MAIN = """\
#include "tiny.h"
#include "aot/hooks.h"
#include "aot/status.h"
#include <stddef.h>
#include <string.h>
void tiny_double(const int8_t *a, int8_t *t);
void tiny_add(const int8_t *t, const int16_t *b, int16_t *y);
%(kernel_prototypes)s
uint8_t tiny_workspace[TINY_WORKSPACE_SIZE] __attribute__((aligned(16), section(".bss.aot_workspace")));
int8_t *tiny_input_0(void) { return (int8_t *)(void *)&tiny_workspace[0]; }
int16_t *tiny_input_1(void) { return (int16_t *)(void *)&tiny_workspace[16]; }
int16_t *tiny_output_0(void) { return (int16_t *)(void *)&tiny_workspace[0]; }
int32_t tiny_run(const struct tiny_inputs *in, const struct tiny_outputs *out) {
  if (in == NULL || out == NULL) return AOT_ERROR_NULL;
  int8_t *const t = (int8_t *)(void *)&tiny_workspace[32];
  if (in->a != NULL && in->a != tiny_input_0()) memcpy(tiny_input_0(), in->a, 8u);
  if (in->b != NULL && in->b != tiny_input_1()) memcpy(tiny_input_1(), in->b, 16u);
  tiny_double(tiny_input_0(), t);
  AOT_LAYER(0, t, 8u);
  tiny_add(t, tiny_input_1(), tiny_output_0());
  AOT_LAYER(1, tiny_output_0(), 16u);
  %(extra)s
  if (out->y != NULL && out->y != tiny_output_0()) memcpy(out->y, tiny_output_0(), 16u);
  return %(status)s;
}
"""

KERNELS = """\
#include <stdint.h>
void tiny_double(const int8_t *a, int8_t *t);
void tiny_add(const int8_t *t, const int16_t *b, int16_t *y);
extern const int8_t tiny_params[8];
void tiny_double(const int8_t *a, int8_t *t) {
  for (int32_t i = 0; i < 8; i++) {
    const int32_t v = 2 * a[i] + tiny_params[i];
    t[i] = (int8_t)(v > 127 ? 127 : v < -128 ? -128 : v);
  }
}
void tiny_add(const int8_t *t, const int16_t *b, int16_t *y) {
  for (int32_t i = 0; i < 8; i++) y[i] = (int16_t)(t[i] + b[i]);
}
%(extra_kernel)s
"""

PARAMS = """\
#include <stdint.h>
extern const int8_t tiny_params[8];
const int8_t tiny_params[8] = {1, -1, 2, -2, 3, -3, 4, -4};
"""

BIAS = np.array([1, -1, 2, -2, 3, -3, 4, -4], np.int32)


def tensor(index: int, name: str, shape: list[int], dtype: str) -> dict[str, Any]:
    """One entry of metadata's inputs or outputs."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return {"index": index, "name": name, "c_name": name, "shape": shape, "dtype": dtype, "ctype": f"{dtype}_t", "size": size}


def tiny(
    *, io: str = "arena", extra: str = "", extra_kernel: str = "", kernel_prototypes: str = "", status: str = "AOT_OK"
) -> Artifact:
    """y = clip(2 a + bias) + b over eight elements; `extra` runs at the end of tiny_run."""
    layers = [
        {"index": 0, "function": "tiny_double", "op": "MUL", "output": {"shape": [8], "dtype": "int8", "tensor": 2}},
        {"index": 1, "function": "tiny_add", "op": "ADD", "output": {"shape": [2, 4], "dtype": "int16", "tensor": 3}},
    ]
    metadata = {
        "schema": "aot-metadata/1", "name": "tiny", "io": io, "layers": layers,
        "inputs": [tensor(0, "a", [8], "int8"), tensor(1, "b", [2, 4], "int16")],
        "outputs": [tensor(0, "y", [2, 4], "int16")],
        "workspace": {"size": 64, "align": 16}, "constants": {"size": 8},
    }  # fmt: skip
    main = MAIN % {"extra": extra, "kernel_prototypes": kernel_prototypes, "status": status}
    files = {
        "tiny.h": HEADER % {"accessors": ACCESSORS},
        "tiny.c": main,
        "tiny_kernels.c": KERNELS % {"extra_kernel": extra_kernel},
        "tiny_params.c": PARAMS,
    }
    return Artifact("tiny", files, metadata)


def expected(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The outputs of the two layers."""
    t = np.clip(2 * a.astype(np.int32) + BIAS, -128, 127).astype(np.int8)
    return t, (t.reshape(2, 4).astype(np.int32) + b).astype(np.int16)


def input_sets(count: int, seed: int = 7) -> list[list[np.ndarray[Any, Any]]]:
    """Random inputs of the tiny model."""
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(-128, 128, 8).astype(np.int8), rng.integers(-9999, 9999, (2, 4)).astype(np.int16)] for _ in range(count)
    ]


LOOP_KERNEL = """\
void tiny_spin(void);
void tiny_spin(void) {
  uint32_t n = SPIN;
  __asm__ volatile(".syntax unified\\n1: subs %0, %0, #1\\n bne 1b" : "+l"(n) : : "cc");
}
"""


def spin(iterations: int) -> Artifact:
    """The tiny model with a loop of exactly 2 * iterations instructions at its end (boards only)."""
    kernel = LOOP_KERNEL.replace("SPIN", f"0x{iterations:08x}u")
    return tiny(extra="tiny_spin();", extra_kernel=kernel, kernel_prototypes="void tiny_spin(void);")
