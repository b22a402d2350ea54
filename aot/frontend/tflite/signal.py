"""Converters of signal operators: TFLM's library, RFFT2D, spectrogram and MFCC."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.frontend.tflite.convert import CustomOptions, Operator, converter
from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.numerics.kissfft import is_supported
from aot.op import signal as signals
from aot.op.gather import TakeAttrs
from aot.op.math.arithmetic import BinaryAttrs, CompareAttrs, SelectAttrs
from aot.op.tensor import BroadcastToAttrs, ConcatenateAttrs
from aot.relay.expr import Expr, Var, call, const, post_order, tensor_type
from aot.support.dtype import numpy_dtype


@converter("CUSTOM:SignalWindow", "int16", "signal.window", oracle="TFLM")
def _window(op: Operator) -> Expr:
    data, window = op.type(0, {"int16"}), op.type(1, {"int16"}, what="a window")
    if not data.shape or window.shape != data.shape[-1:]:
        op.refuse(f"a window {window} does not fit frames of {data}", code="E1207")
    return op.call("signal.window", op.operands(0, 1), signals.WindowAttrs(CustomOptions(op).integer("shift", 0, 31)))


@converter("CUSTOM:SignalEnergy", "int16", "signal.energy", oracle="TFLM")
def _energy(op: Operator) -> Expr:
    data = op.type(0, {"int16"})
    if len(data.shape) != 1 or data.shape[0] % 2:
        op.refuse(f"{data} has no pairs of real and imaginary parts", code="E1207")
    options = CustomOptions(op)
    start = options.integer("start_index", 0, data.shape[0] // 2)
    attrs = signals.EnergyAttrs(start, options.integer("end_index", start, data.shape[0] // 2))
    return op.call("signal.energy", [op.operand(0)], attrs)


def _transform(op: Operator) -> tuple[TensorType, int]:
    """The operand's type, and the number of samples."""
    data = op.type(0, signals.RFFT_TYPES)
    length = CustomOptions(op).integer("fft_length", 1, 1 << 30)
    if length % 2 or not 4 <= length <= signals.LONGEST or not is_supported(length // 2):
        what = f"an even number from 4 to {signals.LONGEST} without prime factors above 5"
        op.refuse(f"a transform of {length} samples is not supported; only {what}", code="E1180")
    return data, length


@converter("CUSTOM:SignalRfft", "int16 int32 float32", "signal.rfft", oracle="TFLM")
def _rfft(op: Operator) -> Expr:
    data, length = _transform(op)
    if not data.shape or data.shape[-1] > length:
        op.refuse(f"{data} does not fit a transform of {length} samples", code="E1122")
    return op.call("signal.rfft", [op.operand(0)], signals.RfftAttrs(length))


@converter("CUSTOM:SignalIrfft", "int16 int32 float32", "signal.irfft", oracle="TFLM")
def _irfft(op: Operator) -> Expr:
    data, length = _transform(op)
    if not data.shape or data.shape[-1] != length + 2:
        op.refuse(f"{data} is not a spectrum of {length} samples, which has {length + 2} numbers", code="E1122")
    return op.call("signal.irfft", [op.operand(0)], signals.IrfftAttrs(length))


@converter("RFFT2D", "float32", "signal.rfft2d")
def _rfft2d(op: Operator) -> Expr:
    """signal.rfft2d; the sizes must be constants."""
    data = op.type(0, {"float32"})
    sizes = op.ints(1)
    if len(data.shape) < 2 or len(sizes) != 2:
        op.refuse(f"{data} with {len(sizes)} sizes is not an image", code="E1207")
    height, width = sizes
    largest = signals.RFFT2D_LARGEST
    if not all(map(signals.is_power_of_two, sizes)) or width < 2 or max(sizes) > largest:
        what = f"a transform of {height} x {width} points is not supported; only powers of two up to {largest}"
        op.refuse(what, code="E1181")
    return op.call("signal.rfft2d", [op.operand(0)], signals.Rfft2dAttrs(height, width))


@converter("CUSTOM:SignalFftAutoScale", "int16", "signal.scale_bits signal.scale_up", oracle="TFLM")
def _fft_auto_scale(op: Operator) -> Sequence[Expr]:
    """The scaled samples, and the bits."""
    data = op.type(0, {"int16"})
    if len(data.shape) != 1:
        op.refuse(f"{data} is not one frame", code="E1207")
    bits = op.call("signal.scale_bits", [op.operand(0)], None)
    return [op.call("signal.scale_up", [op.operand(0), bits], None), bits]


FILTER_TABLES = ("weights", "unweights", "channel_frequency_starts", "channel_weight_starts", "channel_widths")


@converter("CUSTOM:SignalFilterBank", "uint32", "signal.filter_bank", oracle="TFLM")
def _filter_bank(op: Operator) -> Expr:
    """signal.filter_bank; the tables must be constants."""
    data = op.type(0, {"uint32"})
    tables = []
    for i, name in enumerate(FILTER_TABLES, 1):
        op.require_dtype(op.type(i), {"int16"}, what=f"a table ({name})")
        tables.append(op.constant(i).ravel())
    weights, unweights, *ranges = tables
    count = CustomOptions(op).integer("num_channels", 1, 1 << 15) + 1
    if any(len(r) < count for r in ranges) or len(weights) != len(unweights):
        op.refuse(f"its tables are too short for {count - 1} channels", code="E1122")
    frequencies, places, widths = (tuple(int(v) for v in r[:count]) for r in ranges)
    for f, w, n in zip(frequencies, places, widths, strict=True):
        if min(f, w, n) < 0 or len(data.shape) != 1 or f + n > data.shape[0] or w + n > len(weights):
            op.refuse(f"a channel of bins {f} to {f + n} with weights from {w} leaves {data} or its tables", code="E1122")
    return op.call("signal.filter_bank", op.operands(0, 1, 2), signals.FilterBankAttrs(frequencies, places, widths))


@converter("CUSTOM:SignalFilterBankLog", "uint32", "signal.log", oracle="TFLM")
def _filter_bank_log(op: Operator) -> Expr:
    op.require_dtype(op.type(0), {"uint32"})
    options = CustomOptions(op)
    scale = options.integer("output_scale", -(1 << 31), (1 << 31) - 1) & 0xFFFFFFFF
    return op.call("signal.log", [op.operand(0)], signals.LogAttrs(scale, options.integer("input_correction_bits", 0, 31)))


@converter("CUSTOM:SignalFilterBankSquareRoot", "uint64", "signal.square_root", oracle="TFLM")
def _square_root(op: Operator) -> Expr:
    op.require_dtype(op.type(0), {"uint64"})
    shift = op.type(1, {"int32"}, what="a shift")
    if shift.size != 1:
        op.refuse(f"the shift is {shift}, not one number", code="E1207")
    return op.call("signal.square_root", op.operands(0, 1), None)


@converter("CUSTOM:SignalFilterBankSpectralSubtraction", "uint32", "signal.noise_estimate signal.subtract_noise", oracle="TFLM")
def _spectral_subtraction(op: Operator) -> Sequence[Expr]:
    """The remaining signal, and the estimate, which is kept for the next run."""
    data = op.type(0, {"uint32"})
    options = CustomOptions(op)
    count = options.integer("num_channels", 1, 1 << 15)
    if data.shape != (count,):
        op.refuse(f"{data} does not have {count} channels", code="E1207")

    def factor(name: str) -> int:
        return options.integer(name, -(1 << 31), (1 << 31) - 1) & 0xFFFFFFFF

    numbers = (
        (factor("smoothing"), factor("one_minus_smoothing")),
        (factor("alternate_smoothing"), factor("alternate_one_minus_smoothing")),
        factor("min_signal_remaining"),
        options.integer("spectral_subtraction_bits", 0, 63),
        options.integer("smoothing_bits", 0, 31),
        options.flag("clamping"),
    )
    state = op.own_variable("noise_estimate", np.zeros(count, np.uint32))
    signal = op.operand(0)
    estimate = op.call("signal.noise_estimate", [signal, state.read()], signals.NoiseEstimateAttrs(*numbers))
    state.assign(estimate)
    return [op.call("signal.subtract_noise", [signal, estimate], signals.SubtractNoiseAttrs(*numbers)), estimate]


@converter("CUSTOM:SignalPCAN", "uint32", "signal.pcan", oracle="TFLM")
def _pcan(op: Operator) -> Expr:
    data, noise, table = op.types(0, 1, 2)
    op.require_dtype(data, {"uint32"})
    op.require_dtype(noise, {"uint32"}, what="noise")
    op.require_dtype(table, {"int16"}, what="a table")
    if len(data.shape) != 1 or noise.shape != data.shape or table.size < signals.TABLE:
        op.refuse(f"{data}, noise {noise} and table {table} do not fit", code="E1207")
    return op.call("signal.pcan", op.operands(0, 1, 2), signals.PcanAttrs(CustomOptions(op).integer("snr_shift", 0, 63)))


@converter("CUSTOM:SignalOverlapAdd", "int16 float32", "signal.overlap_add strided_slice", oracle="TFLM")
def _overlap_add(op: Operator) -> Expr:
    """signal.overlap_add; its finished samples are the result, the others the state."""
    data = op.type(0, signals.OVERLAP_TYPES)
    if len(data.shape) < 2 or not data.size:
        op.refuse(f"{data} has no frames", code="E1207")
    *outer, frames, size = data.shape
    step, rows = CustomOptions(op).integer("frame_step", 1, size), prod(outer)
    if step == size:
        return op.reshaped(op.operand(0), (*outer, frames * step))
    state = op.own_variable("left", np.zeros((rows, size - step), numpy_dtype(data.dtype)))
    windowed = op.reshaped(op.operand(0), (rows, frames, size))
    both = op.call("signal.overlap_add", [windowed, state.read()], signals.OverlapAddAttrs(step))
    state.assign(op.slice_of(both, [range(rows), range(frames * step, frames * step + size - step)]))
    return op.reshaped(op.slice_of(both, [range(rows), range(frames * step)]), (*outer, frames * step))


# SignalDelay, SignalFramer and SignalStacker of TFLM: samples of earlier runs before this run's, cut differently.
#
# Each keeps the last samples as state.  The framer and the stacker also say whether enough samples have arrived for a valid
# result; until then TFLM leaves the result as it was in memory, here it is made of the initial zeros.
# Oracle: TFLM's `signal/micro/kernels/delay.cc`, `framer.cc`, `stacker.cc`.


LONGEST_HISTORY = 1 << 20
"""Maximum samples of a state."""


def _history_rows(op: Operator) -> tuple[Expr, int, int]:
    """Operand 0 as [rows, samples], int16."""
    data = op.type(0, {"int16"})
    if not data.shape or not data.size:
        op.refuse(f"{data} has no samples", code="E1207")
    rows, samples = prod(data.shape[:-1]), data.shape[-1]
    return op.reshaped(op.operand(0), (rows, samples)), rows, samples


def _joined_history(parts: Sequence[Expr], axis: int, span: Span) -> Expr:
    parts = [p for p in parts if tensor_type(p).size]
    return parts[0] if len(parts) == 1 else call("concatenate", tuple(parts), ConcatenateAttrs(axis), span=span)


def _extended(op: Operator, data: Expr, length: int) -> Expr:
    """[rows, length + samples]: the last `length` samples of earlier runs, then this run's; the last ones are kept."""
    rows, samples = tensor_type(data).shape
    if not length:
        return data
    op.require_room((rows, length + samples), "int16", what="the kept samples")
    state = op.own_variable("samples", np.zeros((rows, length), np.int16))
    both = _joined_history([state.read(), data], 1, op.span)
    state.assign(op.slice_of(both, [range(rows), range(samples, samples + length)]))
    return both


@converter("CUSTOM:SignalDelay", "int16", "concatenate strided_slice", oracle="TFLM")
def _delay(op: Operator) -> Expr:
    """The samples from `delay_length` samples earlier."""
    data, rows, samples = _history_rows(op)
    length = CustomOptions(op).integer("delay_length", 0, LONGEST_HISTORY)
    both = _extended(op, data, length)
    return op.reshaped(op.slice_of(both, [range(rows), range(samples)]), op.type(0).shape)


def _number(value: int) -> Expr:
    return const(np.array([value], np.int32))


@converter("CUSTOM:SignalFramer", "int16", "add concatenate greater_equal minimum strided_slice take", oracle="TFLM")
def _framer(op: Operator) -> Sequence[Expr]:
    """Overlapping frames, and whether all of them are complete."""
    data, _, samples = _history_rows(op)
    options = CustomOptions(op)
    step, prefill = options.integer("frame_step", 1, samples), options.flag("prefill")
    size = options.integer("frame_size", step if prefill else 1, LONGEST_HISTORY)
    if samples % step:
        op.refuse(f"{samples} samples are not a whole number of steps of {step}", code="E1122")
    count = samples // step
    kept = size - step if prefill else (-(-size // step) - 1) * step
    op.require_room((count, size), "int32", what="a frame for every step")
    both = _extended(op, data, kept)
    places = np.arange(count, dtype=np.int32)[:, None] * step + np.arange(size, dtype=np.int32)
    if count * step == samples and (count, size) == (1, kept + samples):
        frames = both
    else:
        frames = op.call("take", [both, const(places.reshape(-1))], TakeAttrs(1))
    frames = op.reshaped(frames, (*op.type(0).shape[:-1], count, size))
    if prefill or not kept:
        return [frames, const(np.array(True))]
    state = op.own_variable("count", np.zeros(1, np.int32))
    before = state.read()
    more = op.call("add", [before, _number(samples)], BinaryAttrs())
    state.assign(op.call("minimum", [more, _number(kept)], BinaryAttrs()))
    valid = op.call("greater_equal", [before, _number(kept)], CompareAttrs())
    return [frames, op.reshaped(valid, ())]


@converter(
    "CUSTOM:SignalStacker",
    "int16",
    "add broadcast_to concatenate equal greater_equal select strided_slice subtract",
    oracle="TFLM",
)
def _stacker(op: Operator) -> Sequence[Expr]:
    """The last frames as one, every `stacker_step` runs; copies of the first frame precede it."""
    data = op.type(0, {"int16"})
    options, span = CustomOptions(op), op.span
    channels = options.integer("num_channels", 1, LONGEST_HISTORY)
    left, right = (options.integer(f"stacker_{side}_context", 0, 1 << 10) for side in ("left", "right"))
    frames = left + right + 1
    step = options.integer("stacker_step", 1, frames)
    if data.shape != (channels,):
        op.refuse(f"{data} does not have {channels} channels", code="E1207")
    frame = op.reshaped(op.operand(0), (1, channels))
    if frames == 1:
        return [op.operand(0), const(np.array(True))]
    op.require_room((frames, channels), "int16", what="the kept frames")
    state = op.own_variable("frames", np.zeros((frames - 1, channels), np.int16))
    count = op.own_variable("count", np.array([-1], np.int32))
    before = count.read()
    is_first = op.call("equal", [before, _number(-1)], CompareAttrs())
    copies = op.call("broadcast_to", [frame], BroadcastToAttrs((frames - 1, channels)))
    history = op.call("select", [op.reshaped(is_first, (1, 1)), copies, state.read()], SelectAttrs())
    whole = _joined_history([history, frame], 0, span)
    state.assign(op.slice_of(whole, [range(1, frames), range(channels)]))
    more = op.call("add", [before, _number(1)], BinaryAttrs())
    now = op.call("select", [is_first, _number(left + 1), more], SelectAttrs())
    valid = op.call("greater_equal", [now, _number(frames)], CompareAttrs())
    remaining = op.call("subtract", [now, _number(step)], BinaryAttrs())
    count.assign(op.call("select", [valid, remaining, now], SelectAttrs()))
    return [op.reshaped(whole, (frames * channels,)), op.reshaped(valid, ())]


@converter("CUSTOM:AudioSpectrogram", "float32", "signal.spectrogram")
def _spectrogram(op: Operator) -> Expr:
    data = op.type(0, {"float32"})
    options = CustomOptions(op)
    if len(data.shape) != 2 or not all(data.shape):
        op.refuse(f"{data} is not [samples, channels]", code="E1207")
    window = options.integer("window_size", 2, min(signals.SPECTROGRAM_LARGEST, data.shape[0]))
    attrs = signals.SpectrogramAttrs(window, options.integer("stride", 1, 1 << 30), options.flag("magnitude_squared"))
    return op.call("signal.spectrogram", [op.operand(0)], attrs)


@converter("CUSTOM:Mfcc", "float32", "signal.mfcc")
def _mfcc(op: Operator) -> Expr:
    """signal.mfcc; the sample rate should be a constant: its triangles are then computed here."""
    data, type_ = op.type(0, {"float32"}), op.type(1, {"int32"})
    options, rate_operand = CustomOptions(op), op.operand(1)
    channels = options.integer("filterbank_channel_count", 1, signals.MOST_CHANNELS)
    lower = options.integer("lower_frequency_limit", 0, 1 << 30)
    upper = options.integer("upper_frequency_limit", lower + 1, 1 << 30)
    rate = None if any(isinstance(e, Var) for e in post_order(rate_operand)) else op.one_int(1)
    attrs = signals.MfccAttrs(rate, lower, upper, channels, options.integer("dct_coefficient_count", 1, channels))
    if len(data.shape) != 3 or data.shape[2] < 2 or (rate is not None and not signals.reaches(data.shape[2], attrs)):
        op.refuse(f"{data} at {rate} Hz has no frequencies up to {upper} Hz", code="E1122")
    if prod(type_.shape) != 1:
        op.refuse(f"the rate {type_} is not one number", code="E1122")
    extra = [] if rate is not None else [op.reshaped(rate_operand, (1,))]
    return op.call("signal.mfcc", [op.operand(0), *extra], attrs)
