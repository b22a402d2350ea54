"""Convert the networks with TensorFlow's converter: feed-forward ones with its default, dynamic batch, and those over time.

    python -m venv /some/where && /some/where/bin/pip install tensorflow-cpu tf_keras
    /some/where/bin/python -m tests.converter.make [--set SET] [--kinds int8 ...] [--only NAME ...] [-o FOLDER]

TensorFlow is large and neither a dependency of the project nor needed in CI: the models are committed, in one archive a set.
Without -o that archive is written again; with it one file a model.  Weights, statistics and samples are random, seeded by
the network's name.  With the same versions of TensorFlow and Keras the same bytes come out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import traceback
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.converter import flex, full_size, modules, recurrent, sequence, signals, vision  # noqa: F401 - they register the networks
from tests.converter.archive import archive
from tests.converter.models import (
    ARCHIVE,
    ARCHIVE_FLEX,
    ARCHIVE_OVER_TIME,
    KINDS,
    KINDS_FLEX,
    KINDS_OVER_TIME,
    is_committed,
    is_committed_flex,
)
from tests.converter.registry import FLEX, FULL_SIZE, NETWORKS, OVER_TIME, Builder

SAMPLES = 8
HIGHEST_INDEX = 5
"""Words and categories of the samples: every table of the networks has more rows."""


def seed_of(name: str) -> int:
    """One for all forms of a network."""
    return zlib.crc32(name.split(".")[0].encode())


def build(name: str, networks: Mapping[str, Builder]) -> Any:
    """The network with random weights; statistics, offsets and gains are drawn, too."""
    keras.backend.clear_session()
    seed = seed_of(name)
    keras.utils.set_random_seed(seed)
    built = networks[name]()
    if isinstance(built, tf.Module) and not hasattr(built, "layers"):
        return built
    model = keras.Model(*built, name=name) if isinstance(built, tuple) else built
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        value, what = np.asarray(weight), weight.name.split("/")[-1].split(":")[0]
        if what in ("bias", "beta", "moving_mean", "recurrent_bias"):
            weight.assign(rng.normal(0, 0.2, value.shape))
        elif what in ("gamma", "moving_variance", "scale"):
            weight.assign(rng.uniform(0.5, 1.5, value.shape))
    return model


def samples(inputs: dict[str, tuple[tuple[int, ...], str]], seed: int) -> Iterator[dict[str, np.ndarray]]:
    """What the converter calibrates with, by the names of the inputs: it has an order of its own."""
    rng = np.random.default_rng(seed)
    for _ in range(SAMPLES):
        yield {name: _sample(rng, shape, dtype) for name, (shape, dtype) in inputs.items()}


def _sample(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype.startswith("int"):
        return rng.integers(0, HIGHEST_INDEX, shape, dtype=dtype)
    return rng.normal(0, 1, shape).astype(dtype)


def convert_model(model: Any, kind: str, seed: int, *, of_tensorflow: bool = False) -> bytes:
    """The .tflite of a Keras model."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    known = {
        x.name: (tuple(1 if n is None else n for n in x.shape), x.dtype if isinstance(x.dtype, str) else x.dtype.name)
        for x in model.inputs
    }
    return convert(converter, kind, lambda: samples(known, seed), of_tensorflow=of_tensorflow)


def convert_module(module: Any, kind: str, seed: int) -> bytes:
    """The .tflite of a tf.Module, each function of it a signature."""
    functions = {n: getattr(module, n) for n in dir(type(module)) if hasattr(getattr(module, n, None), "input_signature")}
    known = {
        key: {t.name: (tuple(t.shape), t.dtype.name) for t in function.input_signature} for key, function in functions.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=functions)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.experimental_enable_resource_variables = True
        if len(functions) == 1:
            return convert(converter, kind, lambda: samples(*known.values(), seed))
        return convert(converter, kind, lambda: ((key, x) for key in known for x in samples(known[key], seed)))


def convert(converter: Any, kind: str, calibration: Any, *, of_tensorflow: bool = False) -> bytes:
    """The .tflite of each kind, as the documentation of the converter has it; `of_tensorflow`: with SELECT_TF_OPS."""
    if of_tensorflow:
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
        converter._experimental_lower_tensor_list_ops = False  # the default of earlier versions
    if kind == "float32":
        return bytes(converter.convert())
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    elif kind != "dynamic":
        converter.representative_dataset = calibration
        wide = kind.startswith("int16x8")
        sixteen = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        converter.target_spec.supported_ops = [sixteen if wide else tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        if not kind.endswith("float_io"):
            converter.inference_input_type = converter.inference_output_type = tf.int16 if wide else tf.int8
    return bytes(converter.convert())


def made(wanted: Iterable[tuple[str, str]], networks: Mapping[str, Builder]) -> Iterator[tuple[str, bytes]]:
    """(file name, content) of each network and kind that the converter can make; the others are told on standard error.

    Each in a process of its own: the calibration of some networks with loops crashes.
    """
    context = multiprocessing.get_context("fork")
    for name, kind in wanted:
        receive, send = context.Pipe(duplex=False)
        child = context.Process(target=_make, args=(name, kind, networks, send))
        child.start()
        send.close()
        try:
            result = receive.recv()
        except EOFError:
            result = "the converter crashed"
        child.join()
        if isinstance(result, bytes):
            yield f"{name}.{kind}.tflite", result
        else:
            print(f"{name}.{kind}: {result}", file=sys.stderr, flush=True)


def _make(name: str, kind: str, networks: Mapping[str, Builder], send: Any) -> None:
    try:
        built = build(name, networks)
        if hasattr(built, "layers"):
            send.send(convert_model(built, kind, seed_of(name), of_tensorflow=networks is FLEX))
        else:
            send.send(convert_module(built, kind, seed_of(name)))
    except Exception as error:
        last = str(error).strip().splitlines()[-1:] or [traceback.format_exc().splitlines()[-1]]
        send.send(f"{type(error).__name__}: {last[0][:200]}")


def main(words: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=("feed_forward", "over_time", "full_size", "flex"), default="feed_forward")
    parser.add_argument("--kinds", nargs="*", choices=KINDS_OVER_TIME, default=None)
    parser.add_argument("--only", nargs="*", default=None, metavar="NAME")
    parser.add_argument("-o", "--output", type=Path, default=None, metavar="FOLDER")
    given = parser.parse_args(words)
    networks, kinds, path = {
        "feed_forward": (NETWORKS, KINDS, ARCHIVE),
        "over_time": (OVER_TIME, KINDS_OVER_TIME, ARCHIVE_OVER_TIME),
        "full_size": (FULL_SIZE, KINDS, None),
        "flex": (FLEX, KINDS_FLEX, ARCHIVE_FLEX),
    }[given.set]
    wanted = [(name, kind) for name in given.only or networks for kind in given.kinds or kinds]
    if given.output is None:
        if path is None:
            parser.error(f"the set {given.set} is not committed: -o FOLDER is needed")
        committed = {"over_time": is_committed, "flex": is_committed_flex}.get(given.set, lambda *_: True)
        archive(made((w for w in wanted if committed(*w)), networks), path)
        return
    models = made(wanted, networks)
    given.output.mkdir(parents=True, exist_ok=True)
    for name, data in models:
        (given.output / name).write_bytes(data)


if __name__ == "__main__":
    main()
