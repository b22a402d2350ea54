"""Does a loop nest do just what an intrinsic does?  Both are run in step, on symbols in the place of memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.te.affine import Affine, affine
from aot.tir.analysis.bounds import Interval, interval
from aot.tir.buffer import Buffer, flat_index
from aot.tir.expr import BinOp, Call, Cast, Expr, Imm, Load, Select, Var, as_expr
from aot.tir.functor import Cloner
from aot.tir.intrin import TensorIntrin
from aot.tir.printer import print_stmt
from aot.tir.stmt import Block, For, If, Let, Region, Stmt, Store
from aot.tir.transform.simplify import simplified_expr

MAX_STORES = 1 << 14
"""Stores of a nest that are compared."""


class MismatchError(Exception):
    """Why the nest is not the intrinsic."""


@dataclass(slots=True)
class _Binding:
    """The parameters of the description: buffers as (buffer, start), scalars as expressions; ranges of the loops around."""

    ranges: Mapping[Var, Interval]
    buffers: dict[Buffer, tuple[Buffer, Affine]] = field(default_factory=dict)
    scalars: dict[Var, Expr] = field(default_factory=dict)


def match_intrinsic(
    loop: For, intrin: TensorIntrin, ranges: Mapping[Var, Interval]
) -> tuple[Block, dict[Buffer, int]] | str:  # fmt: skip
    """(the block in the place of the loop, alignments in bytes that buffers need), or why the loop does something else.

    The description has to make the same stores in the same order.
    """
    binding = _Binding(ranges)
    try:
        stores = _pairs(_run((loop,)), _run(intrin.desc.body))
        for actual, wanted in stores:
            _element(binding, (actual.buffer, actual.indices, actual.dtype), (wanted.buffer, wanted.indices, wanted.dtype))
            _same(binding, actual.value, wanted.value)
        operands = tuple(_operand(binding, p, ranges) for p in intrin.desc.params)
        _check_aliases(binding, intrin)
    except MismatchError as error:
        return str(error)
    aligns: dict[Buffer, int] = {}
    for param, (buffer, _) in binding.buffers.items():
        aligns[buffer] = max(aligns.get(buffer, 1), param.align)
    return Block(intrin, operands), aligns


def _pairs(actual: Iterator[Store], wanted: Iterator[Store]) -> Iterator[tuple[Store, Store]]:
    count = 0
    while True:
        a, w = next(actual, None), next(wanted, None)
        if a is None and w is None:
            return
        if a is None or w is None:
            raise MismatchError(f"{'the loop' if a is None else 'the description'} makes only {count} stores")
        count += 1
        if count > MAX_STORES:
            raise MismatchError(f"more than {MAX_STORES} stores")
        yield a, w


def _run(body: tuple[Stmt, ...]) -> Iterator[Store]:
    """The stores of a nest in order, loop variables replaced by their values."""
    return _statements(body, Cloner())


def _statements(body: tuple[Stmt, ...], env: Cloner) -> Iterator[Store]:
    for stmt in body:
        match stmt:
            case Store(buffer, indices, value, dtype):
                yield Store(buffer, tuple(env.expr(i) for i in indices), env.expr(value), dtype)
            case Let(var, value):
                env.variables[var] = env.expr(value)
            case For(var, start, stop, inner, step):
                first, last = env.expr(start), env.expr(stop)
                if not isinstance(first, Imm) or not isinstance(last, Imm):
                    raise MismatchError(f"the bounds of loop {var.name} are not constant")
                for turn in range(int(first.value), int(last.value), step):
                    env.variables[var] = Imm(turn, var.dtype)
                    yield from _statements(inner, env)
            case If(cond, then, orelse):
                known = env.expr(cond)
                if not isinstance(known, Imm):
                    raise MismatchError(f"a condition: {print_stmt(stmt).splitlines()[0]}")
                yield from _statements(then if known.value else orelse, env)
            case _:
                raise MismatchError(f"a statement other than loops and stores: {print_stmt(stmt).splitlines()[0]}")


Place = tuple[Buffer, tuple[Expr, ...], str]


def _element(binding: _Binding, actual: Place, wanted: Place) -> None:
    (buffer, indices, dtype), (param, param_indices, param_dtype) = actual, wanted
    if dtype != param_dtype or buffer.dtype != param.dtype or dtype != buffer.dtype:
        raise MismatchError(f"{buffer.name} is {dtype}, {param.name} of the description {param_dtype}")
    place = simplified_expr(flat_index(buffer, indices), binding.ranges)
    start = affine(place).plus(affine(flat_index(param, param_indices)), -1)
    known = binding.buffers.setdefault(param, (buffer, start))
    if known[0] is not buffer:
        raise MismatchError(f"{param.name} of the description would be {known[0].name} and {buffer.name}")
    if known[1] != start:
        raise MismatchError(
            f"{buffer.name} is not used as {param.name} of the description is: other strides, or another order of loops"
        )


def _same(binding: _Binding, actual: Expr, wanted: Expr) -> None:
    match actual, wanted:
        case Load(b, i, t), Load(p, j, u):
            _element(binding, (b, i, t), (p, j, u))
        case _, Var():
            if binding.scalars.setdefault(wanted, actual) != actual:
                raise MismatchError(f"scalar {wanted.name} of the description would have two values")
        case Imm(v, t), Imm(w, u) if v == w and t == u:
            pass
        case BinOp(op, a, b), BinOp(other, c, d) if op == other:
            _same(binding, a, c)
            _same(binding, b, d)
        case Cast(t, a), Cast(u, c) if t == u:
            _same(binding, a, c)
        case Select(a, b, c), Select(d, e, f):
            for x, y in ((a, d), (b, e), (c, f)):
                _same(binding, x, y)
        case Call(f, args), Call(g, others) if f is g:
            for x, y in zip(args, others, strict=True):
                _same(binding, x, y)
        case _:
            raise MismatchError("the loop computes another expression than the description")


def _operand(binding: _Binding, param: Buffer | Var, ranges: Mapping[Var, Interval]) -> Region | Expr:
    if isinstance(param, Var):
        if param not in binding.scalars:
            raise MismatchError(f"scalar {param.name} of the description has no value")
        return binding.scalars[param]
    if param not in binding.buffers:
        raise MismatchError(f"{param.name} of the description is not used")
    buffer, start = binding.buffers[param]
    if buffer.scope == "local":
        if start != Affine() or buffer.size < param.size:
            raise MismatchError(f"local {buffer.name} is not {param.name} of the description as a whole")
        return Region(buffer, as_expr(0), param.dtype)
    index = start.expr()
    low, high = interval(index, ranges)
    if low < 0 or high + param.size > buffer.size:
        raise MismatchError(f"{param.name} of the description might leave {buffer.name}")
    step = max(1, param.align // itemsize(param.dtype))
    if any(v % step for v in (start.offset, *start.terms.values())):
        raise MismatchError(
            f"{param.name} of the description needs {param.align} bytes alignment, {buffer.name} has parts without"
        )
    return Region(buffer, index, param.dtype)


def _check_aliases(binding: _Binding, intrin: TensorIntrin) -> None:
    """What the intrinsic writes must not be what it reads under another name."""
    written = {binding.buffers[p][0] for p in (*intrin.desc.outputs, *intrin.desc.scratch)}
    used = [b for b, _ in binding.buffers.values()]
    for buffer in written:
        if used.count(buffer) > 1:
            raise MismatchError(f"{buffer.name} would be two operands of the intrinsic, and is written")
