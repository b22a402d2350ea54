"""signal.spectrogram, frame by frame in double precision."""

from __future__ import annotations

from aot.numerics.elementary import MATH
from aot.op.signal.spectrogram import hann
from aot.relay.expr import tensor_type
from aot.target.target import Target
from aot.tir.expr import Expr, cast, imm
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


register_impl(OpImplementation("generic.spectrogram", "signal.spectrogram", accepts_alone, lower_spectrogram))
