"""SignalDelay, SignalFramer and SignalStacker of TFLM: samples of earlier runs before those of this one, cut in another way.

Each keeps the last samples as a state.  The framer and the stacker also say whether enough samples have come for their result to
mean something; until then TFLM leaves the result as it was in memory, here it is made of the zeros that are there at the start.
Oracle: TFLM's `signal/micro/kernels/delay.cc`, `framer.cc`, `stacker.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.span import Span
from aot.op.common.check import require_dtype, require_room
from aot.op.common.custom import CustomOptions
from aot.op.common.move import reshaped
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.compare import CompareAttrs
from aot.op.math.select import SelectAttrs
from aot.op.tensor.broadcast_to import BroadcastToAttrs
from aot.op.tensor.concatenate import ConcatenateAttrs
from aot.op.tensor.strided_slice import slice_of
from aot.op.tensor.take import TakeAttrs
from aot.relay.expr import Expr, call, const, tensor_type

ORACLES = ("tflm",)
LONGEST = 1 << 20
"""Samples of a state."""


def _rows(ctx: ConvertContext, op: OperatorView) -> tuple[Expr, int, int]:
    """Operand 0 as [rows, samples], int16."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"int16"})
    if not data.shape or not data.size:
        unsupported(ctx, op, f"{data} holds no samples", code="E1207")
    rows, samples = prod(data.shape[:-1]), data.shape[-1]
    return reshaped(operand(ctx, op, 0), (rows, samples), ctx.span(op)), rows, samples


def _joined(parts: Sequence[Expr], axis: int, span: Span) -> Expr:
    parts = [p for p in parts if tensor_type(p).size]
    return parts[0] if len(parts) == 1 else call("concatenate", tuple(parts), ConcatenateAttrs(axis), span=span)


def _extended(ctx: ConvertContext, op: OperatorView, data: Expr, length: int) -> Expr:
    """[rows, length + samples]: the last `length` samples of earlier runs, then this run's; the last ones are kept."""
    rows, samples = tensor_type(data).shape
    if not length:
        return data
    require_room(ctx, op, (rows, length + samples), "int16", what="the samples that it keeps")
    state = ctx.own_variable(op, "samples", np.zeros((rows, length), np.int16))
    both = _joined([state.read(), data], 1, ctx.span(op))
    state.assign(slice_of(ctx, op, both, [range(rows), range(samples, samples + length)]))
    return both


@from_tflite("CUSTOM:SignalDelay", "int16", "concatenate strided_slice", oracle="TFLM")
def convert_delay(ctx: ConvertContext, op: OperatorView) -> Expr:
    """What came `delay_length` samples before."""
    data, rows, samples = _rows(ctx, op)
    length = CustomOptions(ctx, op).integer("delay_length", 0, LONGEST)
    both = _extended(ctx, op, data, length)
    return reshaped(slice_of(ctx, op, both, [range(rows), range(samples)]), ctx.input_type(op, 0).shape, ctx.span(op))


def _number(value: int) -> Expr:
    return const(np.array([value], np.int32))


@from_tflite(
    "CUSTOM:SignalFramer", "int16", "add concatenate greater_equal minimum strided_slice take", oracle="TFLM"
)  # fmt: skip
def convert_framer(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """Overlapping frames, and whether all of them are whole."""
    data, _, samples = _rows(ctx, op)
    options, span = CustomOptions(ctx, op), ctx.span(op)
    step, prefill = options.integer("frame_step", 1, samples), options.flag("prefill")
    size = options.integer("frame_size", step if prefill else 1, LONGEST)
    if samples % step:
        unsupported(ctx, op, f"{samples} samples are not a whole number of steps of {step}", code="E1122")
    count = samples // step
    kept = size - step if prefill else (-(-size // step) - 1) * step
    require_room(ctx, op, (count, size), "int32", what="a frame for every step")
    both = _extended(ctx, op, data, kept)
    places = np.arange(count, dtype=np.int32)[:, None] * step + np.arange(size, dtype=np.int32)
    if count * step == samples and (count, size) == (1, kept + samples):
        frames = both
    else:
        frames = call("take", [both, const(places.reshape(-1))], TakeAttrs(1), span=span)
    frames = reshaped(frames, (*ctx.input_type(op, 0).shape[:-1], count, size), span)
    if prefill or not kept:
        return [frames, const(np.array(True))]
    state = ctx.own_variable(op, "count", np.zeros(1, np.int32))
    before = state.read()
    more = call("add", [before, _number(samples)], BinaryAttrs(), span=span)
    state.assign(call("minimum", [more, _number(kept)], BinaryAttrs(), span=span))
    valid = call("greater_equal", [before, _number(kept)], CompareAttrs(), span=span)
    return [frames, reshaped(valid, (), span)]


@from_tflite(
    "CUSTOM:SignalStacker",
    "int16",
    "add broadcast_to concatenate equal greater_equal select strided_slice subtract",
    oracle="TFLM",
)
def convert_stacker(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """The last frames as one, every `stacker_step` runs; before the first frame stand copies of it."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"int16"})
    options, span = CustomOptions(ctx, op), ctx.span(op)
    channels = options.integer("num_channels", 1, LONGEST)
    left, right = (options.integer(f"stacker_{side}_context", 0, 1 << 10) for side in ("left", "right"))
    frames = left + right + 1
    step = options.integer("stacker_step", 1, frames)
    if data.shape != (channels,):
        unsupported(ctx, op, f"{data} does not hold {channels} channels", code="E1207")
    frame = reshaped(operand(ctx, op, 0), (1, channels), span)
    if frames == 1:
        return [operand(ctx, op, 0), const(np.array(True))]
    require_room(ctx, op, (frames, channels), "int16", what="the frames that it keeps")
    state = ctx.own_variable(op, "frames", np.zeros((frames - 1, channels), np.int16))
    count = ctx.own_variable(op, "count", np.array([-1], np.int32))
    before = count.read()
    is_first = call("equal", [before, _number(-1)], CompareAttrs(), span=span)
    copies = call("broadcast_to", [frame], BroadcastToAttrs((frames - 1, channels)), span=span)
    known = call("select", [reshaped(is_first, (1, 1), span), copies, state.read()], SelectAttrs(), span=span)
    whole = _joined([known, frame], 0, span)
    state.assign(slice_of(ctx, op, whole, [range(1, frames), range(channels)]))
    more = call("add", [before, _number(1)], BinaryAttrs(), span=span)
    now = call("select", [is_first, _number(left + 1), more], SelectAttrs(), span=span)
    valid = call("greater_equal", [now, _number(frames)], CompareAttrs(), span=span)
    rest = call("subtract", [now, _number(step)], BinaryAttrs(), span=span)
    count.assign(call("select", [valid, rest, now], SelectAttrs(), span=span))
    return [reshaped(whole, (frames * channels,), span), reshaped(valid, (), span)]
