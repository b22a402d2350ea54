"""Sets of inputs for a model: made by rule, or read from a file together with what the outputs must be."""

from __future__ import annotations

import io
import math
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from aot.driver.reading import read_limited
from aot.errors import Problem, UsageError
from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, numpy_dtype
from aot.support.text import printable

TensorInfo = Mapping[str, Any]
"""An entry of metadata["inputs"] or ["outputs"]: name, shape, dtype, scale, zero_point."""
_REASON = 200
"""Characters of the reason why a file is refused."""


@dataclass(frozen=True, slots=True)
class Sets:
    """`inputs[set][input]`, and `expected[set][output]` where a file says what must come out.

    `origin` says where they come from, `expected_by` whose outputs they are.
    """

    inputs: tuple[tuple[Array, ...], ...]
    expected: tuple[tuple[Array, ...], ...] | None = None
    origin: str = ""
    expected_by: str = ""

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def not_finite(self) -> int:
        """How many of the inputs' values are NaN or infinite: allowed in floats, but rarely meant."""
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
    if high > 1 << 16:  # indices and the like are small
        low, high = max(low, -128), 127
    return rng.integers(low, high, count, dtype=numpy_dtype(dtype).type, endpoint=True)


def _allowed(info: TensorInfo, count: int, *, number: int, seed: int) -> Array:
    """Values of an input that does not take all (aot.frontend.input_values): spread over its range."""
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
    """Set `number` by the corpus' rule: 0 is a byte ramp, the others are random with the seed 1000 * number + input.

    Inputs that do not take every value get such as they take.
    """
    made = []
    for i, info in enumerate(infos):
        count = int(np.prod(info["shape"], dtype=np.int64))
        if "fixed" in info or "range" in info:
            flat = _allowed(info, count, number=number, seed=1000 * number + i)
        else:
            flat = _first(info["dtype"], count) if number == 0 else _random(info["dtype"], count, seed=1000 * number + i)
        made.append(flat.reshape(info["shape"]))
    return tuple(made)


def rule_sets(infos: Sequence[TensorInfo], count: int) -> Sets:
    """The first `count` sets of the rule; the same ones on every machine."""
    return Sets(tuple(rule_set(infos, n) for n in range(count)), origin=f"{count} sets by rule")


def open_npz(path: Path) -> dict[str, Array]:
    """All arrays of an .npz file; nothing in it is executed (E5001, E5002 for one that unpacks to too much, E5011)."""
    data, name = read_limited(path), printable(str(path))
    try:
        return parse_npz(data)
    except UnpackedError:
        raise UsageError(
            Problem("E5002", f"'{name}' has only {len(data):,} bytes, but unpacks to more than {UNPACKED:,}")
        ) from None
    except ValueError as error:
        message = f"'{name}' is no .npz archive of plain arrays: {printable(str(error), limit=_REASON)}"
        raise UsageError(Problem("E5011", message)) from None


def open_npy(path: Path) -> Array:
    """The array of a .npy file (E5001, E5002, E5011)."""
    try:
        return parse_npy(read_limited(path))
    except ValueError as error:
        message = f"'{printable(str(path))}' is no .npy file: {printable(str(error), limit=_REASON)}"
        raise UsageError(Problem("E5011", message)) from None


def set_numbers(arrays: Mapping[str, Array], prefix: str) -> list[int]:
    """The numbers of the sets that a golden file has under `prefix` ("in0", "out0"), in order."""
    found = (re.fullmatch(rf"{prefix}_([0-9]{{1,9}})", key) for key in arrays)
    return sorted({int(match[1]) for match in found if match and str(int(match[1])) == match[1]})


def golden_sets(
    arrays: Mapping[str, Array], path: Path, *, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], oracle: str
) -> Sets:
    """The sets of a golden file: keys `in{i}_{set}`, `out{i}_{set}` and, for the oracle tflm where it has them, `tflm{i}_{set}`.

    Inputs that the file leaves out are made by the rule.
    """
    numbers = set_numbers(arrays, "out[0-9]+")
    if not numbers:
        raise UsageError(Problem("E5011", f"'{path}' has no outputs (out0_0 ...)"))
    key = "tflm" if oracle == "tflm" and f"tflm0_{numbers[0]}" in arrays else "out"
    given, expected = [], []
    for n in numbers:
        made = rule_set(inputs, n) if any(f"in{i}_{n}" not in arrays for i in range(len(inputs))) else ()
        given.append(
            tuple(
                _fit(arrays.get(f"in{i}_{n}", made[i] if made else None), info, f"in{i}_{n}", path)
                for i, info in enumerate(inputs)
            )
        )
        expected.append(tuple(_fit(arrays.get(f"{key}{i}_{n}"), info, f"{key}{i}_{n}", path) for i, info in enumerate(outputs)))
    engine = "TFLM" if key == "tflm" else "TFLite reference kernels"
    return Sets(tuple(given), tuple(expected), origin=path.name, expected_by=f"{path.name} ({engine})")


def _fit(array: Array | None, info: TensorInfo, key: str, path: Path) -> Array:
    """The array in the tensor's shape; E5012 if it is missing or of another size or type."""
    shape = tuple(info["shape"])
    if array is None:
        raise UsageError(Problem("E5012", f"'{path.name}' has no {key}"))
    is_input = key.startswith("in")
    if array.size != int(np.prod(shape, dtype=np.int64)) or not (is_input or array.dtype == numpy_dtype(info["dtype"])):
        wanted = f"{info['dtype']}{list(shape)}"
        raise UsageError(Problem("E5012", f"{key} of '{path.name}' is {array.dtype}{list(array.shape)}, the model has {wanted}"))
    return np.ascontiguousarray(lossless(array, info, f"{key} of '{path.name}'").reshape(shape))


def lossless(array: Array, info: TensorInfo, what: str) -> Array:
    """The same numbers in the tensor's type, such as int64 as int32 (E5012 for another type, E5014 if some change).

    Real numbers are not taken for codes, however whole they are.
    """
    dtype = numpy_dtype(info["dtype"])
    if array.dtype == dtype:
        return array
    kinds = "biufc" if dtype.kind == "c" else "biuf"
    if array.dtype.kind not in kinds or (array.dtype.kind == "f" and dtype.kind not in "fc"):
        wanted = f"the model has {info['dtype']}{list(info['shape'])}"
        raise UsageError(Problem("E5012", f"{what} is {array.dtype}{list(array.shape)}, {wanted}"))
    with np.errstate(all="ignore"):
        found = array.astype(dtype)
        same = np.array_equal(found.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
    if not same or (array.dtype.kind in "iu" and dtype.kind in "iu" and ((found < 0) != (array < 0)).any()):
        raise UsageError(Problem("E5014", f"{what} is {array.dtype}, and some of its values are none of {info['dtype']}"))
    return found


def is_golden(arrays: Mapping[str, Array]) -> bool:
    """Whether an archive's keys are those of a golden file."""
    return bool(set_numbers(arrays, "out0"))


# ---- arrays of .npy and .npz files from anywhere: in bounded memory, with nothing executed, and with one exception


UNPACKED = 256 << 20
"""Bytes that the arrays of an archive may have, however short it is: a thousand images of 256 * 256 * 4 bytes."""
RATIO = 4
"""Longer archives may have so many times their own length: real data does not shrink further."""
_ENTRIES = 1 << 16
_CHUNK = 1 << 20
_CENTRAL = b"PK\x01\x02"
_ENCRYPTED = 1


class UnpackedError(ValueError):
    """The arrays of an archive have more bytes than they may."""


def parse_npy(data: bytes | bytearray) -> Array:
    """The array of a .npy file, on its own bytes; ValueError, with the reason, for all else."""
    stream = io.BytesIO(data[: 1 << 17])
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        with warnings.catch_warnings(action="ignore"):  # who wrote the file is of no interest
            shape, fortran, dtype = read(stream)
    except Exception as error:  # the header is a Python literal: its parser, and numpy's of types, raise what comes
        raise ValueError(f"its header makes no sense ({type(error).__name__})") from None
    if dtype.hasobject or version > (2, 0):
        raise ValueError("it does not hold plain numbers")
    count = math.prod(shape)
    if any(n < 0 for n in shape) or count * dtype.itemsize > len(data) - stream.tell():
        raise ValueError(f"it is too short for {dtype}{list(shape)}")
    try:
        flat = np.frombuffer(data, dtype, count, stream.tell()) if count * dtype.itemsize else np.zeros(count, dtype)
        return flat.reshape(shape, order="F" if fortran else "C")
    except (ValueError, OverflowError, MemoryError):  # more dimensions, or longer ones of no elements, than numpy has
        raise ValueError(f"there is no array {dtype} of {len(shape)} such dimensions") from None


def parse_npz(data: bytes, *, unpacked: int = UNPACKED) -> dict[str, Array]:
    """The arrays of a .npz file, by name; what is not called .npy is left out.

    UnpackedError where they have more than `unpacked` bytes, and more than RATIO times those of the archive; ValueError, with the
    reason, for what is no archive of arrays.
    """
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
    except Exception as error:  # zipfile and zlib let nearly everything through that broken offsets and streams lead to
        raise ValueError(f"the archive is broken ({type(error).__name__}: {error})") from None
    return arrays


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytearray:
    """The bytes of a file, read piece by piece: the archive may lie about how many there are."""
    if entry.flag_bits & _ENCRYPTED:
        raise ValueError("it is encrypted")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("it is compressed in another way than numpy's own")
    data = bytearray()
    with archive.open(entry) as file:
        while part := file.read(_CHUNK):
            data += part
            if len(data) > most:
                raise UnpackedError
    return data


# ---- the windows that a model with `--slide` stands for: what the reference runs on if the model is given new rows only


def as_windows(sets: Sets, metadata: Mapping[str, Any]) -> Sets:
    """The sets with whole windows in place of rows: each is the one before, moved on; at the start it is zeros.

    The sets as they are where the model does not slide.
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
    """After how many runs no window holds anything of the zeros at the start; 0 where the model does not slide."""
    if "chain" in metadata:
        return int(metadata["chain"]["pushes"])
    return max((-(-row["rows"] // row["hop"]) for row in metadata.get("slide", {}).get("inputs", ())), default=0)


def moved_windows(rows: Sequence[Array], shape: tuple[int, ...], *, axis: int, zero: int = 0) -> list[Array]:
    """A window of `shape` after each of the arrays of new rows; it begins as `zero`s."""
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
