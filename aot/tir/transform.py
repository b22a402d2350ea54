"""Passes over loop nests, and their usual order: simplify, unroll_loop, flatten_buffer; and merging functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from operator import is_
from typing import Any

from aot.errors import internal
from aot.errors.tvm_names import missing_in
from aot.ir.module import IRModule
from aot.ir.transform import PassContext, Sequential, prim_func_pass, unwatched
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float, is_int
from aot.tir import functor
from aot.tir.arith import Interval, Intervals, fits
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer, flat_index
from aot.tir.expr import BinOp, Call, Cast, Expr, Imm, Load, Select, Var, cast
from aot.tir.function import PrimFunc
from aot.tir.intrin import Intrin, TensorIntrin
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store, While
from aot.tir.verify import verify

__all__ = [
    "EqualKey", "Merged", "equal_key", "flatten", "flatten_buffer", "interface_key", "merge_functions", "optimize",
    "pipeline", "sharing_key", "simplified", "simplify", "structural_key", "trial", "unroll", "unroll_loop",
]  # fmt: skip

__getattr__ = missing_in("tir.transform")


# Passes from what a builder or parser creates to what the code generator prints: simplify, flatten_buffer, unroll_loop.


@lru_cache(4096)
def simplified(func: PrimFunc) -> PrimFunc:
    """Return an equal, simpler function.

    Constants are folded; min, max, comparisons, `/` and `%` are decided from the ranges of loop variables; branches and loops
    with a known outcome are resolved; unused lets and local buffers are dropped.  A statement that would fail at run time (an
    overflow, say) may disappear if its value is not needed.
    """
    return func.with_body(_without_dead(_Simplifier().body(func.body)))


def simplified_expr(expr: Expr, ranges: Mapping[Var, Interval]) -> Expr:
    """An equal expression, simplified for variables with the given ranges."""
    return _Simplifier(ranges).expr(expr)


class _Simplifier:
    def __init__(self, ranges: Mapping[Var, Interval] | None = None) -> None:
        self._ranges: dict[Var, Interval] = dict(ranges or {})
        self._values: dict[Var, Expr] = {}
        self._interval = Intervals(self._ranges).of
        self._done: dict[int, tuple[Expr, Expr]] = {}

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in body:
            out.extend(self._stmt(stmt))
        return tuple(out)

    def _stmt(self, stmt: Stmt) -> tuple[Stmt, ...]:
        new = functor.map_expressions(stmt, self.expr)
        match new:
            case For():
                return self._for(new)
            case If(cond, then, orelse):
                if isinstance(cond, Imm):
                    return self.body(then if cond.value else orelse)
                new = functor.map_bodies(new, self.body)
                return (new,) if any(functor.bodies(new)) else ()
            case While():
                return (functor.map_bodies(new, self.body),)
            case Let(var, value):
                if isinstance(value, (Imm, Var)):
                    self._values[var] = value
                    return ()
                if is_int(var.dtype):
                    self._ranges[var] = self._interval(value)
                return (new,)
            case _:
                return (new,)

    def _for(self, loop: For) -> tuple[Stmt, ...]:
        start, stop = self._interval(loop.start), self._interval(loop.stop)
        if stop[1] <= start[0]:
            return ()
        if isinstance(loop.start, Imm) and isinstance(loop.stop, Imm) and start[0] + loop.step >= stop[0]:
            self._values[loop.var] = loop.start
            return self.body(loop.body)
        last = stop[1] - 1
        if start[0] == start[1] and stop[0] == stop[1]:
            last -= (last - start[0]) % loop.step
        self._ranges[loop.var] = start[0], last
        body = self.body(loop.body)
        return (For(loop.var, loop.start, loop.stop, body, loop.step, loop.kind),) if body else ()

    def expr(self, expr: Expr) -> Expr:
        kind: type = type(expr)  # `match` would test one class after the other in the innermost loop of the pass
        if kind is Imm:
            return expr
        if kind is Var:
            return self._constant(self._values.get(expr, expr))  # type: ignore[arg-type]
        done = self._done.get(id(expr))
        if done is None:
            done = self._done[id(expr)] = expr, self._simplify(expr)
        return done[1]

    def _constant(self, expr: Expr) -> Expr:
        """Replace an integer expression with only one possible value by that value."""
        kind: type = type(expr)
        if kind is Imm or kind is Load or is_float(expr.dtype) or (kind is Var and expr not in self._ranges):
            return expr
        low, high = self._interval(expr)
        return Imm(low, expr.dtype) if low == high else expr

    def _simplify(self, expr: Expr) -> Expr:
        new = self._constant(functor.map_children(expr, self.expr))
        kind: type = type(new)
        if kind is BinOp:
            return self._binop(new)  # type: ignore[arg-type]
        if kind is Cast and type(new.value) is Cast:  # type: ignore[union-attr]
            return self._double_cast(new, new.value.value)  # type: ignore[arg-type,union-attr]
        if kind is Select and new.then == new.orelse and not is_float(new.cond.dtype):  # type: ignore[union-attr]
            return new.then  # type: ignore[union-attr]
        return new

    def _binop(self, new: BinOp) -> Expr:
        op = new.op
        if op == "+" or op == "*":
            return new
        if op == "min" or op == "max":
            return self._extremum(new)
        if op == "/" or op == "%":
            return self._division(new)
        if op == "&&" or op == "||":
            return _logical(new)
        if op == "-" and new.a is new.b and type(new.a) is Var and is_int(new.a.dtype):
            return Imm(0, new.a.dtype)
        return new

    def _extremum(self, expr: BinOp) -> Expr:
        if is_float(expr.a.dtype):
            return expr
        a, b = self._interval(expr.a), self._interval(expr.b)
        if expr.op == "max":
            a, b = (-a[1], -a[0]), (-b[1], -b[0])
        if a[1] <= b[0]:
            return expr.a
        return expr.b if b[1] <= a[0] else expr

    def _division(self, expr: BinOp) -> Expr:
        """With c > 0: x % c = x if 0 <= x < c; (x * k * c + y) / c = x * k + y / c, and likewise for %, if everything is >= 0."""
        if not isinstance(expr.b, Imm) or is_float(expr.b.dtype) or expr.b.value <= 0:
            return expr
        c = int(expr.b.value)
        low, high = self._interval(expr.a)
        if low >= 0 and high < c:
            return expr.a if expr.op == "%" else Imm(0, expr.dtype)
        multiple, remainder = _split_multiple(expr.a, c)
        if multiple is None or self._interval(multiple)[0] < 0 or self._interval(remainder)[0] < 0:
            return expr
        if expr.op == "%":
            return self.expr(BinOp("%", remainder, expr.b))
        return self.expr(multiple + BinOp("/", remainder, expr.b))

    def _double_cast(self, expr: Cast, inner: Expr) -> Expr:
        """Drop the inner conversion of an integer if it cannot change the value."""
        kept = expr.value.dtype
        if not all(map(is_int, (expr.dtype, kept, inner.dtype))):
            return expr
        return cast(expr.dtype, inner) if fits(self._interval(inner), kept) else expr


def _split_multiple(expr: Expr, c: int) -> tuple[Expr | None, Expr]:
    """(m, remainder) with expr = m * c + remainder, as far as the form of a sum shows it; (None, expr) otherwise."""
    match expr:
        case BinOp("*", x, Imm(k)) if int(k) % c == 0 and k > 0:
            return x * (int(k) // c), Imm(0, expr.dtype)
        case BinOp("+", a, b):
            m, remainder = _split_multiple(a, c)
            if m is not None:
                return m, remainder + b
            m, remainder = _split_multiple(b, c)
            return (m, a + remainder) if m is not None else (None, expr)
        case _:
            return None, expr


def _logical(expr: BinOp) -> Expr:
    absorbing = expr.op == "||"
    for constant, other in ((expr.a, expr.b), (expr.b, expr.a)):
        if isinstance(constant, Imm):
            return Imm(int(absorbing), "bool") if bool(constant.value) == absorbing else other
    return Imm(0, "bool") if expr.op == "&&" and _contradictory(expr) else expr


def _contradictory(expr: BinOp) -> bool:
    """Whether an expression would have to be above one constant and below a smaller one."""
    low: dict[Expr, int] = {}
    high: dict[Expr, int] = {}
    for part in _conjuncts(expr):
        match part:
            case BinOp(">" | ">=" | "<" | "<=" | "==" as op, value, Imm(bound)) if is_int(value.dtype):
                if op in (">", ">=", "=="):
                    low[value] = max(low.get(value, int(bound)), int(bound) + (op == ">"))
                if op in ("<", "<=", "=="):
                    high[value] = min(high.get(value, int(bound)), int(bound) - (op == "<"))
    return any(low[value] > high[value] for value in low.keys() & high.keys())


def _conjuncts(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, BinOp) and expr.op == "&&":
        yield from _conjuncts(expr.a)
        yield from _conjuncts(expr.b)
    else:
        yield expr


def _without_dead(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Drop unused lets and local buffers that nobody reads, until nothing more can be removed."""
    while True:
        variables: set[Var] = set()
        read: set[Buffer] = set()
        local: set[Buffer] = set()
        exprs: list[Expr] = []
        for stmt in functor.walk(body):
            exprs += functor.expressions(stmt)
            if isinstance(stmt, (Block, CallPrim)):
                read |= {o.buffer for o in stmt.operands if isinstance(o, Region)}
            if isinstance(stmt, Allocate):
                local.add(stmt.buffer)
        _uses(exprs, variables, read)
        new = _drop(body, used=variables, dead=local - read)
        if new is body:
            return body
        body = new


def _uses(stack: list[Expr], variables: set[Var], read: set[Buffer]) -> None:
    """Add the variables of the expressions in `stack`, which is emptied, and the buffers that they load from."""
    seen: set[int] = set()  # statements share expressions
    while stack:
        top = stack.pop()
        kind: type = type(top)
        if kind is Var:
            variables.add(top)  # type: ignore[arg-type]
        elif kind is not Imm and id(top) not in seen:
            seen.add(id(top))
            if kind is BinOp:
                stack += (top.a, top.b)  # type: ignore[union-attr]
                continue
            if kind is Load:
                read.add(top.buffer)  # type: ignore[union-attr]
            stack += functor.children(top)


def _drop(body: tuple[Stmt, ...], *, used: set[Var], dead: set[Buffer]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Let(var=var) if var not in used:
                continue
            case Allocate(buffer=buffer) | Store(buffer=buffer) if buffer in dead:
                continue
            case _:
                new = functor.map_bodies(stmt, lambda inner: _drop(inner, used=used, dead=dead))
                if isinstance(new, While) or not functor.bodies(new) or any(functor.bodies(new)):
                    out.append(new)
    changed = len(out) != len(body) or any(a is not b for a, b in zip(out, body, strict=True))
    return tuple(out) if changed else body


@prim_func_pass(opt_level=1)
def simplify(func: PrimFunc, _context: PassContext) -> PrimFunc:
    """Decide at compile time what the ranges of loop variables decide; drop unused definitions."""
    return simplified(func)


# flatten_buffer: one row-major index for every access.


def flatten(func: PrimFunc) -> PrimFunc:
    """`func` with a single index in each load and store; buffers keep their shapes.

    Afterwards, bounds can only be checked for a buffer as a whole, so run the verifier before.
    """
    return func.with_body(_flattened(func.body))


def _flattened(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    new = tuple([_stmt(s) for s in body])
    return body if all(map(is_, new, body)) else new


def _stmt(stmt: Stmt) -> Stmt:
    new = functor.map_expressions(stmt, _expr)
    if isinstance(new, Store) and len(new.indices) != 1:
        return Store(new.buffer, (flat_index(new.buffer, new.indices),), new.value, new.dtype)
    return functor.map_bodies(new, _flattened)


def _expr(expr: Expr) -> Expr:
    kind: type = type(expr)
    if kind is Imm or kind is Var:
        return expr
    new = functor.map_children(expr, _expr)
    if type(new) is Load and len(new.indices) != 1:
        return Load(new.buffer, (flat_index(new.buffer, new.indices),), new.dtype)
    return new


@prim_func_pass(opt_level=0, required=True)
def flatten_buffer(func: PrimFunc, _context: PassContext) -> PrimFunc:
    """Replace the indices of every access by one row-major index."""
    return flatten(func)


# unroll_loop: loops of kind "unroll" become copies of their body.


def unroll(func: PrimFunc) -> PrimFunc:
    """`func` without loops of kind "unroll"; InternalError if such a loop does not have constant bounds.

    If a body defines names or registers, every copy gets new ones, so that copies are independent in the enclosing body.
    """
    return func.with_body(_unrolled(func.body, where=func.name))


def _unrolled(body: tuple[Stmt, ...], *, where: str) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For) and stmt.kind == "unroll":
            out.extend(_copies(stmt, where=where))
        else:
            out.append(functor.map_bodies(stmt, lambda inner: _unrolled(inner, where=where)))
    return tuple(out)


def _copies(loop: For, *, where: str) -> list[Stmt]:
    """Unroll from the outside in, so that inner bounds may depend on outer variables."""
    if not isinstance(loop.start, Imm) or not isinstance(loop.stop, Imm):
        raise internal(f"the loop over {loop.var.name} cannot be unrolled, because its bounds are not constant", where=where)
    out: list[Stmt] = []
    for value in range(int(loop.start.value), int(loop.stop.value), loop.step):
        copy = functor.Cloner({loop.var: Imm(value, loop.var.dtype)}).body(loop.body)
        out.extend(_unrolled(copy, where=where))
    return out


@prim_func_pass(opt_level=0)
def unroll_loop(func: PrimFunc, _context: PassContext) -> PrimFunc:
    """Replace loops of kind "unroll" by copies of their bodies.

    Without this pass they are loops in C as well, except those that index registers.
    """
    return unroll(func)


# merge_functions: kernels that differ only in numbers become one, with the numbers as parameters.
#
# This keeps code from growing with the depth of a model whose layers repeat a form of loop nest.  Some numbers stay in the text:
# indices of local buffers, bounds of loops that must be unrolled, steps, and shapes of local buffers.

_KINDS = ("inputs", "outputs", "consts", "scratch")

Worth = Callable[[Sequence[PrimFunc], int], bool]
"""(functions of equal structure, number of scalar parameters after merging) -> whether to merge them."""


@dataclass(frozen=True, slots=True)
class Merged:
    """`func` does the work of a whole group; `scalars[i]` are the arguments that make it the i-th member."""

    func: PrimFunc
    scalars: tuple[tuple[int | float, ...], ...]


def structural_key(func: PrimFunc) -> str:
    """Text that is equal for two functions exactly if they differ only in names and attributes, and in shapes of parameters with
    flat indices.
    """
    return _Key(keep_numbers=True).function(func)


def sharing_key(func: PrimFunc) -> str:
    """Text that is equal for two functions exactly if `merge_functions` can merge them once they are flattened."""
    return _Key(keep_numbers=False).function(func)


def interface_key(func: PrimFunc) -> str:
    """A quick necessary condition for all other keys here: text about the parameters of a function."""
    parts = [" ".join(f"{b.dtype}@{b.align}" for b in getattr(func, kind)) for kind in _KINDS]
    return "; ".join([*parts, " ".join(v.dtype for v in func.scalars), func.attrs.opt])


@dataclass(frozen=True, slots=True)
class EqualKey:
    """Equal for two functions exactly if they differ only in their name and attributes.

    `text` numbers the intrinsics; `intrins` are their identities and `meanings` what they compute.
    """

    text: str
    intrins: tuple[int, ...]
    meanings: tuple[str, ...] = field(compare=False)

    def lasting(self) -> bytes:
        """The same in every process, for functions whose intrinsics have the same names and meanings."""
        return "\0".join((self.text, *self.meanings)).encode()


@lru_cache(4096)
def equal_key(func: PrimFunc) -> EqualKey:
    """The key of a function's buffers and body."""
    key = _Key(keep_numbers=True, keep_names=True)
    shapes = ",".join(f"{b.name}:{b.dtype}{b.shape}{b.scope}{b.indexed}" for b in func.buffers)
    text = f"{key.function(func)}\n{shapes}"
    meanings = (_meaning(i) if isinstance(i, TensorIntrin) else i.name for i in key.intrins.values())
    return EqualKey(text, tuple(key.intrins), tuple(meanings))


_MOST_OPERANDS = 7
"""Most operands of an FPU block in a function with numbers as parameters: with more, GCC 12 runs out of registers."""


def few_scalars(funcs: Sequence[PrimFunc], scalars: int) -> bool:
    """The usual rule: arguments beyond the registers of the calling convention cost more than they save.

    If an FPU block needs many registers, numbers have to stay constants.
    """
    blocks = (s for s in functor.walk(funcs[0].body) if isinstance(s, Block))
    is_crowded = any(s.intrin.requires == "vfp" and len(s.operands) > _MOST_OPERANDS for s in blocks)
    return len(funcs) > 1 and scalars <= 8 and not is_crowded


def merge_functions(funcs: Sequence[PrimFunc], worth: Worth = few_scalars) -> list[tuple[tuple[int, ...], Merged]]:
    """Groups of indices into `funcs`, each with its merged function; they cover all functions, ordered by their first members.

    Functions should be flattened before (`flatten_buffer`), so that shapes do not matter.  A group of one keeps its function
    unchanged.  Numbers that are equal in all members stay; numbers that vary alike, up to a factor and an offset, share a
    parameter.
    """
    by_key: dict[str, list[int]] = {}
    numbers: list[list[Imm]] = []
    entries: dict[PrimFunc, tuple[str, list[Imm]]] = {}
    for i, func in enumerate(funcs):
        if func.core not in entries:
            key = _Key(keep_numbers=False)
            entries[func.core] = key.function(func.core), key.numbers
        by_key.setdefault(entries[func.core][0], []).append(i)
        numbers.append(entries[func.core][1])
    out: list[tuple[tuple[int, ...], Merged]] = []
    for members in by_key.values():
        group = [funcs[i] for i in members]
        slots = _slots([numbers[i] for i in members])
        table = affine_columns(c for c in slots if c is not None)
        if len(group) > 1 and worth(group, len({a.base for a in table.values()})):
            out.append((tuple(members), _parametrised(group, slots, table)))
        else:
            out.extend(((i,), Merged(funcs[i], ((),))) for i in members)
    return sorted(out, key=lambda entry: entry[0])


def _as_sum(b: Expr) -> tuple[str, Expr]:
    """Operator and right operand of `x - b`, where `x - 5` becomes `x + (-5)`, so that numbers of either sign have one form."""
    if type(b) is Imm and b.dtype == "int32" and isinstance(b.value, int) and abs(b.value) < 1 << 31:
        return "+", Imm(-b.value, "int32")
    return "-", b


Column = tuple[str, tuple[int | float, ...]]
"""Type and values, one per member."""


def _may_vary(number: Imm) -> bool:
    """Integers, and finite floats except zeros, whose sign a comparison would not see."""
    if is_int(number.dtype):
        return True
    return number.dtype == "float32" and math.isfinite(number.value) and number.value != 0


def _slots(numbers: Sequence[Sequence[Imm]]) -> list[Column | None]:
    """For each number in order of appearance: None if all members agree, else its column."""
    slots: list[Column | None] = []
    for column in zip(*numbers, strict=True):
        values = tuple(int(n.value) if is_int(n.dtype) else float(n.value) for n in column)
        slots.append(None if len(set(values)) == 1 else (column[0].dtype, values))
    return slots


@dataclass(frozen=True, slots=True)
class Affine:
    """A column as `factor * base + offset`, where `base` is a column that is a parameter."""

    base: Column
    factor: int
    offset: int

    def expr(self, var: Var) -> Expr:
        value: Expr = var if self.factor == 1 else BinOp("*", var, Imm(self.factor, var.dtype))
        return value if self.offset == 0 else BinOp("+", value, Imm(self.offset, var.dtype))


FACTORS = (1, 2, 4, 8, 16)
"""Factors that cost no more than a shift."""


def affine_columns(columns: Iterable[Column]) -> dict[Column, Affine]:
    """Express every column by as few columns as possible: strides, sizes and offsets of one extent vary together.

    Small columns come first, so that multiples find their base.
    """
    table: dict[Column, Affine] = {}
    bases: list[Column] = []
    for column in sorted(dict.fromkeys(columns), key=lambda c: (max(map(abs, c[1])), c)):
        affine = next((a for base in bases for a in _as_affine(column, base)), None)
        if affine is None:
            bases.append(column)
            affine = Affine(column, 1, 0)
        table[column] = affine
    return table


def _as_affine(column: Column, base: Column) -> Iterator[Affine]:
    dtype, base_dtype = column[0], base[0]
    if dtype != "int32" or base_dtype != dtype:
        return
    values, base_values = ([int(v) for v in c[1]] for c in (column, base))
    for factor in FACTORS:
        offset = values[0] - factor * base_values[0]
        if all(v == factor * b + offset for v, b in zip(values, base_values, strict=True)):
            yield Affine(base, factor, offset)


def _parametrised(group: Sequence[PrimFunc], slots: Sequence[Column | None], table: Mapping[Column, Affine]) -> Merged:
    names = {p.name for p in group[0].params}
    variables: dict[Column, Var] = {}
    for base in dict.fromkeys(table[c].base for c in slots if c is not None):
        n = len(variables)
        while f"p{n}" in names:
            n += 1
        names.add(f"p{n}")
        variables[base] = Var(f"p{n}", base[0])
    exprs = [None if c is None else table[c].expr(variables[table[c].base]) for c in slots]
    func = _Parametrise(exprs).function(group)
    func = replace(func, scalars=(*group[0].scalars, *variables.values()))
    return Merged(func, tuple(tuple(c[1][i] for c in variables) for i in range(len(group))))


def _fixed_loops(func: PrimFunc) -> set[Var]:
    """Variables of loops that must keep constant bounds: unrolled loops and those that index local buffers."""
    fixed: set[Var] = set()
    for stmt in functor.walk(func.body):
        if isinstance(stmt, For) and stmt.kind == "unroll":
            fixed.add(stmt.var)
        for access in functor.accesses(stmt):
            if type(access) is not Region and access.buffer.scope == "local":
                for index in access.indices:  # type: ignore[union-attr]
                    if type(index) is not Imm:
                        fixed |= functor.free_vars(index)
    return fixed


@lru_cache(maxsize=4096)
def _meaning(intrin: TensorIntrin) -> str:
    """A block's name with its meaning: names do not contain all of its numbers."""
    return f"{intrin.name}<{structural_key(intrin.desc)}>"


class _Key:
    """Writes the canonical text.

    If `keep_numbers` is false, numbers that may become parameters are collected instead, and indices are flat.
    """

    def __init__(self, *, keep_numbers: bool, keep_names: bool = False) -> None:
        self._keep, self._named = keep_numbers, keep_names
        self._names: dict[Var | Buffer, str] = {}
        self._parts: list[str] = []
        self._fixed: set[Var] = set()
        self.numbers: list[Imm] = []
        self.intrins: dict[int, Intrin | TensorIntrin] = {}

    def function(self, func: PrimFunc) -> str:
        if not self._keep:
            self._fixed = _fixed_loops(func)
        for kind in _KINDS:
            for b in getattr(func, kind):
                self._parts.append(f"{kind} {self._name(b)}:{b.dtype}@{b.align}")
        self._parts += [f"scalar {self._name(v)}:{v.dtype}" for v in func.scalars]
        self._parts.append(func.attrs.opt)
        self._body(func.body)
        return "\n".join(self._parts)

    def _name(self, item: Var | Buffer) -> str:
        name = self._names.get(item)
        if name is None:
            name = self._names[item] = f"{item.name if self._named else ''}${len(self._names)}"
        return name

    def _number(self, intrin: Intrin | TensorIntrin) -> str:
        self.intrins.setdefault(id(intrin), intrin)
        return f"@{list(self.intrins).index(id(intrin))}"

    def _body(self, body: tuple[Stmt, ...]) -> None:
        self._parts.append("{")
        for stmt in body:
            self._stmt(stmt)
        self._parts.append("}")

    def _stmt(self, stmt: Stmt) -> None:
        put = self._parts.append
        match stmt:
            case For(var, start, stop, body, step, kind):
                fixed = var in self._fixed
                bounds = f"{self._expr(start, fixed=fixed)}..{self._expr(stop, fixed=fixed)}"
                put(f"for {self._name(var)}:{var.dtype} {bounds} {step} {kind}")
                self._body(body)
            case Store(buffer, indices, value, dtype):
                put(f"{self._element(buffer, indices, dtype)} = {self._expr(value)}")
            case Let(var, value):
                put(f"let {self._name(var)}:{var.dtype} = {self._expr(value)}")
            case Allocate(b):
                put(f"local {self._name(b)}:{b.dtype}{b.shape}{b.indexed}")
            case If(cond, then, orelse):
                put(f"if {self._expr(cond)}")
                self._body(then)
                self._body(orelse)
            case While(test, cond, body, limit):
                put(f"while {limit}")
                self._body(test)
                put(f"holds {self._expr(cond)}")
                self._body(body)
            case Block(intrin, operands):
                meaning = self._number(intrin) if self._named else _meaning(intrin)
                put(f"block {meaning}({', '.join(map(self._operand, operands))})")
            case CallPrim(name, operands, layer):
                put(f"call {name} {layer}({', '.join(map(self._operand, operands))})")
            case _:
                raise TypeError(f"not a statement: {stmt!r}")

    def _operand(self, operand: Region | Expr) -> str:
        if isinstance(operand, Region):
            fixed = operand.buffer.scope == "local"
            return f"{self._name(operand.buffer)}.{operand.dtype}[{self._expr(operand.index, fixed=fixed)}..]"
        return self._expr(operand)

    def _element(self, buffer: Buffer, indices: tuple[Expr, ...], dtype: str) -> str:
        fixed = buffer.scope == "local"
        if not self._keep and len(indices) != 1:
            indices = (flat_index(buffer, indices),)
        shape = f"{buffer.shape}" if len(indices) > 1 else ""
        return f"{self._name(buffer)}{shape}.{dtype}[{', '.join(self._expr(i, fixed=fixed) for i in indices)}]"

    def _expr(self, expr: Expr, *, fixed: bool = False) -> str:
        kind: type = type(expr)  # `match` would test one class after the other in the innermost loop
        if kind is BinOp:
            op, b = expr.op, expr.b  # type: ignore[union-attr]
            if op == "-" and not self._keep:
                op, b = _as_sum(b)
            return f"({self._expr(expr.a, fixed=fixed)} {op} {self._expr(b, fixed=fixed)})"  # type: ignore[union-attr]
        if kind is Var:
            return self._name(expr)  # type: ignore[arg-type]
        if kind is Imm:
            if fixed or self._keep or not _may_vary(expr):  # type: ignore[arg-type]
                return f"{expr.value!r}:{expr.dtype}"  # type: ignore[union-attr]
            self.numbers.append(expr)  # type: ignore[arg-type]
            return f"#:{expr.dtype}"
        match expr:
            case Cast(dtype, value):
                return f"{dtype}({self._expr(value, fixed=fixed)})"
            case Select(cond, then, orelse):
                c, t, o = (self._expr(e, fixed=fixed) for e in (cond, then, orelse))
                return f"({c} ? {t} : {o})"
            case Load(buffer, indices, dtype):
                return self._element(buffer, indices, dtype)
            case Call(intrin, args):
                meaning = self._number(intrin) if self._named else intrin.name
                return f"{meaning}({', '.join(map(self._expr, args))})"
            case _:
                raise TypeError(f"not an expression: {expr!r}")


class _Parametrise:
    """Replaces numbers by variables, in exactly the order in which _Key collects them."""

    def __init__(self, slots: Sequence[Expr | None]) -> None:
        self._slots = iter(slots)
        self._fixed: set[Var] = set()

    def function(self, group: Sequence[PrimFunc]) -> PrimFunc:
        """A copy of the first member; parameters whose sizes differ between members have none."""
        first = group[0]
        self._fixed = _fixed_loops(first)
        body = self._body(first.body)
        buffers: dict[Buffer, Buffer] = {}
        for i, b in enumerate(first.buffers):
            same = len({f.buffers[i].shape for f in group}) == 1
            buffers[b] = b if same else replace(b, shape=(UNKNOWN_EXTENT,))
        kinds: dict[str, Any] = {kind: tuple(buffers[b] for b in getattr(first, kind)) for kind in _KINDS}
        return replace(first, body=functor.Cloner(buffers=dict(buffers)).body(body), **kinds)

    def _body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(self._stmt(s) for s in body)

    def _stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case For(var=var, start=start, stop=stop):
                fixed = var in self._fixed
                start, stop = self._expr(start, fixed=fixed), self._expr(stop, fixed=fixed)
                return replace(stmt, start=start, stop=stop, body=self._body(stmt.body))
            case Store(buffer, indices, value):
                new = self._indices(buffer, indices)
                return replace(stmt, indices=new, value=self._expr(value))
            case Let(value=value):
                return replace(stmt, value=self._expr(value))
            case If(cond):
                return functor.map_bodies(replace(stmt, cond=self._expr(cond)), self._body)
            case While(test, cond, body):
                test = self._body(test)
                return replace(stmt, test=test, cond=self._expr(cond), body=self._body(body))
            case Block(operands=operands) | CallPrim(operands=operands):
                return replace(stmt, operands=tuple(self._operand(o) for o in operands))
            case _:
                return stmt

    def _operand(self, operand: Region | Expr) -> Region | Expr:
        if isinstance(operand, Region):
            return replace(operand, index=self._expr(operand.index, fixed=operand.buffer.scope == "local"))
        return self._expr(operand)

    def _indices(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(self._expr(i, fixed=buffer.scope == "local") for i in indices)

    def _expr(self, expr: Expr, *, fixed: bool = False) -> Expr:
        """Nodes are built unchanged, without folding, which could reorder the text."""
        match expr:
            case Imm():
                if fixed or not _may_vary(expr):
                    return expr
                return next(self._slots) or expr
            case BinOp(op, a, b):
                if op == "-":
                    op, b = _as_sum(b)
                x, y = self._expr(a, fixed=fixed), self._expr(b, fixed=fixed)
                if op == "+" and isinstance(y, Imm) and isinstance(y.value, int) and y.value < 0:
                    return BinOp("-", x, Imm(-y.value, y.dtype))
                return BinOp(op, x, y)
            case Cast(dtype, value):
                return Cast(dtype, self._expr(value, fixed=fixed))
            case Select(cond, then, orelse):
                c, t, o = (self._expr(e, fixed=fixed) for e in (cond, then, orelse))
                return Select(c, t, o)
            case Load(buffer, indices, dtype):
                return Load(buffer, self._indices(buffer, indices), dtype)
            case Call(intrin, args):
                return Call(intrin, tuple(self._expr(a) for a in args))
            case _:
                return expr


# The usual order.


def pipeline() -> Sequential:
    """simplify, unroll_loop, flatten_buffer, simplify: from a kernel as written to what the code generator prints."""
    return Sequential((simplify, unroll_loop, flatten_buffer, simplify), "tir")


def trial(func: PrimFunc) -> PrimFunc:
    """Like `optimize`, for a function that is only inspected: the context's instruments do not see it."""
    with unwatched():
        return optimize(func)


def optimize(func: PrimFunc) -> PrimFunc:
    """One function through the pipeline, under the current PassContext and verified before and after.

    Raises InternalError E9003 for a function that is not well formed.
    """
    verify(func)
    result = pipeline()(IRModule({func.name: func}))[func.name]
    assert isinstance(result, PrimFunc)
    verify(result, unrolled=True)
    return result
