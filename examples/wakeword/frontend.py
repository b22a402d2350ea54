"""The front end as a model: 20 ms of audio in, the energy in 24 bands of frequency out, by TFLM's signal operators.

Frames of 30 ms every 20 ms, a Hann window, a transform of 512 points in 16 bits, triangular bands on the mel scale, roots, the
steady part of each band taken away, logarithms; then the codes of the networks' input.  Its state is the end of the last step
and the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from aot.testing import ModelBuilder
from examples.wakeword.sounds import RATE, STEP

Array = np.ndarray[Any, Any]
FRAME, LENGTH, BANDS = 480, 512, 24
LOWEST, HIGHEST = 125.0, 7000.0
FEATURE_SCALE = 3.3
"""Steps of the logarithm (1/64 of a nat) to a code."""
FEATURES: dict[str, Any] = {"scale": FEATURE_SCALE, "zero_point": -128}
"""The quantisation of the features."""
_TYPES = {"int16": 7}


def bands() -> tuple[list[Array], int, int]:
    """The tables of SignalFilterBank (weights, complements; first bin, first weight and width of each range), first and end bin.

    Range r lies between the middles of two bands: it falls in band r - 1 and rises in band r.
    """
    mel = np.linspace(*(1127 * np.log1p(f / 700) for f in (LOWEST, HIGHEST)), BANDS + 2)
    middles = 700 * np.expm1(mel / 1127) * LENGTH / RATE
    starts, places, widths, falling = [], [], [], []
    for low, high in pairwise(middles):
        bins = np.arange(int(np.ceil(low)), int(np.ceil(high)))
        starts.append(int(np.ceil(low)))
        places.append(len(falling))
        widths.append(len(bins))
        falling += [round(4096 * float((high - b) / (high - low))) for b in bins]
    weights = np.array(falling, np.int16)
    tables = [weights, 4096 - weights, *(np.array(t, np.int16) for t in (starts, places, widths))]
    return [np.asarray(t, np.int16) for t in tables], starts[0], starts[-1] + widths[-1]


def _options(**values: Any) -> bytes:
    return bytes(flexbuffers.Dumps(values))


class _Chain:
    """Operators one after the other."""

    def __init__(self) -> None:
        self.b = ModelBuilder("wake word front end")
        self.number = 0

    def tensor(self, shape: Sequence[int], dtype: str, **rest: Any) -> int:
        self.number += 1
        return self.b.tensor(f"t{self.number}", shape, dtype, **rest)

    def const(self, data: Array) -> int:
        return self.tensor(data.shape, str(data.dtype), data=data)

    def op(self, name: str, inputs: Sequence[int], *results: tuple[tuple[int, ...], str], **options: Any) -> list[int]:
        outputs = [self.tensor(shape, dtype) for shape, dtype in results]
        self.b.custom_op(name, inputs, outputs, custom_options=_options(**options) if options else b"")
        return outputs

    def reshape(self, x: int, shape: Sequence[int], dtype: str, **rest: Any) -> int:
        y = self.tensor(shape, dtype, **rest)
        self.b.op("RESHAPE", [x, self.const(np.array(shape, np.int32))], [y])
        return y


def frontend() -> bytes:
    """The model: `audio` int16 [1, 320] -> `features` int8 [1, 1, 24]."""
    c = _Chain()
    audio = c.b.tensor("audio", (1, STEP), "int16")
    frame, _ = c.op(
        "SignalFramer", [audio], ((1, 1, FRAME), "int16"), ((), "bool"), frame_size=FRAME, frame_step=STEP, prefill=True
    )
    hann = np.rint(4095 * (0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(FRAME) + 0.5) / FRAME))).astype(np.int16)
    (windowed,) = c.op("SignalWindow", [c.reshape(frame, (FRAME,), "int16"), c.const(hann)], ((FRAME,), "int16"), shift=12)
    scaled, shift = c.op("SignalFftAutoScale", [windowed], ((FRAME,), "int16"), ((), "int32"))
    (bins,) = c.op("SignalRfft", [scaled], ((LENGTH + 2,), "int16"), T=_TYPES["int16"], fft_length=LENGTH)
    tables, first, end = bands()
    (energy,) = c.op("SignalEnergy", [bins], ((LENGTH // 2 + 1,), "uint32"), start_index=first, end_index=end)
    (summed,) = c.op("SignalFilterBank", [energy, *map(c.const, tables)], ((BANDS,), "uint64"), num_channels=BANDS)
    (roots,) = c.op("SignalFilterBankSquareRoot", [summed, shift], ((BANDS,), "uint32"))
    smoothing = {
        "smoothing": 409,
        "one_minus_smoothing": 15975,
        "alternate_smoothing": 983,
        "alternate_one_minus_smoothing": 15401,
    }
    cleared, _ = c.op(
        "SignalFilterBankSpectralSubtraction",
        [roots],
        ((BANDS,), "uint32"),
        ((BANDS,), "uint32"),
        num_channels=BANDS,
        min_signal_remaining=819,
        smoothing_bits=10,
        spectral_subtraction_bits=14,
        clamping=False,
        **smoothing,
    )
    log = c.tensor((BANDS,), "int16", scale=1.0, zero_point=0)
    c.b.custom_op("SignalFilterBankLog", [cleared], [log], custom_options=_options(output_scale=64, input_correction_bits=3))
    codes = c.tensor((BANDS,), "int8", **FEATURES)
    c.b.op("QUANTIZE", [log], [codes], version=2)
    features = c.reshape(codes, (1, 1, BANDS), "int8", **FEATURES)
    return c.b.build([audio], [features])
