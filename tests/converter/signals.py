"""Front ends of audio with tf.signal: windows, Fourier transforms, mel bands, cepstra.  Needs TensorFlow; see make.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.converter.modules import signature, weights
from tests.converter.registry import over_time

Tensor = Any
RATE = 1000


def mel(bands: int, bins: int) -> Tensor:
    return tf.signal.linear_to_mel_weight_matrix(bands, bins, RATE, 20.0, 480.0)


@over_time
class Rfft(tf.Module):  # type: ignore[misc]
    """One frame: its magnitude, its real and imaginary part."""

    @signature((1, 32))
    def step(self, x: Tensor) -> Tensor:
        y = tf.signal.rfft(x * tf.signal.hann_window(32))
        return {"magnitude": tf.abs(y), "re": tf.math.real(y), "im": tf.math.imag(y)}


@over_time
class Stft(tf.Module):  # type: ignore[misc]
    """A clip: overlapping frames, padded to the length of the transform."""

    @signature((1, 100))
    def step(self, x: Tensor) -> Tensor:
        return {"y": tf.abs(tf.signal.stft(x, frame_length=24, frame_step=12, fft_length=32))}


@over_time
class PowerInDecibels(tf.Module):  # type: ignore[misc]
    @signature((1, 80))
    def step(self, x: Tensor) -> Tensor:
        y = tf.square(tf.abs(tf.signal.stft(x, 16, 8, window_fn=tf.signal.hamming_window, pad_end=True)))
        y = 10.0 / tf.math.log(10.0) * tf.math.log(tf.maximum(y, 1e-10))
        return {"y": tf.maximum(y, tf.reduce_max(y) - 80.0)}


@over_time
class LogMel(tf.Module):  # type: ignore[misc]
    @signature((1, 100))
    def step(self, x: Tensor) -> Tensor:
        y = tf.abs(tf.signal.stft(x, 32, 16))
        return {"y": tf.math.log(tf.matmul(y, tf.tile(mel(6, 17)[None], [1, 1, 1])) + 1e-6)}


@over_time
class Mfcc(tf.Module):  # type: ignore[misc]
    """Cepstra; the cosine transform is a product, as tf.signal.dct multiplies complex numbers, which the converter refuses."""

    @signature((1, 100))
    def step(self, x: Tensor) -> Tensor:
        y = tf.tensordot(tf.abs(tf.signal.stft(x, 32, 16)), mel(8, 17), 1)
        cosines = np.cos(np.pi / 8 * np.outer(np.arange(8) + 0.5, np.arange(5))).astype("f")
        return {"y": tf.tensordot(tf.math.log(y + 1e-6), tf.constant(cosines), 1)}


@over_time
class SpectrogramAndNetwork(tf.Module):  # type: ignore[misc]
    """Audio in, word out: spectrogram, convolution, classifier."""

    def __init__(self) -> None:
        self.w, self.d = weights(20, 3, 3, 1, 3), weights(21, 3, 4)

    @signature((1, 112))
    def step(self, x: Tensor) -> Tensor:
        y = tf.math.log(tf.abs(tf.signal.stft(x, 32, 16)) + 1e-3)[..., None]
        y = tf.nn.relu(tf.nn.conv2d(y, self.w, 2, "SAME"))
        return {"y": tf.nn.softmax(tf.matmul(tf.reduce_mean(y, [1, 2]), self.d))}


@over_time
class StreamingSpectrum(tf.Module):  # type: ignore[misc]
    """New samples behind the old ones in a variable, one spectrum a step."""

    def __init__(self) -> None:
        self.v = tf.Variable(tf.zeros([1, 24]))

    @signature((1, 8))
    def step(self, x: Tensor) -> Tensor:
        window = tf.concat([self.v, x], 1)
        self.v.assign(window[:, 8:])
        y = tf.abs(tf.signal.rfft(window * tf.signal.hann_window(32)))
        return {"y": tf.math.log(tf.matmul(y, mel(5, 17)) + 1e-3)}


@over_time
class StreamingWord(tf.Module):  # type: ignore[misc]
    """Front end, normalised by a running mean, and a GRU: all with state."""

    def __init__(self) -> None:
        self.v, self.mean, self.h = (tf.Variable(tf.zeros([1, n])) for n in (16, 17, 4))
        self.w, self.u = weights(22, 17, 8), weights(23, 4, 8)

    @signature((1, 16))
    def step(self, x: Tensor) -> Tensor:
        spectrum = tf.math.log1p(tf.abs(tf.signal.rfft(tf.concat([self.v, x], 1))))
        self.v.assign(x)
        self.mean.assign_add(0.05 * (spectrum - self.mean))
        a = tf.matmul(spectrum - self.mean, self.w) + tf.matmul(self.h, self.u)
        z, n = tf.split(a, 2, 1)
        z = tf.sigmoid(z)
        self.h.assign(z * self.h + (1.0 - z) * tf.tanh(n))
        return {"y": tf.nn.softmax(self.h)}


@over_time
class GainControl(tf.Module):  # type: ignore[misc]
    """PCEN: each band divided by its smoothed self."""

    def __init__(self) -> None:
        self.m = tf.Variable(tf.ones([1, 6]))

    @signature((1, 6))
    def step(self, x: Tensor) -> Tensor:
        energy = tf.square(x)
        self.m.assign(0.975 * self.m + 0.025 * energy)
        return {"y": tf.pow(energy / tf.pow(self.m + 1e-6, 0.98) + 2.0, 0.5) - 2.0**0.5}


@over_time
class PreEmphasis(tf.Module):  # type: ignore[misc]
    """A filter over the edge of blocks, and the rate of crossings of zero."""

    def __init__(self) -> None:
        self.last = tf.Variable(tf.zeros([1, 1]))

    @signature((1, 16))
    def step(self, x: Tensor) -> Tensor:
        before = tf.concat([self.last, x[:, :-1]], 1)
        self.last.assign(x[:, -1:])
        crossings = tf.reduce_sum(tf.cast(tf.not_equal(tf.sign(x), tf.sign(before)), tf.float32), 1)
        return {"y": x - 0.97 * before, "crossings": crossings}


@over_time
class TransformByMatrix(tf.Module):  # type: ignore[misc]
    """A Fourier transform as two products, as models for phones without complex numbers have it."""

    @signature((1, 4, 16))
    def step(self, x: Tensor) -> Tensor:
        angle = 2 * np.pi * np.outer(np.arange(16), np.arange(9)) / 16
        re, im = (tf.tensordot(x, tf.constant(f(angle).astype("f")), 1) for f in (np.cos, np.sin))
        return {"y": tf.sqrt(tf.square(re) + tf.square(im) + 1e-9)}


@over_time
class OverlapAdd(tf.Module):  # type: ignore[misc]
    """Frames of a clip, scaled, and added where they overlap."""

    @signature((1, 64))
    def step(self, x: Tensor) -> Tensor:
        frames = tf.signal.frame(x, 16, 8) * tf.signal.hann_window(16)
        return {"y": tf.signal.overlap_and_add(frames * 0.7, 8)}


@over_time
class Spectrum2d(tf.Module):  # type: ignore[misc]
    @signature((8, 8))
    def step(self, x: Tensor) -> Tensor:
        return {"y": tf.abs(tf.signal.rfft2d(x))}


@over_time
class Centroid(tf.Module):  # type: ignore[misc]
    """Moments of a spectrum, the loudest bin, the flatness."""

    @signature((1, 32))
    def step(self, x: Tensor) -> Tensor:
        y = tf.abs(tf.signal.rfft(x)) + 1e-3
        bins = tf.range(17, dtype=tf.float32)
        mean = tf.reduce_sum(y * bins, 1, keepdims=True) / tf.reduce_sum(y, 1, keepdims=True)
        flat = tf.exp(tf.reduce_mean(tf.math.log(y), 1)) / tf.reduce_mean(y, 1)
        return {"mean": mean, "flat": flat, "loudest": tf.argmax(y, 1, output_type=tf.int32)}
