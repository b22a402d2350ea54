"""C source files from functions and constants: the counterpart of TVM's CSourceModule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError
from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.support.dtype import ctype, is_float, itemsize, numpy_dtype
from aot.support.names import NameSupply, c_identifier, model_identifier
from aot.target.codegen_c import LINE, comment, emit_func, emit_prototype, float_literal, headers, spdx_line, wrap_call
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.function import PrimFunc
from aot.tir.functor import has_calls
from aot.version import __version__

_BYTES = {"int8": [str(v if v < 128 else v - 256) for v in range(256)], "uint8": [str(v) for v in range(256)]}

_EXACT = """\
#ifdef __FAST_MATH__
#error "the results of float operators are the reference's to the last bit: compile this file without -ffast-math"
#endif
"""


@dataclass(frozen=True, slots=True)
class Param:
    """A constant in flash: `data` is one-dimensional, of `dtype`; `note` becomes a comment.

    `section` is the linker section (empty: the default one).
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
    """The definition of a constant, with many values per line."""
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
    low = {"int32": -(2**31), "int64": -(2**63)}.get(dtype)  # C has no literal for these
    return [f"INT{8 * data.itemsize}_MIN" if v == low else f"{v}{ending}" for v in data.tolist()]


def params_source(arrays: Sequence[Param], *, banner: str, header: str) -> str:
    """The source file with all constants; `header` declares them."""
    parts = [f'{banner}\n#include "{header}"\n', *map(print_array, arrays)]
    return "\n".join(parts)


def kernels_source(funcs: Sequence[NamedFunc], *, banner: str, header: str, target: Target) -> str:
    """The source file with all kernels."""
    bodies = [emit_func(f.func, name=f.name, target=target, linkage="extern", note=f.note) for f in funcs]
    floats = any(is_float(b.dtype) for f in funcs for b in f.func.buffers)
    return "\n".join([f'{banner}\n#include "{header}"\n', *([_EXACT] if floats else []), *bodies])


def internal_header(
    funcs: Sequence[NamedFunc], arrays: Iterable[Param], *, banner: str, guard: str, target: Target
) -> str:  # fmt: skip
    """The internal header: declares constants and kernels for the generated files, not for the application."""
    includes = sorted({"aot/kernel.h"} | {h for f in funcs for h in headers(f.func)})
    lines = [f"{banner}\n#ifndef {guard}\n#define {guard}\n", *(f'#include "{h}"' for h in includes), "\n#include <stdint.h>\n"]
    lines += [f"extern {a.declaration};" for a in arrays]
    lines += ["", *(emit_prototype(f.func, name=f.name, target=target).rstrip() for f in funcs)]
    return "\n".join([*lines, "\n#endif\n"])


# ---- single functions as stand-alone C (one .c and one .h), for calling an operator without a model


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function from the caller's view; `align` in bytes."""

    name: str
    c_name: str
    shape: tuple[int, ...]
    dtype: str
    align: int
    is_output: bool

    def as_json(self) -> dict[str, Any]:
        """The parameter for a library's metadata."""
        shape = {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}
        return {**shape, "align": self.align, "output": self.is_output}


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's `name` in the module, `symbol` in C, parameters in the caller's order, and bytes of workspace."""

    name: str
    symbol: str
    params: tuple[Parameter, ...]
    workspace: int


def signature_of(func: PrimFunc, name: str) -> Signature:
    """A function's signature; UsageError E5074 if it has constants, scalars or calls and so cannot stand alone."""
    where = f"function {name}"
    if func.consts or func.scalars or has_calls(func):
        raise UsageError(Problem("E5074", "a function with constants, scalars or calls must be part of a model", where))
    if any(not b.is_sized for b in func.buffers):
        raise UsageError(Problem("E5074", "a parameter has no size", where))
    by_name = {b.name: b for b in func.inputs + func.outputs}
    order = [by_name[n] for n in func.attrs.args] if func.attrs.args else [*func.inputs, *func.outputs]
    supply = NameSupply()
    params = tuple(
        Parameter(
            b.name, supply.fresh(c_identifier(b.name)), b.shape, b.dtype, max(b.align, itemsize(b.dtype)), b in func.outputs
        )
        for b in order
    )
    return Signature(name, model_identifier(name), params, sum(map(_room, func.scratch)))


def _room(buffer: Buffer) -> int:
    return -(-buffer.nbytes // 16) * 16


def function_files(name: str, funcs: Mapping[str, PrimFunc], target: Target) -> dict[str, str]:
    """`<name>.c` and `<name>.h` for lowered functions."""
    signatures = {key: signature_of(func, key) for key, func in funcs.items()}
    symbols = [s.symbol for s in signatures.values()]
    if len(set(symbols)) != len(symbols):
        raise UsageError(Problem("E5074", f"two functions share a name in C: {', '.join(symbols)}", f"module {name}"))
    stem = model_identifier(name)
    generated = f"/* {comment(name)}: generated by aot {__version__} for {comment(str(target))}. Do not edit. */"
    banner = f"{spdx_line()}\n{generated}"
    workspace = max((s.workspace for s in signatures.values()), default=0)
    header = _header(stem, signatures.values(), banner=banner, workspace=workspace)
    includes = sorted({h for f in funcs.values() for h in headers(f)})
    parts = [banner, f'#include "{stem}.h"', *(f'#include "{h}"' for h in includes), ""]
    if workspace:
        parts.append(f"static AOT_ALIGN(16) uint8_t {stem}_workspace[{workspace}];\n")
    for key, func in funcs.items():
        parts.append(_definition(func, signatures[key], target, workspace=f"{stem}_workspace"))
    return {f"{stem}.h": header, f"{stem}.c": "\n".join(parts)}


def _header(stem: str, signatures: Any, *, banner: str, workspace: int) -> str:
    guard = f"{stem.upper()}_H"
    lines = [banner, f"#ifndef {guard}", f"#define {guard}", "", "#include <stdbool.h>", "#include <stdint.h>", ""]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    if workspace:
        lines += [f"/* The functions share {workspace} bytes of static workspace: they are not reentrant. */", ""]
    for s in signatures:
        lines += _describe(s) + wrap_call(f"void {s.symbol}(", _parameters(s), ");").splitlines() + [""]
    lines += ["#ifdef __cplusplus", "}", "#endif", "", "#endif", ""]
    return "\n".join(lines)


def _describe(s: Signature) -> list[str]:
    lines = [f"/* {comment(s.name)}"]
    for p in s.params:
        kind = "written" if p.is_output else "read"
        lines.append(f"   {p.c_name}: {p.dtype}[{', '.join(map(str, p.shape))}], {kind}, aligned to {p.align} bytes")
    return [*lines, "   No two of them may overlap where one is written. */"]


def _parameters(s: Signature) -> Sequence[str]:
    return [f"{'' if p.is_output else 'const '}{ctype(p.dtype)} *{p.c_name}" for p in s.params] or ["void"]


def _definition(func: PrimFunc, s: Signature, target: Target, *, workspace: str) -> str:
    natural = [b.name for b in func.inputs + func.outputs] == [p.name for p in s.params]
    c_names = {p.name: p.c_name for p in s.params}
    names = {b: c_names[b.name] for b in func.inputs + func.outputs}
    if natural and not func.scratch:
        return emit_func(func, name=s.symbol, target=target, linkage="extern", names=names)
    kernel = f"{s.symbol}_kernel"
    prototype = "static " + emit_prototype(func, name=kernel, target=target)
    args = [c_names[b.name] for b in func.inputs + func.outputs]
    at = 0
    for b in func.scratch:
        args.append(f"({ctype(b.dtype)} *)(void *)&{workspace}[{at}]")
        at += _room(b)
    body = emit_func(func, name=kernel, target=target, linkage="static", names=names)
    head = wrap_call(f"void {s.symbol}(", _parameters(s), ") {").rstrip()
    call = wrap_call(f"  {kernel}(", args, ");").rstrip()
    return f"{prototype}\n{body}\n{head}\n{call}\n}}\n"
