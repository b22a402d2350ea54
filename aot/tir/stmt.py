"""Statements of the loop-nest IR. A body is a tuple of statements; a Let or Allocate is valid until the end of its body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, Var

if TYPE_CHECKING:
    from aot.tir.intrin import TensorIntrin

ForKind = Literal["serial", "unroll"]


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """`for (var = start; var < stop; var += step)`; step is a positive constant, start and stop may be expressions."""

    var: Var
    start: Expr
    stop: Expr
    body: tuple[Stmt, ...]
    step: int = 1
    kind: ForKind = "serial"


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """`buffer[indices] = value`; value has dtype `dtype` (the buffer's, or another for a typed store with one index)."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    """`const var = value` for the rest of the body."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Allocate:
    """A local buffer for the rest of the body; its elements are undefined until stored."""

    buffer: Buffer


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """`then` if the condition holds, else `orelse`."""

    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class While:
    """`for (;;) { test; if (!cond) break; body }`: `test` may compute what `cond` reads.

    With a `limit` above 0, a loop that would run its body more often stops: the function returns, and its caller gets an error (a
    main function returns AOT_ERROR_ITERATIONS; the interpreter raises).
    """

    test: tuple[Stmt, ...]
    cond: Expr
    body: tuple[Stmt, ...]
    limit: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A buffer from element `index` on (flat, in elements of `dtype`); a local buffer is always passed whole (index 0)."""

    buffer: Buffer
    index: Expr
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A tensor intrinsic over regions and scalars, in the order of its description's parameters."""

    intrin: TensorIntrin
    operands: tuple[Region | Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallPrim:
    """A call of another PrimFunc of the module, from the main function or a cascade.

    `layer` numbers the layers from 0; -1 for a call that is only part of one.
    """

    func: str
    operands: tuple[Region | Expr, ...]
    layer: int = -1


Stmt = For | Store | Let | Allocate | If | While | Block | CallPrim
