"""Kernels of signal operators: TFLM's audio front end, Fourier transforms, spectrograms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from typing import Any

import numpy as np

from aot.ir.op import Array
from aot.numerics import kissfft, split_radix
from aot.numerics.elementary import LOG1P_DOUBLE, LOG_DOUBLE, MATH, SQRT_DOUBLE
from aot.numerics.kissfft import FRACTION_BITS, Complex, Stage
from aot.numerics.split_radix import KEPT, MIDDLE, OTHER, START
from aot.op.signal import FLOOR, LN_2, MEL, ONE, OUTPUT_BITS, SNR_BITS, STEP, cosines, hann, log_table, mel_bank, mel_edges
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, IntoExpr, binop, cast, clamp, equal, imm, logical_and, maximum, minimum, select
from aot.topi.generic.flat import FlatKernel, accepts_alone, fill, register_flat, summed
from aot.topi.strategy import Group


def bit_length(b: IRBuilder, x: Expr) -> Expr:
    """Number of significant bits of a uint32 expression, 0 to 32, as int32."""
    remaining, length = b.local("rest", (1,), "uint32", init=x), b.local("length", (1,), "int32", init=0)
    for step in (16, 8, 4, 2, 1):
        with b.if_(binop("!=", remaining[0] >> step, 0)):
            b.store(remaining, 0, remaining[0] >> step)
            b.store(length, 0, length[0] + step)
    return b.let("bits", length[0] + cast("int32", remaining[0]))


# Kernels of TFLM's audio front end, one channel after another: scale_bits, filter_bank, square_root, pcan, log.


@register_flat("signal.scale_bits")
def lower_scale_bits(kernel: FlatKernel) -> None:
    """The left shift that scales the data to 16 bits: 15 minus the bit length of the largest magnitude."""
    b, (data,), out = kernel.b, kernel.args, kernel.out
    largest = b.local("largest", (1,), "int16", init=0)
    with b.for_("i", data.size) as i:
        value = b.let("value", cast("int32", data[i]))
        magnitude = b.let("magnitude", select(value > cast("int32", largest[0]), value, imm(0) - value))
        with b.if_(magnitude > cast("int32", largest[0])):
            b.store(largest, 0, magnitude)
    b.store(out, 0, 0)
    with b.if_(largest[0] > 0):
        b.store(out, 0, imm(15) - bit_length(b, cast("uint32", largest[0])))


def _table(kernel: FlatKernel, name: str, values: Sequence[int], dtype: str = "uint16") -> Buffer:
    return kernel.table(name, np.array(values, dtype))


@register_flat("signal.filter_bank")
def lower_filter_bank(kernel: FlatKernel) -> None:
    """Compute both sums of a channel in one pass over its bins; the sum of the complementary weights is kept for the next
    channel.
    """
    b, (data, weights, unweights), out = kernel.b, kernel.args, kernel.out
    attrs = kernel.attrs
    bins = _table(kernel, "bins", attrs.frequency_starts)
    places = _table(kernel, "places", attrs.weight_starts)
    widths = _table(kernel, "widths", attrs.widths)
    own, other = b.local("own", (1,), "uint64", init=0), b.local("other", (1,), "uint64", init=0)
    with b.for_("c", out.size + 1) as c:
        bin_, place = b.let("bin", cast("int32", bins[c])), b.let("place", cast("int32", places[c]))
        with b.for_("j", b.let("width", cast("int32", widths[c]))) as j:
            # the ranges were checked at compile time, so no access is out of bounds
            x = b.let("x", cast("uint64", data[minimum(bin_ + j, data.size - 1)]))
            at = b.let("at", minimum(place + j, weights.size - 1))
            b.store(own, 0, own[0] + cast("uint64", cast("int64", weights[at])) * x)
            b.store(other, 0, other[0] + cast("uint64", cast("int64", unweights[at])) * x)
        with b.if_(c > 0):
            b.store(out, c - 1, own[0])
        b.store(own, 0, other[0])
        b.store(other, 0, 0)


def _root(b: IRBuilder, x: Expr, dtype: str, result: Buffer) -> None:
    """The nearest square root of x of `dtype`, one bit per step, as `result`; the largest root of half the width is not rounded
    up.
    """
    half = {"uint32": 16, "uint64": 32}[dtype]
    remaining, root, bit = (b.local(n, (1,), dtype) for n in ("rest", "root", "bit"))
    b.store(remaining, 0, x)
    b.store(root, 0, 0)
    b.store(bit, 0, imm(1 << (2 * half - 2), dtype))
    with b.for_("step", half):
        trial = b.let("trial", root[0] + bit[0])
        with b.if_(remaining[0] >= trial):
            b.store(remaining, 0, remaining[0] - trial)
            b.store(root, 0, (root[0] >> 1) + bit[0])
        with b.else_():
            b.store(root, 0, root[0] >> 1)
        b.store(bit, 0, bit[0] >> 2)
    with b.if_(logical_and(remaining[0] > root[0], binop("!=", root[0], (1 << half) - 1))):
        b.store(root, 0, root[0] + 1)
    b.store(result, 0, root[0])


@register_flat("signal.square_root")
def lower_square_root(kernel: FlatKernel) -> None:
    """Compute in 32 bits if the number fits."""
    b, (data, shift), out = kernel.b, kernel.args, kernel.out
    amount = b.let("amount", cast("uint32", shift[0]) & 31)
    with b.for_("c", out.size) as c:
        x = b.let("x", data[c])
        root = b.local("found", (1,), "uint32")
        with b.if_(binop("==", x >> 32, 0)):
            _root(b, cast("uint32", x), "uint32", root)
        with b.else_():
            _root(b, x, "uint64", root)
        b.store(out, c, root[0] >> amount)


def _gain(b: IRBuilder, x: Expr, table: Buffer) -> Expr:
    """The gain at noise x (uint32); see `aot.op.signal.pcan.gain_of`."""
    gain = b.local("gain", (1,), "int16")
    with b.if_(x <= 2):
        b.store(gain, 0, table[cast("int32", minimum(x, 2))])
    with b.else_():
        interval = bit_length(b, x)
        at = b.let("entry", minimum(interval * 4 - 6, table.size - 3))
        up, down = minimum(interval, 11), select(interval < 11, imm(11), interval)
        shifted = (x << cast("uint32", imm(11) - up)) >> cast("uint32", down - 11)
        fraction = b.let("fraction", cast("int32", shifted & 0x3FF))
        slope = (cast("int32", table[at + 2]) * fraction) >> 5
        inner = b.let("inner", slope + cast("int32", table[at + 1]) * 32)
        b.store(gain, 0, ((inner * fraction + (1 << 14)) >> 15) + cast("int32", table[at]))
    return b.let("factor", cast("uint32", cast("int32", gain[0])))


@register_flat("signal.pcan")
def lower_pcan(kernel: FlatKernel) -> None:
    b, (data, noise, table), out = kernel.b, kernel.args, kernel.out
    with b.for_("c", out.size) as c:
        gain = _gain(b, b.let("noise", noise[c]), table)
        product = (cast("uint64", data[c]) * cast("uint64", gain)) >> kernel.attrs.snr_shift
        snr = b.let("snr", cast("uint32", product))
        curve = (snr * snr) >> (2 + 2 * SNR_BITS - OUTPUT_BITS)
        line = (snr >> (SNR_BITS - OUTPUT_BITS)) - (1 << OUTPUT_BITS)
        b.store(out, c, select(snr < 2 << SNR_BITS, curve, line))


@register_flat("signal.log")
def lower_log(kernel: FlatKernel) -> None:
    b, (data,), out = kernel.b, kernel.args, kernel.out
    attrs, table = kernel.attrs, _table(kernel, "log2", log_table())
    with b.for_("c", out.size) as c:
        x = b.let("x", data[c] << attrs.correction_bits)
        b.store(out, c, 0)
        with b.if_(x > 1):
            whole = b.let("whole", bit_length(b, x) - 1)
            above = b.let("above", x - (imm(1, "uint32") << cast("uint32", whole)))
            left, right = imm(16) - minimum(whole, 16), select(whole < 16, imm(16), whole) - 16
            fraction = b.let("fraction", cast("int32", (above << cast("uint32", left)) >> cast("uint32", right)))
            step = b.let("step", minimum(fraction / STEP, 128))
            low = b.let("low", cast("int32", table[step]))
            line = ((cast("int32", table[step + 1]) - low) * (fraction - step * STEP)) >> 16
            log2 = b.let("log2", cast("uint64", cast("uint32", (whole << 16) + fraction + low + line)))
            natural = b.let("natural", cast("uint32", (log2 * LN_2 + ONE // 2) >> 16))
            b.store(out, c, minimum((imm(attrs.scale, "uint32") * natural + ONE // 2) >> 16, 32767))


# signal.mfcc, frame by frame in double precision; see `aot.op.signal.mfcc`.


@dataclass(frozen=True, slots=True)
class _Bank:
    """Entries `start` to `stop` of channels and weights; entry 0 belongs to bin `first`."""

    channels: Buffer
    weights: Buffer
    start: IntoExpr
    stop: IntoExpr
    first: int


def _known(kernel: FlatKernel, bins: int) -> _Bank:
    bank = mel_bank(bins, kernel.attrs)
    channels, weights = kernel.table("channels", np.array(bank.channel, np.int16)), kernel.table("weights", np.array(bank.weight))
    return _Bank(channels, weights, 0, len(bank.channel), bank.first)


def _of_rate(kernel: FlatKernel, bins: int, rate: Expr) -> tuple[_Bank, Expr]:
    """The triangles for a sample rate known only at run time, and whether the spectrogram reaches their end."""
    b, attrs = kernel.b, kernel.attrs
    channels, weights = b.scratch("channels", (bins,), "int16"), b.scratch("weights", (bins,), "float64", align=8)
    edges = kernel.table("edges", np.array(mel_edges(attrs)))
    width = b.let("width", imm(0.5, "float64") * cast("float64", maximum(rate, 1)) / imm(float(bins - 1), "float64"))

    def bin_of(shift: float, frequency: float) -> Expr:
        at = b.let("at", imm(frequency, "float64") / width + imm(shift, "float64"))
        return b.let("bin", cast("int32", minimum(at, imm(float(bins), "float64"))))

    first, last = bin_of(1.5, attrs.lower), bin_of(0.0, attrs.upper)
    reaches = b.let("reaches", logical_and(rate > 0, last < bins))
    channel, stop = b.local("channel", (1,), "int32", init=0), b.let("stop", select(reaches, last + 1, imm(0)))
    with b.for_("i", stop, start=first) as i:
        mel = b.let("mel", imm(MEL, "float64") * LOG1P_DOUBLE(cast("float64", i) * width / imm(700.0, "float64")))
        with b.for_("c", attrs.channels, start=channel[0]) as c, b.if_(edges[c + 1] < mel):
            b.store(channel, 0, c + 1)
        above, below = b.let("above", edges[channel[0] + 1]), b.let("below", edges[channel[0]])
        b.store(channels, i, channel[0] - 1)
        b.store(weights, i, (above - mel) / (above - below))
    return _Bank(channels, weights, first, stop, 0), reaches


@register_flat("signal.mfcc")
def lower_mfcc(kernel: FlatKernel) -> None:
    """Sum a frame's triangles in scratch memory; an extra number at either end absorbs bins that belong to no channel."""
    b, (data, *rates), out, attrs = kernel.b, kernel.args, kernel.out, kernel.attrs
    bins = kernel.shape(0)[2]
    frames: IntoExpr = data.size // bins
    if rates:
        bank, reaches = _of_rate(kernel, bins, b.let("rate", rates[0][0]))
        frames = b.let("frames", select(reaches, imm(data.size // bins), imm(0)))
        with b.if_(equal(frames, 0)):
            fill(b, out, 0.0)
    else:
        bank = _known(kernel, bins)
    factors = kernel.table("cosines", cosines(attrs).reshape(-1))
    mel = b.scratch("mel", (attrs.channels + 2,), "float64", align=8)
    with b.for_("frame", frames) as frame:
        fill(b, mel, 0.0)
        base = b.let("base", frame * bins + bank.first)
        with b.for_("i", bank.stop, start=bank.start) as i:
            magnitude = b.let("magnitude", SQRT_DOUBLE(cast("float64", data[base + i])))
            weighted = b.let("weighted", magnitude * bank.weights[i])
            side = b.let("side", cast("int32", bank.channels[i]) + 1)
            b.store(mel, side, mel[side] + weighted)
            b.store(mel, side + 1, mel[side + 1] + (magnitude - weighted))
        with b.for_("i", attrs.channels) as i:
            value = b.let("value", mel[i + 1])
            b.store(mel, i + 1, LOG_DOUBLE(select(value < imm(FLOOR, "float64"), imm(FLOOR, "float64"), value)))
        with b.for_("i", attrs.coefficients) as i:
            products = lambda j, i=i: factors[i * attrs.channels + j] * mel[j + 1]  # noqa: E731
            total = summed(b, "j", attrs.channels, products, dtype="float64", init=0.0)
            b.store(out, frame * attrs.coefficients + i, cast("float32", total))


# signal.overlap_add: frames are added one after another in the result.


@register_flat("signal.overlap_add")
def lower_overlap_add(kernel: FlatKernel) -> None:
    b, (data, left), out, step = kernel.b, kernel.args, kernel.out, kernel.attrs.step
    rows, frames, size = kernel.shape(0)
    kept, line = size - step, frames * step + size - step
    with b.for_("row", rows) as row:
        base = b.let("base", row * line)
        with b.for_("i", kept) as i:
            b.store(out, base + i, left[row * kept + i])
        with b.for_("i", line, start=kept) as i:
            b.store(out, base + i, 0.0 if is_float(out.dtype) else 0)
        with b.for_("frame", frames) as frame, b.for_("i", size) as i:
            at = b.let("at", base + frame * step + i)
            value = data[(row * frames + frame) * size + i]
            if is_float(out.dtype):
                b.store(out, at, out[at] + value)
            else:
                b.store(out, at, clamp(cast("int32", out[at]) + cast("int32", value), -32768, 32767))


# signal.rfft and signal.irfft: a transform of half the length over pairs of samples, and a step that splits or joins the halves.
#
# The bins of a row are computed in the result; the inverse needs scratch memory for the pairs of a row.


@dataclass(frozen=True, slots=True)
class Expressions:
    """Samples as named expressions: float32, or int32 with values of the fixed-point type."""

    b: IRBuilder
    dtype: str

    def load(self, buffer: Buffer, index: Expr) -> Expr:
        """Load one number."""
        return self.b.let("x", buffer[index] if is_float(self.dtype) else cast("int32", buffer[index]))

    def point(self, buffer: Buffer, index: Expr) -> Complex:
        """Load the numbers 2 * index and 2 * index + 1."""
        base = self.b.let("at", index * 2)
        return self.load(buffer, base), self.load(buffer, base + 1)

    def put(self, buffer: Buffer, index: Expr, value: Complex) -> None:
        base = self.b.let("at", index * 2)
        self.b.store(buffer, base, value[0])
        self.b.store(buffer, base + 1, value[1])

    def _wrapped(self, op: Callable[[Any, Any], Any], a: Expr, b: Expr) -> Expr:
        if self.dtype == "int32":
            return self.b.let("y", cast("int32", op(cast("uint32", a), cast("uint32", b))))
        return self.b.let("y", op(a, b) if is_float(self.dtype) else cast("int32", cast("int16", op(a, b))))

    def plus(self, a: Expr, b: Expr) -> Expr:
        return self._wrapped(lambda x, y: x + y, a, b)

    def minus(self, a: Expr, b: Expr) -> Expr:
        return self._wrapped(lambda x, y: x - y, a, b)

    def negated(self, a: Expr) -> Expr:
        return self.b.let("y", -a) if is_float(self.dtype) else self.minus(imm(0), a)

    def _product(self, a: Expr, b: Expr) -> Expr:
        return cast("int64", a) * cast("int64", b) if self.dtype == "int32" else a * b

    def _rounded(self, x: Expr) -> Expr:
        bits = FRACTION_BITS[self.dtype]
        return self.b.let("y", cast("int32", cast(self.dtype, (x + (1 << (bits - 1))) >> bits)))

    def times(self, a: Expr, b: Expr) -> Expr:
        return self.b.let("y", a * b) if is_float(self.dtype) else self._rounded(self._product(a, b))

    def dot(self, a: Complex, b: Complex, *, minus: bool) -> Expr:
        first, second = self._product(a[0], b[0]), self._product(a[1], b[1])
        total = first - second if minus else first + second
        return self.b.let("y", total) if is_float(self.dtype) else self._rounded(total)

    def divided(self, a: Expr, by: int) -> Expr:
        if is_float(self.dtype):
            return a
        return self._rounded(self._product(a, imm(((1 << FRACTION_BITS[self.dtype]) - 1) // by)))

    def halved(self, a: Expr, b: Expr | None = None, *, minus: bool = False) -> Expr:
        if b is not None and self.dtype == "int32":
            a = self.minus(a, b) if minus else self.plus(a, b)
        elif b is not None:
            a = a - b if minus else a + b
        half = a * 0.5 if is_float(self.dtype) else cast("int32", cast(self.dtype, a >> 1))
        return self.b.let("y", half)


@dataclass(frozen=True, slots=True)
class _Plan:
    """One transform of `n` points as statements: its arithmetic, its tables, its direction."""

    a: Expressions
    n: int
    table: Buffer
    half_table: Buffer
    inverse: bool


def _plan(kernel: FlatKernel, length: int, *, inverse: bool) -> _Plan:
    n, dtype = length // 2, kernel.out.dtype
    table = kernel.table("twiddles", kissfft.twiddles(n, dtype, inverse=inverse).reshape(-1))
    half = kernel.table("half_twiddles", kissfft.half_twiddles(n, dtype, inverse=inverse).reshape(-1))
    return _Plan(Expressions(kernel.b, dtype), n, table, half, inverse)


def _reorder(plan: _Plan, load: Callable[[Expr], Complex], out: Buffer, base: Expr) -> None:
    """Store the points of `load` where the first stage expects them, with one loop per factor."""
    b = plan.a.b
    with ExitStack() as loops:
        place: Expr = base
        source: Expr = imm(0)
        for s in kissfft.stages(plan.n):
            digit = loops.enter_context(b.for_("d", s.radix))
            place, source = place + digit * s.length, source + digit * s.blocks
        plan.a.put(out, b.let("place", place), load(b.let("source", source)))


def _stage(plan: _Plan, s: Stage, out: Buffer, base: Expr) -> None:
    """All butterflies of one stage, in place.  In fixed point twiddle 0 is not exactly 1, so every point is multiplied."""
    a, b = plan.a, plan.a.b
    roots = [a.point(plan.table, imm(s.blocks * s.length * q % plan.n)) for q in range(s.radix)] if s.radix in (3, 5) else []
    with b.for_("block", s.blocks) as block, b.for_("k", s.length) as k:
        first = b.let("first", base + block * (s.radix * s.length) + k)
        points = [a.point(out, first + q * s.length) for q in range(s.radix)]
        w = [a.point(plan.table, k * (s.blocks * q)) if q else (imm(0), imm(0)) for q in range(s.radix)]
        for q, value in enumerate(kissfft.butterfly(a, points, w, roots, inverse=plan.inverse)):
            a.put(out, first + q * s.length, value)


def _transform(plan: _Plan, load: Callable[[Expr], Complex], out: Buffer, base: Expr) -> None:
    _reorder(plan, load, out, base)
    for s in reversed(kissfft.stages(plan.n)):
        _stage(plan, s, out, base)


@register_flat("signal.rfft")
def lower_rfft(kernel: FlatKernel) -> None:
    b, (data,), out = kernel.b, kernel.args, kernel.out
    length, samples = kernel.attrs.length, kernel.shape(0)[-1]
    plan = _plan(kernel, length, inverse=False)
    a, n = plan.a, plan.n
    with b.for_("m", out.size // (length + 2)) as m:
        row, base = b.let("row", m * samples), b.let("base", m * (n + 1))

        def sample(index: Expr) -> Expr:
            zero = imm(0.0, "float32") if is_float(data.dtype) else imm(0, data.dtype)
            sample = data[row + index] if samples == length else select(index < samples, data[row + index], zero)
            return b.let("x", sample if is_float(data.dtype) else cast("int32", sample))

        _transform(plan, lambda p: (sample(p * 2), sample(p * 2 + 1)), out, base)
        even, odd = kissfft.divide(a, a.point(out, base), 2)
        zero = imm(0.0, "float32") if is_float(data.dtype) else imm(0)
        a.put(out, base + n, (a.minus(even, odd), zero))
        a.put(out, base, (a.plus(even, odd), zero))
        with b.for_("k", n // 2 + 1, start=1) as k:
            near, far = a.point(out, base + k), a.point(out, base + (imm(n) - k))
            first, last = kissfft.split(a, near, far, a.point(plan.half_table, k - 1))
            a.put(out, base + k, first)
            a.put(out, base + (imm(n) - k), last)


@register_flat("signal.irfft")
def lower_irfft(kernel: FlatKernel) -> None:
    b, (data,), out = kernel.b, kernel.args, kernel.out
    length = kernel.attrs.length
    plan = _plan(kernel, length, inverse=True)
    a, n = plan.a, plan.n
    points = b.scratch("points", (length,), out.dtype)
    with b.for_("m", out.size // length) as m:
        row, base = b.let("row", m * (n + 1)), b.let("base", m * n)
        low, high = a.point(data, row)[0], a.point(data, row + n)[0]
        a.put(points, imm(0), kissfft.divide(a, (a.plus(low, high), a.minus(low, high)), 2))
        with b.for_("k", n // 2 + 1, start=1) as k:
            near, far = a.point(data, row + k), a.point(data, row + (imm(n) - k))
            first, last = kissfft.join(a, near, far, a.point(plan.half_table, k - 1))
            a.put(points, k, first)
            a.put(points, imm(n) - k, last)
        _transform(plan, lambda p: a.point(points, p), out, base)
        if is_float(out.dtype):
            with b.for_("i", length) as i:
                b.store(out, base * 2 + i, out[base * 2 + i] / imm(float(np.float32(length)), "float32"))


# The transforms of `aot.numerics.split_radix` as statements: doubles in scratch memory, in place.


@dataclass(frozen=True, slots=True)
class Transforms:
    """Emits transforms of `buffer`, whose points are pairs of doubles; equal tables are stored once."""

    kernel: FlatKernel
    buffer: Buffer
    tables: dict[bytes, Buffer] = field(default_factory=dict)

    def _table(self, name: str, data: Array) -> Buffer:
        key = data.dtype.str.encode() + data.tobytes()
        if key not in self.tables:
            self.tables[key] = self.kernel.table(name, np.ascontiguousarray(data).reshape(-1))
        return self.tables[key]

    def name(self, value: Expr) -> Expr:
        return self.kernel.b.let("y", value)

    def point(self, base: Expr, index: Expr | int, buffer: Buffer | None = None) -> split_radix.Complex:
        """Point `index`, counted from number `base` of a buffer."""
        b, source = self.kernel.b, self.buffer if buffer is None else buffer
        at = b.let("at", base + index * 2)
        return b.let("x", source[at]), b.let("x", source[at + 1])

    def put(self, base: Expr, index: Expr | int, value: split_radix.Complex) -> None:
        at = self.kernel.b.let("at", base + index * 2)
        self.kernel.b.store(self.buffer, at, value[0])
        self.kernel.b.store(self.buffer, at + 1, value[1])

    def complex(self, base: Expr, n: int) -> None:
        """Transform the n points from number `base` on."""
        for level in split_radix.levels(n):
            for kind, starts in ((1, level.first), (2, level.second)):
                if starts:
                    with self._each(base, starts) as start:
                        self._block(start, level.size, kind=kind, outermost=level.size == n)
        self._reorder(base, n)

    @contextmanager
    def _each(self, base: Expr, starts: Sequence[int]) -> Iterator[Expr]:
        b = self.kernel.b
        if len(starts) == 1:
            yield base + 2 * starts[0]
            return
        table = self._table("starts", np.array(starts, np.uint16))
        with b.for_("block", len(starts)) as i:
            yield b.let("start", base + cast("int32", table[i]) * 2)

    def _block(self, start: Expr, size: int, *, kind: int, outermost: bool) -> None:
        if size == 2:
            for i, value in enumerate(split_radix.pair(self.name, [self.point(start, i) for i in range(2)], kind=kind)):
                self.put(start, i, value)
            return
        quarter, middle = size // 4, size // 8
        factors = split_radix.first_factors(size, outermost=outermost) if kind == 1 else split_radix.second_factors(size)
        self._butterfly(start, size, 0, [], kind=kind)
        if quarter == 1:
            return
        if quarter <= 4:
            for place in range(1, quarter):
                w = [(imm(float(r), "float64"), imm(float(i), "float64")) for r, i in factors[place]]
                self._butterfly(start, size, place, w, kind=kind)
            return
        table, b = self._table("factors", factors), self.kernel.b
        with b.for_("p", quarter, start=1) as p, b.if_(binop("!=", p, middle)):
            w = [self.point(p * factors[0].size, i, table) for i in range(len(factors[0]))]
            self._butterfly(start, size, p, w, kind=kind)
        w = [(imm(float(r), "float64"), imm(float(i), "float64")) for r, i in factors[middle]]
        self._butterfly(start, size, middle, w, kind=kind)

    def _butterfly(self, start: Expr, size: int, place: Expr | int, w: Sequence[split_radix.Complex], *, kind: int) -> None:
        """Four points, a quarter apart; if a place is an expression, it is neither the first nor the middle one."""
        fixed = place if isinstance(place, int) else -1
        where = START if fixed == 0 else MIDDLE if kind == 1 and fixed == size // 8 else OTHER
        signs = split_radix.signs_at(size, fixed, kind=kind) if fixed >= 0 else KEPT
        at = [place + size // 4 * q for q in range(4)]
        butterfly = split_radix.first_butterfly if kind == 1 else split_radix.second_butterfly
        for index, value in zip(at, butterfly(self.name, [self.point(start, i) for i in at], w, where, signs), strict=True):
            self.put(start, index, value)

    def _reorder(self, base: Expr, n: int) -> None:
        swaps = [(i, r) for i, r in enumerate(split_radix.reversed_bits(n)) if i < r]
        if not swaps:
            return
        table, b = self._table("swaps", np.array(swaps, np.uint16)), self.kernel.b
        with b.for_("swap", len(swaps)) as i:
            one, other = (b.let("place", cast("int32", table[i * 2 + k])) for k in range(2))
            x, y = self.point(base, one), self.point(base, other)
            self.put(base, one, y)
            self.put(base, other, x)

    def real(self, base: Expr, n: int) -> None:
        """Replace the n doubles from `base` on by their spectrum, see `split_radix.real_transform`."""
        if n > 2:
            self.complex(base, n // 2)
        if n > 4:
            table, b = self._table("real_factors", split_radix.real_factors(n)), self.kernel.b
            with b.for_("j", n // 4, start=1) as j:
                far = b.let("far", imm(n // 2) - j)
                w = self.point(imm(0), j, table)
                first, last = split_radix.join(self.name, self.point(base, j), self.point(base, far), w)
                self.put(base, j, first)
                self.put(base, far, last)
        x = self.point(base, 0)
        self.put(base, 0, (self.name(x[0] + x[1]), self.name(x[0] - x[1])))


# signal.rfft2d: rows, then columns, one image at a time, in double precision; the last column is computed from the first one.


ZERO = imm(0.0, "float64")


@register_flat("signal.rfft2d")
def lower_rfft2d(kernel: FlatKernel) -> None:
    b, (data,), attrs = kernel.b, kernel.args, kernel.attrs
    height, width = attrs.height, attrs.width
    size = kernel.shape(0)[-2:]
    rows = b.scratch("rows", (height * width,), "float64", align=8)
    transforms = Transforms(kernel, rows)
    with b.for_("image", data.size // (size[0] * size[1])) as image:
        base = b.let("base", image * (size[0] * size[1]))
        with b.for_("i", height) as i, b.for_("j", width) as j:
            inside = logical_and(i < size[0], j < size[1])
            source = cast("float64", data[base + i * size[1] + j])
            fits = size[0] >= height and size[1] >= width
            b.store(rows, i * width + j, source if fits else select(inside, source, ZERO))
        with b.for_("i", height) as i:
            transforms.real(b.let("row", i * width), width)
        if height > 1:
            _columns(kernel, rows, height, width)
        _results(kernel, rows, height, width, image=image)


def _columns(kernel: FlatKernel, rows: Buffer, height: int, width: int) -> None:
    """Transform each column of points in separate memory."""
    b = kernel.b
    column = b.scratch("column", (2 * height,), "float64", align=8)
    transforms = Transforms(kernel, column)
    with b.for_("c", width // 2) as c:
        with b.for_("i", height) as i:
            for part in range(2):
                b.store(column, i * 2 + part, rows[i * width + c * 2 + part])
        transforms.complex(imm(0), height)
        with b.for_("i", height) as i:
            for part in range(2):
                b.store(rows, i * width + c * 2 + part, column[i * 2 + part])
    _separate(b, rows, height, width)


def _separate(b: IRBuilder, rows: Buffer, height: int, width: int) -> None:
    """Separate the first column into the parts of the first and of the last bin."""
    with b.for_("i", height // 2, start=1) as i:
        near, far = b.let("near", i * width), b.let("far", (imm(height) - i) * width)
        real = b.let("real", (rows[near] - rows[far]) * 0.5)
        b.store(rows, far, real)
        b.store(rows, near, rows[near] - real)
        imaginary = b.let("imaginary", (rows[near + 1] + rows[far + 1]) * 0.5)
        b.store(rows, far + 1, imaginary)
        b.store(rows, near + 1, rows[near + 1] - imaginary)


def _results(kernel: FlatKernel, rows: Buffer, height: int, width: int, *, image: Expr) -> None:
    """Store pairs of float32 with the imaginary part negated; zeros have the reference's signs."""
    b, out = kernel.b, kernel.out
    line, half = width + 2, height // 2
    first = b.let("first", image * (height * line))

    def put(i: Expr, at: Expr | int, real: Expr, imaginary: Expr) -> None:
        place = b.let("place", first + i * line + at)
        b.store(out, place, cast("float32", real))
        b.store(out, place + 1, cast("float32", imaginary * -1.0))

    with b.for_("i", height) as i, b.for_("c", width // 2, start=1) as c:
        at = b.let("at", i * width + c * 2)
        put(i, c * 2, rows[at], rows[at + 1])
    for whole in sorted({0, half}):
        put(imm(whole), 0, rows[whole * width], ZERO)
        put(imm(whole), width, rows[whole * width + 1], ZERO)
    with b.for_("i", height, start=half + 1) as i:
        near, far = b.let("near", (imm(height) - i) * width), b.let("far", i * width)
        put(i, width, rows[far + 1], rows[far])
        put(imm(height) - i, width, rows[far + 1], rows[far] * -1.0)
        put(i, 0, rows[near], rows[near + 1] * -1.0)
        put(imm(height) - i, 0, rows[near], rows[near + 1])


@register_flat("real", "imag")
def lower_part(kernel: FlatKernel) -> None:
    """Lower real and imag."""
    part = int(str(kernel.anchor.op) == "imag")
    fill(kernel.b, kernel.out, lambda i: kernel.args[0][i * 2 + part])


@register_flat("complex_abs")
def lower_abs(kernel: FlatKernel) -> None:
    b, (data,), out = kernel.b, kernel.args, kernel.out
    infinity = imm(float("inf"), "float32")
    with b.for_("i", out.size) as i:
        parts = [b.let("part", data[i * 2 + k]) for k in range(2)]
        wide = [b.let("wide", cast("float64", p)) for p in parts]
        magnitude: Expr = cast("float32", SQRT_DOUBLE(wide[0] * wide[0] + wide[1] * wide[1]))
        for p in parts:
            for limit in (infinity, imm(float("-inf"), "float32")):
                magnitude = select(equal(p, limit), infinity, magnitude)
        b.store(out, i, magnitude)


def accepts_pairs(group: Group, target: Target) -> bool:
    """A reshape of complex numbers that is not a view."""
    return accepts_alone(group, target) and tensor_type(group.anchor).dtype == "complex64"


@register_flat("reshape", name="copy_complex", accepts=accepts_pairs)
def lower_copy(kernel: FlatKernel) -> None:
    fill(kernel.b, kernel.out, lambda i: kernel.args[0][i])


# signal.spectrogram, frame by frame in double precision.


@register_flat("signal.spectrogram")
def lower_spectrogram(kernel: FlatKernel) -> None:
    b, (data,), out, attrs = kernel.b, kernel.args, kernel.out, kernel.attrs
    channels, frames, bins = tensor_type(kernel.anchor).shape
    length = attrs.length
    window = kernel.table("window", hann(attrs.window))
    row = b.scratch("row", (length,), "float64", align=8)
    transforms = Transforms(kernel, row)
    with b.for_("channel", channels) as channel, b.for_("frame", frames) as frame:
        first = b.let("first", frame * attrs.stride)
        with b.for_("i", attrs.window) as i:
            b.store(row, i, cast("float64", data[(first + i) * channels + channel]) * window[i])
        with b.for_("i", length, start=attrs.window) as i:
            b.store(row, i, 0.0)
        transforms.real(imm(0), length)
        base = b.let("base", (channel * frames + frame) * bins)

        def put(at: Expr, power: Expr) -> None:
            single = cast("float32", power)
            b.store(out, base + at, single if attrs.squared else MATH["sqrt"](b.let("power", single)))

        put(imm(0), row[0] * row[0])
        put(imm(bins - 1), row[1] * row[1])
        with b.for_("k", bins - 1, start=1) as k:
            put(k, row[k * 2] * row[k * 2] + row[k * 2 + 1] * row[k * 2 + 1])
