"""Signal processing: TFLM's signal library, Fourier transforms, spectrograms, MFCC."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from math import isqrt

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.numerics.kissfft import inverse_real_transform, is_supported, real_transform
from aot.numerics.split_radix import real_transform as split_radix_real_transform
from aot.numerics.split_radix import spectrum
from aot.op.common.operator import Index, operator
from aot.op.common.tensors import tensors_of
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, clamp, equal, imm, logical_and, maximum, minimum, select


# signal.window: SignalWindow of TFLM: each frame times a window, shifted right and clamped to int16.
#
# out[..., i] = clamp((data[..., i] * window[i]) >> shift).  Oracle: TFLM's `signal/src/window.cc`.
@operator(
    "signal.window",
    "SignalWindow of TFLM; int16",
    [("data", "int16 [..., n]", "frames"), ("window", "int16 [n]", "a factor for each place of a frame")],
    OpPattern.BROADCAST,
)
class WindowAttrs:
    """Bits of the window's fraction."""

    shift: int

    def infer_type(self, data: TensorType, window: TensorType) -> Type:
        """int16 [..., n], int16 [n] -> int16 [..., n]."""
        if data.dtype != "int16" or window.dtype != "int16" or not data.shape or window.shape != data.shape[-1:]:
            raise TypeRuleError(f"a window {window} on {data} is not valid")
        return TensorType(data.shape, "int16")

    def evaluate(self, data: Array, window: Array, *, out_type: TensorType) -> Array:
        return np.asarray(np.clip((data.astype(np.int32) * window) >> self.shift, -32768, 32767), np.int16)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, window: TensorFn, *, out_type: TensorType) -> Expr:
        product = cast("int32", data.at(b, i)) * cast("int32", window.at(b, i[-1:]))
        return cast("int16", clamp(product >> self.shift, -32768, 32767))


# signal.energy: SignalEnergy of TFLM: the squared magnitude of each bin from `start` to `end`.
#
# Bins outside are 0; TFLM does not write them.  Oracle: TFLM's `signal/src/energy.cc`.
@operator(
    "signal.energy", "SignalEnergy of TFLM; int16 to uint32", [("data", "int16 [2 * bins]", "pairs of real and imaginary part")]
)
class EnergyAttrs:
    """The first bin, and one more than the last."""

    start: int
    end: int

    def infer_type(self, data: TensorType) -> Type:
        """int16 [2 * bins]: pairs -> uint32 [bins]."""
        if data.dtype != "int16" or len(data.shape) != 1 or data.shape[0] % 2 or not 0 <= self.start <= self.end:
            raise TypeRuleError(f"energy of {data} is not valid")
        if self.end > data.shape[0] // 2:
            raise TypeRuleError(f"energy of bins {self.start} to {self.end} of {data} is not valid")
        return TensorType((data.shape[0] // 2,), "uint32")

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        wide = data.astype(np.int64).reshape(-1, 2)
        energy = (wide * wide).sum(axis=1).astype(np.uint32)
        inside = (np.arange(len(energy)) >= self.start) & (np.arange(len(energy)) < self.end)
        return np.where(inside, energy, np.uint32(0))

    def element(self, b: IRBuilder, index: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        (i,) = index
        real, imaginary = (cast("int32", data.at(b, (i * 2 + part,))) for part in (0, 1))
        energy = cast("uint32", real * real) + cast("uint32", imaginary * imaginary)
        inside = logical_and(i >= self.start, i < self.end)
        return energy if (self.start, self.end) == (0, out_type.size) else select(inside, energy, imm(0, "uint32"))


# signal.scale_bits and signal.scale_up: SignalFftAutoScale of TFLM: a left shift by as many bits as the loudest sample allows.
#
# The bits follow from the largest magnitude, found sequentially in 16 bits: -32768 counts as -32768 there, not as 32768, and
# later samples replace it.  Silence is not scaled.  Oracle: TFLM's `signal/src/fft_auto_scale.cc` and `max_abs.cc`.


@operator(
    "signal.scale_bits",
    "SignalFftAutoScale of TFLM: bits that the loudest sample leaves free",
    [("data", "int16 [n]", "a frame")],
    has_attributes=False,
)
class ScaleBits:
    """No attributes."""

    def infer_type(self, data: TensorType) -> Type:
        """int16 [n] -> int32 []: bits by which every sample can be shifted left, 0 to 14."""
        if data.dtype != "int16" or len(data.shape) != 1:
            raise TypeRuleError(f"scale_bits of {data} is not valid")
        return TensorType((), "int32")

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        largest = largest_magnitude(data)
        return np.asarray(max(15 - largest.bit_length(), 0) if largest > 0 else 0, np.int32)


@operator(
    "signal.scale_up",
    "SignalFftAutoScale of TFLM: samples shifted left",
    [("data", "int16", "samples"), ("bits", "int32 []", "bits to the left")],
    has_attributes=False,
)
class ScaleUp:
    """No attributes."""

    def infer_type(self, data: TensorType, bits: TensorType) -> Type:
        """int16 of any shape, int32 [] bits -> int16 of the same shape."""
        if data.dtype != "int16" or bits.dtype != "int32" or bits.shape:
            raise TypeRuleError(f"scale_up of {data} by {bits} is not valid")
        return TensorType(data.shape, "int16")

    def evaluate(self, data: Array, bits: Array, *, out_type: TensorType) -> Array:
        return (data.astype(np.int32) << (int(bits) & 15)).astype(np.int16)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, bits: TensorFn, *, out_type: TensorType) -> Expr:
        factor = binop("<<", imm(1), bits.at(b, ()) & 15)
        return cast("int16", cast("int32", data.at(b, i)) * factor)


def largest_magnitude(data: Array) -> int:
    """The largest magnitude in 16 bits, found in the order of the samples."""
    largest = 0
    for value in data.ravel().tolist():
        magnitude = value if value > largest else -value
        if magnitude > largest:
            largest = magnitude if magnitude <= 32767 else -32768
    return largest


# signal.rfft and signal.irfft: SignalRfft and SignalIrfft of TFLM, between real signals and their spectra.
#
# A spectrum of n samples has n / 2 + 1 bins, real and imaginary parts alternating along the last axis.  Shorter signals are
# padded with zeros.  In fixed point the spectrum is divided by n on the way; in float32 the inverse divides by n.
# Oracle: TFLM's `signal/micro/kernels/rfft.cc` and `irfft.cc`, which run KISS FFT (`aot.numerics.kissfft`).

RFFT_TYPES = ("int16", "int32", "float32")
LONGEST = 1 << 14
"""Maximum number of samples; positions are stored in 16 bits."""


@operator(
    "signal.rfft", "SignalRfft of TFLM: bins of a real signal", [("data", "int16, int32, float32 [..., samples]", "the signal")]
)
class RfftAttrs:
    """Samples of the transform."""

    length: int

    def infer_type(self, data: TensorType) -> Type:
        """[..., samples] -> [..., length + 2]: bins as pairs of the same type."""
        _check(data, self.length)
        if data.shape[-1] > self.length:
            raise TypeRuleError(f"rfft of {data.shape[-1]} samples in {self.length} is not valid")
        return TensorType((*data.shape[:-1], self.length + 2), data.dtype)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        rows = data.reshape(-1, data.shape[-1])
        filled = np.zeros((len(rows), self.length), data.dtype)
        filled[:, : rows.shape[1]] = rows
        with np.errstate(all="ignore"):
            return real_transform(filled, str(data.dtype)).reshape(out_type.shape)


@operator(
    "signal.irfft",
    "SignalIrfft of TFLM: a real signal from its bins",
    [("data", "int16, int32, float32 [..., bins]", "pairs of real and imaginary part")],
)
class IrfftAttrs:
    """Samples of the transform."""

    length: int

    def infer_type(self, data: TensorType) -> Type:
        """[..., length + 2]: bins as pairs -> [..., length]."""
        _check(data, self.length)
        if data.shape[-1] != self.length + 2:
            raise TypeRuleError(f"irfft of {data.shape[-1]} numbers to {self.length} samples is not valid")
        return TensorType((*data.shape[:-1], self.length), data.dtype)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        with np.errstate(all="ignore"):
            samples = inverse_real_transform(data.reshape(-1, self.length // 2 + 1, 2), str(data.dtype)).reshape(out_type.shape)
            return samples / np.float32(self.length) if data.dtype == np.float32 else samples


def _check(data: TensorType, n: int) -> None:
    if data.dtype not in RFFT_TYPES or not data.shape or n % 2 or not 4 <= n <= LONGEST or not is_supported(n // 2):
        raise TypeRuleError(f"a transform of {n} samples of {data} is not valid")


# signal.rfft2d: RFFT2D of TFLite, the spectrum of real images (one row: of real signals), computed in double precision.
#
# [..., h, w] -> complex64 [..., height, width / 2 + 1]; images are cropped or padded with zeros.  Sizes are powers of two.
# Oracle: `kernels/rfft2d.cc`, which runs Ooura's transforms (`aot.numerics.split_radix`).

RFFT2D_LARGEST = 1 << 16
"""Maximum points of one transform; positions are stored in 16 bits."""


@operator(
    "signal.rfft2d", "RFFT2D; float32 to complex64", [("data", "float32 [..., h, w]", "images, or signals as images of one row")]
)
class Rfft2dAttrs:
    """Size of the transform."""

    height: int
    width: int

    def infer_type(self, data: TensorType) -> Type:
        """float32 [..., h, w] -> complex64 [..., height, width / 2 + 1]."""
        sizes_fit = is_power_of_two(self.height) and is_power_of_two(self.width) and self.width >= 2
        if data.dtype != "float32" or len(data.shape) < 2 or not sizes_fit or max(self.height, self.width) > RFFT2D_LARGEST:
            raise TypeRuleError(f"rfft2d of {self.height} x {self.width} points of {data} is not valid")
        return TensorType((*data.shape[:-2], self.height, self.width // 2 + 1), "complex64")

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        images = data.reshape(-1, *data.shape[-2:])[:, : self.height, : self.width]
        filled = np.zeros((len(images), self.height, self.width))
        filled[:, : images.shape[1], : images.shape[2]] = images
        with np.errstate(all="ignore"):
            bins = spectrum(filled).astype(np.float32)
        return bins.view(np.complex64).reshape(out_type.shape)


def is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


# signal.filter_bank: SignalFilterBank of TFLM: energies of channels, weighted sums of neighbouring bins.
#
# Each channel's bins also count, with the complementary weights, for the next channel; the first one exists only for its
# neighbour.  Oracle: TFLM's `signal/src/filter_bank.cc`.
@operator(
    "signal.filter_bank",
    "SignalFilterBank of TFLM; uint32 to uint64",
    [
        ("data", "uint32 [bins]", "the energy of each bin"),
        ("weights", "int16 [w]", "weights of the bins of all channels, one after the other"),
        ("unweights", "int16 [w]", "what the bins weigh in the channel after"),
    ],
)
class FilterBankAttrs:
    """For each channel and the one before the first: its first bin, its first weight, its width in bins."""

    frequency_starts: tuple[int, ...]
    weight_starts: tuple[int, ...]
    widths: tuple[int, ...]

    def infer_type(self, data: TensorType, weights: TensorType, unweights: TensorType) -> Type:
        """uint32 [bins], int16 [w] weights and the same of the complement -> uint64 [channels]."""
        if data.dtype != "uint32" or len(data.shape) != 1 or weights != unweights or weights.dtype != "int16":
            raise TypeRuleError(f"a filter bank of {data} by {weights} and {unweights} is not valid")
        ends = list(zip(self.frequency_starts, self.weight_starts, self.widths, strict=True))
        if len(weights.shape) != 1 or len(ends) < 2 or any(
            min(channel) < 0 or f + n > data.shape[0] or w + n > weights.shape[0] for channel in ends for f, w, n in [channel]
        ):  # fmt: skip
            raise TypeRuleError(f"a filter bank whose channels leave {data} or {weights}")
        return TensorType((len(ends) - 1,), "uint64")

    def evaluate(self, data: Array, weights: Array, unweights: Array, *, out_type: TensorType) -> Array:
        wide = data.astype(np.uint64)
        sums = []
        for f, w, n in zip(self.frequency_starts, self.weight_starts, self.widths, strict=True):
            both = (table[w : w + n].astype(np.int64).astype(np.uint64) for table in (weights, unweights))
            sums.append([np.sum(wide[f : f + n] * factors, dtype=np.uint64) for factors in both])
        own, other = np.array(sums, np.uint64).T
        return np.asarray(own[1:] + other[:-1])


# signal.log: SignalFilterBankLog of TFLM: the natural logarithm of each channel in fixed point, as int16.
#
# log2 has 16 fractional bits, from a table of 128 steps of log2(1 + x) - x with linear interpolation.
# Oracle: TFLM's `signal/src/log.cc` and `filter_bank_log.cc`.

ONE = 1 << 16
STEP = ONE // 128
LN_2 = 45426
"""ln 2 in 16 bits, rounded."""


def log_table() -> tuple[int, ...]:
    """log2(1 + i / 128) - i / 128 in 16 bits, for i from 0 to 128, and a 0 beyond."""
    return (*(round(ONE * (math.log2(1 + i / 128) - i / 128)) for i in range(129)), 0)


@operator("signal.log", "SignalFilterBankLog of TFLM; uint32 to int16", [("data", "uint32", "channels")])
class LogAttrs:
    """The result for a logarithm of 1.0, in 32 bits; bits by which the data are shifted left."""

    scale: int
    correction_bits: int

    def infer_type(self, data: TensorType) -> Type:
        """uint32 [n] -> int16 [n]."""
        if data.dtype != "uint32" or not 0 <= self.correction_bits < 32 or not 0 <= self.scale < 1 << 32:
            raise TypeRuleError(f"log of {data} is not valid")
        return TensorType(data.shape, "int16")

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        table = log_table()
        scaled = ((x << self.correction_bits) & 0xFFFFFFFF for x in data.ravel().tolist())
        logs = [min(scaled_log(x, self.scale, table), 32767) if x > 1 else 0 for x in scaled]
        return np.array(logs, np.int16).reshape(data.shape)


def scaled_log(x: int, scale: int, table: Sequence[int]) -> int:
    """scale * ln x, with the reference's roundings; x is at least 2."""
    whole = x.bit_length() - 1
    fraction = (x - (1 << whole)) << (16 - whole) if whole < 16 else (x - (1 << whole)) >> (whole - 16)
    step = fraction // STEP
    log2 = (whole << 16) + fraction + table[step] + (((table[step + 1] - table[step]) * (fraction - STEP * step)) >> 16)
    return ((scale * ((LN_2 * log2 + ONE // 2) >> 16) + ONE // 2) & 0xFFFFFFFF) >> 16


# signal.square_root: SignalFilterBankSquareRoot of TFLM: the rounded root of each channel, shifted right.
#
# A root of a 32-bit number that rounds up to 2^16 stays 2^16 - 1.  Shifts are modulo 32, as on the reference's machine.
# Oracle: TFLM's `signal/src/square_root_64.cc`.


@operator(
    "signal.square_root",
    "SignalFilterBankSquareRoot of TFLM; uint64 to uint32",
    [("data", "uint64", "energies"), ("shift", "int32 []", "bits that the roots are shifted right by")],
    has_attributes=False,
)
class SquareRoot:
    """No attributes."""

    def infer_type(self, data: TensorType, shift: TensorType) -> Type:
        """uint64 [n], int32 [] shift -> uint32 [n]."""
        if data.dtype != "uint64" or shift.dtype != "int32" or shift.size != 1:
            raise TypeRuleError(f"square_root of {data} shifted by {shift} is not valid")
        return TensorType(data.shape, "uint32")

    def evaluate(self, data: Array, shift: Array, *, out_type: TensorType) -> Array:
        roots = [rounded_root(x) >> (int(shift.ravel()[0]) & 31) for x in data.ravel().tolist()]
        return np.array(roots, np.uint32).reshape(data.shape)


def rounded_root(x: int) -> int:
    """The nearest root; 65535 and 2^32 - 1 are not rounded up."""
    root = isqrt(x)
    return root + (x - root * root > root and root not in (0xFFFF, 0xFFFFFFFF))


# signal.noise_estimate and signal.subtract_noise: SignalFilterBankSpectralSubtraction of TFLM.
#
# estimate' = (signal << bits) * smoothing + estimate * (1 - smoothing) in fixed point, with separate factors for odd-numbered
# channels; at least a given part of the signal remains.  The estimate is a state and a result.  Oracle: TFLM's
# `signal/src/filter_bank_spectral_subtraction.cc`.
@dataclass(frozen=True, slots=True)
class NoiseAttrs:
    """(smoothing, 1 - smoothing) of even and of odd channels, the least remaining part, all with `bits` fractional bits; bits by
    which the signal is shifted left; whether the estimate stays below the signal.
    """

    even: tuple[int, int]
    odd: tuple[int, int]
    remaining: int
    bits: int
    smoothing_bits: int
    clamping: bool

    def infer_type(self, data: TensorType, estimate: TensorType) -> Type:
        """uint32 [n] signal and estimate -> uint32 [n]."""
        if data.dtype != "uint32" or len(data.shape) != 1 or estimate != data:
            raise TypeRuleError(f"noise of {data} with estimate {estimate} is not valid")
        if not 0 <= self.bits < 64 or not 0 <= self.smoothing_bits < 32:
            raise TypeRuleError(f"noise of {data} by {self} is not valid")
        return TensorType(data.shape, "uint32")


_NOISE = [("data", "uint32 [n]", "the signal in each channel"), ("estimate", "uint32 [n]", "the noise")]


@operator("signal.noise_estimate", "SignalFilterBankSpectralSubtraction of TFLM: the new estimate", _NOISE)
class NoiseEstimateAttrs(NoiseAttrs):
    """The estimate after this run."""

    def evaluate(self, data: Array, estimate: Array, *, out_type: TensorType) -> Array:
        signal = (data << np.uint32(self.smoothing_bits)).astype(np.uint64)
        is_odd = np.arange(data.size) % 2 == 1
        new, old = (np.where(is_odd, np.uint64(self.odd[i]), np.uint64(self.even[i])) for i in range(2))
        with np.errstate(over="ignore"):
            new_estimate = ((signal * new + estimate.astype(np.uint64) * old) >> np.uint64(self.bits)).astype(np.uint32)
        return np.minimum(new_estimate, signal.astype(np.uint32)) if self.clamping else new_estimate

    def element(self, b: IRBuilder, i: Index, data: TensorFn, estimate: TensorFn, *, out_type: TensorType) -> Expr:
        signal = b.let("signal", data.at(b, i) << self.smoothing_bits)
        is_even = equal(i[0] % 2, 0)
        pairs = zip(self.even, self.odd, strict=True)
        new, old = (
            imm(e, "uint64") if e == o else b.let("factor", select(is_even, imm(e, "uint64"), imm(o, "uint64"))) for e, o in pairs
        )
        total = cast("uint64", signal) * new + cast("uint64", estimate.at(b, i)) * old
        new_estimate = cast("uint32", total >> self.bits)
        return minimum(b.let("found", new_estimate), signal) if self.clamping else new_estimate


@operator("signal.subtract_noise", "SignalFilterBankSpectralSubtraction of TFLM: what remains", _NOISE)
class SubtractNoiseAttrs(NoiseAttrs):
    """The signal without the estimate."""

    def evaluate(self, data: Array, estimate: Array, *, out_type: TensorType) -> Array:
        signal = data << np.uint32(self.smoothing_bits)
        left = (signal - np.minimum(estimate, signal)) >> np.uint32(self.smoothing_bits)
        least = ((data.astype(np.uint64) * np.uint64(self.remaining)) >> np.uint64(self.bits)).astype(np.uint32)
        return np.asarray(np.maximum(left, least))

    def element(self, b: IRBuilder, i: Index, data: TensorFn, estimate: TensorFn, *, out_type: TensorType) -> Expr:
        value = b.let("value", data.at(b, i))
        signal = b.let("signal", value << self.smoothing_bits)
        left = b.let("left", (signal - minimum(b.let("noise", estimate.at(b, i)), signal)) >> self.smoothing_bits)
        least = b.let("least", cast("uint32", (cast("uint64", value) * self.remaining) >> self.bits))
        return maximum(left, least)


# signal.pcan: SignalPCAN of TFLM: gain control by the noise of each channel, then a curve that is a parabola near 0.
#
# The gain is interpolated by parabolas between powers of two of the noise, from a table of 4 numbers each (3 are used).
# Oracle: TFLM's `signal/src/pcan_argc_fixed.cc`.

TABLE = 4 * 32 - 6 + 3
"""Entries of the gain table that 32-bit noise can reach."""

SNR_BITS = 12
OUTPUT_BITS = 6


@operator(
    "signal.pcan",
    "SignalPCAN of TFLM; uint32",
    [
        ("data", "uint32 [n]", "the signal in each channel"),
        ("noise", "uint32 [n]", "the noise in each channel"),
        ("table", "int16 [125]", "gains"),
    ],
)
class PcanAttrs:
    """Bits by which signal times gain is shifted right."""

    snr_shift: int

    def infer_type(self, data: TensorType, noise: TensorType, table: TensorType) -> Type:
        """uint32 [n] signal and noise, int16 [125 or more] -> uint32 [n]."""
        if data.dtype != "uint32" or noise != data or len(data.shape) != 1 or table.dtype != "int16" or table.size < TABLE:
            raise TypeRuleError(f"pcan of {data} with noise {noise} and table {table} is not valid")
        return TensorType(data.shape, "uint32")

    def evaluate(self, data: Array, noise: Array, table: Array, *, out_type: TensorType) -> Array:
        entries = table.ravel().tolist()
        gains = (gain_of(x, entries) for x in noise.tolist())
        scaled = [
            ((x * g & 0xFFFFFFFFFFFFFFFF) >> self.snr_shift) & 0xFFFFFFFF for x, g in zip(data.tolist(), gains, strict=True)
        ]
        return np.array([shrink(x) for x in scaled], np.uint32)


def gain_of(x: int, table: Sequence[int]) -> int:
    """The gain at noise x, as an int16 in 32 bits."""
    if x <= 2:
        return table[x] & 0xFFFFFFFF
    interval = x.bit_length()
    at = 4 * interval - 6
    fraction = (x << (11 - interval) if interval < 11 else x >> (interval - 11)) & 0x3FF
    result = ((table[at + 2] * fraction) >> 5) + (table[at + 1] << 5)
    result = ((result * fraction + (1 << 14)) >> 15) + table[at]
    return (((result + 32768) & 0xFFFF) - 32768) & 0xFFFFFFFF


def shrink(x: int) -> int:
    """x^2 / 2^20 below 2^13, its tangent above."""
    if x < 2 << SNR_BITS:
        return (x * x) >> (2 + 2 * SNR_BITS - OUTPUT_BITS)
    return (x >> (SNR_BITS - OUTPUT_BITS)) - (1 << OUTPUT_BITS)


# signal.overlap_add: SignalOverlapAdd of TFLM: overlapping frames become a signal again; sums are clamped to int16.
#
# Each frame is added to the remainder of earlier frames; `step` samples are then finished.  The others are a state.
# Oracle: TFLM's `signal/src/overlap_add.cc`.

OVERLAP_TYPES = ("int16", "float32")


@operator(
    "signal.overlap_add",
    "SignalOverlapAdd of TFLM; int16, float32",
    [
        ("data", "int16, float32 [rows, frames, size]", "frames"),
        ("left", "as data [rows, size - step]", "what earlier frames have left"),
    ],
)
class OverlapAddAttrs:
    """Samples from frame to frame."""

    step: int

    def infer_type(self, data: TensorType, left: TensorType) -> Type:
        """[rows, frames, size] and the remainder [rows, size - step] -> [rows, frames * step + size - step]."""
        if (
            data.dtype not in OVERLAP_TYPES
            or left.dtype != data.dtype
            or len(data.shape) != 3
            or not 1 <= self.step < data.shape[2]
        ):
            raise TypeRuleError(f"overlap_add of {data} and {left} by {self.step} is not valid")
        rows, frames, size = data.shape
        if left.shape != (rows, size - self.step):
            raise TypeRuleError(f"overlap_add of {data} and {left} is not valid")
        return TensorType((rows, frames * self.step + size - self.step), data.dtype)

    def evaluate(self, data: Array, left: Array, *, out_type: TensorType) -> Array:
        out = np.zeros(out_type.shape, data.dtype)
        out[:, : left.shape[1]] = left
        size = data.shape[2]
        for frame in range(data.shape[1]):
            part = out[:, frame * self.step : frame * self.step + size]
            with np.errstate(all="ignore"):
                if data.dtype == np.float32:
                    part += data[:, frame]
                else:
                    part[...] = np.clip(part.astype(np.int32) + data[:, frame], -32768, 32767)
        return out


# signal.spectrogram: AudioSpectrogram of TFLite: power of each frequency in frames of a signal, in double precision.
#
# Frames of `window` samples, one every `stride`, are weighted by a periodic Hann window and padded to a power of two; the
# result is the squared magnitude of each bin, or its root in float32.  Oracle: `kernels/audio_spectrogram.cc`,
# `internal/spectrogram.cc`.

SPECTROGRAM_LARGEST = 1 << 16


@operator("signal.spectrogram", "AudioSpectrogram; float32", [("data", "float32 [samples, channels]", "the signal")])
class SpectrogramAttrs:
    """Samples of a frame, samples from frame to frame, whether magnitudes stay squared."""

    window: int
    stride: int
    squared: bool

    @property
    def length(self) -> int:
        """Samples of the transform."""
        return 1 << (self.window - 1).bit_length()

    def infer_type(self, data: TensorType) -> Type:
        """float32 [samples, channels] -> float32 [channels, frames, bins]."""
        if (
            data.dtype != "float32"
            or len(data.shape) != 2
            or self.stride < 1
            or not 2 <= self.window <= min(SPECTROGRAM_LARGEST, data.shape[0])
        ):
            raise TypeRuleError(f"spectrogram of {data} in frames of {self.window} samples is not valid")
        frames = 1 + (data.shape[0] - self.window) // self.stride
        return TensorType((data.shape[1], frames, self.length // 2 + 1), "float32")

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        channels, frames, bins = out_type.shape
        starts = np.arange(frames) * self.stride
        rows = np.zeros((channels * frames, self.length))
        with np.errstate(all="ignore"):
            framed = data.T[:, starts[:, None] + np.arange(self.window)] * hann(self.window)
            rows[:, : self.window] = framed.reshape(-1, self.window)
            points = split_radix_real_transform(rows).reshape(-1, bins - 1, 2)
            power = np.zeros((len(rows), bins))
            power[:, 1:-1] = points[:, 1:, 0] * points[:, 1:, 0] + points[:, 1:, 1] * points[:, 1:, 1]
            power[:, 0], power[:, -1] = points[:, 0, 0] * points[:, 0, 0], points[:, 0, 1] * points[:, 0, 1]
            single = power.astype(np.float32).reshape(out_type.shape)
            return single if self.squared else np.sqrt(single)


def hann(length: int) -> Array:
    """The periodic Hann window in double precision."""
    pi = math.atan(1.0) * 4.0
    return np.array([0.5 - 0.5 * math.cos(2.0 * pi * i / length) for i in range(length)])


# signal.mfcc: Mfcc of TFLite: mel-frequency cepstral coefficients of a spectrogram of squared magnitudes, in double precision.
#
# Magnitudes are summed in overlapping triangles of equal width on the mel scale, followed by the logarithm (of at least 1e-12)
# and a cosine transform.  The rate may be known only at run time; if the triangles then exceed the spectrogram the result
# is 0, as in the reference, and also for a rate below 1, which the reference refuses.
# Oracle: `kernels/mfcc.cc`, `internal/mfcc_mel_filterbank.cc`, `internal/mfcc_dct.cc`.

FLOOR = 1e-12
MOST_CHANNELS = 1 << 14


@operator(
    "signal.mfcc",
    "Mfcc; float32",
    [
        ("data", "float32 [channels, frames, bins]", "squared magnitudes"),
        ("rate?", "int32 [1]", "samples a second, where the attribute is None"),
    ],
)
class MfccAttrs:
    """Samples per second (None: an operand); frequency limits in Hz; triangles; coefficients."""

    rate: int | None
    lower: float
    upper: float
    channels: int
    coefficients: int

    def infer_type(self, *types: TensorType) -> Type:
        """float32 [channels, frames, bins], the rate unless it is an attribute -> float32 [channels, frames, coefficients]."""
        data, *rate = tensors_of(types, 1 if self.rate is not None else 2)
        if rate and (rate[0].dtype, rate[0].shape) != ("int32", (1,)):
            raise TypeRuleError(f"mfcc at the rate {rate[0]} is not valid")
        sizes_fit = 1 <= self.coefficients <= self.channels <= MOST_CHANNELS and 0 <= self.lower < self.upper
        if data.dtype != "float32" or len(data.shape) != 3 or data.shape[2] < 2 or not sizes_fit:
            raise TypeRuleError(f"mfcc of {data} by {self} is not valid")
        if self.rate is not None and not reaches(data.shape[2], self):
            raise TypeRuleError(f"mfcc of {data} up to {self.upper} Hz is not valid")
        return TensorType((*data.shape[:2], self.coefficients), "float32")

    def evaluate(self, data: Array, rate: Array | None = None, *, out_type: TensorType) -> Array:
        if rate is not None:
            known = replace(self, rate=int(rate[0]))
            return (
                known.evaluate(data, out_type=out_type) if reaches(data.shape[2], known) else np.zeros(out_type.shape, np.float32)
            )
        bank, table = mel_bank(data.shape[2], self), cosines(self)
        with np.errstate(all="ignore"):
            rows = np.sqrt(data.astype(np.float64)).reshape(-1, data.shape[2])
            mel = np.zeros((len(rows), self.channels))
            for i, (channel, weight) in enumerate(zip(bank.channel, bank.weight, strict=True), bank.first):
                weighted = rows[:, i] * weight
                if channel >= 0:
                    mel[:, channel] += weighted
                if channel + 1 < self.channels:
                    mel[:, channel + 1] += rows[:, i] - weighted
            logs = np.array([math.log(v) if 0 < v < math.inf else v for v in np.where(mel < FLOOR, FLOOR, mel).ravel().tolist()])
            out = np.zeros((len(rows), self.coefficients))
            for j in range(self.channels):
                out += table[:, j] * logs.reshape(mel.shape)[:, j : j + 1]
            return np.where(np.isnan(out), np.nan, out).astype(np.float32).reshape(out_type.shape)


@dataclass(frozen=True, slots=True)
class MelBank:
    """For bins `first` to `last`: the channel on whose falling side each is (-1: none), and its weight there."""

    first: int
    last: int
    channel: tuple[int, ...]
    weight: tuple[float, ...]


MEL = 1127.0


def _mel(frequency: float) -> float:
    return MEL * math.log1p(frequency / 700.0)


def mel_edges(attrs: MfccAttrs) -> list[float]:
    """The lower limit on the mel scale, the centres of the triangles, and the end of the last one."""
    low, high = _mel(attrs.lower), _mel(attrs.upper)
    spacing = (high - low) / float(attrs.channels + 1)
    return [low, *(low + spacing * (i + 1) for i in range(attrs.channels + 1))]


def mel_bank(bins: int, attrs: MfccAttrs) -> MelBank:
    """The triangles for a spectrogram with `bins` bins, at a known rate."""
    assert attrs.rate is not None
    edges = mel_edges(attrs)
    width = 0.5 * attrs.rate / float(bins - 1)
    first, last = int(1.5 + attrs.lower / width), int(attrs.upper / width)
    found: list[tuple[int, float]] = []
    channel = 0
    for i in range(first, min(last, bins - 1) + 1):
        mel = _mel(i * width)
        while channel < attrs.channels and edges[channel + 1] < mel:
            channel += 1
        above, below = edges[channel + 1], edges[channel]
        found.append((channel - 1, (above - mel) / (above - below)))
    return MelBank(first, last, tuple(c for c, _ in found), tuple(w for _, w in found))


def cosines(attrs: MfccAttrs) -> Array:
    """Factors of the cosine transform, [coefficients, channels]."""
    norm, step = math.sqrt(2.0 / attrs.channels), math.atan(1.0) * 4.0 / attrs.channels
    rows = range(attrs.coefficients)
    return np.array([[norm * math.cos(i * step * (j + 0.5)) for j in range(attrs.channels)] for i in rows])


def reaches(bins: int, attrs: MfccAttrs) -> bool:
    """Whether a spectrogram with `bins` bins has the frequencies up to the limit."""
    return attrs.rate is not None and attrs.rate > 0 and mel_bank(bins, attrs).last < bins
