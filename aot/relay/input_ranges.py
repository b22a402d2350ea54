"""Values that a graph's inputs may take, where operators do not take all: positions in a table, divisors.

An operator says which values of its operands have a meaning (F_DOMAIN).  What that means for the inputs, through whatever
lies between, is found by trying: all elements of an input get the same number, and the graph is run as far as the operands
in question.  The numbers that pass are taken to be an interval around the first one found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from aot.ir.op import F_DOMAIN, Array, Op
from aot.ir.type import TensorType
from aot.relay.expr import Call, Constant, Expr, Function, Tuple, Var, make_tuple, post_order, tensor_type
from aot.relay.interpreter import evaluate
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, numpy_dtype

Range = tuple[float, float]

MOST_NODES = 200
MOST_ELEMENTS = 1 << 18
"""What leads to an operand is run some hundred times: longer ways than this are left alone, and the inputs as they are."""

FURTHEST = 1 << 20
USUAL = (-128, 127)
"""A side on which nothing limits the input goes no further than inputs of wide types do by themselves."""

FIRST_TRIED = (0, 1, 2, 3, 5, 8, 16, 32, 64, 127, -1, -2, -8, -32, -128)


@dataclass(frozen=True, slots=True)
class _Limited:
    """An operand that must lie in [low, high]."""

    expr: Expr
    low: float
    high: float

    def holds(self, value: Array) -> bool:
        return bool(((value >= self.low) & (value <= self.high)).all())


def input_ranges(func: Function) -> dict[int, Range]:
    """Parameter -> the lowest and the highest of its elements, for those of which some operator does not take every value."""
    limited = [operand for operand in _limited(func) if _is_short(operand.expr)]
    params = {i for o in limited for i, p in enumerate(func.params) if any(e is p for e in post_order(o.expr))}
    if not params:
        return {}
    trial = Function(func.params, make_tuple([o.expr for o in limited]), {})

    def passes(values: Mapping[int, float]) -> bool:
        with np.errstate(all="ignore"):
            found = evaluate(trial, [_filled(p, values.get(i, 0)) for i, p in enumerate(func.params)])
        return all(o.holds(v) for o, v in zip(limited, found, strict=True))

    first = next((v for v in FIRST_TRIED if _fits(func.params, params, v) and passes(dict.fromkeys(params, v))), None)
    if first is None:
        return {}
    ranges = {}
    for i in sorted(params):
        limits = _limits(func.params[i])
        found = _around(first, limits, partial(_with_one, passes, dict.fromkeys(params, first), i))
        if found != limits:
            low = found[0] if found[0] > limits[0] else max(found[0], min(first, USUAL[0]))
            high = found[1] if found[1] < limits[1] else min(found[1], max(first, USUAL[1]))
            ranges[i] = low, high
    return _together(ranges, first, passes)


def _with_one(passes: Callable[[Mapping[int, float]], bool], values: Mapping[int, float], i: int, value: float) -> bool:
    return passes({**values, i: value})


def _limited(func: Function) -> list[_Limited]:
    """Operands that are computed, or come in, and of which not every value is taken."""
    found = []
    for node in post_order(func.body):
        if not isinstance(node, Call) or not isinstance(node.op, Op) or node.op.name not in F_DOMAIN:
            continue
        domain = F_DOMAIN.get(node.op.name)([a.type for a in node.args], node.attrs)
        found += [_Limited(node.args[i], *limits) for i, limits in domain.items() if not isinstance(node.args[i], Constant)]
    return found


def _is_short(expr: Expr) -> bool:
    nodes = [e for e in post_order(expr) if not isinstance(e, Constant)]
    sizes = (e.type.size for e in nodes if isinstance(e.type, TensorType))
    layers = any(isinstance(e, Call) and isinstance(e.op, Op) and e.op.name.startswith("nn.") for e in nodes)
    return (
        len(nodes) <= MOST_NODES and sum(sizes) <= MOST_ELEMENTS and not layers and not any(isinstance(e, Tuple) for e in nodes)
    )


def _filled(param: Var, value: float) -> Array:
    type_ = tensor_type(param)
    return np.full(type_.shape, value, numpy_dtype(type_.dtype))


def _limits(param: Var) -> Range:
    dtype = tensor_type(param).dtype
    if is_float(dtype):
        return -FURTHEST, FURTHEST
    if dtype == "bool":
        return 0, 1
    low, high = int_range(dtype)
    return max(low, -FURTHEST), min(high, FURTHEST)


def _fits(params: Sequence[Var], chosen: set[int], value: float) -> bool:
    return all(low <= value <= high for low, high in (_limits(params[i]) for i in chosen))


def _around(first: int, limits: Range, passes: Callable[[float], bool]) -> Range:
    """The whole numbers next to `first` that pass, up to `limits` on both sides: in growing steps, then by halves."""
    ends: list[float] = []
    for limit in map(int, limits):
        way, room, step, good = (1 if limit > first else -1), abs(limit - first), 1, 0
        while good < room and passes(first + way * min(step, room)):
            good, step = min(step, room), 2 * step
        bad = min(step, room + 1)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if passes(first + way * middle) else (good, middle)
        ends.append(first + way * good)
    return ends[0], ends[1]


def _together(ranges: dict[int, Range], first: int, passes: Callable[[Mapping[int, float]], bool]) -> dict[int, Range]:
    """The ranges, drawn in until inputs that are at their ends at once pass as well: a position may be a sum of two."""
    while any(low < first or high > first for low, high in ranges.values()):
        corners = ({i: r[end] for i, r in ranges.items()} for end in (0, 1))
        if all(passes(c) for c in corners):
            break
        ranges = {i: (first - (first - low) // 2, first + (high - first) // 2) for i, (low, high) in ranges.items()}
    return ranges
