"""Convert the Keras networks with TensorFlow's converter and its default, dynamic batch.

    python -m venv /some/where && /some/where/bin/pip install tensorflow-cpu
    /some/where/bin/python -m tests.converter.make [--kinds int8 float32 ...] [--only NAME ...] [-o FOLDER]

TensorFlow is large and neither a dependency of the project nor needed in CI: the models are committed, in one archive.
Without -o that archive is written again; with it one file a model.  Weights, statistics and samples are random, seeded by
the network's name.  Kinds that no operator of ours takes yet ("dynamic", "float16") and loops (`registry.EXTRA`) are
made on request only.  With the same versions of TensorFlow and Keras the same bytes come out.
"""

from __future__ import annotations

import argparse
import gc
import sys
import traceback
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.converter import sequence, vision  # noqa: F401 - they register the networks
from tests.converter.models import ARCHIVE, KINDS
from tests.converter.registry import EXTRA, NETWORKS

ALL_KINDS = (*KINDS, "dynamic", "float16")
SAMPLES = 8
HIGHEST_INDEX = 5
"""Words and categories of the samples: every table of the networks has more rows."""
EPOCH = (1980, 1, 1, 0, 0, 0)


def build(name: str) -> keras.Model:
    """The network with random weights; statistics, offsets and gains are drawn, too."""
    keras.backend.clear_session()
    seed = zlib.crc32(name.encode())
    keras.utils.set_random_seed(seed)
    inputs, outputs = (NETWORKS | EXTRA)[name]()
    model = keras.Model(inputs, outputs, name=name)
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        value = np.asarray(weight)
        if weight.name in ("bias", "beta", "moving_mean", "recurrent_bias"):
            weight.assign(rng.normal(0, 0.2, value.shape))
        elif weight.name in ("gamma", "moving_variance", "scale"):
            weight.assign(rng.uniform(0.5, 1.5, value.shape))
    return model


def samples(model: keras.Model, seed: int) -> Iterator[dict[str, np.ndarray]]:
    """What the converter calibrates with, by the names of the inputs: it has an order of its own."""
    rng = np.random.default_rng(seed)
    for _ in range(SAMPLES):
        yield {x.name: _sample(rng, (1, *x.shape[1:]), str(x.dtype)) for x in model.inputs}


def _sample(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype.startswith("int"):
        return rng.integers(0, HIGHEST_INDEX, shape, dtype=dtype)
    return rng.normal(0, 1, shape).astype(dtype)


def convert(model: keras.Model, kind: str, seed: int) -> bytes:
    """The .tflite of a model as the documentation of the converter has it for each kind."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if kind == "float32":
        return bytes(converter.convert())
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    elif kind != "dynamic":
        converter.representative_dataset = lambda: samples(model, seed)
        wide = kind.startswith("int16x8")
        sixteen = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        converter.target_spec.supported_ops = [sixteen if wide else tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        if not kind.endswith("float_io"):
            converter.inference_input_type = converter.inference_output_type = tf.int16 if wide else tf.int8
    return bytes(converter.convert())


def made(names: Iterable[str], kinds: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """(file name, content) of each model that the converter can make; the others are named on standard error."""
    for name in names:
        for kind in kinds:
            try:
                yield f"{name}.{kind}.tflite", convert(build(name), kind, zlib.crc32(name.encode()))
            except Exception as error:
                last = str(error).strip().splitlines()[-1:] or [traceback.format_exc().splitlines()[-1]]
                print(f"{name}.{kind}: {type(error).__name__}: {last[0][:200]}", file=sys.stderr)
            gc.collect()


def archive(models: Iterable[tuple[str, bytes]], path: Path) -> None:
    """All models in one file: the same models, the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, data in models:
            file.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED, compresslevel=9)


def main(words: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="*", choices=ALL_KINDS, default=KINDS)
    parser.add_argument("--only", nargs="*", default=None, metavar="NAME")
    parser.add_argument("-o", "--output", type=Path, default=None, metavar="FOLDER")
    given = parser.parse_args(words)
    models = made(given.only if given.only is not None else NETWORKS, given.kinds)
    if given.output is None:
        archive(models, ARCHIVE)
        return
    given.output.mkdir(parents=True, exist_ok=True)
    for name, data in models:
        (given.output / name).write_bytes(data)


if __name__ == "__main__":
    main()
