"""Checks that a PrimFunc is well formed; a fault here is a bug in a kernel or a pass, never a mistake of the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from aot.errors import InternalError, Problem
from aot.support.dtype import int_range, is_float, is_int, itemsize
from aot.tir.arith import Interval, Intervals
from aot.tir.buffer import Buffer
from aot.tir.expr import ARITHMETIC, COMPARISONS, LOGICAL, BinOp, Call, Cast, Expr, Imm, Load, Select, Var
from aot.tir.function import PrimFunc
from aot.tir.functor import walk_expr
from aot.tir.intrin import TensorIntrin
from aot.tir.printer import print_stmt
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store, While

_OPERATORS = ARITHMETIC | COMPARISONS
_BITWISE = frozenset({"<<", ">>", "&", "|", "^", "%"})
_SCOPES = {"inputs": "param", "outputs": "param", "consts": "const", "scratch": "arena", "state": "state"}


def verify(func: PrimFunc, *, funcs: Mapping[str, PrimFunc] | None = None, unrolled: bool = False) -> None:
    """Raise InternalError E9003 for the first fault, with the statement and the heads of the statements around it.

    Checked: each variable and local buffer is defined once and used only in its scope; types agree; the number of indices; stores
    go to outputs, scratch, state and locals; indices that are certainly out of bounds; operands of blocks, and of calls if
    `funcs` is given.  With `unrolled`, local buffers must have constant indices.
    """
    _Verifier(func, funcs, unrolled).run()


class _Verifier:
    def __init__(self, func: PrimFunc, funcs: Mapping[str, PrimFunc] | None, unrolled: bool) -> None:
        self._func = func
        self._funcs = funcs
        self._unrolled = unrolled
        self._parents: list[Stmt] = []
        self._vars: set[Var] = set()
        self._buffers: set[Buffer] = set()
        self._seen: set[Var | Buffer] = set()
        self._ranges: dict[Var, Interval] = {}
        self._interval = Intervals(self._ranges).of  # a variable is defined once, so its range never changes
        self._certain: set[Var] = set()
        self._conditions = 0
        self._to_unroll: set[Var] = set()
        self._writable = {*func.outputs, *func.scratch, *func.state}

    def run(self) -> None:
        func = self._func
        for kind, scope in _SCOPES.items():
            for buffer in getattr(func, kind):
                if buffer.scope != scope:
                    self._fail(f"{buffer.name} of {kind} has scope {buffer.scope}")
                self._define(buffer)
        names = [p.name for p in func.params]
        if len(set(names)) != len(names):
            self._fail(f"parameters share a name: {', '.join(names)}")
        for var in func.scalars:
            self._define(var)
        self._body(func.body)

    def _fail(self, message: str) -> NoReturn:
        lines = [message]
        for depth, stmt in enumerate(self._parents):
            lines.append("  " * (depth + 1) + print_stmt(stmt).splitlines()[0])
        raise InternalError(Problem("E9003", "\n".join(lines), self._func.name))

    def _define(self, item: Var | Buffer) -> None:
        if item in self._seen:
            self._fail(f"{item.name} is defined twice")
        self._seen.add(item)
        if isinstance(item, Var):
            self._vars.add(item)
        else:
            self._buffers.add(item)

    def _body(self, body: tuple[Stmt, ...]) -> None:
        variables, buffers = set(self._vars), set(self._buffers)
        for stmt in body:
            self._parents.append(stmt)
            self._stmt(stmt)
            self._parents.pop()
        self._vars, self._buffers = variables, buffers

    @contextmanager
    def _conditional(self) -> Iterator[None]:
        self._conditions += 1
        yield
        self._conditions -= 1

    def _stmt(self, stmt: Stmt) -> None:
        match stmt:
            case For():
                self._for(stmt)
            case Store(buffer, indices, value, dtype):
                self._access(buffer, indices, dtype)
                self._writes(buffer)
                self._expr(value)
                if value.dtype != dtype:
                    self._fail(f"a {value.dtype} is stored as {dtype}")
            case Let(var, value):
                self._expr(value)
                if value.dtype != var.dtype:
                    self._fail(f"{var.name} is {var.dtype}, its value {value.dtype}")
                self._define(var)
                if not is_float(var.dtype):
                    self._ranges[var] = self._interval(value)
            case Allocate(buffer):
                if buffer.scope != "local":
                    self._fail(f"{buffer.name} of scope {buffer.scope} is allocated")
                self._define(buffer)
                self._writable.add(buffer)
            case If(cond, then, orelse):
                self._condition(cond)
                with self._conditional():
                    self._body(then)
                    self._body(orelse)
            case While():
                self._while(stmt)
            case Block(intrin, operands):
                self._block(intrin, operands)
            case CallPrim(name, operands):
                self._call(name, operands)
            case _:
                self._fail(f"{type(stmt).__name__} is not a statement")

    def _for(self, loop: For) -> None:
        for bound in (loop.start, loop.stop):
            self._expr(bound)
            if bound.dtype != loop.var.dtype:
                self._fail(f"a bound is {bound.dtype}, {loop.var.name} is {loop.var.dtype}")
        if not is_int(loop.var.dtype):
            self._fail(f"{loop.var.name} is {loop.var.dtype}")
        if loop.kind == "unroll":
            self._to_unroll.add(loop.var)
        if loop.step <= 0:
            self._fail(f"step {loop.step} is not positive")
        start, stop = self._interval(loop.start), self._interval(loop.stop)
        last = max(start[0], stop[1] - 1)
        if isinstance(loop.start, Imm) and isinstance(loop.stop, Imm) and start[0] < stop[0]:
            last -= (last - start[0]) % loop.step
            self._certain.add(loop.var)
        self._define(loop.var)
        self._ranges[loop.var] = start[0], last
        if loop.var in self._certain:
            self._body(loop.body)
        else:
            with self._conditional():
                self._body(loop.body)
        self._vars.discard(loop.var)

    def _condition(self, cond: Expr) -> None:
        self._expr(cond)
        if cond.dtype != "bool":
            self._fail(f"the condition is {cond.dtype}")

    def _while(self, loop: While) -> None:
        """Definitions in the test are visible in neither the body nor the condition."""
        if loop.limit < 0:
            self._fail(f"a limit of {loop.limit} iterations")
        with self._conditional():
            self._body(loop.test)
        self._condition(loop.cond)
        with self._conditional():
            self._body(loop.body)

    def _writes(self, buffer: Buffer) -> None:
        if buffer not in self._writable:
            self._fail(f"{buffer.name} of scope {buffer.scope} is not writable here")

    def _access(self, buffer: Buffer, indices: tuple[Expr, ...], dtype: str) -> None:
        if buffer not in self._buffers:
            self._fail(f"{buffer.name} is not in scope")
        typed = dtype != buffer.dtype
        ranks = {1} if typed else {1, len(buffer.shape)}
        if len(indices) not in ranks:
            self._fail(f"{len(indices)} indices for {buffer.name} of shape {buffer.shape}")
        if typed and buffer.scope == "local":
            self._fail(f"{buffer.name} is {buffer.dtype}, seen as {dtype}")
        flat = len(indices) == 1
        extents = (buffer.nbytes // itemsize(dtype) if buffer.is_sized else 1 << 62,) if flat else buffer.shape
        for index, extent in zip(indices, extents, strict=True):
            self._expr(index)
            if not is_int(index.dtype):
                self._fail(f"an index of {buffer.name} is {index.dtype}")
            constant = isinstance(index, Imm) or buffer.scope != "local" or buffer.indexed or not self._unrolled
            # constant once loops are unrolled; if unroll_loop is disabled, the printer unrolls where it must
            nodes = () if constant else walk_expr(index)
            if not all(n in self._to_unroll if isinstance(n, Var) else not isinstance(n, Load) for n in nodes):
                self._fail(f"local {buffer.name} has an index that is not constant")
            if self._is_outside(index, (0, extent - 1)):
                self._fail(f"{self._shown(index)} is out of bounds of {buffer.name}, extent {extent}")

    def _is_outside(self, index: Expr, allowed: Interval) -> bool:
        """Only certain faults: under no condition, and the whole interval is outside or an outside end of it is reached."""
        if self._conditions:
            return False
        low, high = self._interval(index)
        if high < allowed[0] or low > allowed[1]:
            return True
        return (low < allowed[0] or high > allowed[1]) and self._reaches_ends(index, set())

    def _shown(self, index: Expr) -> str:
        low, high = self._interval(index)
        return f"an index in {low}..{high}"

    def _reaches_ends(self, index: Expr, used: set[Var]) -> bool:
        """Whether the index is a sum of multiples of distinct loop variables, so that its interval is exact."""
        match index:
            case Imm():
                return True
            case Var():
                fresh = index in self._certain and index not in used
                used.add(index)
                return fresh
            case BinOp("+" | "-", a, b):
                return self._reaches_ends(a, used) and self._reaches_ends(b, used)
            case BinOp("*", a, Imm()):
                return self._reaches_ends(a, used)
            case _:
                return False

    def _expr(self, expr: Expr) -> None:
        kind: type = type(expr)  # `match` would test one class after the other in the innermost loop
        if kind is Var:
            if expr not in self._vars:
                self._fail(f"{expr.name} is not in scope")  # type: ignore[union-attr]
        elif kind is BinOp:
            self._binop(expr)  # type: ignore[arg-type]
        elif kind is Load:
            self._access(expr.buffer, expr.indices, expr.dtype)  # type: ignore[union-attr]
        else:
            self._other(expr)

    def _binop(self, expr: BinOp) -> None:
        op, a, b = expr.op, expr.a, expr.b
        self._expr(a)
        if op in LOGICAL:
            with self._conditional():
                self._expr(b)
            if not (a.dtype == b.dtype == "bool"):
                self._fail(f"{op} of {a.dtype} and {b.dtype}")
            return
        self._expr(b)
        dtype = a.dtype
        if op not in _OPERATORS:
            self._fail(f"unknown operator {op}")
        if dtype != b.dtype:
            self._fail(f"{op} of {dtype} and {b.dtype}")
        if dtype == "float16" or (op in _BITWISE and is_float(dtype)):
            self._fail(f"{op} of {dtype}")

    def _other(self, expr: Expr) -> None:
        match expr:
            case Imm(value, dtype):
                if dtype == "float16":
                    self._fail("a float16 literal")
                if not is_float(dtype):
                    low, high = int_range(dtype)
                    if not (isinstance(value, int) and low <= value <= high):
                        self._fail(f"{value!r} is not a {dtype}")
            case Cast(dtype, value):
                self._expr(value)
                if "float16" in (dtype, value.dtype) and {dtype, value.dtype} != {"float16", "float32"}:
                    self._fail(f"a cast of {value.dtype} to {dtype}")
            case Select(cond, then, orelse):
                self._expr(cond)
                with self._conditional():
                    self._expr(then)
                    self._expr(orelse)
                if cond.dtype != "bool":
                    self._fail(f"the condition of a select is {cond.dtype}")
                if then.dtype != orelse.dtype:
                    self._fail(f"a select of {then.dtype} and {orelse.dtype}")
            case Call(intrin, args):
                for arg in args:
                    self._expr(arg)
                got = tuple(a.dtype for a in args)
                if got != intrin.args:
                    self._fail(f"{intrin.name} takes {intrin.args}, not {got}")
            case _:
                self._fail(f"{type(expr).__name__} is not an expression")

    def _block(self, intrin: TensorIntrin, operands: tuple[Region | Expr, ...]) -> None:
        desc = intrin.desc
        self._operands(desc, operands, name=intrin.name)
        for param, operand in zip(desc.params, operands, strict=True):
            if isinstance(operand, Region) and isinstance(param, Buffer) and operand.buffer.scope == "local":
                buffer = operand.buffer
                fits = buffer.dtype == param.dtype and buffer.size >= param.size and operand.index == Imm(0)
                if not fits:
                    self._fail(f"{intrin.name}: local {buffer.name} does not fit {param.name}")

    def _call(self, name: str, operands: tuple[Region | Expr, ...]) -> None:
        if self._funcs is None:
            for operand in operands:
                self._expr(operand.index if isinstance(operand, Region) else operand)
            return
        callee = self._funcs.get(name)
        if callee is None:
            self._fail(f"call of an unknown function {name}")
            return
        self._operands(callee, operands, name=name)

    def _operands(self, callee: PrimFunc, operands: tuple[Region | Expr, ...], *, name: str) -> None:
        params = callee.params
        if len(operands) != len(params):
            self._fail(f"{name} takes {len(params)} operands, not {len(operands)}")
        for param, operand in zip(params, operands, strict=True):
            what = f"{name}: operand {param.name}"
            if isinstance(param, Var):
                if isinstance(operand, Region):
                    self._fail(f"{what} is a scalar")
                self._expr(operand)
                if operand.dtype != param.dtype:
                    self._fail(f"{what} is {operand.dtype}, not {param.dtype}")
                continue
            if not isinstance(operand, Region):
                self._fail(f"{what} is a buffer")
            self._region(operand, param, what)
            if param in callee.outputs or param in callee.scratch:
                self._writes(operand.buffer)

    def _region(self, operand: Region, param: Buffer, what: str) -> None:
        buffer, size = operand.buffer, itemsize(operand.dtype)
        if buffer not in self._buffers:
            self._fail(f"{buffer.name} is not in scope")
        self._expr(operand.index)
        if buffer.scope == "local":
            return
        aligned = buffer.align % param.align == 0 or param.align == 1
        if not aligned:
            self._fail(f"{what} needs alignment {param.align}, {buffer.name} has {buffer.align}")
        if isinstance(operand.index, Imm):
            start = int(operand.index.value) * size
            if start % param.align != 0:
                self._fail(f"{what} at byte {start} is not aligned to {param.align}")
        if param.is_sized and buffer.is_sized and self._is_outside(operand.index, (0, (buffer.nbytes - param.nbytes) // size)):
            self._fail(f"{self._shown(operand.index)} is out of bounds of {buffer.name} for {what}")
