"""Convert modules with variables, as TensorFlow's converter writes them: a window, a shift register, a condition, a loop.

/some/where/bin/python -m tests.converter.make_variables       (see make.py for how TensorFlow gets there)
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parent / "variables"


class Ring(tf.Module):  # type: ignore[misc]
    """The last rows and the new one; a second signature sets the rows to zero."""

    def __init__(self) -> None:
        self.v = tf.Variable(tf.zeros([1, 7, 4]))
        self.w = tf.constant(np.random.default_rng(0).standard_normal((8, 4)).astype("f"))

    @tf.function(input_signature=[tf.TensorSpec([1, 1, 4])])  # type: ignore[untyped-decorator]
    def step(self, x: Any) -> Any:
        window = tf.concat([self.v, x], 1)
        self.v.assign(window[:, 1:])
        return {"y": tf.reduce_sum(window * self.w[None], [1])}

    @tf.function(input_signature=[])  # type: ignore[untyped-decorator]
    def reset(self) -> Any:
        self.v.assign(tf.zeros([1, 7, 4]))
        return {"n": tf.constant(0)}


class Shift(tf.Module):  # type: ignore[misc]
    """A shift register that begins with random numbers."""

    def __init__(self) -> None:
        self.v = tf.Variable(np.random.default_rng(1).standard_normal((1, 6, 4)).astype("f"))

    @tf.function(input_signature=[tf.TensorSpec([1, 1, 4])])  # type: ignore[untyped-decorator]
    def step(self, x: Any) -> Any:
        self.v.assign(tf.concat([self.v[:, 1:], x], 1))
        return {"y": tf.nn.relu(self.v + 1.0)}


class Cond(tf.Module):  # type: ignore[misc]
    """A variable that is added to or halved, and a counter."""

    def __init__(self) -> None:
        self.v = tf.Variable(tf.zeros([4]))
        self.n = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([4])])  # type: ignore[untyped-decorator]
    def step(self, x: Any) -> Any:
        self.n.assign_add(1)
        if tf.reduce_sum(x) > 0:
            self.v.assign_add(x)
        else:
            self.v.assign(self.v * 0.5)
        return {"y": self.v + 0.0, "n": self.n + 0}


class Loop(tf.Module):  # type: ignore[misc]
    """A variable that a loop changes three times."""

    def __init__(self) -> None:
        self.v = tf.Variable(tf.zeros([4]))

    @tf.function(input_signature=[tf.TensorSpec([4])])  # type: ignore[untyped-decorator]
    def step(self, x: Any) -> Any:
        for _ in tf.range(3):
            self.v.assign(self.v * 0.9 + x)
        return {"y": self.v + 0.0}


def main() -> None:
    for module in (Ring(), Shift(), Cond(), Loop()):
        names = [n for n in ("step", "reset") if hasattr(module, n)]
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(module, folder, signatures={n: getattr(module, n) for n in names})
            converter = tf.lite.TFLiteConverter.from_saved_model(folder)
            converter.experimental_enable_resource_variables = True
            (FOLDER / f"{type(module).__name__.lower()}.tflite").write_bytes(converter.convert())


if __name__ == "__main__":
    main()
