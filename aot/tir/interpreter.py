"""Runs PrimFuncs: each is translated once to Python source and executed on the caller's memory.

Every access is bounds-checked, each dimension separately; a check is left out only where interval arithmetic proves it.
Signed overflow, shift amounts outside the width, division by zero, conversions from float out of range and reads of unset local
buffers raise InterpreterError with function and statement.  Scratch memory is filled with `poison`, so a run with another poison
shows a read of scratch that was never written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from aot.errors import InternalError, Problem
from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.function import PrimFunc
from aot.tir.interpreter_source import Translation, translate
from aot.tir.printer import print_stmt
from aot.tir.stmt import Stmt

Memory = memoryview | list[Any]
"""Bytes of a buffer, or the values of a local one."""

OnCall = Callable[[int, str, tuple[memoryview, ...]], None]
"""(layer, function, bytes of each output), called after each CallPrim that is a layer."""


class InterpreterError(InternalError):
    """A statement broke a rule of the IR; `function` and `statement` name the place."""

    def __init__(self, message: str, *, function: str, statement: str) -> None:
        super().__init__(Problem("E9002", f"{message}\n  in {function}: {statement}"))
        self.function = function
        self.statement = statement


class FaultError(Exception):
    """Raised by generated code; becomes an InterpreterError with its place."""


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A translated function: `source` is its Python text, `statements[i]` the statement of line i."""

    func: PrimFunc
    source: str
    statements: tuple[Stmt | None, ...]
    entry: Callable[..., None]

    def call(self, operands: Sequence[Any], funcs: Mapping[str, Compiled], on_call: OnCall | None) -> None:
        """Run with one Memory a buffer parameter, then the scalars; see Memory."""
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
            return f"a name is used outside of its scope ({exc})"
        case TypeError():
            return f"a value is read before it is stored ({exc})"
        case _:
            return f"a value does not fit its type ({exc})"


@lru_cache(maxsize=512)
def compiled(func: PrimFunc) -> Compiled:
    """`func` translated, from the cache if it was before."""
    translation: Translation = translate(func)
    names: dict[str, Any] = dict(_HELPERS)
    names.update(translation.intrinsics)
    names.update({name: compiled(desc) for name, desc in translation.descriptions.items()})
    exec(compile(translation.source, f"<tir {func.name}>", "exec"), names)
    return Compiled(func, translation.source, translation.statements, names["entry"])


Scalars = Mapping[str, int | float]
"""The values of a function's scalars by name."""


def run(func: PrimFunc, buffers: Mapping[str, Array], scalars: Scalars | None = None, *, poison: int = 0xA5) -> None:
    """Run one PrimFunc on numpy arrays by buffer name; outputs are written in place, arrays may share memory.

    Inputs, outputs, consts and state must be given, C-contiguous and of the buffer's size in bytes; scratch is made here unless
    given.
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
    """The elements of `memory` as typed by struct code `code`; a local buffer's list as it is."""
    if isinstance(memory, list):
        return memory
    return memory[: len(memory) // size * size].cast(code)


def _region(memory: Memory, offset: int, need: tuple[int, int]) -> Memory:
    """The bytes (from `offset`, need[0] of them, aligned to need[1]) of an operand."""
    if isinstance(memory, list):
        return memory
    nbytes, align = need
    if nbytes < 0:  # a parameter without a size takes the rest
        nbytes = max(0, len(memory) - offset)
    if offset < 0 or offset + nbytes > len(memory):
        raise FaultError(f"an operand of {nbytes} bytes at {offset} lies outside its buffer of {len(memory)} bytes")
    if offset % align:
        raise FaultError(f"an operand at byte {offset} is not aligned to {align}")
    return memory[offset : offset + nbytes]


def _call_prim(name: str, layer: int, operands: Sequence[Any], funcs: Mapping[str, Compiled], on_call: OnCall | None) -> None:
    """A CallPrim: operands are (memory, byte offset) pairs and integers."""
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


def _div(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _mod(a: int, b: int) -> int:
    return a - b * _div(a, b)


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
    "_view": _view,
    "_region": _region,
    "_call_prim": _call_prim,
    "_overflow": _overflow,
    "_outside": _outside,
    "_endless": _endless,
    "_div": _div,
    "_mod": _mod,
    "_amount": _amount,
    "_fdiv": _fdiv,
    "_f32": _f32,
    "_widened": _widened,
    "_halved": _halved,
    "_to_int": _to_int,
    "_inf": float("inf"),
    "_nan": float("nan"),
}
