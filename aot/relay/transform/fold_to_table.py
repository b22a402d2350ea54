"""Functions of one byte become tables of 256 bytes; functions of one float that end in QUANTIZE become comparisons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from aot.ir.op import Array
from aot.ir.transform import PassContext, function_pass
from aot.relay.analysis import chain_to, is_costly, on_values, results, scalar_of, source_of
from aot.relay.expr import Call, Constant, Expr, Function, call_with, is_call, rebuild, rewrite, tensor_type, users
from aot.support.dataclass import dataclass


@function_pass(opt_level=2)
def fold_to_table(func: Function, _context: PassContext) -> Function:
    """Replace element-wise calls that depend on one int8 tensor by `qnn.lut` of that tensor.

    In and out: operator calls.  Examples are x * sigmoid(x), hard-swish in parts, and float32 operators between DEQUANTIZE and
    QUANTIZE.  The table is the result of the operators' own `evaluate` for all 256 values, so it is exact.  A call stays if it is
    the only one of its function and reads the tensor once: its kernel is as good, and needs no table.  If the result of costly
    functions stays a float, `qnn.lut_float` is used.
    """
    source: dict[int, Expr] = {}

    def folded(new: Expr) -> Expr:
        x = source_of(new, source, "int8")
        if isinstance(new, Call) and x is not None and tensor_type(new).dtype == "int8" and not _is_simple(new, x):
            new = call_with("qnn.lut", [x], _table(new, x), tensor_type(new).quant, span=new.span)
        if x is not None:
            source[id(new)] = x
        return new

    return _fold_floats(rewrite(func, folded))


def _is_simple(expr: Call, x: Expr) -> bool:
    """Whether the call is the whole function, or a table already."""
    return (is_call(expr, "qnn.lut") and expr.args[0] is x) or [a for a in expr.args if not isinstance(a, Constant)] == [x]


def _table(expr: Expr, x: Expr) -> tuple[Any, ...]:
    """The results for the values -128 to 127."""
    return tuple(results(expr, x, np.arange(-128, 128).astype(np.int8)).tolist())


def _fold_floats(func: Function) -> Function:
    """Replace costly functions of one int8 tensor whose result stays a float, for instance to be added to another tensor."""
    source: dict[int, Expr] = {}
    readers = users(func)
    done: dict[int, Expr] = {}

    def folded(expr: Expr, new: Expr) -> Expr:
        x = source_of(expr, source, "int8")
        if x is None:
            return new
        source[id(expr)] = x
        inner = [r for r in readers.get(id(expr), []) if source_of(r, source, "int8") is x]
        outside = expr is func.body or len(inner) < len(readers[id(expr)])
        if tensor_type(expr).dtype == "float32" and outside and is_costly(expr, x):
            return call_with("qnn.lut_float", [done[id(x)]], _table(expr, x), span=expr.span)
        return new

    return replace(func, body=rebuild(func.body, folded, done))


@function_pass(opt_level=2)
def fold_to_steps(func: Function, _context: PassContext) -> Function:
    """Replace chains of element-wise calls from one float32 tensor to int8 by `qnn.steps` of that tensor.

    In and out: operator calls.  An example is MISH between a normalisation and QUANTIZE: three C library functions per element,
    of whose result a single byte is kept.  Only for chains with such a function, with many elements, and not read elsewhere; a
    chain whose steps cannot be proved stays.
    """
    source: dict[int, Expr] = {}
    readers = users(func)
    done: dict[int, Expr] = {}

    def folded(expr: Expr, new: Expr) -> Expr:
        x = source_of(expr, source, "float32")
        if x is None:
            return new
        source[id(expr)] = x
        if not is_call(expr, "qnn.quantize") or tensor_type(expr).dtype != "int8" or not _pays(expr, x, readers):
            return new
        steps = find_steps(expr, x)
        if steps is None:
            return new
        values = tuple(steps.starts.tolist()), tuple(steps.codes.tolist()), steps.nan, tensor_type(expr).quant
        return call_with("qnn.steps", [done[id(x)]], *values, span=expr.span)

    body = rebuild(func.body, folded, done)
    return func if body is func.body else replace(func, body=body)


def _pays(expr: Expr, x: Expr, readers: dict[int, list[Expr]]) -> bool:
    """Whether the chain is worth a table, and none of its intermediate results is read elsewhere."""
    chain = chain_to(expr, x)
    inside = {id(c) for c in chain}
    alone = all(id(reader) in inside for c in chain[:-1] for reader in readers[id(c)])
    return alone and is_costly(expr, x)


# Float functions with few result values, as steps: from which float on which value results.
#
# Proved by intervals: an operator's results for all floats between two floats are between its results for these two, rounded
# outwards if the operator approximates a function.  Ranges that are not proved to have a single result are divided until they
# are, or are so short that every float in them can be tried.


Floats = npt.NDArray[np.float32]
Keys = npt.NDArray[np.int64]

_RISING = frozenset({"elu", "exp", "log", "relu", "sigmoid", "sqrt", "tanh"})
_ULPS = 8
"""More than twice the error of any of them, which bounds how far results of neighbouring floats may be out of order."""
_BREAKS = {"sigmoid": (np.nextafter(np.float32(-9), np.float32(-10)), np.float32(-9))}
"""Where the reference switches formulas, with a drop: the floats on both sides."""
_CORNERS = frozenset({"add", "divide", "maximum", "minimum", "multiply", "subtract"})
"""Correctly rounded, so as monotone in each operand as the exact operation."""
_MORE, _LESS = ("greater", "greater_equal"), ("less", "less_equal")
KNOWN = _RISING | _CORNERS | {*_MORE, *_LESS, "select", "qnn.quantize"}

_FIRST_CELLS, _PARTS, _SHORT, _MOST_CELLS, _MOST_STEPS = 4096, 8, 32, 1 << 19, 1 << 10


@dataclass(frozen=True, slots=True)
class Steps:
    """codes[i + 1] from starts[i] on, codes[0] before; `nan` is the result for NaN."""

    starts: Floats
    codes: Array
    nan: int


def find_steps(expr: Expr, x: Expr) -> Steps | None:
    """The steps of an int8 chain of the float32 tensor x; None if there are too many, or an operator is unknown."""
    chain = chain_to(expr, x)
    if not all(c.name in KNOWN for c in chain):
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
    """Join the parts in order, merging neighbours with the same result."""
    keys, codes = (np.concatenate(part) for part in zip(*done, strict=True))
    order = np.argsort(keys)
    keys, codes = keys[order], codes[order]
    changes = np.flatnonzero(np.diff(codes.astype(np.int16))) + 1
    # no comparison distinguishes the two zeros
    if changes.size > _MOST_STEPS or 0 in keys[changes]:
        return None
    return Steps(_float(keys[changes]), codes[np.concatenate(([0], changes))], nan)


def _cut(first: Keys, last: Keys) -> tuple[Keys, Keys]:
    """Divide each range into _PARTS."""
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
    """The bounds of the last call of a chain between these floats."""
    bounds: dict[int, Bounds] = {id(x): (low, high)}

    def value(e: Expr) -> Bounds:
        return (np.broadcast_to(scalar_of(e), low.shape),) * 2 if isinstance(e, Constant) else bounds[id(e)]

    for step in chain:
        bounds[id(step)] = _decided(_bounds_of(step, [value(a) for a in step.args]))
    return bounds[id(chain[-1])]


def _decided(bounds: Bounds) -> Bounds:
    """Any value, if a bound is NaN."""
    low, high = bounds
    if low.dtype != np.float32:
        return bounds
    unknown = np.isnan(low) | np.isnan(high)
    return np.where(unknown, np.float32(-np.inf), low), np.where(unknown, np.float32(np.inf), high)


def _bounds_of(step: Call, args: list[Bounds]) -> Bounds:
    name = step.name
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
    low, high = values
    for point in _BREAKS.get(step.name, ()):
        inside = (ends[0] <= point) & (point <= ends[1])
        value = on_values(step, [np.full_like(low, point)])
        low, high = np.where(inside, np.minimum(low, value), low), np.where(inside, np.maximum(high, value), high)
    return _float(_key(low) - _ULPS * np.isfinite(low)), _float(_key(high) + _ULPS * np.isfinite(high))


def _corners(step: Call, args: list[Bounds]) -> Bounds:
    (a, b), (c, d) = args
    values = np.stack([on_values(step, [x, y]) for x in (a, b) for y in (c, d)])
    low, high = values.min(axis=0), values.max(axis=0)  # NaN propagates
    if step.name == "divide":
        unknown = (c <= 0) & (d >= 0)
        return np.where(unknown, np.float32(-np.inf), low), np.where(unknown, np.float32(np.inf), high)
    return low, high
