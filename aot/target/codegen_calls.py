"""The C text of a main function's statements: calls of kernels over memory whose addresses only its file knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aot.errors import internal
from aot.support.dtype import ctype
from aot.target.c_text import wrap_call
from aot.target.codegen_c import Printer
from aot.target.target import Target
from aot.tir.builtin import BUILTINS
from aot.tir.expr import BinOp, Expr, Imm, Load
from aot.tir.function import PrimFunc
from aot.tir.stmt import CallPrim, Let, Region, Stmt, Store


class Addresses(Protocol):
    """Where the buffers of a main function lie, which only its file knows."""

    def address(self, region: Region) -> str:
        """The C expression of a region's first byte, of any pointer type."""

    def pointer(self, region: Region) -> str:
        """The same as an argument of the region's type."""


def print_calls(func: PrimFunc, *, target: Target, addresses: Addresses) -> Callable[[Stmt | Expr], str]:
    """What prints the calls of a main function, one at a time, and what decides its branches and loops."""
    return _CallPrinter(func, target, addresses).text_of


class _CallPrinter(Printer):
    """Prints the calls of a main function."""

    def __init__(self, func: PrimFunc, target: Target, addresses: Addresses) -> None:
        super().__init__(func, target, {})
        self._addresses = addresses

    def text_of(self, item: Stmt | Expr) -> str:
        """A call, the bool that decides, or a number in memory that is read or set; an error for anything else."""
        match item:
            case CallPrim(name, (Region() as source, Region() as to, Imm() as size)) if name in BUILTINS:
                return f"{name}({self._addresses.address(to)}, {self._addresses.address(source)}, {self.expr(size)});"
            case CallPrim(name, operands):
                args = [self._pointer(o) if isinstance(o, Region) else self.expr(o) for o in operands]
                return wrap_call(f"{name}(", args, ");")
            case Load(buffer, (index,), "bool"):  # as a byte, which may be read whatever lies there
                return f"*(const uint8_t *){self._addresses.address(Region(buffer, index, 'bool'))}"
            case Let(var, Load(buffer, (index,), dtype)):
                self._vars[var] = var.name
                text = self._addresses.address(Region(buffer, index, dtype))
                return f"const {ctype(dtype)} {var.name} = *(const {ctype(dtype)} *){text};"
            case Store(buffer, (index,), value, dtype):
                return f"*({ctype(dtype)} *){self._addresses.address(Region(buffer, index, dtype))} = {self.expr(value)};"
            case BinOp():
                return self.expr(item)
            case _:
                raise internal(f"{type(item).__name__} is no call", where=self.func.name)

    def _pointer(self, operand: Region) -> str:
        return self._addresses.pointer(operand)
