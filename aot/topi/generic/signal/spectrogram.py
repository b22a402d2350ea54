"""signal.spectrogram and signal.mfcc, frame by frame in double precision."""

from __future__ import annotations

import numpy as np

from aot.numerics.elementary import LOG_DOUBLE, MATH, SQRT_DOUBLE
from aot.op.signal.mfcc import FLOOR, cosines, mel_bank
from aot.op.signal.spectrogram import hann
from aot.relay.expr import tensor_type
from aot.target.target import Target
from aot.tir.expr import Expr, cast, imm, select
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.generic.signal.split_radix import Transforms
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def lower_spectrogram(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (data,), out, attrs = kernel.b, kernel.args, kernel.out, group.anchor.attrs
    channels, frames, bins = tensor_type(group.anchor).shape
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
    return kernel.finish("spectrogram")


def lower_mfcc(group: Group, _target: Target, name: str) -> Lowered:
    """Sums of a frame's triangles in scratch memory; one extra number before and one after stand for no channel."""
    kernel = flat_kernel(group, name)
    b, (data,), out, attrs = kernel.b, kernel.args, kernel.out, group.anchor.attrs
    bins = tensor_type(group.anchor.args[0]).shape[2]
    bank = mel_bank(bins, attrs)
    sides, weights = kernel.table("channels", np.array(bank.channel, np.int16)), kernel.table("weights", np.array(bank.weight))
    factors = kernel.table("cosines", cosines(attrs).reshape(-1))
    mel = b.scratch("mel", (attrs.channels + 2,), "float64", align=8)
    with b.for_("frame", data.size // bins) as frame:
        with b.for_("i", attrs.channels + 2) as i:
            b.store(mel, i, 0.0)
        base = b.let("base", frame * bins + bank.first)
        with b.for_("i", len(bank.channel)) as i:
            magnitude = b.let("magnitude", SQRT_DOUBLE(cast("float64", data[base + i])))
            weighted = b.let("weighted", magnitude * weights[i])
            side = b.let("side", cast("int32", sides[i]) + 1)
            b.store(mel, side, mel[side] + weighted)
            b.store(mel, side + 1, mel[side + 1] + (magnitude - weighted))
        with b.for_("i", attrs.channels) as i:
            value = b.let("value", mel[i + 1])
            b.store(mel, i + 1, LOG_DOUBLE(select(value < imm(FLOOR, "float64"), imm(FLOOR, "float64"), value)))
        with b.for_("i", attrs.coefficients) as i:
            total = b.local("total", (1,), "float64", init=0.0)
            with b.for_("j", attrs.channels) as j:
                b.store(total, 0, total[0] + factors[i * attrs.channels + j] * mel[j + 1])
            b.store(out, frame * attrs.coefficients + i, cast("float32", total[0]))
    return kernel.finish("mfcc")


register_impl(OpImplementation("generic.spectrogram", "signal.spectrogram", accepts_alone, lower_spectrogram))
register_impl(OpImplementation("generic.mfcc", "signal.mfcc", accepts_alone, lower_mfcc))
