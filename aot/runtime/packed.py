"""Functions of a module as Python sees them: called with numpy arrays, or anything that speaks DLPack."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError
from aot.ir.op import Array
from aot.support.dtype import numpy_dtype
from aot.target.function_source import Parameter, Signature


class PackedFunc:
    """A compiled function; calling it fills the arrays of its outputs in place.

    Every parameter is one array, of the shape and the element type of the parameter, C-contiguous; outputs are writable and
    overlap nothing.  Anything else is UsageError E5075.
    """

    def __init__(self, signature: Signature, entry: Callable[[], Any]) -> None:
        self._signature = signature
        self._entry = entry

    @property
    def name(self) -> str:
        """The function's name in its module."""
        return self._signature.name

    @property
    def params(self) -> tuple[Parameter, ...]:
        """Name, shape, element type and alignment of each parameter."""
        return self._signature.params

    def __call__(self, *args: Any) -> None:
        """Run on one array a parameter."""
        params = self._signature.params
        if len(args) != len(params):
            names = ", ".join(p.name for p in params)
            raise self._wrong(f"{len(args)} arguments given, {len(params)} are needed: {names}")
        arrays = [self._array(p, a) for p, a in zip(params, args, strict=True)]
        for i, written in enumerate(params):
            for j, other in enumerate(arrays):
                if written.is_output and i != j and np.may_share_memory(arrays[i], other):
                    raise self._wrong(f"{written.name} and {params[j].name} overlap in memory")
        placed = [_aligned(p, a) for p, a in zip(params, arrays, strict=True)]
        self._entry()(*(ctypes.c_void_p(a.ctypes.data) for a in placed))
        for param, array, used in zip(params, arrays, placed, strict=True):
            if param.is_output and used is not array:
                array[...] = used

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p.dtype}{list(p.shape)}" for p in self.params)
        return f"PackedFunc({self.name}({params}))"

    def _wrong(self, message: str) -> UsageError:
        return UsageError(Problem("E5075", message, f"function {self.name}"))

    def _array(self, param: Parameter, value: Any) -> Array:
        array = value
        if not isinstance(value, np.ndarray):
            if not hasattr(value, "__dlpack__"):
                raise self._wrong(f"{param.name} is {type(value).__name__}, neither a numpy array nor one that supports DLPack")
            try:
                array = np.from_dlpack(value)
            except Exception as error:
                raise self._wrong(f"{param.name} cannot be taken over by DLPack: {error}") from error
        wanted = numpy_dtype(param.dtype)
        if array.shape != param.shape or array.dtype != wanted:
            got = f"{array.dtype}{list(array.shape)}"
            raise self._wrong(f"{param.name} is {param.dtype}{list(param.shape)}, not {got}")
        if param.is_output and not array.flags.writeable:
            raise self._wrong(f"{param.name} is written, and the array is read-only")
        if not array.flags.c_contiguous:
            raise self._wrong(f"{param.name} is not C-contiguous; pass np.ascontiguousarray of it")
        result: Array = array
        return result


def _aligned(param: Parameter, array: Array) -> Array:
    """The array itself where it is aligned as the function needs, else a copy that is."""
    if array.ctypes.data % param.align == 0:
        return array
    raw = np.zeros(array.nbytes + param.align, np.uint8)
    start = -raw.ctypes.data % param.align
    copy: Array = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
