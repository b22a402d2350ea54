"""signal.mfcc, frame by frame in double precision; see `aot.op.signal.mfcc`."""

from __future__ import annotations

import numpy as np

from aot.numerics.elementary import LOG1P_DOUBLE, LOG_DOUBLE, SQRT_DOUBLE
from aot.op.signal.mfcc import FLOOR, MEL, cosines, mel_bank, mel_edges
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, IntoExpr, cast, equal, imm, logical_and, maximum, minimum, select
from aot.topi.generic.flat import FlatKernel, accepts_alone, flat_kernel
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


@dataclass(frozen=True, slots=True)
class _Bank:
    """Entries `start` to `stop` of channels and weights; entry 0 is bin `first`."""

    channels: Buffer
    weights: Buffer
    start: IntoExpr
    stop: IntoExpr
    first: int


def _known(kernel: FlatKernel, bins: int) -> _Bank:
    bank = mel_bank(bins, kernel.group.anchor.attrs)
    channels, weights = kernel.table("channels", np.array(bank.channel, np.int16)), kernel.table("weights", np.array(bank.weight))
    return _Bank(channels, weights, 0, len(bank.channel), bank.first)


def _of_rate(kernel: FlatKernel, bins: int, rate: Expr) -> tuple[_Bank, Expr]:
    """The triangles of a rate that comes at run time, and whether the spectrogram reaches to their end."""
    b, attrs = kernel.b, kernel.group.anchor.attrs
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


def lower(group: Group, _target: Target, name: str) -> Lowered:
    """Sums of a frame's triangles in scratch memory; one extra number before and one after stand for no channel."""
    kernel = flat_kernel(group, name)
    b, (data, *rest), out, attrs = kernel.b, kernel.args, kernel.out, group.anchor.attrs
    bins = tensor_type(group.anchor.args[0]).shape[2]
    frames: IntoExpr = data.size // bins
    if rest:
        bank, reaches = _of_rate(kernel, bins, b.let("rate", rest[0][0]))
        frames = b.let("frames", select(reaches, imm(data.size // bins), imm(0)))
        with b.if_(equal(frames, 0)), b.for_("i", out.size) as i:
            b.store(out, i, 0.0)
    else:
        bank = _known(kernel, bins)
    factors = kernel.table("cosines", cosines(attrs).reshape(-1))
    mel = b.scratch("mel", (attrs.channels + 2,), "float64", align=8)
    with b.for_("frame", frames) as frame:
        with b.for_("i", attrs.channels + 2) as i:
            b.store(mel, i, 0.0)
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
            total = b.local("total", (1,), "float64", init=0.0)
            with b.for_("j", attrs.channels) as j:
                b.store(total, 0, total[0] + factors[i * attrs.channels + j] * mel[j + 1])
            b.store(out, frame * attrs.coefficients + i, cast("float32", total[0]))
    return kernel.finish("mfcc")


register_impl(OpImplementation("generic.mfcc", "signal.mfcc", accepts_alone, lower))
