"""Mixed-radix Fourier transforms of complex signals, with the rounding of KISS FFT 1.3.0 in fixed point and in float32.

A transform of n = p1 * p2 * ... points reorders its input by the digits of the positions, then combines p short transforms into
one, stage by stage, starting with the last factor.  In fixed point every stage divides by its radix before it adds, so that
nothing overflows.  The butterflies are written once, over an `Arithmetic`: numpy's to evaluate, expressions to build kernels.
Source of the method: the mixed-radix decimation in time of KISS FFT's README; twiddles are rounded to nearest from doubles.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass

FRACTION_BITS = {"int16": 15, "int32": 31}
RADICES = (2, 3, 4, 5)
"""Supported radices; other prime factors need heap memory, which TFLM does not have."""

Complex = tuple[Any, Any]


class Arithmetic(Protocol):
    """How two samples are combined; every result is again a sample."""

    def plus(self, a: Any, b: Any) -> Any: ...

    def minus(self, a: Any, b: Any) -> Any: ...

    def negated(self, a: Any) -> Any: ...

    def times(self, a: Any, b: Any) -> Any:
        """One product, rounded."""

    def dot(self, a: Complex, b: Complex, *, minus: bool) -> Any:
        """a[0] * b[0] plus or minus a[1] * b[1], rounded once in fixed point."""

    def divided(self, a: Any, by: int) -> Any:
        """a / by in fixed point; a itself in float."""

    def halved(self, a: Any, b: Any = None, *, minus: bool = False) -> Any:
        """Half of a, or of a plus or minus b; the sum does not wrap before it is halved."""


@dataclass(frozen=True, slots=True)
class Stage:
    """`blocks` butterflies of radix `radix` over parts of `length` points each; twiddle indices go in steps of `blocks`."""

    radix: int
    length: int
    blocks: int


def stages(n: int) -> tuple[Stage, ...]:
    """The stages of a transform of n points, first factor first: fours, then a two, then odd primes."""
    sequence, blocks, remaining, p, root = [], 1, n, 4, math.isqrt(n)
    while True:
        while remaining % p:
            p = {4: 2, 2: 3}.get(p, p + 2)
            if p > root:
                p = remaining
        remaining //= p
        sequence.append(Stage(p, remaining, blocks))
        blocks *= p
        if remaining <= 1:
            return tuple(sequence)


def is_supported(n: int) -> bool:
    """Whether all factors of n are in RADICES, or there is nothing to do."""
    return n >= 1 and all(s.radix in (1, *RADICES) for s in stages(n))


def order(n: int) -> list[int]:
    """The input position of the sample at each place of the first stage."""
    places = np.zeros(n, np.int64)
    for s in stages(n):
        digit = np.arange(n) // s.length % s.radix
        places += digit * s.blocks
    return [int(p) for p in places]


def _scaled(angle: float, dtype: str) -> Complex:
    if dtype == "float32":
        return np.float32(math.cos(angle)), np.float32(math.sin(angle))
    largest = (1 << FRACTION_BITS[dtype]) - 1
    return math.floor(0.5 + largest * math.cos(angle)), math.floor(0.5 + largest * math.sin(angle))


def twiddles(n: int, dtype: str, *, inverse: bool) -> Array:
    """e^(-2 pi i k / n) for k < n (conjugates for the inverse), as [n, 2] of `dtype`."""
    sign = -1 if inverse else 1
    return np.array([_scaled(-2 * math.pi * k / n * sign, dtype) for k in range(n)], dtype).reshape(n, 2)


def half_twiddles(n: int, dtype: str, *, inverse: bool) -> Array:
    """Twiddles that combine the even and the odd samples of a real signal of 2n points: [n // 2, 2]."""
    sign = -1 if inverse else 1
    angles = [-math.pi * ((k + 1) / n + 0.5) * sign for k in range(n // 2)]
    return np.array([_scaled(a, dtype) for a in angles], dtype).reshape(n // 2, 2)


def add(a: Arithmetic, x: Complex, y: Complex) -> Complex:
    return a.plus(x[0], y[0]), a.plus(x[1], y[1])


def subtract(a: Arithmetic, x: Complex, y: Complex) -> Complex:
    return a.minus(x[0], y[0]), a.minus(x[1], y[1])


def multiply(a: Arithmetic, x: Complex, w: Complex) -> Complex:
    return a.dot(x, w, minus=True), a.dot(x, (w[1], w[0]), minus=False)


def divide(a: Arithmetic, x: Complex, by: int) -> Complex:
    return a.divided(x[0], by), a.divided(x[1], by)


def butterfly(a: Arithmetic, x: list[Complex], w: list[Complex], roots: list[Complex], *, inverse: bool) -> list[Complex]:
    """The results of a butterfly of radix `len(x)`: `w[q]` is the twiddle of point q, `roots` the first roots of unity."""
    x = [divide(a, point, len(x)) for point in x]
    x = [x[0], *(multiply(a, point, w[q]) for q, point in enumerate(x[1:], 1))]
    match len(x):
        case 1:
            return x
        case 2:
            return [add(a, x[0], x[1]), subtract(a, x[0], x[1])]
        case 3:
            return _three(a, x, roots[1])
        case 4:
            return _four(a, x, inverse=inverse)
        case _:
            return _five(a, x, roots[1], roots[2])


def _three(a: Arithmetic, x: list[Complex], root: Complex) -> list[Complex]:
    both, apart = add(a, x[1], x[2]), subtract(a, x[1], x[2])
    middle = a.minus(x[0][0], a.halved(both[0])), a.minus(x[0][1], a.halved(both[1]))
    real, imaginary = a.times(apart[0], root[1]), a.times(apart[1], root[1])
    third = a.plus(middle[0], imaginary), a.minus(middle[1], real)
    return [add(a, x[0], both), (a.minus(middle[0], imaginary), a.plus(middle[1], real)), third]


def _four(a: Arithmetic, x: list[Complex], *, inverse: bool) -> list[Complex]:
    apart, even = subtract(a, x[0], x[2]), add(a, x[0], x[2])
    both, odd = add(a, x[1], x[3]), subtract(a, x[1], x[3])
    one = a.plus(apart[0], odd[1]), a.minus(apart[1], odd[0])
    three = a.minus(apart[0], odd[1]), a.plus(apart[1], odd[0])
    first, last = (three, one) if inverse else (one, three)
    return [add(a, even, both), first, subtract(a, even, both), last]


def _five(a: Arithmetic, x: list[Complex], ya: Complex, yb: Complex) -> list[Complex]:
    s7, s10 = add(a, x[1], x[4]), subtract(a, x[1], x[4])
    s8, s9 = add(a, x[2], x[3]), subtract(a, x[2], x[3])

    def real(p: Any, q: Any) -> Complex:
        one, two = (a.plus(a.plus(x[0][i], a.times(s7[i], p)), a.times(s8[i], q)) for i in range(2))
        return one, two

    s5, s11 = real(ya[0], yb[0]), real(yb[0], ya[0])
    s6 = a.plus(a.times(s10[1], ya[1]), a.times(s9[1], yb[1])), a.minus(a.negated(a.times(s10[0], ya[1])), a.times(s9[0], yb[1]))
    s12 = a.minus(a.times(s9[1], ya[1]), a.times(s10[1], yb[1])), a.minus(a.times(s10[0], yb[1]), a.times(s9[0], ya[1]))
    total = a.plus(x[0][0], a.plus(s7[0], s8[0])), a.plus(x[0][1], a.plus(s7[1], s8[1]))
    return [total, subtract(a, s5, s6), add(a, s11, s12), subtract(a, s11, s12), add(a, s5, s6)]


# --- real signals


def split(a: Arithmetic, near: Complex, far: Complex, w: Complex) -> tuple[Complex, Complex]:
    """Bins k and n - k of a real signal of 2n points, from points k and n - k of the transform of its pairs."""
    near, far = divide(a, near, 2), divide(a, (far[0], a.negated(far[1])), 2)
    both, turned = add(a, near, far), multiply(a, subtract(a, near, far), w)
    first = a.halved(both[0], turned[0]), a.halved(both[1], turned[1])
    return first, (a.halved(both[0], turned[0], minus=True), a.halved(turned[1], both[1], minus=True))


def join(a: Arithmetic, near: Complex, far: Complex, w: Complex) -> tuple[Complex, Complex]:
    """The inverse of `split`: points k and n - k of the transform of pairs, from bins k and n - k."""
    near, far = divide(a, near, 2), divide(a, (far[0], a.negated(far[1])), 2)
    both, turned = add(a, near, far), multiply(a, subtract(a, near, far), w)
    last = subtract(a, both, turned)
    return add(a, both, turned), (last[0], a.negated(last[1]))


@dataclass(frozen=True, slots=True)
class _Arrays:
    """Samples as numpy arrays; integers are int64 holding values of `dtype`."""

    dtype: str

    def _wrap(self, x: Array) -> Array:
        return x if self.dtype == "float32" else x.astype(self.dtype).astype(np.int64)

    def plus(self, a: Array, b: Array) -> Array:
        return self._wrap(a + b)

    def minus(self, a: Array, b: Array) -> Array:
        return self._wrap(a - b)

    def negated(self, a: Array) -> Array:
        return self._wrap(-a)

    def _rounded(self, x: Array) -> Array:
        if self.dtype == "float32":
            return x
        bits = FRACTION_BITS[self.dtype]
        return self._wrap((x + (1 << (bits - 1))) >> bits)

    def times(self, a: Array, b: Array) -> Array:
        return self._rounded(a * b)

    def dot(self, a: Complex, b: Complex, *, minus: bool) -> Array:
        return self._rounded(a[0] * b[0] - a[1] * b[1] if minus else a[0] * b[0] + a[1] * b[1])

    def divided(self, a: Array, by: int) -> Array:
        if self.dtype == "float32":
            return a
        return self._rounded(a * (((1 << FRACTION_BITS[self.dtype]) - 1) // by))

    def halved(self, a: Array, b: Array | None = None, *, minus: bool = False) -> Array:
        if b is not None:
            a = a - b if minus else a + b
            a = self._wrap(a) if self.dtype == "int32" else a
        return a * np.float32(0.5) if self.dtype == "float32" else self._wrap(a >> 1)


def _samples(x: Array, dtype: str) -> Array:
    return x if dtype == "float32" else x.astype(np.int64)


def transform(x: Array, dtype: str, *, inverse: bool) -> Array:
    """The transform of each row of x, [rows, n, 2]."""
    n, a = x.shape[1], _Arrays(dtype)
    table = _samples(twiddles(n, dtype, inverse=inverse), dtype)
    samples = _samples(x[:, order(n)], dtype)
    for s in reversed(stages(n)):
        view = samples.reshape(-1, s.blocks, s.radix, s.length, 2)
        points = [(view[:, :, q, :, 0], view[:, :, q, :, 1]) for q in range(s.radix)]
        steps = np.arange(s.length) * s.blocks
        w = [(table[q * steps, 0], table[q * steps, 1]) for q in range(s.radix)]
        roots = [(table[s.blocks * s.length * q % n, 0], table[s.blocks * s.length * q % n, 1]) for q in range(s.radix)]
        joined = butterfly(a, points, w, roots, inverse=inverse)
        samples = np.stack([np.stack(c, axis=-1) for c in joined], axis=2).reshape(-1, n, 2)
    return samples


def real_transform(x: Array, dtype: str) -> Array:
    """The n / 2 + 1 bins of each row of x, [rows, n], as [rows, n / 2 + 1, 2] of `dtype`."""
    n, a = x.shape[1] // 2, _Arrays(dtype)
    points = transform(x.reshape(-1, n, 2), dtype, inverse=False)
    table = _samples(half_twiddles(n, dtype, inverse=False), dtype)
    out = np.zeros((len(points), n + 1, 2), points.dtype)
    even, odd = divide(a, (points[:, 0, 0], points[:, 0, 1]), 2)
    out[:, 0, 0], out[:, n, 0] = a.plus(even, odd), a.minus(even, odd)
    for k in range(1, n // 2 + 1):
        near, far = (points[:, k, 0], points[:, k, 1]), (points[:, n - k, 0], points[:, n - k, 1])
        first, last = split(a, near, far, (table[k - 1, 0], table[k - 1, 1]))
        out[:, k, 0], out[:, k, 1] = first
        out[:, n - k, 0], out[:, n - k, 1] = last
    return out.astype(dtype)


def inverse_real_transform(x: Array, dtype: str) -> Array:
    """The n samples of each row of n / 2 + 1 bins [rows, bins, 2], as [rows, n] of `dtype`; n times too large in float."""
    n, a, x = x.shape[1] - 1, _Arrays(dtype), _samples(x, dtype)
    table = _samples(half_twiddles(n, dtype, inverse=True), dtype)
    points = np.zeros((len(x), n, 2), x.dtype)
    ends = a.plus(x[:, 0, 0], x[:, n, 0]), a.minus(x[:, 0, 0], x[:, n, 0])
    points[:, 0, 0], points[:, 0, 1] = divide(a, ends, 2)
    for k in range(1, n // 2 + 1):
        near, far = (x[:, k, 0], x[:, k, 1]), (x[:, n - k, 0], x[:, n - k, 1])
        first, last = join(a, near, far, (table[k - 1, 0], table[k - 1, 1]))
        points[:, k, 0], points[:, k, 1] = first
        points[:, n - k, 0], points[:, n - k, 1] = last
    return transform(points, dtype, inverse=True).reshape(len(x), 2 * n).astype(dtype)
