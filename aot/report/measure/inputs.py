"""Inputs of a model: made by rule, golden files with the expected outputs, and real data converted to its shapes and types."""

from __future__ import annotations

import io
import math
import re
import struct
import warnings
import wave
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from aot.driver.reading import read_limited
from aot.errors import Problem, ToolchainError, UsageError
from aot.ir.op import Array
from aot.report.measure import DEFAULT_SETS
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, numpy_dtype
from aot.support.text import did_you_mean, printable

TensorInfo = Mapping[str, Any]
"""An entry of metadata["inputs"] or ["outputs"]: name, shape, dtype, scale, zero_point."""
_REASON = 200
"""Maximum length of the reason in a message."""


@dataclass(frozen=True, slots=True)
class Sets:
    """`inputs[set][input]`, and `expected[set][output]` if a file has the expected outputs.

    `origin` says where the inputs come from, `expected_by` whose outputs they are.
    """

    inputs: tuple[tuple[Array, ...], ...]
    expected: tuple[tuple[Array, ...], ...] | None = None
    origin: str = ""
    expected_by: str = ""

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def not_finite(self) -> int:
        """The number of NaN or infinite input values: allowed in floats, but rarely intended."""
        real = (array for one in self.inputs for array in one if array.dtype.kind in "fc")
        return sum(array.size - int(np.count_nonzero(np.isfinite(array))) for array in real)


def _byte_ramp(count: int) -> Array:
    """int8(((i * 1103515245 + 12345) >> 16) & 255) in unsigned 32-bit arithmetic: the first set of every corpus."""
    i = np.arange(count, dtype=np.uint64)
    return ((((i * 1103515245 + 12345) & 0xFFFFFFFF) >> 16) & 0xFF).astype(np.uint8).view(np.int8)


def _first(dtype: str, count: int) -> Array:
    if dtype == "complex64":
        return _first("float32", 2 * count).view(np.complex64)
    ramp = _byte_ramp(count)
    if is_float(dtype):
        return (ramp.astype(np.float32) / np.float32(128)).astype(numpy_dtype(dtype))
    if dtype == "uint8":
        return ramp.view(np.uint8)
    if dtype == "bool":
        return (ramp & 1).astype(np.bool_)
    return ramp.astype(numpy_dtype(dtype)) * (256 if dtype == "int16" else 1)


def _random(dtype: str, count: int, *, seed: int) -> Array:
    if dtype == "complex64":
        return _random("float32", 2 * count, seed=seed).view(np.complex64)
    rng = np.random.default_rng(seed)
    if is_float(dtype):
        return rng.standard_normal(count).astype(numpy_dtype(dtype))
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(np.bool_)
    low, high = int_range(dtype)
    if high > 1 << 16:  # indices are small
        low, high = max(low, -128), 127
    return rng.integers(low, high, count, dtype=numpy_dtype(dtype).type, endpoint=True)


def _allowed(info: TensorInfo, count: int, *, number: int, seed: int) -> Array:
    """Values for an input that accepts only some values (aot.frontend.formats): spread over its range."""
    dtype = numpy_dtype(info["dtype"])
    if "fixed" in info:
        return np.resize(np.array(info["fixed"]), count).astype(dtype)
    low, high = info["range"]
    if number == 0:
        ramp = _byte_ramp(count).astype(np.int64) + 128
        return np.asarray(low + ramp % (int(high) - int(low) + 1)).astype(dtype)
    rng = np.random.default_rng(seed)
    if is_float(info["dtype"]):
        return rng.uniform(low, high, count).astype(dtype)
    return rng.integers(int(low), int(high), count, endpoint=True).astype(dtype)


def rule_set(infos: Sequence[TensorInfo], number: int) -> tuple[Array, ...]:
    """Set `number` by rule: set 0 is a byte ramp, the others are random with seed 1000 * number + input.

    Inputs that do not accept every value get accepted ones.
    """
    inputs = []
    for i, info in enumerate(infos):
        count = int(np.prod(info["shape"], dtype=np.int64))
        if "fixed" in info or "range" in info:
            flat = _allowed(info, count, number=number, seed=1000 * number + i)
        else:
            flat = _first(info["dtype"], count) if number == 0 else _random(info["dtype"], count, seed=1000 * number + i)
        inputs.append(flat.reshape(info["shape"]))
    return tuple(inputs)


def rule_sets(infos: Sequence[TensorInfo], count: int) -> Sets:
    """The first `count` sets of the rule; the same on every machine."""
    return Sets(tuple(rule_set(infos, n) for n in range(count)), origin=f"{count} sets by rule")


def open_npz(path: Path) -> dict[str, Array]:
    """All arrays of an .npz file; nothing in it is executed (E5001, E5002 if it unpacks to too much, E5011)."""
    data, name = read_limited(path), printable(str(path))
    try:
        return parse_npz(data)
    except UnpackedError:
        raise UsageError(
            Problem("E5002", f"'{name}' has only {len(data):,} bytes, but unpacks to more than {UNPACKED:,}")
        ) from None
    except ValueError as error:
        message = f"'{name}' is not an .npz archive of plain arrays: {printable(str(error), limit=_REASON)}"
        raise UsageError(Problem("E5011", message)) from None


def open_npy(path: Path) -> Array:
    """The array of a .npy file (E5001, E5002, E5011)."""
    try:
        return parse_npy(read_limited(path))
    except ValueError as error:
        message = f"'{printable(str(path))}' is not an .npy file: {printable(str(error), limit=_REASON)}"
        raise UsageError(Problem("E5011", message)) from None


def set_numbers(arrays: Mapping[str, Array], prefix: str) -> list[int]:
    """The numbers of the sets that a golden file has under `prefix` ("in0", "out0"), in order."""
    matches = (re.fullmatch(rf"{prefix}_([0-9]{{1,9}})", key) for key in arrays)
    return sorted({int(match[1]) for match in matches if match and str(int(match[1])) == match[1]})


def golden_sets(
    arrays: Mapping[str, Array], path: Path, *, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], oracle: str
) -> Sets:
    """The sets of a golden file: keys `in{i}_{set}`, `out{i}_{set}` and, for the oracle tflm, `tflm{i}_{set}` if present.

    Missing inputs are generated by rule.
    """
    numbers = set_numbers(arrays, "out[0-9]+")
    if not numbers:
        raise UsageError(Problem("E5011", f"'{path}' has no outputs (out0_0 ...)"))
    key = "tflm" if oracle == "tflm" and f"tflm0_{numbers[0]}" in arrays else "out"
    input_sets, expected = [], []
    for n in numbers:
        made = rule_set(inputs, n) if any(f"in{i}_{n}" not in arrays for i in range(len(inputs))) else [None] * len(inputs)
        named = [(f"in{i}_{n}", info) for i, info in enumerate(inputs)]
        input_sets.append(tuple(_fit(arrays.get(k, a), info, k, path) for (k, info), a in zip(named, made, strict=True)))
        named = [(f"{key}{i}_{n}", info) for i, info in enumerate(outputs)]
        expected.append(tuple(_fit(arrays.get(k), info, k, path) for k, info in named))
    engine = "TFLM" if key == "tflm" else "TFLite reference kernels"
    return Sets(tuple(input_sets), tuple(expected), origin=path.name, expected_by=f"{path.name} ({engine})")


def _fit(array: Array | None, info: TensorInfo, key: str, path: Path) -> Array:
    """The array in the tensor's shape; E5012 if it is missing or has another size or type."""
    shape = tuple(info["shape"])
    if array is None:
        raise UsageError(Problem("E5012", f"'{path.name}' has no {key}"))
    is_input = key.startswith("in")
    if array.size != int(np.prod(shape, dtype=np.int64)) or not (is_input or array.dtype == numpy_dtype(info["dtype"])):
        expected = f"{info['dtype']}{list(shape)}"
        raise UsageError(
            Problem("E5012", f"{key} of '{path.name}' is {array.dtype}{list(array.shape)}, the model has {expected}")
        )
    return np.ascontiguousarray(lossless(array, info, f"{key} of '{path.name}'").reshape(shape))


def lossless(array: Array, info: TensorInfo, what: str) -> Array:
    """The same numbers in the tensor's type, such as int64 as int32 (E5012 for another type, E5014 if values change).

    Real numbers are not accepted for integer tensors, even if they are whole.
    """
    dtype = numpy_dtype(info["dtype"])
    if array.dtype == dtype:
        return array
    kinds = "biufc" if dtype.kind == "c" else "biuf"
    if array.dtype.kind not in kinds or (array.dtype.kind == "f" and dtype.kind not in "fc"):
        expected = f"the model has {info['dtype']}{list(info['shape'])}"
        raise UsageError(Problem("E5012", f"{what} is {array.dtype}{list(array.shape)}, {expected}"))
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
        same = np.array_equal(converted.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
    if not same or (array.dtype.kind in "iu" and dtype.kind in "iu" and ((converted < 0) != (array < 0)).any()):
        raise UsageError(Problem("E5014", f"{what} is {array.dtype}and some of its values do not fit {info['dtype']}"))
    return converted


def is_golden(arrays: Mapping[str, Array]) -> bool:
    """Whether an archive has the keys of a golden file."""
    return bool(set_numbers(arrays, "out0"))


# ---- arrays of untrusted .npy and .npz files: in bounded memory, nothing executed, and a single exception type


UNPACKED = 256 << 20
"""Maximum bytes of an archive's arrays, however short it is: a thousand images of 256 * 256 * 4 bytes."""
RATIO = 4
"""Longer archives may unpack to this multiple of their length: real data does not compress further."""
_ENTRIES = 1 << 16
_CHUNK = 1 << 20
_CENTRAL = b"PK\x01\x02"
_ENCRYPTED = 1


class UnpackedError(ValueError):
    """The arrays of an archive exceed the allowed number of bytes."""


def parse_npy(data: bytes | bytearray) -> Array:
    """The array of a .npy file, sharing its bytes; ValueError, with the reason, for anything else."""
    stream = io.BytesIO(data[: 1 << 17])
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        with warnings.catch_warnings(action="ignore"):  # the file's writer does not matter
            shape, fortran, dtype = read(stream)
    except Exception as error:  # the header is a Python literal: its parser and numpy's type parser raise anything
        raise ValueError(f"its header is invalid ({type(error).__name__})") from None
    if dtype.hasobject or version > (2, 0):
        raise ValueError("it does not hold plain numbers")
    count = math.prod(shape)
    if any(n < 0 for n in shape) or count * dtype.itemsize > len(data) - stream.tell():
        raise ValueError(f"it is too short for {dtype}{list(shape)}")
    try:
        flat = np.frombuffer(data, dtype, count, stream.tell()) if count * dtype.itemsize else np.zeros(count, dtype)
        return flat.reshape(shape, order="F" if fortran else "C")
    except (ValueError, OverflowError, MemoryError):  # more or longer (empty) dimensions than numpy supports
        raise ValueError(f"numpy has no {dtype} array with these {len(shape)} dimensions") from None


def parse_npz(data: bytes, *, unpacked: int = UNPACKED) -> dict[str, Array]:
    """The arrays of a .npz file, by name; members with other suffixes than .npy are skipped.

    UnpackedError if they exceed both `unpacked` bytes and RATIO times the archive's length; ValueError, with the reason, for
    anything that is not an archive of arrays."""
    if data.count(_CENTRAL) > _ENTRIES:
        raise ValueError(f"it has more than {_ENTRIES:,} files")
    left, arrays = max(unpacked, RATIO * len(data)), {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                if entry.filename.endswith(".npy"):
                    member = _unpack(archive, entry, left)
                    left -= len(member)
                    arrays[entry.filename.removesuffix(".npy")] = parse_npy(member)
    except ValueError:
        raise
    except Exception as error:  # zipfile and zlib raise almost anything for broken offsets and streams
        raise ValueError(f"the archive is broken ({type(error).__name__}: {error})") from None
    return arrays


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytearray:
    """The bytes of a member, read in pieces: the archive may lie about its size."""
    if entry.flag_bits & _ENCRYPTED:
        raise ValueError("it is encrypted")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("it uses a compression that numpy does not")
    data = bytearray()
    with archive.open(entry) as file:
        while part := file.read(_CHUNK):
            data += part
            if len(data) > most:
                raise UnpackedError
    return data


# ---- whole windows of a model with `--slide`: the reference needs them if the model gets new rows only


def as_windows(sets: Sets, metadata: Mapping[str, Any]) -> Sets:
    """The sets with whole windows instead of rows: each is the previous window moved on; the first starts with zeros.

    Returns the sets unchanged if the model does not slide.
    """
    slides = {row["index"]: row for row in metadata.get("slide", {}).get("inputs", ())}
    if not slides:
        return sets
    by_input = zip(*sets.inputs, strict=True)
    moved = [
        _windows(rows, info, slides[info["index"]]) if info["index"] in slides else list(rows)
        for rows, info in zip(by_input, metadata["inputs"], strict=True)
    ]
    return replace(sets, inputs=tuple(zip(*moved, strict=True)))


def moves(metadata: Mapping[str, Any]) -> bool:
    """Whether a run is a push of new rows."""
    return "slide" in metadata or "chain" in metadata


def fill_count(metadata: Mapping[str, Any]) -> int:
    """The number of runs after which no window contains initial zeros; 0 if the model does not slide."""
    if "chain" in metadata:
        return int(metadata["chain"]["pushes"])
    return max((-(-row["rows"] // row["hop"]) for row in metadata.get("slide", {}).get("inputs", ())), default=0)


def moved_windows(rows: Sequence[Array], shape: tuple[int, ...], *, axis: int, zero: int = 0) -> list[Array]:
    """A window of `shape` after each array of new rows; it starts as `zero`s."""
    window = np.full(shape, zero, rows[0].dtype)
    windows = []
    for new in rows:
        joined = np.concatenate([window, new], axis=axis)
        window = np.ascontiguousarray(np.take(joined, range(new.shape[axis], joined.shape[axis]), axis=axis))
        windows.append(window)
    return windows


def _windows(rows: tuple[Array, ...], info: Mapping[str, Any], slide: Mapping[str, Any]) -> list[Array]:
    axis = slide["axis"]
    shape = (*info["shape"][:axis], slide["rows"], *info["shape"][axis + 1 :])
    new = [r.reshape(info["shape"]).astype(numpy_dtype(info["dtype"]), copy=False) for r in rows]
    return moved_windows(new, shape, axis=axis, zero=info["zero_point"] or 0)


# ---- real data: numpy files, recordings, images and raw bytes, converted to the shape and type of a model's inputs


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
    return open_npy(path) if suffix == ".npy" else _read_raw(path, info)


def _npz_arrays(arrays: Mapping[str, Array], file: str, infos: Sequence[TensorInfo]) -> list[Array]:
    """The array of each input, by its name, its C name, `x` or `x{i}`."""
    inputs = []
    for i, info in enumerate(infos):
        names = [info["name"], info.get("c_name", ""), f"x{i}", *(["x"] if len(infos) == 1 else [])]
        key = next((n for n in names if n in arrays), None)
        if key is None:
            message = f"'{file}' has none of the arrays {', '.join(dict.fromkeys(n for n in names if n))}"
            raise UsageError(Problem("E5012", message))
        inputs.append(arrays[key])
    return inputs


def _golden_inputs(arrays: Mapping[str, Array], path: Path, infos: Sequence[TensorInfo]) -> Sets | None:
    """The inputs of a golden file (`in{i}_{set}`), None if the archive is not one."""
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
        arrays = open_npz(paths[0])
        golden = _golden_inputs(arrays, paths[0], infos)
        if golden is not None:
            return Samples(golden)
        raw, labels = _npz_arrays(arrays, paths[0].name, infos), arrays.get("y")
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
    if labels is not None and (labels.shape != (len(inputs),) or labels.dtype.kind not in "iu"):
        expected = f"the labels y are {labels.dtype}{list(labels.shape)}; expected {len(inputs)} integers"
        raise UsageError(Problem("E5012", expected))
    classes = None if labels is None else tuple(int(v) for v in labels)
    return Samples(Sets(inputs, origin=", ".join(p.name for p in paths[:3])), classes)


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
