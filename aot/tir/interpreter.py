"""Runs PrimFuncs: each is translated to Python source once and executed on the caller's memory.

Every access is bounds-checked, each dimension separately; a check is omitted only if interval arithmetic proves it redundant.
Signed overflow, shift amounts outside the width, division by zero, float conversions out of range and reads of unset local
buffers raise InterpreterError with the function and statement.  Scratch memory is filled with `poison`, so a second run with a
different poison reveals reads of scratch that was never written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import isinf, isnan
from typing import Any, NamedTuple

import numpy as np

from aot.errors import InternalError, Problem
from aot.ir.instrument import drawn
from aot.ir.module import IRModule
from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.support.dtype import bits, int_range, is_float, is_signed, itemsize, numpy_dtype
from aot.tir.arith import Interval, exact_interval, fits, fitted, trunc_div, trunc_mod
from aot.tir.buffer import Buffer
from aot.tir.expr import COMPARISONS, LOGICAL, BinOp, Call, Cast, Expr, Imm, Load, Select, Var
from aot.tir.function import PrimFunc
from aot.tir.functor import accesses, map_bodies, walk
from aot.tir.intrin import BUILTINS
from aot.tir.printer import print_stmt
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store, While

Memory = memoryview | list[Any]
"""The bytes of a buffer, or the values of a local buffer."""

OnCall = Callable[[int, str, tuple[memoryview, ...]], None]
"""(layer, function, bytes of each output), called after each CallPrim that is a layer."""


class InterpreterError(InternalError):
    """A statement broke a rule of the IR; `function` and `statement` say where."""

    def __init__(self, message: str, *, function: str, statement: str) -> None:
        super().__init__(Problem("E9002", f"{message}\n  in {function}: {statement}"))
        self.function = function
        self.statement = statement


class FaultError(Exception):
    """Raised by generated code; becomes an InterpreterError with its location."""


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A translated function: `source` is its Python text, `statements[i]` the statement for line i."""

    func: PrimFunc
    source: str
    statements: tuple[Stmt | None, ...]
    entry: Callable[..., None]

    def call(self, operands: Sequence[Any], funcs: Mapping[str, Compiled], on_call: OnCall | None) -> None:
        """Run with one Memory per buffer parameter, then the scalars; see Memory."""
        try:
            self.entry(*operands, funcs, on_call)
        except InternalError:
            raise
        except (FaultError, ArithmeticError, LookupError, NameError, TypeError, ValueError) as exc:
            raise self._explain(exc) from exc

    def _explain(self, exc: Exception) -> InterpreterError:
        line, tb = 0, exc.__traceback__
        while tb is not None:
            if tb.tb_frame.f_code is self.entry.__code__:
                line = tb.tb_lineno
            tb = tb.tb_next
        stmt = self.statements[line - 1] if 0 < line <= len(self.statements) else None
        text = print_stmt(stmt) if stmt is not None else "(prologue)"
        return InterpreterError(_what(exc), function=self.func.name, statement=text.strip().splitlines()[0])


def _what(exc: Exception) -> str:
    match exc:
        case FaultError():
            return str(exc)
        case ZeroDivisionError():
            return "division by zero"
        case IndexError():
            return "an index is out of bounds"
        case NameError():
            return f"a name is used outside its scope ({exc})"
        case TypeError():
            return f"a value is read before it is stored ({exc})"
        case _:
            return f"a value does not fit its type ({exc})"


@lru_cache(maxsize=512)
def compiled(func: PrimFunc) -> Compiled:
    """`func` translated, from the cache if possible."""
    return _Translator(func).compiled()


Scalars = Mapping[str, int | float]
"""The values of a function's scalars by name."""


def run(func: PrimFunc, buffers: Mapping[str, Array], scalars: Scalars | None = None, *, poison: int = 0xA5) -> None:
    """Run one PrimFunc on numpy arrays by buffer name; outputs are written in place, and arrays may share memory.

    Inputs, outputs, consts and state are required, C-contiguous and as large as the buffer in bytes; scratch is allocated here
    unless given.
    """
    run_module(func, {}, buffers, scalars, poison=poison)


def run_module(
    main: PrimFunc,
    funcs: Mapping[str, PrimFunc],
    buffers: Mapping[str, Array],
    scalars: Scalars | None = None,
    *,
    poison: int = 0xA5,
    on_call: OnCall | None = None,
) -> None:
    """Run `main`, whose CallPrim statements call `funcs`; everything else as in `run`."""
    operands: list[Any] = []
    for buffer in main.buffers:
        array = buffers.get(buffer.name)
        if array is None and buffer in main.scratch and buffer.is_sized:
            array = np.full(buffer.nbytes, poison, np.uint8)
        if array is None:
            raise ValueError(f"{main.name}: no array for buffer {buffer.name}")
        operands.append(_bytes_of(array, buffer, writable=buffer not in main.inputs and buffer not in main.consts))
    for var in main.scalars:
        operands.append((scalars or {})[var.name])
    compiled(main).call(operands, {name: compiled(f) for name, f in funcs.items()}, on_call)


def _bytes_of(array: Array, buffer: Buffer, *, writable: bool) -> memoryview:
    if buffer.is_sized and array.nbytes != buffer.nbytes:
        raise ValueError(f"{buffer.name}: {array.nbytes} bytes given for {buffer.nbytes}")
    if not array.flags.c_contiguous or (writable and not array.flags.writeable):
        raise ValueError(f"{buffer.name}: the array must be C-contiguous, and writable where it is written")
    return array.reshape(-1).view(np.uint8).data


def _view(memory: Memory, code: Any, size: int) -> Any:
    """The elements of `memory` for struct code `code`; the list of a local buffer unchanged."""
    if isinstance(memory, list):
        return memory
    return memory[: len(memory) // size * size].cast(code)


def _region(memory: Memory, offset: int, need: tuple[int, int]) -> Memory:
    """Bytes of an operand: `need[0]` bytes from `offset`, aligned to `need[1]`."""
    if isinstance(memory, list):
        return memory
    nbytes, align = need
    if nbytes < 0:  # a parameter without a size gets all remaining bytes
        nbytes = max(0, len(memory) - offset)
    if offset < 0 or offset + nbytes > len(memory):
        raise FaultError(f"an operand of {nbytes} bytes at {offset} is outside its buffer of {len(memory)} bytes")
    if offset % align:
        raise FaultError(f"an operand at byte {offset} is not aligned to {align}")
    return memory[offset : offset + nbytes]


def _call_prim(name: str, layer: int, operands: Sequence[Any], funcs: Mapping[str, Compiled], on_call: OnCall | None) -> None:
    """Run a CallPrim; its operands are (memory, byte offset) pairs and integers."""
    callee = funcs.get(name)
    if callee is None:
        raise FaultError(f"call of an unknown function {name}")
    func = callee.func
    if len(operands) != len(func.params):
        raise FaultError(f"{name} takes {len(func.params)} operands, not {len(operands)}")
    args: list[Any] = []
    for param, operand in zip(func.params, operands, strict=True):
        if isinstance(param, Buffer) != isinstance(operand, tuple):
            raise FaultError(f"{name}: operand {param.name} is of the wrong kind")
        args.append(_region(operand[0], operand[1], (param.nbytes, param.align)) if isinstance(param, Buffer) else operand)
    callee.call(args, funcs, on_call)
    if on_call is not None and layer >= 0:
        first = len(func.inputs)
        on_call(layer, name, tuple(args[first : first + len(func.outputs)]))


def _overflow(value: int) -> int:
    raise FaultError(f"signed overflow: {value}")


def _endless(limit: int) -> int:
    raise FaultError(f"the loop has not ended after {limit} iterations")


def _outside(index: int, extent: int) -> int:
    raise FaultError(f"index {index} is out of bounds for extent {extent}")


def _amount(shift: int, width: int) -> int:
    if 0 <= shift < width:
        return shift
    raise FaultError(f"shift by {shift} of a {width}-bit value")


def _fdiv(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


def _f32(value: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(value))


def _widened(half: int) -> float:
    return float(np.uint16(half).view(np.float16).astype(np.float32))


def _halved(value: float) -> int:
    with np.errstate(all="ignore"):
        return int(np.float32(value).astype(np.float16).view(np.uint16))


def _to_int(value: float, low: int, high: int) -> int:
    if not (low - 1 < value < high + 1):  # also false for a NaN
        raise FaultError(f"conversion of {value} to an integer of {low}..{high}")
    return int(value)


_HELPERS: Mapping[str, Any] = {
    **{f.__name__: f for f in (_view, _region, _call_prim, _overflow, _outside, _endless, _amount)},
    **{f.__name__: f for f in (_fdiv, _f32, _widened, _halved, _to_int)},
    "_div": trunc_div,
    "_mod": trunc_mod,
    "_inf": float("inf"),
    "_nan": float("nan"),
}


# From a PrimFunc to the Python source that is executed.
#
# A buffer in memory is one memoryview per dtype.  A local buffer is a list, or one Python variable per element if all its indices
# are constant and no block uses it.  The interval of each value is computed along with its text; it decides which checks are
# needed.


_CODES = {
    "bool": "?", "int4": "b", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q", "float16": "H", "float32": "f", "float64": "d",
}  # fmt: skip
"""Element type -> struct code."""
_MAX_DEPTH = 60
"""Depth of parentheses at which a value is assigned to a name: Python's parser stops at 200."""


class _Code(NamedTuple):
    """Text of an expression, its interval and the depth of its parentheses."""

    text: str
    values: Interval
    depth: int


class _Translator:
    def __init__(self, func: PrimFunc) -> None:
        self._func = func
        self._lines: list[tuple[str, Stmt | None]] = []
        self._indent = 1
        self._stmt: Stmt | None = None
        self._lazy = 0
        self._temps = 0
        self._ranges: dict[Var, Interval] = {}
        self._vars: dict[Var, str] = {}
        self._memory: dict[Buffer, str] = {}
        self._views: dict[tuple[Buffer, str], str] = {}
        self._scalars = _scalar_locals(func)
        self._names: dict[str, Any] = dict(_HELPERS)

    def compiled(self) -> Compiled:
        for index, buffer in enumerate(self._func.buffers):
            self._memory[buffer] = f"m{index}"
        for var in self._func.scalars:
            self._define(var)
        self._body(self._func.body)
        params = [self._memory[b] for b in self._func.buffers] + [self._vars[v] for v in self._func.scalars]
        head: list[tuple[str, Stmt | None]] = [(f"def entry({', '.join([*params, 'funcs', 'on_call'])}):", None)]
        for (buffer, dtype), name in self._views.items():
            if buffer.scope != "local":
                head.append((f" {name} = _view({self._memory[buffer]}, {_CODES[dtype]!r}, {itemsize(dtype)})", None))
        lines = [*head, *self._lines, (" return", None)]
        source = "\n".join(text for text, _ in lines) + "\n"
        exec(compile(source, f"<tir {self._func.name}>", "exec"), self._names)
        return Compiled(self._func, source, tuple(stmt for _, stmt in lines), self._names["entry"])

    def _emit(self, text: str) -> None:
        self._lines.append((" " * self._indent + text, self._stmt))

    def _define(self, var: Var) -> str:
        self._vars[var] = f"v{len(self._vars)}"
        return self._vars[var]

    def _temp(self) -> str:
        self._temps += 1
        return f"t{self._temps}"

    def _body(self, body: tuple[Stmt, ...]) -> None:
        start = len(self._lines)
        for stmt in body:
            self._stmt = stmt
            self._statement(stmt)
        if len(self._lines) == start:
            self._emit("pass")

    def _nested(self, body: tuple[Stmt, ...]) -> None:
        self._indent += 1
        self._body(body)
        self._indent -= 1

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case For(var, start, stop, body, step):
                low, high = self._expr(start), self._expr(stop)
                self._ranges[var] = (low.values[0], max(low.values[0], high.values[1] - 1))
                self._emit(f"for {self._define(var)} in range({low.text}, {high.text}, {step}):")
                self._nested(body)
            case Store(buffer, indices, value, dtype):
                code = self._expr(value)
                self._emit(f"{self._element(buffer, indices, dtype)} = {code.text}")
            case Let(var, value):
                code = self._expr(value)
                if not is_float(var.dtype):
                    self._ranges[var] = code.values
                self._emit(f"{self._define(var)} = {code.text}")
            case Allocate(buffer):
                self._allocate(buffer)
            case If(cond, then, orelse):
                self._emit(f"if {self._expr(cond).text}:")
                self._nested(then)
                if orelse:
                    self._stmt = stmt
                    self._emit("else:")
                    self._nested(orelse)
            case While():
                self._while(stmt)
            case Block():
                self._block(stmt)
            case CallPrim(name, operands, layer):
                args = "".join(f"{self._operand(o)}, " for o in operands)
                self._emit(f"_call_prim({name!r}, {layer}, ({args}), funcs, on_call)")
            case _:
                raise TypeError(f"not a statement: {stmt!r}")

    def _while(self, loop: While) -> None:
        count = self._temp()
        self._emit(f"{count} = 0")
        self._emit("while True:")
        self._indent += 1
        if loop.test:
            self._body(loop.test)
        self._stmt = loop
        self._emit(f"if not {self._expr(loop.cond).text}: break")
        if loop.limit:
            self._emit(f"if {count} == {loop.limit}: _endless({loop.limit})")
        self._emit(f"{count} += 1")
        self._body(loop.body)
        self._indent -= 1

    def _allocate(self, buffer: Buffer) -> None:
        name = f"l{len(self._memory)}"
        self._memory[buffer] = name
        if buffer in self._scalars:
            if buffer.size:
                self._emit(" = ".join(f"{name}_{i}" for i in range(buffer.size)) + " = None")
        else:
            self._views[buffer, buffer.dtype] = name
            self._emit(f"{name} = [None] * {buffer.size}")

    def _block(self, stmt: Block) -> None:
        desc = stmt.intrin.desc
        name = f"d{len(self._names)}"
        self._names[name] = compiled(desc)
        if len(stmt.operands) != len(desc.params):
            self._fault(f"{stmt.intrin.name} takes {len(desc.params)} operands, not {len(stmt.operands)}")
            return
        args: list[str] = []
        for param, operand in zip(desc.params, stmt.operands, strict=True):
            if isinstance(param, Var) and not isinstance(operand, Region):
                args.append(self._expr(operand).text)
            elif isinstance(param, Buffer) and isinstance(operand, Region):
                args.append(self._region(operand, param))
            else:
                self._fault(f"{stmt.intrin.name}: operand {param.name} is of the wrong kind")
                return
        self._emit(f"{name}.call(({''.join(a + ', ' for a in args)}), funcs, on_call)")

    def _fault(self, message: str) -> None:
        self._emit(f"raise ValueError({message!r})")

    def _region(self, operand: Region, param: Buffer) -> str:
        buffer = operand.buffer
        if buffer.scope == "local":
            if buffer.size < param.size or buffer.dtype != param.dtype:
                self._fault(f"local {buffer.name} does not fit operand {param.name}")
            return self._memory[buffer]
        return f"_region({self._memory[buffer]}, {self._offset(operand)}, ({param.nbytes}, {param.align}))"

    def _offset(self, operand: Region) -> str:
        size = itemsize(operand.dtype)
        text = self._expr(operand.index).text
        return text if size == 1 else f"{text} * {size}"

    def _operand(self, operand: Region | Expr) -> str:
        if isinstance(operand, Region):
            return f"({self._memory[operand.buffer]}, {self._offset(operand)})"
        return self._expr(operand).text

    def _expr(self, expr: Expr) -> _Code:
        code = self._raw(expr)
        if code.depth > _MAX_DEPTH and not self._lazy:
            name = self._temp()
            self._emit(f"{name} = {code.text}")
            return _Code(name, code.values, 0)
        return code

    def _raw(self, expr: Expr) -> _Code:
        match expr:
            case Imm(value, dtype):
                return _literal(value, dtype)
            case Var(_, dtype):
                values = self._ranges.get(expr) or _type_range(dtype)
                return _Code(self._vars.get(expr, f"undefined_{len(self._vars)}"), values, 0)
            case BinOp(op, a, b):
                return self._binop(op, a, b)
            case Cast(dtype, value):
                return self._cast(dtype, value)
            case Select(cond, then, orelse):
                return self._select(cond, then, orelse)
            case Load(buffer, indices, dtype):
                return _Code(self._element(buffer, indices, dtype), _type_range(dtype), 4)
            case Call(intrin, args):
                name = f"in_{intrin.name}"
                if self._names.setdefault(name, intrin.py) is not intrin.py:
                    name = f"in_{intrin.name}_{len(self._names)}"
                    self._names[name] = intrin.py
                codes = [self._expr(a) for a in args]
                depth = 1 + max((c.depth for c in codes), default=0)
                return _Code(f"{name}({', '.join(c.text for c in codes)})", _type_range(intrin.dtype), depth)
            case _:
                raise TypeError(f"not an expression: {expr!r}")

    def _select(self, cond: Expr, then: Expr, orelse: Expr) -> _Code:
        c = self._expr(cond)
        self._lazy += 1
        t, o = self._expr(then), self._expr(orelse)
        self._lazy -= 1
        values = min(t.values[0], o.values[0]), max(t.values[1], o.values[1])
        return _Code(f"({t.text} if {c.text} else {o.text})", values, 1 + max(c.depth, t.depth, o.depth))

    def _binop(self, op: str, a: Expr, b: Expr) -> _Code:
        x = self._expr(a)
        if op in LOGICAL:
            self._lazy += 1
            y = self._expr(b)
            self._lazy -= 1
            return _Code(f"({x.text} {'and' if op == '&&' else 'or'} {y.text})", (0, 1), 1 + max(x.depth, y.depth))
        y = self._expr(b)
        depth = 1 + max(x.depth, y.depth)
        if is_float(a.dtype):
            return self._float_binop(op, x, y, a.dtype)
        values = exact_interval(op, x.values, y.values, dtype=a.dtype)
        if op in COMPARISONS:
            return _Code(f"({x.text} {op} {y.text})", values, depth)
        if op in ("min", "max"):
            return _Code(self._extremum(op, x.text, y.text), values, depth + 1)
        return self._fit(self._arithmetic(op, x, y, a.dtype), values, dtype=a.dtype, depth=depth)

    def _extremum(self, op: str, x: str, y: str) -> str:
        s, t = self._temp(), self._temp()
        return f"({s} if ({s} := {x}) {'<' if op == 'min' else '>'} ({t} := {y}) else {t})"

    def _arithmetic(self, op: str, x: _Code, y: _Code, dtype: str) -> str:
        if op in ("/", "%"):
            if x.values[0] >= 0 and y.values[0] >= 0:
                return f"({x.text} {'//' if op == '/' else '%'} {y.text})"
            return f"{'_div' if op == '/' else '_mod'}({x.text}, {y.text})"
        if op in ("<<", ">>") and not (y.values[0] >= 0 and y.values[1] < bits(dtype)):
            return f"({x.text} {op} _amount({y.text}, {bits(dtype)}))"
        return f"({x.text} {op} {y.text})"

    def _fit(self, text: str, values: Interval, *, dtype: str, depth: int) -> _Code:
        """`text` with the check or the wrapping that its type requires."""
        if dtype == "bool" or fits(values, dtype):
            return _Code(text, values, depth)
        low, high = int_range(dtype)
        if is_signed(dtype):
            name = self._temp()
            text = f"({name} if {low} <= ({name} := {text}) <= {high} else _overflow({name}))"
            return _Code(text, fitted(values, dtype), depth + 2)
        return _Code(f"({text} & {high})", (low, high), depth + 1)

    def _float_binop(self, op: str, x: _Code, y: _Code, dtype: str) -> _Code:
        depth = 2 + max(x.depth, y.depth)
        if op in COMPARISONS:
            return _Code(f"({x.text} {op} {y.text})", (0, 1), depth)
        if op in ("min", "max"):
            return _Code(self._extremum(op, x.text, y.text), (0, 0), depth)
        if op not in ("+", "-", "*", "/"):
            raise TypeError(f"{op} of {dtype}")
        text = f"_fdiv({x.text}, {y.text})" if op == "/" else f"({x.text} {op} {y.text})"
        return _Code(f"_f32({text})" if dtype == "float32" else text, (0, 0), depth)

    def _cast(self, dtype: str, value: Expr) -> _Code:
        x = self._expr(value)
        if value.dtype == "float16" or dtype == "float16":  # a float16 is represented by its bits
            return _Code(f"{'_widened' if dtype == 'float32' else '_halved'}({x.text})", (0, 0), x.depth + 1)
        if is_float(dtype):
            return _Code(f"{'_f32' if dtype == 'float32' else 'float'}({x.text})", (0, 0), x.depth + 1)
        low, high = int_range(dtype)
        if is_float(value.dtype):
            return _Code(f"_to_int({x.text}, {low}, {high})", (low, high), x.depth + 1)
        if dtype == "bool":
            return _Code(f"({x.text} != 0)", (0, 1), x.depth + 1)
        if fits(x.values, dtype):
            return x
        if is_signed(dtype):
            return _Code(f"((({x.text} + {-low}) & {high - low}) - {-low})", (low, high), x.depth + 3)
        return _Code(f"({x.text} & {high})", (low, high), x.depth + 1)

    def _element(self, buffer: Buffer, indices: tuple[Expr, ...], dtype: str) -> str:
        """The text of one element, for reading or writing, with its indices checked."""
        if buffer not in self._memory:
            return f"undefined_{buffer.name if buffer.name.isidentifier() else 'buffer'}[0]"
        if buffer.scope == "local" and dtype != buffer.dtype:
            raise TypeError(f"{self._func.name}: local {buffer.name} is {buffer.dtype}, not {dtype}")
        flat = self._flat(buffer, indices, dtype)
        if buffer in self._scalars:
            return f"{self._memory[buffer]}_{flat}" if flat.isdigit() else f"({flat})"
        return f"{self._view(buffer, dtype)}[{flat}]"

    def _view(self, buffer: Buffer, dtype: str) -> str:
        if (buffer, dtype) not in self._views:
            self._views[buffer, dtype] = f"{self._memory[buffer]}_{dtype}"
        return self._views[buffer, dtype]

    def _flat(self, buffer: Buffer, indices: tuple[Expr, ...], dtype: str) -> str:
        if len(indices) == 1:
            extent = buffer.nbytes // itemsize(dtype) if buffer.is_sized else 1 << 62  # an unsized buffer is limited by its view
            return self._index(indices[0], extent)
        if len(indices) != len(buffer.shape) or dtype != buffer.dtype:
            raise TypeError(f"{self._func.name}: {buffer.name} takes {len(buffer.shape)} indices, not {len(indices)}")
        if all(isinstance(i, Imm) and 0 <= i.value < n for i, n in zip(indices, buffer.shape, strict=True)):
            flat = 0
            for index, extent in zip(indices, buffer.shape, strict=True):
                assert isinstance(index, Imm)
                flat = flat * extent + int(index.value)
            return str(flat)
        text = ""
        for index, extent in zip(indices, buffer.shape, strict=True):
            part = self._index(index, extent)
            if not text or text == "0":
                text = part
            elif part == "0":
                text = f"({text}) * {extent}"
            else:
                text = f"({text}) * {extent} + {part}"
        return text or "0"

    def _index(self, index: Expr, extent: int) -> str:
        code = self._expr(index)
        if code.values[0] >= 0 and code.values[1] < extent:
            return code.text
        name = self._temp()
        return f"({name} if 0 <= ({name} := {code.text}) < {extent} else _outside({name}, {extent}))"


def _type_range(dtype: str) -> Interval:
    return (0, 0) if is_float(dtype) else int_range(dtype)


def _literal(value: int | float, dtype: str) -> _Code:
    if dtype == "float16":  # represented by its bits
        return _Code(str(int(np.float16(value).view(np.uint16))), (0, 0), 1)
    if is_float(dtype):
        if isnan(value):
            return _Code("_nan", (0, 0), 0)
        if isinf(value):
            return _Code("_inf" if value > 0 else "(-_inf)", (0, 0), 1)
        text = f"({float(value)!r})"
        return _Code(f"_f32{text}" if dtype == "float32" else text, (0, 0), 1)
    number = int(value)
    return _Code(str(number) if number >= 0 else f"({number})", (number, number), 1)


def _scalar_locals(func: PrimFunc) -> frozenset[Buffer]:
    """Local buffers whose elements can be Python variables: constant indices only, not in any region, and small."""
    candidates: set[Buffer] = set()
    spoiled: set[Buffer] = set()
    for stmt in walk(func.body):
        if isinstance(stmt, Allocate) and stmt.buffer.size <= 64:
            candidates.add(stmt.buffer)
        for access in accesses(stmt):
            if isinstance(access, Region) or not all(isinstance(i, Imm) for i in access.indices):
                spoiled.add(access.buffer)
    return frozenset(candidates - spoiled)


# Running functions of a module on random operands, to check passes over loop nests.


SPANS: tuple[int | None, ...] = (None, 8, 0)
"""Largest random integers, tried in turn: the whole type; small ones in case indices or sums overflow; zeros."""


def run_drawn(module: IRModule, name: str, seed: int) -> list[Array] | None:
    """The outputs of a function as bytes, computed from the module's constants and random operands.

    None if it cannot run like this: buffers of unknown size, or accesses that leave their buffers for every random value.
    """
    func = module.functions[name]
    assert isinstance(func, PrimFunc)
    func = func.with_body(_bounded(func.body))
    if not all(b.is_sized for b in func.buffers):
        return None
    funcs = BUILTINS | {n: f for n, f in module.functions.items() if isinstance(f, PrimFunc)}
    for span in SPANS:
        try:
            return _run(func, funcs, module.constants.get(name, {}), rng=np.random.default_rng(seed), span=span)
        except InternalError:
            continue
    return None


MOST_ITERATIONS = 64
"""Iterations of a While on random operands, with which it may never end."""


def _bounded(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """`body` with an iteration limit for each While."""
    out = [map_bodies(stmt, _bounded) for stmt in body]
    return tuple(replace(s, limit=MOST_ITERATIONS) if isinstance(s, While) else s for s in out)


def _run(
    func: PrimFunc, funcs: Mapping[str, PrimFunc], constants: Mapping[str, Array], *, rng: np.random.Generator, span: int | None
) -> list[Array]:  # fmt: skip
    buffers = {b.name: drawn(rng, b.shape, b.dtype, span=span) for b in (*func.inputs, *func.outputs, *func.consts)}
    buffers |= {b.name: np.ascontiguousarray(constants[b.name]) for b in func.consts if b.name in constants}
    buffers |= {b.name: np.zeros(b.shape, numpy_dtype(b.dtype)) for b in func.state}
    scalars = {v.name: int(rng.integers(0, 8)) if span is None else span for v in func.scalars}
    run_module(func, funcs, buffers, scalars)
    return [buffers[b.name].reshape(-1).view(np.uint8) for b in func.outputs]
