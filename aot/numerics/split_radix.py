"""Fourier transforms of 2^k complex points in double precision by split radix, with the roundings of Ooura's FFT package.

A block of n points is divided into four.  In a block of kind 1 the first two quarters of the results need no factors, the others
one each; a block of kind 2 follows a rotation by an eighth of the circle that its factors absorb.  The quarters are blocks again:
of kinds 1, 2, 1, 1 for kind 1, and 1, 2, 1, 2 for kind 2.  Blocks of 2 points end the recursion; then the results are put into
bit-reversed order.  How each factor is computed (a cosine, the mean of two neighbours over a cosine, a sine for a cosine of the
complement) decides its last bit, so the tables here follow `makewt` and `makect` of that package.  The butterflies are written
once, for numpy arrays and for expressions of kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass

Complex = tuple[Any, Any]
Name = Callable[[Any], Any]
"""Binds a value to a name, so that it is computed once; an array is returned unchanged."""

EIGHTH = math.cos(math.atan(1.0))
"""cos(pi / 4)."""


@dataclass(frozen=True, slots=True)
class Level:
    """All blocks of `size` points of a transform: the start of the blocks of each kind."""

    size: int
    first: tuple[int, ...]
    second: tuple[int, ...]


@lru_cache(maxsize=32)
def levels(n: int) -> tuple[Level, ...]:
    """The blocks of a transform of n points, largest first; none for a single point."""
    sequence, kinds, size = [], [1], n
    while size >= 2:
        starts = [(i * size, kind) for i, kind in enumerate(kinds)]
        sequence.append(Level(size, tuple(s for s, k in starts if k == 1), tuple(s for s, k in starts if k == 2)))
        if size == 2:
            break
        kinds = [k for kind in kinds for k in (1, 2, 1, kind)]
        size //= 4
    return tuple(sequence)


def reversed_bits(n: int) -> list[int]:
    """The position of each result among the results of the blocks."""
    bits = n.bit_length() - 1
    return [int(f"{i:0{bits}b}"[::-1], 2) if bits else 0 for i in range(n)]


def _angles(step: float, k: int) -> tuple[float, float, float, float]:
    """(cos, sin) of k steps, (cos, -sin) of 3 k steps."""
    return math.cos(step * k), math.sin(step * k), math.cos(3 * step * k), -math.sin(3 * step * k)


@lru_cache(maxsize=64)
def first_factors(size: int, *, outermost: bool) -> Array:
    """Factors of quarters 2 and 3 at each place of a block of kind 1, [size / 4, 2, 2]; those of 0 and of the middle are unused.

    In the outermost block of 32 points or more, every other factor is interpolated from its neighbours.
    """
    quarter = size // 4
    middle, table = quarter // 2, np.zeros((quarter, 2, 2))
    if size == 16:
        cosine, sine = math.cos(math.pi / 8), math.sin(math.pi / 8)
        table[1], table[3] = ((cosine, sine), (sine, cosine)), ((sine, cosine), (cosine, sine))
        return table
    for p in range(1, middle):
        c1, s1, c3, s3 = _interpolated(size, p) if outermost and size >= 32 else _angles(math.atan(1.0) / (size // 2), 4 * p)
        table[p], table[quarter - p] = ((c1, s1), (c3, -s3)), ((s1, c1), (s3, -c3))
    return table


def _interpolated(size: int, p: int) -> tuple[float, float, float, float]:
    """Like `_angles` for p places; odd places are the sum of both neighbours, over twice the cosine of the step between."""
    step = math.atan(1.0) / (size // 4)
    if p % 2 == 0:
        return _angles(step, 2 * p)
    scale, scale3 = 0.5 / math.cos(step * 2), 0.5 / math.cos(step * 6)
    before = _angles(step, 2 * (p - 1)) if p > 1 else (1.0, 0.0, 1.0, 0.0)
    after = _angles(step, 2 * (p + 1)) if p + 1 < size // 8 else (EIGHTH, EIGHTH, -EIGHTH, -EIGHTH)
    sums = [x + y for x, y in zip(before, after, strict=True)]
    return scale * sums[0], scale * sums[1], scale3 * sums[2], scale3 * sums[3]


@lru_cache(maxsize=64)
def second_factors(size: int) -> Array:
    """Factors of the four inputs at each place of a block of kind 2, [size / 4, 4, 2]; those of place 0 are unused."""
    quarter = size // 4
    middle, table = quarter // 2, np.zeros((quarter, 4, 2))
    if size == 4:
        return table
    step = math.atan(1.0) / size
    for p in range(1, middle):
        c1, s1, c3, s3 = _angles(step, 4 * p)
        e1, d1, e3, d3 = _angles(step, size - 4 * p)
        table[p] = (c1, s1), (d1, e1), (c3, -s3), (d3, -e3)
        table[quarter - p] = (e1, d1), (s1, c1), (e3, -d3), (s3, -c3)
    c1, s1, *_ = _angles(step, size // 2)
    table[middle] = (c1, s1), (s1, c1), (s1, c1), (c1, s1)
    if size == 16:  # here the sums apply the signs, see `signs_at`
        c1, s1, c3, s3 = _angles(step, 4)
        table[1] = (c1, s1), (-s3, c3), (c3, -s3), (c1, -s1)
        table[3] = (c3, -s3), (s1, c1), (s1, -c1), (-s3, c3)
    return table


KEPT, SWAPPED, NEGATED = "kept", "swapped", "negated"
"""What happens to the last two results: kept, swapped (the product between them is the negative), or negated."""


def signs_at(size: int, place: int, *, kind: int) -> str:
    """How the reference signs the last results at a place: zeros and equal products show the difference."""
    if size == 16 and place == 3:
        return NEGATED
    return SWAPPED if kind == 2 and (place == size // 8 or (size == 16 and place > 0)) else KEPT


def multiply(name: Name, x: Complex, w: Complex) -> Complex:
    return name(w[0] * x[0] - w[1] * x[1]), name(w[0] * x[1] + w[1] * x[0])


def rotate(name: Name, x: Complex, eighth: Any) -> Complex:
    """x times e^(i pi / 4), with one product per part."""
    return name(eighth * (x[0] - x[1])), name(eighth * (x[1] + x[0]))


def negative(name: Name, x: Complex) -> Complex:
    return name(x[0] * -1.0), name(x[1] * -1.0)


def plus(name: Name, x: Complex, y: Complex) -> Complex:
    return name(x[0] + y[0]), name(x[1] + y[1])


def minus(name: Name, x: Complex, y: Complex) -> Complex:
    return name(x[0] - y[0]), name(x[1] - y[1])


def plus_i(name: Name, x: Complex, y: Complex) -> Complex:
    """x + i y."""
    return name(x[0] - y[1]), name(x[1] + y[0])


def minus_i(name: Name, x: Complex, y: Complex) -> Complex:
    """x - i y."""
    return name(x[0] + y[1]), name(x[1] - y[0])


START, MIDDLE, OTHER = "start", "middle", "other"
"""Position of a butterfly in a quarter: factors 1, factors of an eighth of the circle, factors from a table."""


def first_butterfly(name: Name, a: Sequence[Complex], w: Sequence[Complex], where: str, signs: str) -> list[Complex]:
    """Four points of a block of kind 1."""
    even, odd = plus(name, a[0], a[2]), plus(name, a[1], a[3])
    across, along = minus(name, a[0], a[2]), minus(name, a[1], a[3])
    u, v = plus_i(name, across, along), minus_i(name, across, along)
    if where == MIDDLE:
        u, v = rotate(name, u, EIGHTH), (name((v[0] + v[1]) * -EIGHTH), name((v[1] - v[0]) * -EIGHTH))
    elif where == OTHER:
        u, v = multiply(name, u, w[0]), multiply(name, v, w[1])
    if signs == NEGATED:
        v = negative(name, v)
    return [plus(name, even, odd), minus(name, even, odd), u, v]


def second_butterfly(name: Name, a: Sequence[Complex], w: Sequence[Complex], where: str, signs: str) -> list[Complex]:
    """Four points of a block of kind 2."""
    x0, x1 = plus_i(name, a[0], a[2]), minus_i(name, a[0], a[2])
    x2, x3 = plus_i(name, a[1], a[3]), minus_i(name, a[1], a[3])
    if where == START:
        y, z = rotate(name, x2, EIGHTH), rotate(name, x3, EIGHTH)
        return [plus(name, x0, y), minus(name, x0, y), plus_i(name, x1, z), minus_i(name, x1, z)]
    y0, y2 = multiply(name, x0, w[0]), multiply(name, x2, w[1])
    y1, y3 = multiply(name, x1, w[2]), multiply(name, x3, w[3])
    last = [plus(name, y1, y3), minus(name, y1, y3)]
    if signs == SWAPPED:
        last.reverse()
    elif signs == NEGATED:
        last = [negative(name, y) for y in last]
    return [plus(name, y0, y2), minus(name, y0, y2), *last]


def pair(name: Name, a: Sequence[Complex], *, kind: int) -> list[Complex]:
    """A block of two points."""
    if kind == 1:
        return [plus(name, a[0], a[1]), minus(name, a[0], a[1])]
    return [plus_i(name, a[0], a[1]), minus_i(name, a[0], a[1])]


# --- real rows


@lru_cache(maxsize=32)
def real_factors(n: int) -> Array:
    """(real, imaginary) of the factors that combine points j and n / 2 - j of the transform of pairs, j < n / 4."""
    quarter, half = n // 4, n // 8
    step = math.atan(1.0) / half
    c = [0.0] * (quarter + 1)
    c[half] = 0.5 * math.cos(step * half)
    for j in range(1, half):
        c[j], c[quarter - j] = 0.5 * math.cos(step * j), 0.5 * math.sin(step * j)
    return np.array([(0.0, 0.0), *((0.5 - c[quarter - j], c[j]) for j in range(1, quarter))])


def join(name: Name, near: Complex, far: Complex, w: Complex) -> tuple[Complex, Complex]:
    """Points j and n / 2 - j of the spectrum of a real row."""
    x = name(near[0] - far[0]), name(near[1] + far[1])
    y = multiply(name, x, w)
    return (name(near[0] - y[0]), name(near[1] - y[1])), (name(far[0] + y[0]), name(far[1] - y[1]))


# --- numpy


def _keep(x: Any) -> Any:
    return x


def transform(x: Array) -> Array:
    """The transform of each row of [rows, n, 2] doubles."""
    n = x.shape[1]
    result = x.copy()
    for level in levels(n):
        for kind, starts in ((1, level.first), (2, level.second)):
            if starts:
                _blocks(result, level.size, np.array(starts), kind=kind, outermost=level.size == n)
    return result[:, reversed_bits(n)]


def _blocks(x: Array, size: int, starts: Array, *, kind: int, outermost: bool) -> None:
    if size == 2:
        results = pair(_keep, [(x[:, starts + i, 0], x[:, starts + i, 1]) for i in range(2)], kind=kind)
        for i, value in enumerate(results):
            x[:, starts + i, 0], x[:, starts + i, 1] = value
        return
    quarter = size // 4
    table = first_factors(size, outermost=outermost) if kind == 1 else second_factors(size)
    for p in range(quarter):
        places = [starts + p + quarter * q for q in range(4)]
        where = START if p == 0 else MIDDLE if kind == 1 and p == quarter // 2 else OTHER
        butterfly = first_butterfly if kind == 1 else second_butterfly
        w = [(float(r), float(i)) for r, i in table[p]]
        points = [(x[:, at, 0], x[:, at, 1]) for at in places]
        results = butterfly(_keep, points, w, where, signs_at(size, p, kind=kind))
        for at, value in zip(places, results, strict=True):
            x[:, at, 0], x[:, at, 1] = value


def real_transform(x: Array) -> Array:
    """Rows of n real samples [rows, n] to their spectra; the first bin's imaginary part holds the last bin's real part."""
    n = x.shape[1]
    if n < 2:
        return x.copy()
    points = transform(x.reshape(len(x), n // 2, 2))
    for j, w in enumerate(real_factors(n)[1:], 1) if n > 4 else ():
        near, far = ((points[:, k, 0], points[:, k, 1]) for k in (j, n // 2 - j))
        first, last = join(_keep, near, far, (float(w[0]), float(w[1])))
        points[:, j, 0], points[:, j, 1] = first
        points[:, n // 2 - j, 0], points[:, n // 2 - j, 1] = last
    ends = points[:, 0, 0] + points[:, 0, 1], points[:, 0, 0] - points[:, 0, 1]
    points[:, 0, 0], points[:, 0, 1] = ends
    return points.reshape(len(x), n)


def spectrum(x: Array) -> Array:
    """The forward transform of real images [images, height, width] of doubles: [images, height, width / 2 + 1, 2]."""
    count, height, width = x.shape
    rows = real_transform(x.reshape(-1, width)).reshape(count, height, width // 2, 2)
    rows = np.moveaxis(
        transform(np.moveaxis(rows, 2, 1).reshape(-1, height, 2)).reshape(count, width // 2, height, 2), 1, 2
    ).copy()
    out = np.zeros((count, height, width // 2 + 1, 2))
    out[:, :, : width // 2] = rows
    half = height // 2
    for i in range(1, half):
        j = height - i
        out[:, j, 0, 0] = 0.5 * (out[:, i, 0, 0] - out[:, j, 0, 0])
        out[:, i, 0, 0] -= out[:, j, 0, 0]
        out[:, j, 0, 1] = 0.5 * (out[:, i, 0, 1] + out[:, j, 0, 1])
        out[:, i, 0, 1] -= out[:, j, 0, 1]
    _unfold(out, half)
    out[..., 1] = -out[..., 1]
    return out


def _unfold(out: Array, half: int) -> None:
    """Expand the first and the last column, which share the place of the first one."""
    height = out.shape[1]
    for i in range(half + 1, height):
        real, imaginary = out[:, i, 0, 0].copy(), out[:, i, 0, 1].copy()
        out[:, i, -1, 0], out[:, i, -1, 1] = imaginary, real
        out[:, height - i, -1, 0], out[:, height - i, -1, 1] = imaginary, -real
        out[:, i, 0, 0], out[:, i, 0, 1] = out[:, height - i, 0, 0], -out[:, height - i, 0, 1]
    last = out[:, 0, 0, 1].copy()
    out[:, 0, -1, 1] = out[:, 0, 0, 1] = 0
    out[:, half, -1, 0] = out[:, half, 0, 1]
    out[:, half, -1, 1] = out[:, half, 0, 1] = 0
    out[:, 0, -1, 0] = last
