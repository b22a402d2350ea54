"""Real data as input: numpy files, recordings, images and raw bytes, converted to the shape and type of a model's inputs."""

from __future__ import annotations

import io
import struct
import warnings
import wave
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from aot.driver.reading import read_limited
from aot.errors import Problem, ToolchainError, UsageError
from aot.ir.op import Array
from aot.report.measure import DEFAULT_SETS
from aot.report.measure.sets import (
    Sets,
    TensorInfo,
    fill_count,
    golden_sets,
    is_golden,
    lossless,
    open_npy,
    open_npz,
    rule_sets,
    set_numbers,
)
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, numpy_dtype
from aot.support.suggestions import did_you_mean
from aot.support.text import printable

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".pgm", ".ppm", ".bmp", ".gif"})
IMAGE_FORMATS = ("PNG", "JPEG", "PPM", "BMP", "GIF")
"""Formats that are decoded, whatever the file's name: some of Pillow's decoders start other programs."""
MOST_PIXELS = 1 << 26
"""An image of a few KB may have gigabytes of pixels."""
MOST_SAMPLES = 1 << 20
"""Each sample costs some hundred bytes, however small it is."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """How raw values become the model's.

    `quantize`: "auto" quantises float arrays, uses integer arrays of the model's own type as they are, and shifts unsigned bytes
    (pixels) to int8 by -128 or to floats by 1/255, so that black is the lowest value; "always" treats every value as real;
    "never" uses all values as they are. A `scale` or `mean` first turns a raw value into the real one (raw - mean) * scale, and
    implies "always"."""

    quantize: str = "auto"
    scale: float | None = None
    mean: float | None = None

    @property
    def is_real(self) -> bool:
        return self.quantize == "always" or self.scale is not None or self.mean is not None


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs as sets, and the class of each if the file has them."""

    sets: Sets
    labels: tuple[int, ...] | None = None


def quantize(real: Array, info: TensorInfo) -> Array:
    """q = round(real / scale) + zero_point, clamped: float32 division, halves away from zero, as TFLite's QUANTIZE does.

    Raises UsageError E5013 (no scale), E5014 for NaN and infinity.
    """
    scale, zero_point = info.get("scale"), info.get("zero_point") or 0
    if not scale:
        raise UsageError(Problem("E5013", f'input "{info["name"]}" has no scale, so real values cannot be quantised'))
    if not np.isfinite(real).all():
        raise UsageError(Problem("E5014", f'NaN and infinity are not valid for the {info["dtype"]} input "{info["name"]}"'))
    low, high = int_range(info["dtype"])
    with np.errstate(over="ignore"):  # too large values are clamped
        ratio = (real.astype(np.float32) / np.float32(scale)).astype(np.float64)
    rounded = np.nan_to_num(np.trunc(ratio + np.copysign(0.5, ratio)))
    return np.asarray(np.clip(rounded + zero_point, low, high)).astype(numpy_dtype(info["dtype"]))


def dequantize(values: Array, info: TensorInfo) -> Array:
    """real = scale * (q - zero_point) as float32; values without a scale are only cast."""
    if not info.get("scale"):
        return values.astype(np.float32)
    return (values.astype(np.float32) - np.float32(info.get("zero_point") or 0)) * np.float32(info["scale"])


def convert(raw: Array, info: TensorInfo, conversion: Conversion) -> Array:
    """Values of any type converted to the input's type (E5014 if they do not fit it)."""
    dtype = info["dtype"]
    if raw.dtype.kind not in "biuf":
        raise UsageError(Problem("E5014", f'values of type {raw.dtype} are not numeric, input "{info["name"]}" is {dtype}'))
    if dtype == "bool":
        return lossless(raw, info, f'the values of input "{info["name"]}"')
    if conversion.is_real:
        factor = np.float32(1 if conversion.scale is None else conversion.scale)
        with np.errstate(over="ignore", invalid="ignore"):
            real = (raw.astype(np.float32) - np.float32(conversion.mean or 0)) * factor
        return _as_float(real, raw, info) if is_float(dtype) else quantize(real, info)
    if is_float(dtype):
        pixels = raw.dtype == np.uint8 and conversion.quantize == "auto"
        return _as_float(raw.astype(np.float32) / np.float32(255) if pixels else raw, raw, info)
    if raw.dtype.kind == "f":
        if conversion.quantize == "never":
            raise UsageError(
                Problem("E5014", f'float values for the {dtype} input "{info["name"]}"; use --quantize auto to convert them')
            )
        return quantize(raw, info)
    if raw.dtype == np.uint8 and dtype == "int8" and conversion.quantize == "auto":
        return (raw.astype(np.int16) - 128).astype(np.int8)
    low, high = int_range(dtype)
    if raw.size and not low <= int(raw.min()) <= int(raw.max()) <= high:
        values = f"values from {raw.min()} to {raw.max()}"
        raise UsageError(
            Problem("E5014", f'{values} do not fit the {dtype} input "{info["name"]}"; use --quantize or --scale to convert them')
        )
    return raw.astype(numpy_dtype(dtype))


def _as_float(real: Array, raw: Array, info: TensorInfo) -> Array:
    """Real values in the input's type; E5014 if that makes a finite value of `raw` infinite or NaN."""
    with np.errstate(over="ignore"):
        values = real.astype(numpy_dtype(info["dtype"]))
    if (np.isfinite(raw) & ~np.isfinite(values)).any():
        raise UsageError(Problem("E5014", f'values are too large for the {info["dtype"]} input "{info["name"]}"'))
    return values


def _split(raw: Array, info: TensorInfo, what: str) -> list[Array]:
    """One array per sample: `raw` is one sample, or a stack of them along its first axis (E5012, E5002)."""
    shape = tuple(info["shape"])
    count = int(np.prod(shape, dtype=np.int64))
    if raw.size == count:
        return [raw.reshape(shape)]
    if raw.ndim and raw.shape[0] and raw.size == raw.shape[0] * count:
        if raw.shape[0] > MOST_SAMPLES:
            raise UsageError(Problem("E5002", f"{what} has {raw.shape[0]:,} samples, more than {MOST_SAMPLES:,}"))
        return [sample.reshape(shape) for sample in raw]
    raise UsageError(
        Problem("E5012", f'{what} is {raw.dtype}{list(raw.shape)}; input "{info["name"]}" needs {info["dtype"]}{list(shape)}')
    )


def read_image(path: Path, info: TensorInfo) -> Array:
    """An image as unsigned bytes, resized (bilinear) to the input's height and width, grey or RGB as its channels say (E5015).

    Raises E3030 if Pillow is not installed.
    """
    shape = tuple(info["shape"])
    if len(shape) == 4 and shape[3] in (1, 3):
        height, width, channels = shape[1], shape[2], shape[3]
    elif len(shape) == 3:
        height, width, channels = shape[1], shape[2], 1
    else:
        raise UsageError(Problem("E5015", f'input "{info["name"]}" of shape {list(shape)} is not an image'))
    converted = _decoded(path, (width, height), "L" if channels == 1 else "RGB")
    return np.asarray(converted, dtype=np.uint8).reshape(shape)


def _decoded(path: Path, size: tuple[int, int], mode: str) -> Any:
    """An image as a Pillow image of the given width, height and mode."""
    try:
        from PIL import Image
    except ImportError:
        raise ToolchainError(Problem("E3030", f"reading images needs Pillow: '{path}'")) from None
    data = io.BytesIO(read_limited(path))
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(data, formats=IMAGE_FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"it has {image.width} x {image.height} pixels, more than {MOST_PIXELS:,}")
            converted = image.convert(mode)
            return converted if converted.size == size else converted.resize(size, Image.Resampling.BILINEAR)
    except Exception as error:  # Pillow's decoders raise almost anything for a broken image
        message = f"'{printable(str(path))}' cannot be read as an image: {printable(str(error), limit=200)}"
        raise UsageError(Problem("E5015", message)) from None


def sample_rate(metadata: Mapping[str, Any]) -> Fraction | None:
    """Samples per second of a chain's input; None for other models, and for a chain without a rate."""
    chain = metadata.get("chain", {})
    if chain.get("rate") is None:
        return None
    elements = int(np.prod(metadata["inputs"][0]["shape"], dtype=np.int64))
    return Fraction(float(chain["rate"])) * Fraction(elements, int(chain["hop"]))


def read_wav(path: Path, info: TensorInfo, rate: Fraction | None = None) -> Array:
    """The samples of a recording, 16 bits and one channel, as whole inputs; left-over samples are dropped.

    `rate`: samples per second that the model needs, None if unknown.  Raises UsageError E5011, E5012, and E5055 for a recording
    with another rate."""
    try:
        with wave.open(io.BytesIO(read_limited(path)), "rb") as file:
            form, file_rate = (file.getnchannels(), file.getsampwidth()), file.getframerate()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError, RuntimeError, struct.error) as error:
        raise UsageError(Problem("E5011", f"'{path}' cannot be read as a recording: {error}")) from None
    if form != (1, 2):
        raise UsageError(
            Problem("E5011", f"'{path}' has {form[0]} channels of {8 * form[1]} bits; the recording must be mono, 16 bits")
        )
    if rate is not None and file_rate != rate:
        expected = f"{float(rate):,.12g}"
        message = f"'{path}' has {file_rate:,} samples per second, the chain needs {expected} (rate); resample the recording"
        raise UsageError(Problem("E5055", message))
    samples, size = np.frombuffer(data[: len(data) // 2 * 2], "<i2"), int(np.prod(info["shape"], dtype=np.int64))
    if len(samples) < size:
        raise UsageError(Problem("E5012", f"'{path}' has {len(samples):,} samples; input \"{info['name']}\" needs {size:,}"))
    return samples[: len(samples) // size * size].reshape(-1, *info["shape"])


def _read_raw(path: Path, info: TensorInfo) -> Array:
    """A file of raw bytes in the model's memory format, one sample or several."""
    data = read_limited(path)
    dtype = numpy_dtype(info["dtype"])
    size = int(np.prod(info["shape"], dtype=np.int64)) * dtype.itemsize
    if not data or len(data) % size:
        raise UsageError(
            Problem("E5012", f"'{path}' has {len(data):,} bytes; a sample of input \"{info['name']}\" needs {size:,}")
        )
    return np.frombuffer(data, dtype).reshape(-1, *info["shape"])


def read_array(path: Path, info: TensorInfo, rate: Fraction | None = None) -> Array:
    """The values of one file for one input: .npy, .wav, an image, or (any other suffix) raw bytes."""
    suffix = path.suffix.lower()
    if suffix == ".wav":
        return read_wav(path, info, rate)
    if suffix in IMAGE_SUFFIXES:
        return read_image(path, info)
    if suffix != ".npy":
        return _read_raw(path, info)
    return open_npy(path)


def _npz_arrays(path: Path, infos: Sequence[TensorInfo]) -> tuple[list[Array], Array | None]:
    """The array of each input, by its name, its C name, `x` or `x{i}`; and `y`, the labels."""
    arrays = open_npz(path)
    inputs = []
    for i, info in enumerate(infos):
        names = [info["name"], info.get("c_name", ""), f"x{i}", *(["x"] if len(infos) == 1 else [])]
        key = next((n for n in names if n in arrays), None)
        if key is None:
            raise UsageError(
                Problem("E5012", f"'{path.name}' has none of the arrays {', '.join(dict.fromkeys(n for n in names if n))}")
            )
        inputs.append(arrays[key])
    return inputs, arrays.get("y")


def _golden_inputs(path: Path, infos: Sequence[TensorInfo]) -> Sets | None:
    """The inputs of a golden file (`in{i}_{set}`), None if the archive is not one."""
    arrays = open_npz(path)
    numbers = set_numbers(arrays, "in0")
    if not numbers:
        return None
    inputs = []
    for n in numbers:
        missing = [f"in{i}_{n}" for i in range(len(infos)) if f"in{i}_{n}" not in arrays]
        if missing:
            raise UsageError(Problem("E5012", f"'{path.name}' has no {', '.join(missing)}"))
        parts = (_split(arrays[f"in{i}_{n}"], info, f"in{i}_{n}")[0] for i, info in enumerate(infos))
        inputs.append(tuple(lossless(a, info, f"in{i}_{n}") for i, (a, info) in enumerate(zip(parts, infos, strict=True))))
    return Sets(tuple(inputs), origin=path.name)


def load_samples(paths: Sequence[Path], metadata: Mapping[str, Any], conversion: Conversion) -> Samples:
    """Samples from files for a model with this metadata: one .npz with everything; else one file per input, or, for a single
    input, one file per sample (E501x, E5055)."""
    infos: Sequence[TensorInfo] = metadata["inputs"]
    rates = [sample_rate(metadata), *[None] * (len(infos) - 1)]
    labels: Array | None = None
    if len(paths) == 1 and paths[0].suffix.lower() == ".npz":
        golden = _golden_inputs(paths[0], infos)
        if golden is not None:
            return Samples(golden)
        raw, labels = _npz_arrays(paths[0], infos)
        columns = [_split(a, info, f"'{paths[0].name}'") for a, info in zip(raw, infos, strict=True)]
    elif len(infos) == 1:
        columns = [[s for p in paths for s in _split(read_array(p, infos[0], rates[0]), infos[0], f"'{p.name}'")]]
    elif len(paths) == len(infos):
        columns = [
            _split(read_array(p, info, rate), info, f"'{p.name}'") for p, info, rate in zip(paths, infos, rates, strict=True)
        ]
    else:
        raise UsageError(Problem("E5012", f"the model has {len(infos)} inputs, but {len(paths)} files were given"))
    if len({len(c) for c in columns}) != 1:
        raise UsageError(Problem("E5012", f"the inputs have different numbers of samples: {[len(c) for c in columns]}"))
    rows = zip(*columns, strict=True)
    inputs = tuple(tuple(convert(a, info, conversion) for a, info in zip(row, infos, strict=True)) for row in rows)
    return Samples(Sets(inputs, origin=", ".join(p.name for p in paths[:3])), _class_labels(labels, len(inputs)))


def _class_labels(labels: Array | None, count: int) -> tuple[int, ...] | None:
    if labels is None:
        return None
    if labels.shape != (count,) or labels.dtype.kind not in "iu":
        raise UsageError(Problem("E5012", f"the labels y are {labels.dtype}{list(labels.shape)}; expected {count} integers"))
    return tuple(int(v) for v in labels)


# ---- the sets that a caller requests: by rule, from a file, or as arrays


MAX_RANDOM = 10_000


def sets_for(metadata: Mapping[str, Any], inputs: Path | None, count: int | None, *, oracle: str) -> Sets:
    """`count` sets by rule (E5018 beyond 10,000), or the sets of a golden or sample file `inputs`; not both (E5017)."""
    if inputs is None:
        count = max(DEFAULT_SETS, 2 * fill_count(metadata)) if count is None else count
        if not 1 <= count <= MAX_RANDOM:
            raise UsageError(Problem("E5018", f"--random {count}: choose a number from 1 to {MAX_RANDOM}"))
        return rule_sets(metadata["inputs"], count)
    if count is not None:
        raise UsageError(Problem("E5017", "--inputs and --random are mutually exclusive"))
    if inputs.suffix.lower() == ".npz":
        arrays = open_npz(inputs)
        if is_golden(arrays):
            return golden_sets(arrays, inputs, inputs=metadata["inputs"], outputs=metadata["outputs"], oracle=oracle)
    return load_samples([inputs], metadata, Conversion()).sets


OwnSet = Sequence[Array] | Mapping[str, Array]
"""One set of the caller: the inputs in order, or by name."""


def _in_order(one: OwnSet | Array, rows: Sequence[Mapping[str, Any]], number: int) -> Sequence[Array]:
    """The arrays of a set in the order of the model's inputs, by their names or C names (E5022)."""
    if isinstance(one, np.ndarray):
        form = "a list of sets, each a list with an array for each input ([[array]]), or a dictionary by name"
        raise UsageError(Problem("E5022", f"set {number} is a single array; pass {form}"))
    if not isinstance(one, Mapping):
        return one
    names = [next((n for n in (row["name"], row["c_name"]) if n in one), None) for row in rows]
    strange = [str(n) for n in one if n not in names]
    if strange or None in names:
        names_known = ", ".join(row["name"] for row in rows)
        message = f"{strange[0]!r} is not an input" if strange else f"{len(one)} of {len(rows)} inputs given"
        near = did_you_mean(strange[0], [row["name"] for row in rows]) if strange else ""
        raise UsageError(Problem("E5022", f"set {number}: {message}{near}; the model has {names_known}"))
    return [one[n] for n in names if n is not None]


def own_sets(metadata: Mapping[str, Any], given: Sequence[OwnSet] | OwnSet) -> Sets:
    """`given[set][input]` as sets: arrays of the inputs' shapes and dtypes (E5022 otherwise); a dictionary by name is one set."""
    rows = metadata["inputs"]
    several = [given] if isinstance(given, Mapping) else given
    sets = tuple(tuple(map(np.ascontiguousarray, _in_order(one, rows, n))) for n, one in enumerate(several))
    for number, one in enumerate(sets):
        if len(one) != len(rows):
            raise UsageError(Problem("E5022", f"set {number} has {len(one)} inputs, the model {len(rows)}"))
        for row, array in zip(rows, one, strict=True):
            if list(array.shape) != list(row["shape"]) or array.dtype != numpy_dtype(row["dtype"]):
                expected, got = f"{row['dtype']}{list(row['shape'])}", f"{array.dtype}{list(array.shape)}"
                raise UsageError(
                    Problem("E5022", f'input {row["index"]} "{row["name"]}" of set {number} is {expected}, not {got}')
                )
    return Sets(sets, origin=f"{len(sets)} sets of the caller")
