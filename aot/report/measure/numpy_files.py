"""Arrays of .npy and .npz files that come from anywhere: in bounded memory, with nothing executed, and with one exception."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

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
