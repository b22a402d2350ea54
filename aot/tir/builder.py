"""IRBuilder: kernels are Python functions that append loops and stores to a builder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aot.tir.buffer import Buffer, as_indices
from aot.tir.expr import Expr, IntoExpr, Var, as_expr, cast
from aot.tir.function import FuncAttrs, PrimFunc
from aot.tir.intrin import TensorIntrin
from aot.tir.stmt import Allocate, Block, For, ForKind, If, Let, Region, Stmt, Store


class IRBuilder:
    """Collects the statements of one PrimFunc; names are made unique in order of appearance."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stack: list[list[Stmt]] = [[]]
        self._inputs: list[Buffer] = []
        self._outputs: list[Buffer] = []
        self._consts: list[Buffer] = []
        self._scratch: list[Buffer] = []
        self._names: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The name of the function under construction."""
        return self._name

    def _fresh(self, name: str) -> str:
        n = self._names.get(name, 0)
        self._names[name] = n + 1
        return name if n == 0 else f"{name}_{n}"

    def _param(self, kind: list[Buffer], buffer: Buffer) -> Buffer:
        kind.append(buffer)
        return buffer

    def input(self, name: str, shape: tuple[int, ...], dtype: str, *, align: int = 1) -> Buffer:
        return self._param(self._inputs, Buffer(self._fresh(name), shape, dtype, "param", align))

    def output(self, name: str, shape: tuple[int, ...], dtype: str, *, align: int = 1) -> Buffer:
        return self._param(self._outputs, Buffer(self._fresh(name), shape, dtype, "param", align))

    def const(self, name: str, shape: tuple[int, ...], dtype: str, *, align: int = 4) -> Buffer:
        """A packed stream; typed loads (`buffer.load("int32", i)`) read its parts."""
        return self._param(self._consts, Buffer(self._fresh(name), shape, dtype, "const", align))

    def scratch(self, name: str, shape: tuple[int, ...], dtype: str, *, align: int = 4) -> Buffer:
        """Scratch memory in the workspace for the duration of the call."""
        return self._param(self._scratch, Buffer(self._fresh(name), shape, dtype, "arena", align))

    def local(self, name: str, shape: tuple[int, ...], dtype: str, *, init: IntoExpr | None = None) -> Buffer:
        """Registers; `init` is stored into every element."""
        buffer = Buffer(self._fresh(name), shape, dtype, "local")
        self.append(Allocate(buffer))
        if init is not None:
            for flat in range(buffer.size):
                self.append(Store(buffer, (as_expr(flat),), as_expr(init, dtype), dtype))
        return buffer

    def append(self, stmt: Stmt) -> None:
        self._stack[-1].append(stmt)

    def let(self, name: str, value: Expr) -> Var:
        """Bind a value to a name, so that it is computed once."""
        var = Var(self._fresh(name), value.dtype)
        self.append(Let(var, value))
        return var

    def store(self, buffer: Buffer, indices: IntoExpr | tuple[IntoExpr, ...], value: IntoExpr) -> None:
        """Store, converting the value to the buffer's dtype."""
        expr = cast(buffer.dtype, as_expr(value, buffer.dtype))
        self.append(Store(buffer, as_indices(indices), expr, buffer.dtype))

    def store_as(self, buffer: Buffer, dtype: str, index: IntoExpr, value: Expr) -> None:
        """A typed store: `index` counts elements of `dtype`."""
        self.append(Store(buffer, (as_expr(index),), cast(dtype, value), dtype))

    @contextmanager
    def for_(self, name: str, stop: IntoExpr, *, start: IntoExpr = 0, step: int = 1, kind: ForKind = "serial") -> Iterator[Var]:
        var = Var(self._fresh(name))
        self._stack.append([])
        yield var
        body = tuple(self._stack.pop())
        self.append(For(var, as_expr(start), as_expr(stop), body, step, kind))

    @contextmanager
    def if_(self, cond: Expr) -> Iterator[None]:
        self._stack.append([])
        yield
        self.append(If(cond, tuple(self._stack.pop())))

    @contextmanager
    def else_(self) -> Iterator[None]:
        """The else branch of the If appended just before."""
        self._stack.append([])
        yield
        orelse = tuple(self._stack.pop())
        last = self._stack[-1].pop()
        assert isinstance(last, If), "else_ follows if_"
        assert not last.orelse, "a second else_"
        self.append(If(last.cond, last.then, orelse))

    def block(self, intrin: TensorIntrin, *operands: Region | Buffer | IntoExpr) -> None:
        """A tensor intrinsic; a Buffer operand means the whole buffer."""
        out: list[Region | Expr] = []
        for o in operands:
            if isinstance(o, Buffer):
                out.append(Region(o, as_expr(0), o.dtype))
            elif isinstance(o, Region):
                out.append(o)
            else:
                out.append(as_expr(o))
        self.append(Block(intrin, tuple(out)))

    def finish(self, attrs: FuncAttrs | None = None) -> PrimFunc:
        assert len(self._stack) == 1, "an open loop or branch"
        inputs, outputs, consts, scratch = map(tuple, (self._inputs, self._outputs, self._consts, self._scratch))
        return PrimFunc(self._name, inputs, outputs, tuple(self._stack[0]), consts, scratch, attrs=attrs or FuncAttrs())


def region(buffer: Buffer, index: IntoExpr = 0, *, dtype: str | None = None) -> Region:
    """`buffer` from a flat element index on, read as `dtype`."""
    return Region(buffer, as_expr(index), dtype or buffer.dtype)
