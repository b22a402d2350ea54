"""What a function's body really uses: the printer leaves out what nothing reads, as compilers warn about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer, flat_index
from aot.tir.expr import Call, Expr, Imm, Load, Var
from aot.tir.function import PrimFunc
from aot.tir.functor import walk, walk_expr
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store, While


@dataclass(slots=True)
class Uses:
    """`vars` that a live statement reads; `buffers` touched at all; `loaded` elements; loop variables that must become constants.

    `loaded` holds (buffer, element) of local buffers, with None for an element that is not a constant or a buffer used whole;
    `values` those of them that expressions read, not only a block.
    `read_only` collects the names of a block's operands that point to constant memory.
    """

    vars: set[Var] = field(default_factory=set)
    buffers: set[Buffer] = field(default_factory=set)
    loaded: set[tuple[Buffer, int | None]] = field(default_factory=set)
    values: set[tuple[Buffer, int | None]] = field(default_factory=set)
    constant_vars: set[Var] = field(default_factory=set)
    headers: set[str] = field(default_factory=set)
    read_only: set[Buffer] = field(default_factory=set)

    def __or__(self, other: Uses) -> Uses:
        return Uses(
            self.vars | other.vars,
            self.buffers | other.buffers,
            self.loaded | other.loaded,
            self.values | other.values,
            self.constant_vars | other.constant_vars,
            self.headers | other.headers,
            self.read_only | other.read_only,
        )

    def reads(self, buffer: Buffer, element: int | None) -> bool:
        """Whether something reads that element of a local buffer (None: any of them)."""
        if element is None:
            return any(b is buffer for b, _ in self.loaded)
        return (buffer, element) in self.loaded or (buffer, None) in self.loaded

    def only_blocks_use(self, buffer: Buffer, element: int) -> bool:
        """Whether expressions read other elements of a local buffer, but not this one: a block may compute too many."""
        read = {e for b, e in self.values if b is buffer}
        return bool(read) and not read & {element, None}


def uses_buffer(e: Expr, buffer: Buffer) -> bool:
    return any(isinstance(n, Load) and n.buffer is buffer for n in walk_expr(e))


@lru_cache(4096)
def find_uses(func: PrimFunc) -> Uses:
    """The uses of a function, known from then on: its text, its prototype and its headers ask for them."""
    return _settled(func, None)


def block_uses(block: Block) -> Uses:
    """The uses of the description of a block, whose operands tell which of its buffers are registers.

    No pass sees a description, so that its loops of kind "unroll" are unrolled as it is printed.
    """
    found = _settled(block.intrin.desc, block)
    found.constant_vars |= {s.var for s in walk(block.intrin.desc.body) if isinstance(s, For) and s.kind == "unroll"}
    return found


def _settled(func: PrimFunc, block: Block | None) -> Uses:
    """What only a dead store reads is dead too, so the walk is repeated until nothing more is removed."""
    before: Uses | None = None
    while True:
        walker = _Walker(before)
        if block is not None:
            walker.bind(func, block)
        walker.visit(func.body)
        if before is not None and walker.uses.loaded == before.loaded:
            return walker.uses
        before = walker.uses


class _Walker:
    """One walk, in reverse order so that a value's readers are met before it; `before` is what the last walk found."""

    def __init__(self, before: Uses | None) -> None:
        self.before = before
        self.uses = Uses()
        self.scalars: set[Buffer] = set()

    def bind(self, func: PrimFunc, block: Block) -> None:
        for param, operand in zip(func.params, block.operands, strict=True):
            if isinstance(param, Buffer):
                self.uses.loaded.add((param, None))
                if isinstance(operand, Region) and operand.buffer.scope == "local":
                    self.scalars.add(param)

    def visit(self, stmts: tuple[Stmt, ...]) -> None:
        self.scalars |= {s.buffer for s in stmts if isinstance(s, Allocate) and not s.buffer.indexed}
        for stmt in reversed(stmts):
            match stmt:
                case For(var, start, stop, body):
                    self.visit(body)
                    self._read(start, stop)
                    self.uses.vars.add(var)
                    if var in self.uses.constant_vars:
                        self.uses.constant_vars |= _variables((start, stop))
                case Store():
                    self._store(stmt)
                case Let(var, value):
                    if var in self.uses.vars:
                        self._read(value)
                case If(cond, then, orelse):
                    self.visit(then)
                    self.visit(orelse)
                    self._read(cond)
                case While(test, cond, body):
                    self.visit(body)
                    self._read(cond)
                    self.visit(test)
                case Block() | CallPrim():
                    self._operands(stmt)
                case Allocate():
                    pass

    def _store(self, stmt: Store) -> None:
        buffer = stmt.buffer
        self.uses.buffers.add(buffer)
        self._indices(buffer, stmt.indices)
        if buffer not in self.scalars:
            self._read(*stmt.indices, stmt.value)
            return
        element = _element(buffer, stmt.indices)
        if self.before is None or self.before.reads(buffer, element):
            own = None if element is None else (buffer, element)
            self._read(stmt.value, own=own)

    def _operands(self, stmt: Block | CallPrim) -> None:
        if isinstance(stmt, Block):
            self.uses.headers.add(stmt.intrin.header)
            self.uses.headers |= find_uses(stmt.intrin.desc).headers
        for operand in stmt.operands:
            if isinstance(operand, Region):
                self.uses.buffers.add(operand.buffer)
                self.uses.loaded.add((operand.buffer, None))
                self._read(operand.index)
            else:
                self._read(operand)

    def _read(self, *exprs: Expr, own: tuple[Buffer, int] | None = None) -> None:
        """Note what the expressions read; an element's update from itself (`own`) is no reading of it."""
        for e in exprs:
            for node in walk_expr(e):
                kind: type = type(node)  # as `match` would try one class after the other
                if kind is Var:
                    self.uses.vars.add(node)  # type: ignore[arg-type]
                elif kind is Load:
                    self._load(node, own)  # type: ignore[arg-type]
                elif kind is Call:
                    self.uses.headers.add(node.intrin.header)  # type: ignore[union-attr]

    def _load(self, load: Load, own: tuple[Buffer, int] | None) -> None:
        buffer = load.buffer
        self.uses.buffers.add(buffer)
        self._indices(buffer, load.indices)
        place = (buffer, _element(buffer, load.indices) if buffer in self.scalars else None)
        if place != own:
            self.uses.loaded.add(place)
            self.uses.values.add(place)

    def _indices(self, buffer: Buffer, indices: Iterable[Expr]) -> None:
        if buffer in self.scalars:
            self.uses.constant_vars |= _variables(indices)


def _variables(exprs: Iterable[Expr]) -> set[Var]:
    return {n for e in exprs for n in walk_expr(e) if isinstance(n, Var)}


def _element(buffer: Buffer, indices: tuple[Expr, ...]) -> int | None:
    index = flat_index(buffer, indices)
    return int(index.value) if isinstance(index, Imm) else None
