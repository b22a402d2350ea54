"""What a function's body really uses: the printer leaves out what nothing reads, as compilers warn about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from aot.tir.buffer import Buffer
from aot.tir.expr import Call, Expr, Load, Var
from aot.tir.function import PrimFunc
from aot.tir.functor import walk_expr
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store


@dataclass(slots=True)
class Uses:
    """`vars` that a live statement reads; `buffers` touched at all; `loaded` ones; loop variables that must become constants.

    `read_only` collects the names of a block's operands that point to constant memory.
    """

    vars: set[Var] = field(default_factory=set)
    buffers: set[Buffer] = field(default_factory=set)
    loaded: set[Buffer] = field(default_factory=set)
    constant_vars: set[Var] = field(default_factory=set)
    headers: set[str] = field(default_factory=set)
    read_only: set[Buffer] = field(default_factory=set)

    def __or__(self, other: Uses) -> Uses:
        return Uses(
            self.vars | other.vars,
            self.buffers | other.buffers,
            self.loaded | other.loaded,
            self.constant_vars | other.constant_vars,
            self.headers | other.headers,
            self.read_only | other.read_only,
        )


def uses_buffer(e: Expr, buffer: Buffer) -> bool:
    return any(isinstance(n, Load) and n.buffer is buffer for n in walk_expr(e))


def find_uses(func: PrimFunc, *, block: Block | None = None) -> Uses:
    """The uses of a function; of the description of a `block`, whose operands tell which of its buffers are registers."""
    uses = Uses()
    scalars: set[Buffer] = set()
    if block is not None:
        for param, operand in zip(func.params, block.operands, strict=True):
            uses.loaded |= {param} if isinstance(param, Buffer) else set()
            if isinstance(param, Buffer) and isinstance(operand, Region) and operand.buffer.scope == "local":
                scalars.add(param)
    _visit(func.body, uses, scalars)
    return uses


def _visit(stmts: Iterable[Stmt], uses: Uses, scalars: set[Buffer]) -> None:
    for stmt in stmts:  # declarations first, as their uses are met in reverse order below
        if isinstance(stmt, Allocate) and not stmt.buffer.indexed:
            scalars.add(stmt.buffer)
    for stmt in reversed(tuple(stmts)):
        match stmt:
            case For(var, start, stop, body):
                _visit(body, uses, scalars)
                _read((start, stop), uses, scalars)
                uses.vars.add(var)
            case Store(buffer, indices, value):
                uses.buffers.add(buffer)
                _indices(buffer, indices, uses, scalars)
                _read((value, *indices), uses, scalars)
            case Let(var, value):
                if var in uses.vars:
                    _read((value,), uses, scalars)
            case If(cond, then, orelse):
                _visit(then, uses, scalars)
                _visit(orelse, uses, scalars)
                _read((cond,), uses, scalars)
            case Block() | CallPrim():
                _operands(stmt, uses, scalars)
            case Allocate():
                pass


def _operands(stmt: Block | CallPrim, uses: Uses, scalars: set[Buffer]) -> None:
    if isinstance(stmt, Block):
        uses.headers.add(stmt.intrin.header)
        uses.headers |= find_uses(stmt.intrin.desc).headers
    for operand in stmt.operands:
        if isinstance(operand, Region):
            uses.buffers.add(operand.buffer)
            uses.loaded.add(operand.buffer)
            _read((operand.index,), uses, scalars)
        else:
            _read((operand,), uses, scalars)


def _read(exprs: Iterable[Expr], uses: Uses, scalars: set[Buffer]) -> None:
    for e in exprs:
        for node in walk_expr(e):
            match node:
                case Var():
                    uses.vars.add(node)
                case Load(buffer, indices, _):
                    uses.buffers.add(buffer)
                    uses.loaded.add(buffer)
                    _indices(buffer, indices, uses, scalars)
                case Call(intrin, _):
                    uses.headers.add(intrin.header)


def _indices(buffer: Buffer, indices: tuple[Expr, ...], uses: Uses, scalars: set[Buffer]) -> None:
    if buffer in scalars:
        uses.constant_vars |= {n for i in indices for n in walk_expr(i) if isinstance(n, Var)}
