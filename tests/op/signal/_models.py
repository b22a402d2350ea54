"""Models of one custom operator of TFLM's audio front end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from aot.testing import ModelBuilder
from tests.op._one_op import Spec

Array = np.ndarray[Any, Any]
TENSOR_TYPE = {"float32": 0, "int32": 2, "int16": 7}
"""Numbers of element types in the options."""


def custom(name: str, inputs: Sequence[Spec], outputs: Sequence[Spec], **options: Any) -> bytes:
    """A model of the operator `name`; operands without data are the model's inputs."""
    b = ModelBuilder()
    sources = [b.tensor(f"x{i}", s.shape, s.dtype, data=s.data) for i, s in enumerate(inputs)]
    results = [b.tensor(f"y{i}", s.shape, s.dtype) for i, s in enumerate(outputs)]
    b.custom_op(name, sources, results, custom_options=bytes(flexbuffers.Dumps(options)) if options else b"")
    return b.build([t for t, s in zip(sources, inputs, strict=True) if s.data is None], results)


def draw_bits(seed: int, shape: Sequence[int], dtype: str) -> Array:
    """Random integers of all magnitudes, with extremes."""
    rng = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True) >> rng.integers(0, limits.bits, shape).astype(
        dtype
    )
    extremes = np.array([limits.min, limits.max], dtype)
    return np.asarray(np.where(rng.random(shape) < 0.1, rng.choice(extremes, shape), values))


def window(shape: tuple[int, ...], shift: int, weights: Array) -> bytes:
    data = Spec(shape, "int16")
    return custom("SignalWindow", [data, Spec(weights.shape, "int16", None, weights)], [data], shift=shift)


def auto_scale(n: int) -> bytes:
    return custom("SignalFftAutoScale", [Spec((n,), "int16")], [Spec((n,), "int16"), Spec((), "int32")])


def rfft(dtype: str, rows: tuple[int, ...], samples: int, length: int) -> bytes:
    given, bins = Spec((*rows, samples), dtype), Spec((*rows, length + 2), dtype)
    return custom("SignalRfft", [given], [bins], T=TENSOR_TYPE[dtype], fft_length=length)


def irfft(dtype: str, rows: tuple[int, ...], length: int) -> bytes:
    bins, samples = Spec((*rows, length + 2), dtype), Spec((*rows, length), dtype)
    return custom("SignalIrfft", [bins], [samples], T=TENSOR_TYPE[dtype], fft_length=length)


def energy(bins: int, start: int, end: int) -> bytes:
    return custom(
        "SignalEnergy", [Spec((2 * bins,), "int16")], [Spec((bins,), "uint32")], start_index=start, end_index=end
    )  # fmt: skip


def filter_bank(bins: int, channels: Sequence[tuple[int, int, int]], weights: Array, unweights: Array) -> bytes:
    """`channels`: first bin, first weight and width of each, the one before the first too."""
    tables = [weights, unweights, *(np.array(column, np.int16) for column in zip(*channels, strict=True))]
    constants = [Spec(t.shape, "int16", None, np.asarray(t, np.int16)) for t in tables]
    count = len(channels) - 1
    return custom("SignalFilterBank", [Spec((bins,), "uint32"), *constants], [Spec((count,), "uint64")], num_channels=count)


def square_root(n: int) -> bytes:
    return custom("SignalFilterBankSquareRoot", [Spec((n,), "uint64"), Spec((), "int32")], [Spec((n,), "uint32")])


def pcan(n: int, shift: int, table: Array) -> bytes:
    channels = Spec((n,), "uint32")
    return custom("SignalPCAN", [channels, channels, Spec(table.shape, "int16", None, table)], [channels], snr_shift=shift)


def log(n: int, scale: int, bits: int) -> bytes:
    given, found = Spec((n,), "uint32"), Spec((n,), "int16")
    return custom("SignalFilterBankLog", [given], [found], output_scale=scale, input_correction_bits=bits)


def delay(shape: tuple[int, ...], length: int) -> bytes:
    return custom("SignalDelay", [Spec(shape, "int16")], [Spec(shape, "int16")], delay_length=length)


def framer(shape: tuple[int, ...], size: int, step: int, *, prefill: bool) -> bytes:
    frames = Spec((*shape[:-1], shape[-1] // step, size), "int16")
    options = {"frame_size": size, "frame_step": step, "prefill": prefill}
    return custom("SignalFramer", [Spec(shape, "int16")], [frames, Spec((), "bool")], **options)


def overlap_add(dtype: str, shape: tuple[int, ...], step: int) -> bytes:
    result = Spec((*shape[:-2], shape[-2] * step), dtype)
    return custom("SignalOverlapAdd", [Spec(shape, dtype)], [result], T=TENSOR_TYPE[dtype], frame_step=step)


def stacker(channels: int, left: int, right: int, step: int) -> bytes:
    frames = Spec((channels * (left + right + 1),), "int16")
    options = {"stacker_left_context": left, "stacker_right_context": right, "stacker_step": step}
    given = Spec((channels,), "int16")
    return custom("SignalStacker", [given], [frames, Spec((), "bool")], num_channels=channels, **options)


def subtraction(n: int, *, clamping: bool, smoothing_bits: int = 10, **factors: int) -> bytes:
    channels = Spec((n,), "uint32")
    options = {"smoothing": 409, "one_minus_smoothing": 15975, "alternate_smoothing": 983, "alternate_one_minus_smoothing": 15401}
    options |= {"min_signal_remaining": 819, "smoothing_bits": smoothing_bits, "spectral_subtraction_bits": 14} | factors
    name = "SignalFilterBankSpectralSubtraction"
    return custom(name, [channels], [channels, channels], num_channels=n, clamping=clamping, **options)


def _kind(name: str, places: Sequence[Spec], results: Sequence[Spec], **options: Any) -> Callable[[str], bytes]:
    """A model for each element type of the first operand; results of type "" have it too."""

    def build(dtype: str) -> bytes:
        found = [Spec(s.shape, s.dtype or dtype, None, s.data) for s in results]
        given = [Spec(places[0].shape, dtype), *places[1:]]
        return custom(name, given, found, T=TENSOR_TYPE.get(dtype, 0), **options)

    return build


_TABLE = np.zeros(125, np.int16)
_ROW, _PAIRS, _CHANNELS = Spec((8,), ""), Spec((10,), ""), Spec((8,), "uint32")
_STARTS = Spec((2,), "int16", None, np.zeros(2, np.int16))
FORMS: dict[str, Callable[[str], bytes]] = {
    "CUSTOM:SignalWindow": _kind("SignalWindow", [_ROW, Spec((8,), "int16", None, _TABLE[:8])], [_ROW], shift=4),
    "CUSTOM:SignalFftAutoScale": _kind("SignalFftAutoScale", [_ROW], [_ROW, Spec((), "int32")]),
    "CUSTOM:SignalRfft": _kind("SignalRfft", [_ROW], [_PAIRS], fft_length=8),
    "CUSTOM:SignalIrfft": _kind("SignalIrfft", [_PAIRS], [_ROW], fft_length=8),
    "CUSTOM:SignalEnergy": _kind("SignalEnergy", [_PAIRS], [Spec((5,), "uint32")], start_index=1, end_index=4),
    "CUSTOM:SignalFilterBank": _kind("SignalFilterBank", [_ROW, *[_STARTS] * 5], [Spec((1,), "uint64")], num_channels=1),
    "CUSTOM:SignalFilterBankSquareRoot": _kind("SignalFilterBankSquareRoot", [_ROW, Spec((), "int32")], [_CHANNELS]),
    "CUSTOM:SignalPCAN": _kind("SignalPCAN", [_ROW, _CHANNELS, Spec((125,), "int16", None, _TABLE)], [_CHANNELS], snr_shift=6),
    "CUSTOM:SignalFilterBankLog": _kind(
        "SignalFilterBankLog", [_ROW], [Spec((8,), "int16")], output_scale=1600, input_correction_bits=3
    ),
    "CUSTOM:SignalDelay": _kind("SignalDelay", [_ROW], [_ROW], delay_length=3),
    "CUSTOM:SignalFramer": _kind(
        "SignalFramer", [_ROW], [Spec((2, 6), ""), Spec((), "bool")], frame_size=6, frame_step=4, prefill=False
    ),
    "CUSTOM:SignalOverlapAdd": _kind("SignalOverlapAdd", [Spec((2, 6), "")], [Spec((8,), "")], frame_step=4),
    "CUSTOM:SignalStacker": _kind(
        "SignalStacker",
        [_ROW],
        [Spec((32,), ""), Spec((), "bool")],
        num_channels=8,
        stacker_left_context=2,
        stacker_right_context=1,
        stacker_step=2,
    ),
    "CUSTOM:SignalFilterBankSpectralSubtraction": lambda dtype: custom(
        "SignalFilterBankSpectralSubtraction",
        [Spec((8,), dtype)],
        [_CHANNELS, _CHANNELS],
        num_channels=8,
        clamping=True,
        smoothing=409,
        one_minus_smoothing=15975,
        alternate_smoothing=983,
        alternate_one_minus_smoothing=15401,
        min_signal_remaining=819,
        smoothing_bits=10,
        spectral_subtraction_bits=14,
    ),
    "CUSTOM:AudioSpectrogram": _kind(
        "AudioSpectrogram", [Spec((8, 1))], [Spec((1, 3, 3), "float32")], window_size=4, stride=2, magnitude_squared=True
    ),
    "CUSTOM:Mfcc": _kind(
        "Mfcc",
        [Spec((1, 2, 9)), Spec((1,), "int32", None, np.array([8000], np.int32))],
        [Spec((1, 2, 3), "float32")],
        lower_frequency_limit=20,
        upper_frequency_limit=4000,
        filterbank_channel_count=5,
        dct_coefficient_count=3,
    ),
}
"""As tests/op/_forms.py has them."""
