"""tf.Modules: variables that outlive a call, several signatures, conditions and loops.  Needs TensorFlow; see make.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.converter.registry import over_time

Tensor = Any


def weights(seed: int, *shape: int) -> Tensor:
    return tf.constant(np.random.default_rng(seed).normal(0, 0.6, shape).astype("f"))


def signature(*shapes: tuple[int, ...], dtype: Any = tf.float32) -> Any:
    return tf.function(input_signature=[tf.TensorSpec(s, dtype, name=f"x{n}") for n, s in enumerate(shapes)])


@over_time
class Ring(tf.Module):  # type: ignore[misc]
    """The last rows and the new one; a second signature sets the rows to zero."""

    def __init__(self) -> None:
        self.v = tf.Variable(tf.zeros([1, 7, 4]))
        self.w = weights(0, 8, 4)

    @signature((1, 1, 4))
    def step(self, x: Tensor) -> Tensor:
        window = tf.concat([self.v, x], 1)
        self.v.assign(window[:, 1:])
        return {"y": tf.reduce_sum(window * self.w[None], [1])}

    @signature()
    def reset(self) -> Tensor:
        self.v.assign(tf.zeros([1, 7, 4]))
        return {"n": tf.constant(0)}


@over_time
class Shift(tf.Module):  # type: ignore[misc]
    """A shift register that begins with random numbers."""

    def __init__(self) -> None:
        self.v = tf.Variable(weights(1, 1, 6, 4))

    @signature((1, 1, 4))
    def step(self, x: Tensor) -> Tensor:
        self.v.assign(tf.concat([self.v[:, 1:], x], 1))
        return {"y": tf.nn.relu(self.v + 1.0)}


@over_time
class Cond(tf.Module):  # type: ignore[misc]
    """A variable that is added to or halved, and a counter."""

    def __init__(self) -> None:
        self.v = tf.Variable(tf.zeros([4]))
        self.n = tf.Variable(0)

    @signature((4,))
    def step(self, x: Tensor) -> Tensor:
        self.n.assign_add(1)
        if tf.reduce_sum(x) > 0:
            self.v.assign_add(x)
        else:
            self.v.assign(self.v * 0.5)
        return {"y": self.v + 0.0, "n": self.n + 0}


@over_time
class Loop(tf.Module):  # type: ignore[misc]
    """A variable that a loop changes three times."""

    def __init__(self) -> None:
        self.v = tf.Variable(tf.zeros([4]))

    @signature((4,))
    def step(self, x: Tensor) -> Tensor:
        for _ in tf.range(3):
            self.v.assign(self.v * 0.9 + x)
        return {"y": self.v + 0.0}


@over_time
class StreamingConvolution(tf.Module):  # type: ignore[misc]
    """Two rings with a convolution behind each, as wake-word networks have them."""

    def __init__(self) -> None:
        self.a, self.b = (tf.Variable(tf.zeros([1, n, 1, c])) for n, c in ((2, 5), (4, 6)))
        self.wa, self.wb, self.wc = weights(2, 3, 1, 5, 6), weights(3, 5, 1, 6, 1), weights(4, 6, 2)

    @signature((1, 1, 1, 5))
    def step(self, x: Tensor) -> Tensor:
        window = tf.concat([self.a, x], 1)
        self.a.assign(window[:, -2:])
        x = tf.nn.relu(tf.nn.conv2d(window, self.wa, 1, "VALID") + 0.1)
        window = tf.concat([self.b, x], 1)
        self.b.assign(window[:, -4:])
        x = tf.nn.relu(tf.nn.depthwise_conv2d(window, self.wb, [1, 1, 1, 1], "VALID"))
        return {"y": tf.sigmoid(tf.matmul(tf.reshape(x, [1, 6]), self.wc))}


@over_time
class StreamingDilated(tf.Module):  # type: ignore[misc]
    """A ring of which every second row is looked at, and a residual."""

    def __init__(self) -> None:
        self.v = tf.Variable(tf.zeros([1, 4, 4]))
        self.w = weights(5, 12, 4)

    @signature((1, 1, 4))
    def step(self, x: Tensor) -> Tensor:
        window = tf.concat([self.v, x], 1)
        self.v.assign(window[:, 1:])
        y = tf.nn.relu(tf.matmul(tf.reshape(window[:, ::2], [1, 12]), self.w))
        return {"y": y + tf.reshape(x, [1, 4])}


@over_time
class StreamingGru(tf.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        self.h = tf.Variable(tf.zeros([1, 4]))
        self.w, self.u, self.b = weights(6, 3, 12), weights(7, 4, 12), weights(8, 12)

    @signature((1, 3))
    def step(self, x: Tensor) -> Tensor:
        a, b = tf.matmul(x, self.w) + self.b, tf.matmul(self.h, self.u)
        (az, ar, an), (bz, br, bn) = tf.split(a, 3, 1), tf.split(b, 3, 1)
        z, r = tf.sigmoid(az + bz), tf.sigmoid(ar + br)
        self.h.assign(z * self.h + (1.0 - z) * tf.tanh(an + r * bn))
        return {"y": self.h + 0.0}


@over_time
class StreamingLstm(tf.Module):  # type: ignore[misc]
    """Two variables; a signature that sets them, one that reads them."""

    def __init__(self) -> None:
        self.h, self.c = tf.Variable(tf.zeros([1, 4])), tf.Variable(tf.zeros([1, 4]))
        self.w, self.b = weights(9, 7, 16), weights(10, 16)

    @signature((1, 3))
    def step(self, x: Tensor) -> Tensor:
        gates = tf.matmul(tf.concat([x, self.h], 1), self.w) + self.b
        i, f, g, o = tf.split(gates, 4, 1)
        self.c.assign(tf.sigmoid(f) * self.c + tf.sigmoid(i) * tf.tanh(g))
        self.h.assign(tf.sigmoid(o) * tf.tanh(self.c))
        return {"y": self.h * 1.0}

    @signature((1, 4))
    def reset(self, h: Tensor) -> Tensor:
        self.h.assign(h)
        self.c.assign(tf.zeros([1, 4]))
        return {"h": h + 0.0}


@over_time
class RunningStatistics(tf.Module):  # type: ignore[misc]
    """Mean and variance over time; what comes out is normalised."""

    def __init__(self) -> None:
        self.mean, self.square = tf.Variable(tf.zeros([5])), tf.Variable(tf.ones([5]))

    @signature((5,))
    def step(self, x: Tensor) -> Tensor:
        self.mean.assign(0.9 * self.mean + 0.1 * x)
        self.square.assign(0.9 * self.square + 0.1 * tf.square(x))
        return {"y": (x - self.mean) * tf.math.rsqrt(self.square - tf.square(self.mean) + 0.1)}


@over_time
class WrittenInPlace(tf.Module):  # type: ignore[misc]
    """A ring whose place of writing moves: one row is scattered, none is copied by the author."""

    def __init__(self) -> None:
        self.v, self.n = tf.Variable(tf.zeros([6, 3])), tf.Variable(0)

    @signature((1, 3))
    def step(self, x: Tensor) -> Tensor:
        self.v.assign(tf.tensor_scatter_nd_update(self.v, [[self.n]], x))
        self.n.assign((self.n + 1) % 6)
        return {"y": tf.reduce_mean(self.v, 0), "n": self.n + 0}


@over_time
class Delay(tf.Module):  # type: ignore[misc]
    """The row of four steps ago, rows chosen by a counter."""

    def __init__(self) -> None:
        self.v, self.n = tf.Variable(tf.zeros([4, 3])), tf.Variable(0)

    @signature((3,))
    def step(self, x: Tensor) -> Tensor:
        old = tf.gather(self.v, self.n % 4)
        here = tf.cast(tf.equal(tf.range(4), self.n % 4), tf.float32)[:, None]
        self.v.assign(self.v * (1.0 - here) + here * x[None])
        self.n.assign_add(1)
        return {"y": old * 0.5 + x}


@over_time
class TwoNetworks(tf.Module):  # type: ignore[misc]
    """Two signatures without state: encoder and decoder in one file."""

    def __init__(self) -> None:
        self.a, self.b = weights(11, 8, 3), weights(12, 3, 8)

    @signature((1, 8))
    def encode(self, x: Tensor) -> Tensor:
        return {"code": tf.tanh(tf.matmul(x, self.a))}

    @signature((1, 3))
    def decode(self, code: Tensor) -> Tensor:
        return {"x": tf.nn.relu(tf.matmul(code, self.b))}


@over_time
class Learned(tf.Module):  # type: ignore[misc]
    """Training on the device: one signature predicts, the other changes the weights by the gradient."""

    def __init__(self) -> None:
        self.w, self.b = tf.Variable(weights(13, 4, 2)), tf.Variable(tf.zeros([2]))

    @signature((1, 4))
    def predict(self, x: Tensor) -> Tensor:
        return {"y": tf.matmul(x, self.w) + self.b}

    @signature((1, 4), (1, 2))
    def train(self, x: Tensor, y: Tensor) -> Tensor:
        error = tf.matmul(x, self.w) + self.b - y
        self.w.assign_sub(0.1 * tf.matmul(x, error, transpose_a=True))
        self.b.assign_sub(0.1 * tf.reduce_sum(error, 0))
        return {"loss": tf.reduce_mean(tf.square(error))}


@over_time
class Branches(tf.Module):  # type: ignore[misc]
    """A condition between two layers."""

    def __init__(self) -> None:
        self.a, self.b = weights(14, 4, 3), weights(15, 4, 3)

    @signature((1, 4))
    def step(self, x: Tensor) -> Tensor:
        y = tf.cond(
            tf.reduce_mean(x) > 0,
            lambda: tf.nn.relu(tf.matmul(x, self.a)),
            lambda: tf.tanh(tf.matmul(tf.abs(x), self.b)),
        )
        return {"y": tf.nn.softmax(y)}


@over_time
class Switch(tf.Module):  # type: ignore[misc]
    """Three branches chosen by a number: a condition in a condition, as the converter has no switch."""

    @signature((3, 2))
    def step(self, x: Tensor) -> Tensor:
        which = tf.argmax(tf.reduce_sum(x, 1), output_type=tf.int32)
        return {
            "y": tf.cond(
                which < 1,
                lambda: x * 2.0,
                lambda: tf.cond(which < 2, lambda: tf.sin(x), lambda: tf.maximum(x, 0.0)),
            )
        }


@over_time
class Newton(tf.Module):  # type: ignore[misc]
    """A loop that ends when the error is small."""

    @signature((4,))
    def step(self, x: Tensor) -> Tensor:
        x = tf.abs(x) + 0.5
        y, n = x, tf.constant(0)
        while tf.logical_and(tf.reduce_max(tf.abs(y * y - x)) > 1e-3, n < 20):
            y, n = 0.5 * (y + x / y), n + 1
        return {"y": y, "n": n}


@over_time
class Nested(tf.Module):  # type: ignore[misc]
    """A loop in a loop, a condition inside."""

    @signature((3, 4))
    def step(self, x: Tensor) -> Tensor:
        total = tf.zeros([4])
        for i in tf.range(3):
            row = tf.gather(x, i)
            for _ in tf.range(2):
                total = tf.cond(tf.reduce_sum(row) > 0, lambda t=total, r=row: t + r, lambda t=total: t * 0.5)
        return {"y": total}


@over_time
class Scan(tf.Module):  # type: ignore[misc]
    """tf.scan and tf.map_fn: lists of tensors, which the converter lowers."""

    def __init__(self) -> None:
        self.w = weights(16, 4, 4)

    @signature((5, 1, 4))
    def step(self, x: Tensor) -> Tensor:
        states = tf.scan(lambda h, row: tf.tanh(tf.matmul(h, self.w) + row), x, tf.zeros([1, 4]))
        return {"y": tf.map_fn(lambda row: tf.nn.softmax(row), states)}


@over_time
class Smoothed(tf.Module):  # type: ignore[misc]
    """Detections over time: a ring of probabilities, a threshold, a time of rest."""

    def __init__(self) -> None:
        self.v, self.rest = tf.Variable(tf.zeros([1, 4])), tf.Variable(0)

    @signature((1, 1))
    def step(self, x: Tensor) -> Tensor:
        window = tf.concat([self.v[:, 1:], tf.sigmoid(x)], 1)
        self.v.assign(window)
        found = tf.logical_and(tf.reduce_mean(window) > 0.6, tf.equal(self.rest, 0))
        self.rest.assign(tf.where(found, 3, tf.maximum(self.rest - 1, 0)))
        return {"found": found, "rest": self.rest + 0}
