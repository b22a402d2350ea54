"""Checks that a PrimFunc is well formed; a fault here is a fault of a kernel or a pass, never of the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aot.errors import InternalError, Problem
from aot.support.dtype import int_range, is_float, is_int, itemsize
from aot.tir.analysis.bounds import Interval, interval
from aot.tir.buffer import Buffer
from aot.tir.expr import ARITHMETIC, COMPARISONS, LOGICAL, BinOp, Call, Cast, Expr, Imm, Load, Select, Var
from aot.tir.function import PrimFunc
from aot.tir.functor import children
from aot.tir.intrin import TensorIntrin
from aot.tir.printer import print_stmt
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store, While

_BITWISE = frozenset({"<<", ">>", "&", "|", "^", "%"})
_SCOPES = {"inputs": "param", "outputs": "param", "consts": "const", "scratch": "arena", "state": "state"}


def verify(func: PrimFunc, *, funcs: Mapping[str, PrimFunc] | None = None, unrolled: bool = False) -> None:
    """Raise InternalError E9003 for the first fault, with the statement and the heads of what it lies in.

    Checked: each variable and local buffer is defined once and used only where it holds; types agree; the number of indices;
    stores go to outputs, scratch, state and locals; indices that are outside for certain; operands of blocks, and of calls where
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
        self._certain: set[Var] = set()
        self._conditions = 0
        self._writable = {*func.outputs, *func.scratch, *func.state}

    def run(self) -> None:
        func = self._func
        for kind, scope in _SCOPES.items():
            for buffer in getattr(func, kind):
                self._require(buffer.scope == scope, f"{buffer.name} of {kind} has scope {buffer.scope}")
                self._define(buffer)
        names = [p.name for p in func.params]
        self._require(len(set(names)) == len(names), f"parameters share a name: {', '.join(names)}")
        for var in func.scalars:
            self._define(var)
        self._body(func.body)

    def _require(self, condition: bool, message: str) -> None:
        if condition:
            return
        lines = [message]
        for depth, stmt in enumerate(self._parents):
            lines.append("  " * (depth + 1) + print_stmt(stmt).splitlines()[0])
        raise InternalError(Problem("E9003", "\n".join(lines), self._func.name))

    def _define(self, item: Var | Buffer) -> None:
        self._require(item not in self._seen, f"{item.name} is defined twice")
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
                self._require(value.dtype == dtype, f"a {value.dtype} is stored as {dtype}")
            case Let(var, value):
                self._expr(value)
                self._require(value.dtype == var.dtype, f"{var.name} is {var.dtype}, its value {value.dtype}")
                self._define(var)
                if not is_float(var.dtype):
                    self._ranges[var] = interval(value, self._ranges)
            case Allocate(buffer):
                self._require(buffer.scope == "local", f"{buffer.name} of scope {buffer.scope} is allocated")
                self._define(buffer)
                self._writable.add(buffer)
            case If():
                self._if(stmt)
            case While():
                self._while(stmt)
            case Block(intrin, operands):
                self._block(intrin, operands)
            case CallPrim(name, operands):
                self._call(name, operands)
            case _:
                self._require(False, f"{type(stmt).__name__} is not a statement")

    def _for(self, loop: For) -> None:
        for bound in (loop.start, loop.stop):
            self._expr(bound)
            self._require(bound.dtype == loop.var.dtype, f"a bound is {bound.dtype}, {loop.var.name} is {loop.var.dtype}")
        self._require(is_int(loop.var.dtype), f"{loop.var.name} is {loop.var.dtype}")
        self._require(loop.step > 0, f"step {loop.step} is not positive")
        start, stop = interval(loop.start, self._ranges), interval(loop.stop, self._ranges)
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

    def _if(self, stmt: If) -> None:
        self._expr(stmt.cond)
        self._require(stmt.cond.dtype == "bool", f"the condition is {stmt.cond.dtype}")
        with self._conditional():
            self._body(stmt.then)
            self._body(stmt.orelse)

    def _while(self, loop: While) -> None:
        """What the test defines does not hold in the body, nor in the condition."""
        self._require(loop.limit >= 0, f"a limit of {loop.limit} iterations")
        with self._conditional():
            self._body(loop.test)
        self._expr(loop.cond)
        self._require(loop.cond.dtype == "bool", f"the condition is {loop.cond.dtype}")
        with self._conditional():
            self._body(loop.body)

    def _writes(self, buffer: Buffer) -> None:
        self._require(buffer in self._writable, f"{buffer.name} of scope {buffer.scope} is not writable here")

    def _access(self, buffer: Buffer, indices: tuple[Expr, ...], dtype: str) -> None:
        self._require(buffer in self._buffers, f"{buffer.name} is not in scope")
        typed = dtype != buffer.dtype
        ranks = {1} if typed else {1, len(buffer.shape)}
        self._require(len(indices) in ranks, f"{len(indices)} indices for {buffer.name} of shape {buffer.shape}")
        self._require(not (typed and buffer.scope == "local"), f"{buffer.name} is {buffer.dtype}, seen as {dtype}")
        flat = len(indices) == 1
        extents = (buffer.nbytes // itemsize(dtype) if buffer.is_sized else 1 << 62,) if flat else buffer.shape
        for index, extent in zip(indices, extents, strict=True):
            self._expr(index)
            self._require(is_int(index.dtype), f"an index of {buffer.name} is {index.dtype}")
            constant = isinstance(index, Imm) or buffer.scope != "local" or buffer.indexed or not self._unrolled
            self._require(constant, f"local {buffer.name} has an index that is not constant")
            self._bounds(index, (0, extent - 1), f"{buffer.name}, extent {extent}")

    def _bounds(self, index: Expr, allowed: Interval, what: str) -> None:
        """Only what is certain: under no condition, the whole interval outside, or one end of it that is reached."""
        if self._conditions:
            return
        low, high = interval(index, self._ranges)
        outside = high < allowed[0] or low > allowed[1]
        if not outside and (low < allowed[0] or high > allowed[1]):
            outside = self._reaches_ends(index, set())
        self._require(not outside, f"an index in {low}..{high} is out of bounds of {what}")

    def _reaches_ends(self, index: Expr, used: set[Var]) -> bool:
        """Whether the index is a sum of multiples of different loop variables, so that its interval is exact."""
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
        match expr:
            case Select(cond, then, orelse):
                self._expr(cond)
                with self._conditional():
                    self._expr(then)
                    self._expr(orelse)
                self._require(cond.dtype == "bool", f"the condition of a select is {cond.dtype}")
                self._require(then.dtype == orelse.dtype, f"a select of {then.dtype} and {orelse.dtype}")
            case BinOp(op, a, b) if op in LOGICAL:
                self._expr(a)
                with self._conditional():
                    self._expr(b)
                self._require(a.dtype == b.dtype == "bool", f"{op} of {a.dtype} and {b.dtype}")
            case Load(buffer, indices, dtype):
                self._access(buffer, indices, dtype)
            case _:
                for child in children(expr):
                    self._expr(child)
                self._leaf(expr)

    def _leaf(self, expr: Expr) -> None:
        match expr:
            case Imm(_, "float16"):
                self._require(False, "a number of float16")
            case Imm(value, dtype) if not is_float(dtype):
                low, high = int_range(dtype)
                self._require(isinstance(value, int) and low <= value <= high, f"{value!r} is not a {dtype}")
            case Var(name):
                self._require(expr in self._vars, f"{name} is not in scope")
            case BinOp(op, a, b):
                self._require(op in ARITHMETIC | COMPARISONS, f"unknown operator {op}")
                self._require(a.dtype == b.dtype, f"{op} of {a.dtype} and {b.dtype}")
                self._require(not (is_float(a.dtype) and op in _BITWISE) and a.dtype != "float16", f"{op} of {a.dtype}")
            case Cast(dtype, value) if "float16" in (dtype, value.dtype):
                self._require({dtype, value.dtype} == {"float16", "float32"}, f"a cast of {value.dtype} to {dtype}")
            case Call(intrin, args):
                got = tuple(a.dtype for a in args)
                self._require(got == intrin.args, f"{intrin.name} takes {intrin.args}, not {got}")
            case Imm() | Cast():
                pass
            case _:
                self._require(False, f"{type(expr).__name__} is not an expression")

    def _block(self, intrin: TensorIntrin, operands: tuple[Region | Expr, ...]) -> None:
        desc = intrin.desc
        self._operands(desc, operands, name=intrin.name)
        for param, operand in zip(desc.params, operands, strict=True):
            if isinstance(operand, Region) and isinstance(param, Buffer) and operand.buffer.scope == "local":
                buffer = operand.buffer
                fits = buffer.dtype == param.dtype and buffer.size >= param.size and operand.index == Imm(0)
                self._require(fits, f"{intrin.name}: local {buffer.name} does not fit {param.name}")

    def _call(self, name: str, operands: tuple[Region | Expr, ...]) -> None:
        if self._funcs is None:
            for operand in operands:
                self._expr(operand.index if isinstance(operand, Region) else operand)
            return
        callee = self._funcs.get(name)
        if callee is None:
            self._require(False, f"call of an unknown function {name}")
            return
        self._operands(callee, operands, name=name)

    def _operands(self, callee: PrimFunc, operands: tuple[Region | Expr, ...], *, name: str) -> None:
        params = callee.params
        self._require(len(operands) == len(params), f"{name} takes {len(params)} operands, not {len(operands)}")
        for param, operand in zip(params, operands, strict=True):
            what = f"{name}: operand {param.name}"
            if isinstance(param, Var):
                self._require(not isinstance(operand, Region), f"{what} is a scalar")
                assert not isinstance(operand, Region)
                self._expr(operand)
                self._require(operand.dtype == param.dtype, f"{what} is {operand.dtype}, not {param.dtype}")
                continue
            self._require(isinstance(operand, Region), f"{what} is a buffer")
            assert isinstance(operand, Region)
            self._region(operand, param, what)
            if param in callee.outputs or param in callee.scratch:
                self._writes(operand.buffer)

    def _region(self, operand: Region, param: Buffer, what: str) -> None:
        buffer, size = operand.buffer, itemsize(operand.dtype)
        self._require(buffer in self._buffers, f"{buffer.name} is not in scope")
        self._expr(operand.index)
        if buffer.scope == "local":
            return
        aligned = buffer.align % param.align == 0 or param.align == 1
        self._require(aligned, f"{what} needs alignment {param.align}, {buffer.name} has {buffer.align}")
        if isinstance(operand.index, Imm):
            start = int(operand.index.value) * size
            self._require(start % param.align == 0, f"{what} at byte {start} is not aligned to {param.align}")
        if param.is_sized and buffer.is_sized:
            self._bounds(operand.index, (0, (buffer.nbytes - param.nbytes) // size), f"{buffer.name} for {what}")
