"""Kernels of TFLM's audio front end, channel by channel: scale_bits, filter_bank, square_root, pcan, log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.op.signal.filter_bank_log import LN_2, ONE, STEP, log_table
from aot.op.signal.pcan import OUTPUT_BITS, SNR_BITS
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm, logical_and, minimum, select
from aot.topi.generic.flat import FlatKernel, accepts_alone, flat_kernel
from aot.topi.generic.signal.bits import bit_length
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def lower_scale_bits(group: Group, _target: Target, name: str) -> Lowered:
    """The largest magnitude as 16 bits hold it, then the bits above it."""
    kernel = flat_kernel(group, name)
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
    return kernel.finish("scale_bits")


def _table(kernel: FlatKernel, name: str, values: Sequence[int], dtype: str = "uint16") -> Buffer:
    return kernel.table(name, np.array(values, dtype))


def lower_filter_bank(group: Group, _target: Target, name: str) -> Lowered:
    """Both sums of a channel in one pass over its bins; the weights of the channel after are kept for it."""
    kernel = flat_kernel(group, name)
    b, (data, weights, unweights), out = kernel.b, kernel.args, kernel.out
    attrs = group.anchor.attrs
    bins = _table(kernel, "bins", attrs.frequency_starts)
    places = _table(kernel, "places", attrs.weight_starts)
    widths = _table(kernel, "widths", attrs.widths)
    own, other = b.local("own", (1,), "uint64", init=0), b.local("other", (1,), "uint64", init=0)
    with b.for_("c", out.size + 1) as c:
        bin_, place = b.let("bin", cast("int32", bins[c])), b.let("place", cast("int32", places[c]))
        with b.for_("j", b.let("width", cast("int32", widths[c]))) as j:
            # no access leaves a tensor: the ranges were checked, which the tables do not show
            x = b.let("x", cast("uint64", data[minimum(bin_ + j, data.size - 1)]))
            at = b.let("at", minimum(place + j, weights.size - 1))
            b.store(own, 0, own[0] + cast("uint64", cast("int64", weights[at])) * x)
            b.store(other, 0, other[0] + cast("uint64", cast("int64", unweights[at])) * x)
        with b.if_(c > 0):
            b.store(out, c - 1, own[0])
        b.store(own, 0, other[0])
        b.store(other, 0, 0)
    return kernel.finish("filter_bank")


def _root(b: IRBuilder, x: Expr, dtype: str, result: Buffer) -> None:
    """The nearest root of x of `dtype`, one bit a step, as `result`; the largest root of half the width does not grow."""
    half = {"uint32": 16, "uint64": 32}[dtype]
    rest, root, bit = (b.local(n, (1,), dtype) for n in ("rest", "root", "bit"))
    b.store(rest, 0, x)
    b.store(root, 0, 0)
    b.store(bit, 0, imm(1 << (2 * half - 2), dtype))
    with b.for_("step", half):
        trial = b.let("trial", root[0] + bit[0])
        with b.if_(rest[0] >= trial):
            b.store(rest, 0, rest[0] - trial)
            b.store(root, 0, (root[0] >> 1) + bit[0])
        with b.else_():
            b.store(root, 0, root[0] >> 1)
        b.store(bit, 0, bit[0] >> 2)
    with b.if_(logical_and(rest[0] > root[0], binop("!=", root[0], (1 << half) - 1))):
        b.store(root, 0, root[0] + 1)
    b.store(result, 0, root[0])


def lower_square_root(group: Group, _target: Target, name: str) -> Lowered:
    """In 32 bits where the number has no more."""
    kernel = flat_kernel(group, name)
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
    return kernel.finish("square_root")


def _gain(b: IRBuilder, x: Expr, table: Buffer) -> Expr:
    """The gain at noise x as uint32; see `aot.op.signal.pcan.gain_of`."""
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


def lower_pcan(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (data, noise, table), out = kernel.b, kernel.args, kernel.out
    with b.for_("c", out.size) as c:
        gain = _gain(b, b.let("noise", noise[c]), table)
        product = (cast("uint64", data[c]) * cast("uint64", gain)) >> group.anchor.attrs.snr_shift
        snr = b.let("snr", cast("uint32", product))
        curve = (snr * snr) >> (2 + 2 * SNR_BITS - OUTPUT_BITS)
        line = (snr >> (SNR_BITS - OUTPUT_BITS)) - (1 << OUTPUT_BITS)
        b.store(out, c, select(snr < 2 << SNR_BITS, curve, line))
    return kernel.finish("pcan")


def lower_log(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (data,), out = kernel.b, kernel.args, kernel.out
    attrs, table = group.anchor.attrs, _table(kernel, "log2", log_table())
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
    return kernel.finish("log")


for _name, _lower in (
    ("scale_bits", lower_scale_bits),
    ("filter_bank", lower_filter_bank),
    ("square_root", lower_square_root),
    ("pcan", lower_pcan),
    ("log", lower_log),
):
    register_impl(OpImplementation(f"generic.{_name}", f"signal.{_name}", accepts_alone, _lower))
