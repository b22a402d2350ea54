"""What layers copy of a state only so that it is kept: elements of the new value that are old ones at another place.

Each element of a state has a number, and the graph is run on numbers: a movement (concatenate, a slice, a view) moves them, an
element-wise operator of one tensor hands them on, as what it makes of an old element needs nothing that is new, and every other
operator makes new elements (0).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aot.ir.op import F_EVALUATE, F_IS_VIEW, T_OP_PATTERN, Array, Op, OpPattern
from aot.ir.type import TensorType
from aot.relay.expr import Call, Constant, Expr, Function, operands, post_order, tensor_type
from aot.relay.state import result_exprs, state_vars
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize

MOVEMENTS = ("concatenate", "strided_slice", "transpose", "reshape")
"""Operators whose `evaluate` moves elements about, whatever they are."""


@dataclass(frozen=True, slots=True)
class Carried:
    """`kept`: bytes of each state's new value that are old ones at another place.

    `layers`: by the id of a call of a fused function that joins or cuts what it reads, and leads to a new value, how many bytes
    of its result are elements of a state that keeps some.
    """

    kept: tuple[int, ...]
    layers: dict[int, int]


def carried(main: Function) -> Carried:
    """What is copied where nothing is done about it, for a function after fusion; what branches and loops do counts as new."""
    starts, numbers = [], dict[int, Array]()
    end = 1
    for var in state_vars(main):
        starts.append(end)
        numbers[id(var)] = np.arange(end, end + var.type.size, dtype=np.int64).reshape(var.type.shape)
        end += var.type.size
    layers = _run(main, numbers)
    kept, news, moves = [], list[Expr](), np.zeros(end, bool)
    for start, var, new in zip(starts, state_vars(main), result_exprs(main)[1], strict=True):
        now = numbers[id(new)].reshape(-1)
        stays = np.arange(start, start + var.type.size)
        old = (now >= start) & (now < start + var.type.size) & (now != stays)
        kept.append(int(old.sum()) * itemsize(var.type.dtype))
        moves[start : start + var.type.size] = old.any()
        news += [new] if old.any() else []
    table, seen = dict[int, int](), set[int]()
    while news:
        expr = news.pop()
        carries = int(moves[numbers[id(expr)]].sum()) if id(expr) in numbers else 0
        if carries and id(expr) not in seen:
            seen.add(id(expr))
            news += operands(expr)
            if id(expr) in layers:
                table[id(expr)] = carries * layers[id(expr)]
    return Carried(tuple(kept), table)


def _run(func: Function, numbers: dict[int, Array]) -> dict[int, int]:
    """The numbers of all values of `func` into `numbers`; the layers that move some, and the bytes of an element of each."""
    layers: dict[int, int] = {}
    for expr in post_order(func.body):
        if id(expr) in numbers or not isinstance(expr.type, TensorType):
            continue
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            inner = {id(p): numbers.get(id(a), _new(a)) for p, a in zip(expr.op.params, expr.args, strict=True)}
            _run(expr.op, inner)
            numbers[id(expr)] = inner[id(expr.op.body)]
            if any(_moves(e) for e in _calls(expr.op)):
                layers[id(expr)] = itemsize(tensor_type(expr).dtype)
        else:
            numbers[id(expr)] = _step(expr, numbers)
    return layers


def _calls(func: Function) -> Iterator[Call]:
    return (e for e in post_order(func.body) if isinstance(e, Call))


def _moves(expr: Call) -> bool:
    return isinstance(expr.op, Op) and expr.op.name in MOVEMENTS


def _new(expr: Expr) -> Array:
    return np.zeros(tensor_type(expr).shape, np.int64)


def _step(expr: Expr, numbers: dict[int, Array]) -> Array:
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return _new(expr)
    given, name = [numbers.get(id(a)) for a in expr.args if not isinstance(a, Constant)], expr.op.name
    shape = tensor_type(expr).shape
    if name in MOVEMENTS:
        parts = [numbers[id(a)] if id(a) in numbers else _new(a) for a in expr.args]
        return np.asarray(F_EVALUATE.get(name)(*parts, attrs=expr.attrs, out_type=tensor_type(expr)))
    only = given[0] if len(given) == 1 else None
    if (
        only is None
        or only.size != int(np.prod(shape))
        or not (F_IS_VIEW.find(name) or T_OP_PATTERN.get(name) == OpPattern.ELEMWISE)
    ):
        return _new(expr)
    return only.reshape(shape)
