"""Sums of float32 products in the order of the reference's vector code: four partial sums, then what is left over.

  sum = ((s0 + s1) + s2) + s3,  s_l = x[l] y[l] + x[l + 4] y[l + 4] + ...;  the last size % 4 products follow one by one.

Products are rounded before they are added.  Source: `neon_tensor_utils.cc`, which x86 also runs, by way of SSE.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aot.ir.op import Array
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm

LANES = 4


def np_lane_sum(terms: Array, start: Array | np.float32 | None = None) -> Array:
    """The sum of float32 `terms` along the last axis; `start` is what the sum of the lanes is added to."""
    whole = terms.shape[-1] - terms.shape[-1] % LANES
    lanes = np.zeros((*terms.shape[:-1], LANES), np.float32)
    with np.errstate(all="ignore"):
        for k in range(0, whole, LANES):
            lanes = lanes + terms[..., k : k + LANES]
        total = ((lanes[..., 0] + lanes[..., 1]) + lanes[..., 2]) + lanes[..., 3]
        total = total if start is None else start + total
        for k in range(whole, terms.shape[-1]):
            total = total + terms[..., k]
    return np.asarray(total, np.float32)


def tir_lane_sum(b: IRBuilder, size: int, term: Callable[[Expr], Expr], start: Expr | None = None) -> Expr:
    """The same as statements: the sum of `term(k)` for k < size."""
    whole = size - size % LANES
    total = b.local("total", (1,), "float32", init=0.0)
    if whole:
        lanes = b.local("lane", (LANES,), "float32", init=0.0)
        with b.for_("k", whole, step=LANES) as k:
            for lane in range(LANES):
                b.store(lanes, lane, lanes[lane] + term(k + lane))
        b.store(total, 0, ((lanes[0] + lanes[1]) + lanes[2]) + lanes[3])
    if start is not None:
        b.store(total, 0, start + total[0])
    if size > whole:
        with b.for_("k", size, start=whole) as k:
            b.store(total, 0, total[0] + term(k))
    return total[0]


# ---- Eigen's order of a matrix times a vector

_QUAD = 4
"""Vectors that a matrix of one row is added up in."""


def _quads(size: int, *, single: bool) -> int:
    """How many vectors of partial sums there are."""
    return min(_QUAD, size // LANES) if single else min(1, size // LANES)


def np_eigen_sum(terms: Array, *, single: bool) -> Array:
    """The sum along the last axis as Eigen's product of a matrix and a vector has it: (s0 + s2) + (s1 + s3), then what is left.

    `single`: the matrix has one row, which is added up in up to four such vectors.
    """
    size = terms.shape[-1]
    whole, count = size - size % LANES, _quads(size, single=single)
    with np.errstate(all="ignore"):
        vectors = [np.zeros((*terms.shape[:-1], LANES), np.float32) for _ in range(max(count, 1))]
        for k in range(0, whole, LANES):
            place = k // LANES % count
            vectors[place] = vectors[place] + terms[..., k : k + LANES]
        for place in range(count - 1, 0, -1):
            vectors[place - 1] = vectors[place - 1] + vectors[place]
        s = vectors[0]
        total = (s[..., 0] + s[..., 2]) + (s[..., 1] + s[..., 3])
        for k in range(whole, size):
            total = total + terms[..., k]
    return np.asarray(total, np.float32)


def tir_eigen_sum(b: IRBuilder, size: int, term: Callable[[Expr], Expr], *, single: bool) -> Expr:
    """The same as statements."""
    whole, count = size - size % LANES, _quads(size, single=single)
    total = b.local("total", (1,), "float32", init=0.0)
    if count:
        lanes = b.local("lane", (count * LANES,), "float32", init=0.0)
        step = count * LANES
        even = whole - whole % step
        with b.for_("k", even, step=step) as k:
            for lane in range(step):
                b.store(lanes, lane, lanes[lane] + term(k + lane))
        for rest in range(whole - even):
            b.store(lanes, rest, lanes[rest] + term(imm(even + rest)))
        for lane in range((count - 1) * LANES - 1, -1, -1):
            b.store(lanes, lane, lanes[lane] + lanes[lane + LANES])
        b.store(total, 0, (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]))
    if size > whole:
        with b.for_("k", size, start=whole) as k:
            b.store(total, 0, total[0] + term(k))
    return total[0]
