"""C source files from functions and constants: the counterpart of TVM's CSourceModule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.support.dtype import ctype, is_float, numpy_dtype
from aot.target.c_text import LINE, comment, float_literal
from aot.target.codegen_c import emit_func, emit_prototype, headers
from aot.target.target import Target
from aot.tir.function import PrimFunc

_BYTES = {"int8": [str(v if v < 128 else v - 256) for v in range(256)], "uint8": [str(v) for v in range(256)]}

_EXACT = """\
#ifdef __FAST_MATH__
#error "the results of float operators are the reference's to the last bit: compile this file without -ffast-math"
#endif
"""


@dataclass(frozen=True, slots=True)
class Param:
    """A constant in flash: `data` is one-dimensional, of `dtype`; `note` says in a comment what it is.

    `section` names where it lies (empty: with all other constants).
    """

    name: str
    dtype: str
    data: Array
    align: int
    note: str = ""
    section: str = ""

    @property
    def declaration(self) -> str:
        return f"const {ctype(self.dtype)} {self.name}[{max(1, self.data.size)}]"


@dataclass(frozen=True, slots=True)
class NamedFunc:
    """A kernel and its C name; `note` goes into its comment block."""

    name: str
    func: PrimFunc
    note: str = ""


def as_stream(data: Array, dtype: str) -> Array:
    """An array's bytes, in memory order, as a one-dimensional array of `dtype`."""
    return np.frombuffer(np.ascontiguousarray(data).tobytes(), dtype=numpy_dtype(dtype))


def print_array(array: Param) -> str:
    """The definition of a constant, many values a line."""
    values = _values(array.data, array.dtype) or ["0"]
    per_line = max(8, LINE // (1 + max(map(len, values[:64]), default=1)))
    lines = [",".join(values[i : i + per_line]) + "," for i in range(0, len(values), per_line)]
    align = f"AOT_ALIGN({array.align}) " if array.align > 1 else ""
    align += f'AOT_SECTION("{array.section}") ' if array.section else ""
    note = f"/* {comment(array.note)} */\n" if array.note else ""
    return f"{note}{align}{array.declaration} = {{\n" + "\n".join(lines) + "\n};\n"


def _values(data: Array, dtype: str) -> list[str]:
    if dtype in _BYTES:
        return list(map(_BYTES[dtype].__getitem__, data.tobytes()))
    if dtype == "float16":
        return [f"0x{bits:04x}" for bits in data.view(np.uint16).tolist()]
    if is_float(dtype):
        return [float_literal(v, dtype) for v in data.tolist()]
    if dtype == "bool":
        return ["1" if v else "0" for v in data.tolist()]
    ending = {"uint32": "u", "int64": "LL", "uint64": "ULL"}.get(dtype, "")
    low = {"int32": -(2**31), "int64": -(2**63)}.get(dtype)  # has no literal of its own
    return [f"INT{8 * data.itemsize}_MIN" if v == low else f"{v}{ending}" for v in data.tolist()]


def params_source(arrays: Sequence[Param], *, banner: str, header: str) -> str:
    """The file of all constants; `header` declares them."""
    parts = [f'{banner}\n#include "{header}"\n', *map(print_array, arrays)]
    return "\n".join(parts)


def kernels_source(funcs: Sequence[NamedFunc], *, banner: str, header: str, target: Target) -> str:
    """The file of all kernels."""
    bodies = [emit_func(f.func, name=f.name, target=target, linkage="extern", note=f.note) for f in funcs]
    floats = any(is_float(b.dtype) for f in funcs for b in f.func.buffers)
    return "\n".join([f'{banner}\n#include "{header}"\n', *([_EXACT] if floats else []), *bodies])


def internal_header(
    funcs: Sequence[NamedFunc], arrays: Iterable[Param], *, banner: str, guard: str, target: Target
) -> str:  # fmt: skip
    """What the generated files share: constants and kernels, not for the application."""
    includes = sorted({"aot/kernel.h"} | {h for f in funcs for h in headers(f.func)})
    lines = [f"{banner}\n#ifndef {guard}\n#define {guard}\n", *(f'#include "{h}"' for h in includes), "\n#include <stdint.h>\n"]
    lines += [f"extern {a.declaration};" for a in arrays]
    lines += ["", *(emit_prototype(f.func, name=f.name, target=target).rstrip() for f in funcs)]
    return "\n".join([*lines, "\n#endif\n"])
