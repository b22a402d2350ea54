"""Element types by name: widths, ranges, numpy and C spellings."""

from __future__ import annotations

from functools import cache
from math import prod

import numpy as np

_NUMPY = {
    "bool": np.dtype(np.bool_),
    "int4": np.dtype(np.int8),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int16": np.dtype(np.int16),
    "uint16": np.dtype(np.uint16),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
    "int64": np.dtype(np.int64),
    "uint64": np.dtype(np.uint64),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "complex64": np.dtype(np.complex64),
}

_C = {
    "bool": "bool",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "float16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "complex64": "float",
}


def known_dtypes() -> tuple[str, ...]:
    """The names of all element types."""
    return tuple(_NUMPY)


def is_dtype(dtype: object) -> bool:
    """Whether `dtype` names an element type."""
    return isinstance(dtype, str) and dtype in _NUMPY


def numpy_dtype(dtype: str) -> np.dtype[np.generic]:
    """The numpy type for values of `dtype`; int4 values are stored as int8."""
    return _NUMPY[dtype]


def stored(shape: tuple[int, ...], dtype: str) -> tuple[tuple[int, ...], str]:
    """Shape and type of a tensor in memory: a complex number is a pair of float32, real part first."""
    return ((*shape, 2), "float32") if dtype == "complex64" else (shape, dtype)


def ctype(dtype: str) -> str:
    """The C99 type of one element: of each part for complex numbers, of the bits for float16, which C99 lacks."""
    return _C[dtype]


def itemsize(dtype: str) -> int:
    """Size of one element in bytes (int4: 1, unpacked)."""
    return _NUMPY[dtype].itemsize


class Typed:
    """A base of records with a shape and an element type."""

    __slots__ = ()
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * itemsize(self.dtype)


@cache
def bits(dtype: str) -> int:
    """Width of one element in bits; bool counts as 8, as stored."""
    return 4 if dtype == "int4" else 8 * itemsize(dtype)


@cache
def is_float(dtype: str) -> bool:
    return dtype.startswith("float")


@cache
def is_int(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


@cache
def is_signed(dtype: str) -> bool:
    return dtype.startswith("int")


@cache
def int_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer type (bool: 0 and 1)."""
    if dtype == "bool":
        return 0, 1
    n = bits(dtype)
    return (-(1 << (n - 1)), (1 << (n - 1)) - 1) if is_signed(dtype) else (0, (1 << n) - 1)


def lowest(dtype: str) -> int | float:
    """The lowest finite value of an integer type, or of float32, as the initial value of a maximum."""
    return float(np.finfo(np.float32).min) if is_float(dtype) else int_range(dtype)[0]
