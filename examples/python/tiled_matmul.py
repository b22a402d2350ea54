"""A matrix product of int8 values: its meaning in three lines, then three schedules, from plain loops to SMLAD.

    python examples/python/tiled_matmul.py

builds each for Cortex-M4, runs it on this machine, and prints the C of the last one.
"""

from __future__ import annotations

import numpy as np

import aot
from aot import te
from aot.topi.arm_dsp.matmul import dot_row_pairs, pack_row_pair

M, N, K = 16, 16, 64


def product() -> tuple[te.Tensor, te.Tensor, te.Tensor, te.IterVar]:
    """C[i, j] = sum of A[i, k] * B[j, k]."""
    A = te.placeholder((M, K), "int8", name="A")
    B = te.placeholder((N, K), "int8", name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k].astype("int32") * B[j, k].astype("int32"), axis=k), name="C")
    return A, B, C, k


def plain() -> tuple[te.Schedule, list[te.Tensor]]:
    """The default schedule: three loops."""
    A, B, C, _ = product()
    return te.create_schedule(C.op), [A, B, C]


def tiled() -> tuple[te.Schedule, list[te.Tensor]]:
    """Two by four results at a time, in registers, over four values of k a round."""
    A, B, C, k = product()
    s = te.create_schedule(C.op)
    CL = s.cache_write(C, "local")
    _, jo, ii, ji = s[C].tile(*C.op.axis, 2, 4)
    s[CL].compute_at(s[C], jo)
    ko, ki = s[CL].split(k, 4)
    i, j = s[CL].op.axis
    s[CL].reorder(ko, ki, i, j)
    for axis in (ki, i, j):
        s[CL].unroll(axis)
    s[C].unroll(ii)
    s[C].vectorize(ji)
    return s, [A, B, C]


def tensorized() -> tuple[te.Schedule, list[te.Tensor]]:
    """Both operands unpacked to 16 bits, two rows in one stream, and the inner loops as SMLAD.

    The order of the values within a row differs from A's, and is the same in both operands, so the sums are the same.
    """
    A = te.placeholder((M, K), "int8", name="A")
    B = te.placeholder((N, K), "int8", name="B")

    def unpacked(x: te.Tensor, name: str) -> te.Tensor:
        shape = (x.shape[0] // 2, K // 4, 2, 2, 2)
        return te.compute(shape, lambda p, q, r, a, b: x[2 * p + r, 4 * q + 2 * b + a].astype("int16"), name=name)

    A16, B16 = unpacked(A, "A16"), unpacked(B, "B16")
    q, a, b = te.reduce_axis((0, K // 4), "q"), te.reduce_axis((0, 2), "a"), te.reduce_axis((0, 2), "b")

    def element(x: te.Tensor, row):  # type: ignore[no-untyped-def]
        return x[row // 2, q, row % 2, a, b].astype("int32")

    C = te.compute((M, N), lambda i, j: te.sum(element(A16, i) * element(B16, j), axis=[q, a, b]), name="C")
    s = te.create_schedule(C.op)
    CL = s.cache_write(C, "local")
    io, jo, ii, ji = s[C].tile(*C.op.axis, 2, 2)
    s[CL].compute_at(s[C], jo)
    i, j = s[CL].op.axis
    s[CL].reorder(q, a, b, i, j)
    for axis in (i, j):
        s[CL].unroll(axis)
    s[CL].tensorize(q, dot_row_pairs(K))
    for axis in (ii, ji):
        s[C].unroll(axis)
    s[A16].compute_at(s[C], io)
    for stage in (s[A16], s[B16]):
        stage.tensorize(stage.op.axis[1], pack_row_pair(K))
    return s, [A, B, C]


def main() -> None:
    """Build, run and compare."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-128, 128, (n, K), dtype=np.int8) for n in (M, N))
    for schedule in (plain, tiled, tensorized):
        s, args = schedule()
        module = aot.build(s, args, target="c -mcpu=cortex-m4", name="mmult")
        result = np.zeros((M, N), np.int32)
        module["mmult"](x, y, result)
        print(f"{schedule.__name__}: {'right' if (result == x.astype(int) @ y.astype(int).T).all() else 'WRONG'}")
    print(module.get_source())


if __name__ == "__main__":
    main()
