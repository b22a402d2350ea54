"""Converters of signal operators: TFLM's library, RFFT2D, spectrogram and MFCC."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.frontend.tflite.convert import (
    ConvertContext,
    CustomOptions,
    constant_ints,
    from_tflite,
    one_int,
    operand,
    require_dtype,
    require_room,
    reshaped,
    slice_of,
    unsupported,
)
from aot.frontend.view import OperatorView
from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.numerics.kissfft import is_supported
from aot.op.math.arithmetic import BinaryAttrs, CompareAttrs, SelectAttrs
from aot.op.signal import (
    LONGEST,
    MOST_CHANNELS,
    OVERLAP_TYPES,
    RFFT2D_LARGEST,
    SPECTROGRAM_LARGEST,
    TABLE,
    EnergyAttrs,
    FilterBankAttrs,
    LogAttrs,
    MfccAttrs,
    NoiseAttrs,
    OverlapAddAttrs,
    PcanAttrs,
    Rfft2dAttrs,
    RfftAttrs,
    SpectrogramAttrs,
    WindowAttrs,
    is_power_of_two,
    reaches,
)
from aot.op.signal import RFFT_TYPES as RFFT_DTYPES
from aot.op.tensor.gather import TakeAttrs
from aot.op.tensor.pad import BroadcastToAttrs
from aot.op.tensor.shape import ConcatenateAttrs
from aot.relay.expr import Expr, Var, call, const, post_order, tensor_type
from aot.support.dtype import numpy_dtype


@from_tflite("CUSTOM:SignalWindow", "int16", "signal.window", oracle="TFLM")
def convert_window(ctx: ConvertContext, op: OperatorView) -> Expr:
    """signal.window."""
    data, window = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, data, {"int16"})
    require_dtype(ctx, op, window, {"int16"}, what="a window")
    if not data.shape or window.shape != data.shape[-1:]:
        unsupported(ctx, op, f"a window {window} does not fit frames of {data}", code="E1207")
    attrs = WindowAttrs(CustomOptions(ctx, op).integer("shift", 0, 31))
    return call("signal.window", [operand(ctx, op, 0), operand(ctx, op, 1)], attrs, span=ctx.span(op))


@from_tflite("CUSTOM:SignalEnergy", "int16", "signal.energy", oracle="TFLM")
def convert_energy(ctx: ConvertContext, op: OperatorView) -> Expr:
    """signal.energy."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"int16"})
    if len(data.shape) != 1 or data.shape[0] % 2:
        unsupported(ctx, op, f"{data} has no pairs of real and imaginary parts", code="E1207")
    options = CustomOptions(ctx, op)
    start = options.integer("start_index", 0, data.shape[0] // 2)
    attrs = EnergyAttrs(start, options.integer("end_index", start, data.shape[0] // 2))
    return call("signal.energy", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


def _fft_length(ctx: ConvertContext, op: OperatorView, data: TensorType) -> int:
    require_dtype(ctx, op, data, RFFT_DTYPES)
    length = CustomOptions(ctx, op).integer("fft_length", 1, 1 << 30)
    if length % 2 or not 4 <= length <= LONGEST or not is_supported(length // 2):
        what = f"an even number from 4 to {LONGEST} without prime factors above 5"
        unsupported(ctx, op, f"a transform of {length} samples is not supported; only {what}", code="E1180")
    return length


@from_tflite("CUSTOM:SignalRfft", "int16 int32 float32", "signal.rfft", oracle="TFLM")
def convert_rfft(ctx: ConvertContext, op: OperatorView) -> Expr:
    """signal.rfft."""
    data = ctx.input_type(op, 0)
    length = _fft_length(ctx, op, data)
    if not data.shape or data.shape[-1] > length:
        unsupported(ctx, op, f"{data} does not fit a transform of {length} samples", code="E1122")
    return call("signal.rfft", [operand(ctx, op, 0)], RfftAttrs(length), span=ctx.span(op))


@from_tflite("CUSTOM:SignalIrfft", "int16 int32 float32", "signal.irfft", oracle="TFLM")
def convert_irfft(ctx: ConvertContext, op: OperatorView) -> Expr:
    """signal.irfft."""
    data = ctx.input_type(op, 0)
    length = _fft_length(ctx, op, data)
    if not data.shape or data.shape[-1] != length + 2:
        unsupported(ctx, op, f"{data} is not a spectrum of {length} samples, which has {length + 2} numbers", code="E1122")
    return call("signal.irfft", [operand(ctx, op, 0)], RfftAttrs(length), span=ctx.span(op))


@from_tflite("RFFT2D", "float32", "signal.rfft2d")
def convert_rfft2d(ctx: ConvertContext, op: OperatorView) -> Expr:
    """signal.rfft2d; the sizes must be constants."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"float32"})
    sizes = constant_ints(ctx, op, 1)
    if len(data.shape) < 2 or len(sizes) != 2:
        unsupported(ctx, op, f"{data} with {len(sizes)} sizes is not an image", code="E1207")
    height, width = sizes
    if not is_power_of_two(height) or not is_power_of_two(width) or width < 2 or max(sizes) > RFFT2D_LARGEST:
        message = f"a transform of {height} x {width} points is not supported; only powers of two up to {RFFT2D_LARGEST}"
        unsupported(ctx, op, message, code="E1181")
    return call("signal.rfft2d", [operand(ctx, op, 0)], Rfft2dAttrs(height, width), span=ctx.span(op))


@from_tflite("CUSTOM:SignalFftAutoScale", "int16", "signal.scale_bits signal.scale_up", oracle="TFLM")
def convert_fft_auto_scale(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """The scaled samples, and the bits."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"int16"})
    if len(data.shape) != 1:
        unsupported(ctx, op, f"{data} is not one frame", code="E1207")
    bits = call("signal.scale_bits", [operand(ctx, op, 0)], None, span=ctx.span(op))
    return [call("signal.scale_up", [operand(ctx, op, 0), bits], None, span=ctx.span(op)), bits]


FILTER_TABLES = ("weights", "unweights", "channel_frequency_starts", "channel_weight_starts", "channel_widths")


@from_tflite("CUSTOM:SignalFilterBank", "uint32", "signal.filter_bank", oracle="TFLM")
def convert_filter_bank(ctx: ConvertContext, op: OperatorView) -> Expr:
    """signal.filter_bank; the tables must be constants."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"uint32"})
    tables = []
    for i, name in enumerate(FILTER_TABLES, 1):
        require_dtype(ctx, op, ctx.input_type(op, i), {"int16"}, what=f"a table ({name})")
        tables.append(ctx.constant(op, i).ravel())
    weights, unweights, *ranges = tables
    count = CustomOptions(ctx, op).integer("num_channels", 1, 1 << 15) + 1
    if any(len(r) < count for r in ranges) or len(weights) != len(unweights):
        unsupported(ctx, op, f"its tables are too short for {count - 1} channels", code="E1122")
    frequencies, places, widths = (tuple(int(v) for v in r[:count]) for r in ranges)
    for f, w, n in zip(frequencies, places, widths, strict=True):
        if min(f, w, n) < 0 or len(data.shape) != 1 or f + n > data.shape[0] or w + n > len(weights):
            unsupported(
                ctx, op, f"a channel of bins {f} to {f + n} with weights from {w} leaves {data} or its tables", code="E1122"
            )
    args = [operand(ctx, op, i) for i in range(3)]
    return call("signal.filter_bank", args, FilterBankAttrs(frequencies, places, widths), span=ctx.span(op))


@from_tflite("CUSTOM:SignalFilterBankLog", "uint32", "signal.log", oracle="TFLM")
def convert_filter_bank_log(ctx: ConvertContext, op: OperatorView) -> Expr:
    """signal.log."""
    require_dtype(ctx, op, ctx.input_type(op, 0), {"uint32"})
    options = CustomOptions(ctx, op)
    scale = options.integer("output_scale", -(1 << 31), (1 << 31) - 1) & 0xFFFFFFFF
    attrs = LogAttrs(scale, options.integer("input_correction_bits", 0, 31))
    return call("signal.log", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


@from_tflite("CUSTOM:SignalFilterBankSquareRoot", "uint64", "signal.square_root", oracle="TFLM")
def convert_square_root(ctx: ConvertContext, op: OperatorView) -> Expr:
    """signal.square_root."""
    data, shift = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, data, {"uint64"})
    require_dtype(ctx, op, shift, {"int32"}, what="a shift")
    if shift.size != 1:
        unsupported(ctx, op, f"the shift is {shift}, not one number", code="E1207")
    return call("signal.square_root", [operand(ctx, op, 0), operand(ctx, op, 1)], None, span=ctx.span(op))


@from_tflite("CUSTOM:SignalFilterBankSpectralSubtraction", "uint32", "signal.noise_estimate signal.subtract_noise", oracle="TFLM")
def convert_spectral_subtraction(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """The remaining signal, and the estimate, which is kept for the next run."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"uint32"})
    options = CustomOptions(ctx, op)
    count = options.integer("num_channels", 1, 1 << 15)
    if data.shape != (count,):
        unsupported(ctx, op, f"{data} does not have {count} channels", code="E1207")

    def factor(name: str) -> int:
        return options.integer(name, -(1 << 31), (1 << 31) - 1) & 0xFFFFFFFF

    attrs = NoiseAttrs(
        (factor("smoothing"), factor("one_minus_smoothing")),
        (factor("alternate_smoothing"), factor("alternate_one_minus_smoothing")),
        factor("min_signal_remaining"),
        options.integer("spectral_subtraction_bits", 0, 63),
        options.integer("smoothing_bits", 0, 31),
        options.flag("clamping"),
    )
    state = ctx.own_variable(op, "noise_estimate", np.zeros(count, np.uint32))
    signal, span = operand(ctx, op, 0), ctx.span(op)
    estimate = call("signal.noise_estimate", [signal, state.read()], attrs, span=span)
    state.assign(estimate)
    return [call("signal.subtract_noise", [signal, estimate], attrs, span=span), estimate]


@from_tflite("CUSTOM:SignalPCAN", "uint32", "signal.pcan", oracle="TFLM")
def convert_pcan(ctx: ConvertContext, op: OperatorView) -> Expr:
    """signal.pcan."""
    data, noise, table = (ctx.input_type(op, i) for i in range(3))
    require_dtype(ctx, op, data, {"uint32"})
    require_dtype(ctx, op, noise, {"uint32"}, what="noise")
    require_dtype(ctx, op, table, {"int16"}, what="a table")
    if len(data.shape) != 1 or noise.shape != data.shape or table.size < TABLE:
        unsupported(ctx, op, f"{data}, noise {noise} and table {table} do not fit", code="E1207")
    attrs = PcanAttrs(CustomOptions(ctx, op).integer("snr_shift", 0, 63))
    return call("signal.pcan", [operand(ctx, op, i) for i in range(3)], attrs, span=ctx.span(op))


@from_tflite("CUSTOM:SignalOverlapAdd", "int16 float32", "signal.overlap_add strided_slice", oracle="TFLM")
def convert_overlap_add(ctx: ConvertContext, op: OperatorView) -> Expr:
    """signal.overlap_add; its finished samples are the result, the others the state."""
    data, span = ctx.input_type(op, 0), ctx.span(op)
    require_dtype(ctx, op, data, OVERLAP_TYPES)
    if len(data.shape) < 2 or not data.size:
        unsupported(ctx, op, f"{data} has no frames", code="E1207")
    *outer, frames, size = data.shape
    step, rows = CustomOptions(ctx, op).integer("frame_step", 1, size), prod(outer)
    if step == size:
        return reshaped(operand(ctx, op, 0), (*outer, frames * step), span)
    state = ctx.own_variable(op, "left", np.zeros((rows, size - step), numpy_dtype(data.dtype)))
    windowed = reshaped(operand(ctx, op, 0), (rows, frames, size), span)
    both = call("signal.overlap_add", [windowed, state.read()], OverlapAddAttrs(step), span=span)
    state.assign(slice_of(ctx, op, both, [range(rows), range(frames * step, frames * step + size - step)]))
    return reshaped(slice_of(ctx, op, both, [range(rows), range(frames * step)]), (*outer, frames * step), span)


# SignalDelay, SignalFramer and SignalStacker of TFLM: samples of earlier runs before this run's, cut differently.
#
# Each keeps the last samples as state.  The framer and the stacker also say whether enough samples have arrived for a valid
# result; until then TFLM leaves the result as it was in memory, here it is made of the initial zeros.
# Oracle: TFLM's `signal/micro/kernels/delay.cc`, `framer.cc`, `stacker.cc`.


LONGEST_HISTORY = 1 << 20
"""Maximum samples of a state."""


def _history_rows(ctx: ConvertContext, op: OperatorView) -> tuple[Expr, int, int]:
    """Operand 0 as [rows, samples], int16."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"int16"})
    if not data.shape or not data.size:
        unsupported(ctx, op, f"{data} has no samples", code="E1207")
    rows, samples = prod(data.shape[:-1]), data.shape[-1]
    return reshaped(operand(ctx, op, 0), (rows, samples), ctx.span(op)), rows, samples


def _joined_history(parts: Sequence[Expr], axis: int, span: Span) -> Expr:
    parts = [p for p in parts if tensor_type(p).size]
    return parts[0] if len(parts) == 1 else call("concatenate", tuple(parts), ConcatenateAttrs(axis), span=span)


def _extended(ctx: ConvertContext, op: OperatorView, data: Expr, length: int) -> Expr:
    """[rows, length + samples]: the last `length` samples of earlier runs, then this run's; the last ones are kept."""
    rows, samples = tensor_type(data).shape
    if not length:
        return data
    require_room(ctx, op, (rows, length + samples), "int16", what="the kept samples")
    state = ctx.own_variable(op, "samples", np.zeros((rows, length), np.int16))
    both = _joined_history([state.read(), data], 1, ctx.span(op))
    state.assign(slice_of(ctx, op, both, [range(rows), range(samples, samples + length)]))
    return both


@from_tflite("CUSTOM:SignalDelay", "int16", "concatenate strided_slice", oracle="TFLM")
def convert_delay(ctx: ConvertContext, op: OperatorView) -> Expr:
    """The samples from `delay_length` samples earlier."""
    data, rows, samples = _history_rows(ctx, op)
    length = CustomOptions(ctx, op).integer("delay_length", 0, LONGEST_HISTORY)
    both = _extended(ctx, op, data, length)
    return reshaped(slice_of(ctx, op, both, [range(rows), range(samples)]), ctx.input_type(op, 0).shape, ctx.span(op))


def _positive_number(value: int) -> Expr:
    return const(np.array([value], np.int32))


@from_tflite(
    "CUSTOM:SignalFramer", "int16", "add concatenate greater_equal minimum strided_slice take", oracle="TFLM"
)  # fmt: skip
def convert_framer(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """Overlapping frames, and whether all of them are complete."""
    data, _, samples = _history_rows(ctx, op)
    options, span = CustomOptions(ctx, op), ctx.span(op)
    step, prefill = options.integer("frame_step", 1, samples), options.flag("prefill")
    size = options.integer("frame_size", step if prefill else 1, LONGEST_HISTORY)
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
    more = call("add", [before, _positive_number(samples)], BinaryAttrs(), span=span)
    state.assign(call("minimum", [more, _positive_number(kept)], BinaryAttrs(), span=span))
    valid = call("greater_equal", [before, _positive_number(kept)], CompareAttrs(), span=span)
    return [frames, reshaped(valid, (), span)]


@from_tflite(
    "CUSTOM:SignalStacker",
    "int16",
    "add broadcast_to concatenate equal greater_equal select strided_slice subtract",
    oracle="TFLM",
)
def convert_stacker(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """The last frames as one, every `stacker_step` runs; copies of the first frame precede it."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"int16"})
    options, span = CustomOptions(ctx, op), ctx.span(op)
    channels = options.integer("num_channels", 1, LONGEST_HISTORY)
    left, right = (options.integer(f"stacker_{side}_context", 0, 1 << 10) for side in ("left", "right"))
    frames = left + right + 1
    step = options.integer("stacker_step", 1, frames)
    if data.shape != (channels,):
        unsupported(ctx, op, f"{data} does not have {channels} channels", code="E1207")
    frame = reshaped(operand(ctx, op, 0), (1, channels), span)
    if frames == 1:
        return [operand(ctx, op, 0), const(np.array(True))]
    require_room(ctx, op, (frames, channels), "int16", what="the kept frames")
    state = ctx.own_variable(op, "frames", np.zeros((frames - 1, channels), np.int16))
    count = ctx.own_variable(op, "count", np.array([-1], np.int32))
    before = count.read()
    is_first = call("equal", [before, _positive_number(-1)], CompareAttrs(), span=span)
    copies = call("broadcast_to", [frame], BroadcastToAttrs((frames - 1, channels)), span=span)
    history = call("select", [reshaped(is_first, (1, 1), span), copies, state.read()], SelectAttrs(), span=span)
    whole = _joined_history([history, frame], 0, span)
    state.assign(slice_of(ctx, op, whole, [range(1, frames), range(channels)]))
    more = call("add", [before, _positive_number(1)], BinaryAttrs(), span=span)
    now = call("select", [is_first, _positive_number(left + 1), more], SelectAttrs(), span=span)
    valid = call("greater_equal", [now, _positive_number(frames)], CompareAttrs(), span=span)
    remaining = call("subtract", [now, _positive_number(step)], BinaryAttrs(), span=span)
    count.assign(call("select", [valid, remaining, now], SelectAttrs(), span=span))
    return [reshaped(whole, (frames * channels,), span), reshaped(valid, (), span)]


@from_tflite("CUSTOM:AudioSpectrogram", "float32", "signal.spectrogram")
def convert_spectrogram(ctx: ConvertContext, op: OperatorView) -> Expr:
    """signal.spectrogram."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"float32"})
    options = CustomOptions(ctx, op)
    if len(data.shape) != 2 or not all(data.shape):
        unsupported(ctx, op, f"{data} is not [samples, channels]", code="E1207")
    window = options.integer("window_size", 2, min(SPECTROGRAM_LARGEST, data.shape[0]))
    attrs = SpectrogramAttrs(window, options.integer("stride", 1, 1 << 30), options.flag("magnitude_squared"))
    return call("signal.spectrogram", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


@from_tflite("CUSTOM:Mfcc", "float32", "signal.mfcc")
def convert_mfcc(ctx: ConvertContext, op: OperatorView) -> Expr:
    """signal.mfcc; the sample rate should be a constant: its triangles are then computed here."""
    data, type_ = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, data, {"float32"})
    require_dtype(ctx, op, type_, {"int32"})
    options, rate_operand = CustomOptions(ctx, op), operand(ctx, op, 1)
    channels = options.integer("filterbank_channel_count", 1, MOST_CHANNELS)
    lower = options.integer("lower_frequency_limit", 0, 1 << 30)
    upper = options.integer("upper_frequency_limit", lower + 1, 1 << 30)
    rate = None if any(isinstance(e, Var) for e in post_order(rate_operand)) else one_int(ctx, op, 1)
    attrs = MfccAttrs(rate, lower, upper, channels, options.integer("dct_coefficient_count", 1, channels))
    if len(data.shape) != 3 or data.shape[2] < 2 or (rate is not None and not reaches(data.shape[2], attrs)):
        unsupported(ctx, op, f"{data} at {rate} Hz has no frequencies up to {upper} Hz", code="E1122")
    if prod(type_.shape) != 1:
        unsupported(ctx, op, f"the rate {type_} is not one number", code="E1122")
    extra = [] if rate is not None else [reshaped(rate_operand, (1,), ctx.span(op))]
    return call("signal.mfcc", [operand(ctx, op, 0), *extra], attrs, span=ctx.span(op))
