"""Operators written as tensor expressions, each with its meaning in numpy and a few schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot import te
from aot.support.dtype import int_range, numpy_dtype

Array = np.ndarray[Any, Any]
Schedules = dict[str, Callable[[], te.Schedule]]


@dataclass(frozen=True, slots=True)
class Computation:
    """`args`: inputs, then outputs; `meaning` computes the outputs; `schedules` arrange the loops in different ways."""

    name: str
    args: tuple[te.Tensor, ...]
    outputs: int
    meaning: Callable[..., Sequence[Array]]
    schedules: Schedules
    tables: dict[str, Array]

    @property
    def inputs(self) -> tuple[te.Tensor, ...]:
        return self.args[: -self.outputs]

    def data(self, seed: int) -> list[Array]:
        """Random inputs; tables as they are."""
        rng = np.random.default_rng(seed)
        arrays: list[Array] = []
        for t in self.inputs:
            low, high = int_range(t.dtype)
            drawn = rng.integers(low, high, t.shape, endpoint=True).astype(numpy_dtype(t.dtype))
            arrays.append(self.tables.get(t.name, drawn))
        return arrays

    def default(self) -> te.Schedule:
        return te.create_schedule([t.op for t in self.args[-self.outputs :]])


def wide(x: Any) -> Any:
    return x.astype("int32")


def matmul(m: int = 8, n: int = 6, k: int = 12) -> Computation:
    a, b = te.placeholder((m, k), "int8", "A"), te.placeholder((n, k), "int8", "B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(wide(a[i, r]) * wide(b[j, r]), axis=r), "C")

    def tiled() -> te.Schedule:
        s = te.create_schedule(c.op)
        cl = s.cache_write(c, "local")
        _, jo, ii, ji = s[c].tile(*c.op.axis, 4, 2)
        s[cl].compute_at(s[c], jo)
        ko, ki = s[cl].split(r, 4)
        s[cl].reorder(ko, ki, *s[cl].op.axis)
        for axis in s[cl].op.axis:
            s[cl].unroll(axis)
        s[c].unroll(ii)
        s[c].vectorize(ji)
        return s

    def partial_sums() -> te.Schedule:
        s = te.create_schedule(c.op)
        _, ki = s[c].split(r, 3)
        cf = s.rfactor(c, ki, 2)
        s[cf].compute_at(s[c], s[c].op.axis[1])
        s[cf].pragma(s[cf].op.axis[0], "auto_unroll_max_step", 12)
        return s

    def cached() -> te.Schedule:
        s = te.create_schedule(c.op)
        al = s.cache_read(a, "global", [c])
        io, ii = s[c].split(c.op.axis[0], 3)  # does not divide 8
        s[c].reorder(io, c.op.axis[1], r, ii)
        s[al].compute_at(s[c], io)
        s[al].fuse(*s[al].op.axis)
        return s

    def reference(x: Array, y: Array) -> list[Array]:
        return [x.astype(np.int32) @ y.astype(np.int32).T]

    schedules = {"tiled": tiled, "partial_sums": partial_sums, "cached": cached}
    return Computation("matmul", (a, b, c), 1, reference, schedules, {})


def padded(x: te.Tensor, name: str = "P") -> te.Tensor:
    """One pixel of zeros around [h, w, c]."""
    h, w, c = x.shape
    zero = te.const(0, x.dtype)

    def rule(i: Any, j: Any, k: Any) -> Any:
        inside = te.all(i >= 1, i < h + 1, j >= 1, j < w + 1)
        return te.if_then_else(inside, x[i - 1, j - 1, k], zero)

    return te.compute((h + 2, w + 2, c), rule, name)


def conv2d(h: int = 6, w: int = 5, c: int = 3, o: int = 4) -> Computation:
    x, f = te.placeholder((h, w, c), "int8", "X"), te.placeholder((o, 3, 3, c), "int8", "F")
    p = padded(x)
    ry, rx, rc = te.reduce_axis((0, 3), "ry"), te.reduce_axis((0, 3), "rx"), te.reduce_axis((0, c), "rc")
    y = te.compute(
        (h, w, o), lambda i, j, k: te.sum(wide(p[i + ry, j + rx, rc]) * wide(f[k, ry, rx, rc]), axis=[ry, rx, rc]), "Y"
    )

    def rows() -> te.Schedule:
        s = te.create_schedule(y.op)
        s[p].compute_at(s[y], y.op.axis[0])
        _, ji = s[y].split(y.op.axis[1], 2)
        s[y].unroll(ji)
        return s

    def blocked() -> te.Schedule:
        s = te.create_schedule(y.op)
        yl = s.cache_write(y, "local")
        _, ki = s[y].split(y.op.axis[2], 4)
        s[yl].compute_at(s[y], y.op.axis[1])
        s[p].compute_inline()
        a, b, k = s[yl].op.axis
        s[yl].reorder(a, b, ry, rx, rc, k)
        s[yl].unroll(k)
        s[y].vectorize(ki)
        return s

    def reference(data: Array, weights: Array) -> list[Array]:
        big = np.pad(data.astype(np.int32), ((1, 1), (1, 1), (0, 0)))
        out = np.zeros((h, w, o), np.int32)
        for dy in range(3):
            for dx in range(3):
                out += big[dy : dy + h, dx : dx + w] @ weights[:, dy, dx].astype(np.int32).T
        return [out]

    return Computation("conv2d", (x, f, y), 1, reference, {"rows": rows, "blocked": blocked}, {})


def depthwise(h: int = 6, w: int = 6, c: int = 4) -> Computation:
    x, f = te.placeholder((h, w, c), "int8", "X"), te.placeholder((3, 3, c), "int8", "F")
    p = padded(x)
    ry, rx = te.reduce_axis((0, 3), "ry"), te.reduce_axis((0, 3), "rx")
    y = te.compute((h, w, c), lambda i, j, k: te.sum(wide(p[i + ry, j + rx, k]) * wide(f[ry, rx, k]), axis=[ry, rx]), "Y")

    def tiles() -> te.Schedule:
        s = te.create_schedule(y.op)
        _, jo, _, ji = s[y].tile(y.op.axis[0], y.op.axis[1], 2, 4)  # 4 does not divide 6
        s[p].compute_at(s[y], jo)
        s[y].unroll(ji)
        return s

    def channels_first() -> te.Schedule:
        s = te.create_schedule(y.op)
        yl = s.cache_write(y, "local")
        s[y].reorder(y.op.axis[2], y.op.axis[0], y.op.axis[1])
        s[yl].compute_at(s[y], y.op.axis[1])
        s[yl].pragma(ry, "auto_unroll_max_step", 9)
        fl = s.cache_read(f, "local", [yl])
        s[fl].compute_at(s[y], y.op.axis[2])
        for axis in s[fl].op.axis:
            s[fl].unroll(axis)
        return s

    def reference(data: Array, weights: Array) -> list[Array]:
        big = np.pad(data.astype(np.int32), ((1, 1), (1, 1), (0, 0)))
        out = np.zeros((h, w, c), np.int32)
        for dy in range(3):
            for dx in range(3):
                out += big[dy : dy + h, dx : dx + w] * weights[dy, dx].astype(np.int32)
        return [out]

    return Computation("depthwise", (x, f, y), 1, reference, {"tiles": tiles, "channels_first": channels_first}, {})


def softmax(rows: int = 3, n: int = 10) -> Computation:
    """Of int8 values: exp from a table of 256, results in 1/255."""
    x, t = te.placeholder((rows, n), "int8", "X"), te.placeholder((256,), "int32", "T")
    r1, r2 = te.reduce_axis((0, n), "r1"), te.reduce_axis((0, n), "r2")
    m = te.compute((rows,), lambda i: te.max(wide(x[i, r1]), axis=r1), "M")
    e = te.compute((rows, n), lambda i, j: t[te.clip(m[i] - wide(x[i, j]), 0, 255)], "E")
    z = te.compute((rows,), lambda i: te.sum(te.clip(e[i, r2], 0, 65535), axis=r2), "Z")
    y = te.compute((rows, n), lambda i, j: (e[i, j] * 255 / te.maximum_of(z[i], 1)).astype("uint8"), "Y")

    def by_row() -> te.Schedule:
        s = te.create_schedule(y.op)
        for stage in (m, e, z):
            s[stage].compute_at(s[y], y.op.axis[0])
        s[m].set_scope("local")
        s[z].set_scope("local")
        return s

    def inlined() -> te.Schedule:
        s = te.create_schedule(y.op)
        s[e].compute_inline()
        _, ri = s[z].split(r2, 5)
        s[z].unroll(ri)
        _, ji = s[y].split(y.op.axis[1], 4)  # 4 does not divide 10
        s[y].vectorize(ji)
        return s

    def reference(data: Array, table: Array) -> list[Array]:
        top = data.astype(np.int32).max(axis=1, keepdims=True)
        exp = table[top - data.astype(np.int32)]
        return [(exp * 255 // np.maximum(exp.sum(axis=1, keepdims=True), 1)).astype(np.uint8)]

    table = np.round(65535 * np.exp(-np.arange(256) / 16)).astype(np.int32)
    return Computation("softmax", (x, t, y), 1, reference, {"by_row": by_row, "inlined": inlined}, {"T": table})


def top_k(n: int = 9, count: int = 4) -> Computation:
    """The largest values and their places, the first of equal ones first: each value's rank is how many come before it."""
    x = te.placeholder((n,), "int8", "X")
    r, r1, r2 = te.reduce_axis((0, n), "r"), te.reduce_axis((0, n), "r1"), te.reduce_axis((0, n), "r2")

    def comes_before(i: Any, other: Any) -> Any:
        return te.any(x[other] > x[i], te.all(x[other].equal(x[i]), other < i))

    rank = te.compute((n,), lambda i: te.sum(te.if_then_else(comes_before(i, r), 1, 0), axis=r), "R")
    lowest = te.min_value("int8")
    values = te.compute((count,), lambda k: te.max(te.if_then_else(rank[r1].equal(k), x[r1], lowest), axis=r1), "V")
    places = te.compute((count,), lambda k: te.max(te.if_then_else(rank[r2].equal(k), r2 + 0, 0), axis=r2), "I")

    def unrolled() -> te.Schedule:
        s = te.create_schedule([values.op, places.op])
        s[rank].unroll(r)
        _, inner = s[values].split(r1, nparts=3)
        s[values].unroll(inner)
        s[places].reorder(r2, places.op.axis[0])
        return s

    def local() -> te.Schedule:
        s = te.create_schedule([values.op, places.op])
        s[rank].set_scope("local")
        xl = s.cache_read(x, "local", [rank, values])
        s[xl].unroll(s[xl].op.axis[0])
        s[places].pragma(places.op.axis[0], "opt", "size")
        return s

    def reference(data: Array) -> list[Array]:
        order = np.argsort(-data.astype(np.int32), kind="stable")[:count].astype(np.int32)
        return [data[order], order]

    return Computation("top_k", (x, values, places), 2, reference, {"unrolled": unrolled, "local": local}, {})


ALL = (matmul, conv2d, depthwise, softmax, top_k)
