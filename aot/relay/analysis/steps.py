"""Float chains that end in few values, as steps: from which float on the result is which code.

Proved by intervals: an operator's results for all floats between two lie between its results for those, rounded outwards where
the operator approximates a function.  Ranges whose result is not proved to be one code are cut until they are, or are so short
that every float in them is tried.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from aot.ir.op import Array, Op
from aot.relay.analysis.one_tensor import chain_to, on_values, results, scalar_of
from aot.relay.expr import Call, Constant, Expr
from aot.support.dataclass import dataclass

Floats = npt.NDArray[np.float32]
Keys = npt.NDArray[np.int64]

_RISING = frozenset({"elu", "exp", "log", "relu", "sigmoid", "sqrt", "tanh"})
_ULPS = 8
"""More than twice the error of any of them; what two neighbouring floats' results may be out of order by."""
_BREAKS = {"sigmoid": (np.nextafter(np.float32(-9), np.float32(-10)), np.float32(-9))}
"""Where the reference changes from one formula to another, with a drop: the floats on both sides."""
_CORNERS = frozenset({"add", "divide", "maximum", "minimum", "multiply", "subtract"})
"""Rounded exactly: as monotone in each operand as the numbers are."""
_MORE, _LESS = ("greater", "greater_equal"), ("less", "less_equal")
KNOWN = _RISING | _CORNERS | {*_MORE, *_LESS, "select", "qnn.quantize"}

_FIRST_CELLS, _PARTS, _SHORT, _MOST_CELLS, _MOST_STEPS = 4096, 8, 32, 1 << 19, 1 << 10


@dataclass(frozen=True, slots=True)
class Steps:
    """codes[i + 1] from starts[i] on, codes[0] before; `nan` for what is no number."""

    starts: Floats
    codes: Array
    nan: int


def find_steps(expr: Expr, x: Expr) -> Steps | None:
    """The steps of an int8 chain that depends on the float32 tensor x; None if it has too many, or an operator is not known."""
    chain = chain_to(expr, x)
    if not all(isinstance(c.op, Op) and c.op.name in KNOWN for c in chain):
        return None
    edges = np.linspace(_key(np.float32(-np.inf)), _key(np.float32(np.inf)) + 1, _FIRST_CELLS + 1).astype(np.int64)
    first, last = edges[:-1], edges[1:] - 1
    done: list[tuple[Keys, Array]] = []
    spent = 0
    while first.size:
        spent += first.size
        if spent > _MOST_CELLS:
            return None
        low, high = _bounds(chain, x, _float(first), _float(last))
        one = low == high
        done.append((first[one], low[one]))
        first, last = first[~one], last[~one]
        short = last - first < _SHORT
        each = (first[short][:, None] + np.arange(_SHORT)).reshape(-1)
        each = each[each <= np.repeat(last[short], _SHORT)]
        spent += each.size
        done.append((each, results(expr, x, _float(each))))
        first, last = _cut(first[~short], last[~short])
    return _joined(done, int(results(expr, x, np.full(1, np.nan, np.float32))[0]))


def _joined(done: list[tuple[Keys, Array]], nan: int) -> Steps | None:
    """The parts in order, neighbours of one code as one."""
    keys, codes = (np.concatenate(part) for part in zip(*done, strict=True))
    order = np.argsort(keys)
    keys, codes = keys[order], codes[order]
    changes = np.flatnonzero(np.diff(codes.astype(np.int16))) + 1
    # no comparison tells the two zeros apart
    if changes.size > _MOST_STEPS or 0 in keys[changes]:
        return None
    return Steps(_float(keys[changes]), codes[np.concatenate(([0], changes))], nan)


def _cut(first: Keys, last: Keys) -> tuple[Keys, Keys]:
    """Each range as _PARTS."""
    at = np.arange(_PARTS + 1)
    edges = first[:, None] + ((last - first + 1)[:, None] * at) // _PARTS
    return edges[:, :-1].reshape(-1), edges[:, 1:].reshape(-1) - 1


# ---- floats in order: -0 is -1, 0 is 0


def _key(value: Floats | np.float32) -> Keys:
    bits = np.asarray(value, np.float32).view(np.int32).astype(np.int64)
    return np.asarray(np.where(bits >= 0, bits, -1 - (bits & 0x7FFFFFFF)), np.int64)


def _float(key: Keys) -> Floats:
    bits = np.where(key >= 0, key, (-1 - key) | 0x80000000)
    return bits.astype(np.uint32).view(np.float32)


# ---- intervals

Bounds = tuple[Array, Array]


def _bounds(chain: list[Call], x: Expr, low: Floats, high: Floats) -> Bounds:
    """What the last call of a chain is between these floats."""
    found: dict[int, Bounds] = {id(x): (low, high)}

    def value(e: Expr) -> Bounds:
        return (np.broadcast_to(scalar_of(e), low.shape),) * 2 if isinstance(e, Constant) else found[id(e)]

    for step in chain:
        found[id(step)] = _decided(_bounds_of(step, [value(a) for a in step.args]))
    return found[id(chain[-1])]


def _decided(bounds: Bounds) -> Bounds:
    """Anything, where a bound is no number."""
    low, high = bounds
    if low.dtype != np.float32:
        return bounds
    unknown = np.isnan(low) | np.isnan(high)
    return np.where(unknown, np.float32(-np.inf), low), np.where(unknown, np.float32(np.inf), high)


def _bounds_of(step: Call, args: list[Bounds]) -> Bounds:
    assert isinstance(step.op, Op)
    name = step.op.name
    if name == "select":
        (sure, perhaps), a, b = args
        low = np.where(sure, a[0], np.where(perhaps, np.minimum(a[0], b[0]), b[0]))
        return low, np.where(sure, a[1], np.where(perhaps, np.maximum(a[1], b[1]), b[1]))
    if name in _CORNERS:
        return _corners(step, args)
    if name in _MORE:
        return on_values(step, [args[0][0], args[1][1]]), on_values(step, [args[0][1], args[1][0]])
    if name in _LESS:
        return on_values(step, [args[0][1], args[1][0]]), on_values(step, [args[0][0], args[1][1]])
    ((low, high),) = args
    ends = on_values(step, [low]), on_values(step, [high])
    return ends if name == "qnn.quantize" else _rising(step, (low, high), ends)


def _rising(step: Call, ends: Bounds, values: Bounds) -> Bounds:
    assert isinstance(step.op, Op)
    low, high = values
    for point in _BREAKS.get(step.op.name, ()):
        inside = (ends[0] <= point) & (point <= ends[1])
        value = on_values(step, [np.full_like(low, point)])
        low, high = np.where(inside, np.minimum(low, value), low), np.where(inside, np.maximum(high, value), high)
    return _float(_key(low) - _ULPS * np.isfinite(low)), _float(_key(high) + _ULPS * np.isfinite(high))


def _corners(step: Call, args: list[Bounds]) -> Bounds:
    (a, b), (c, d) = args
    found = np.stack([on_values(step, [x, y]) for x in (a, b) for y in (c, d)])
    low, high = found.min(axis=0), found.max(axis=0)  # a NaN among them stays one
    assert isinstance(step.op, Op)
    if step.op.name == "divide":
        unknown = (c <= 0) & (d >= 0)
        return np.where(unknown, np.float32(-np.inf), low), np.where(unknown, np.float32(np.inf), high)
    return low, high
