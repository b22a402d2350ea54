"""What can be said about a graph before it is compiled: variables, cost, which fused functions share kernels or figures, trip
counts of loops, which values the inputs may have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from math import prod
from typing import TypeGuard

import numpy as np

from aot.errors.tvm_names import missing_in
from aot.ir.op import F_DOMAIN, F_IS_VIEW, T_OP_PATTERN, Array, OpPattern
from aot.ir.type import QuantParams, TensorType
from aot.relay import expr as ex
from aot.relay.interpreter import call_op, evaluate
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, is_int, numpy_dtype


def all_vars(expr: ex.Expr | ex.Function) -> list[ex.Var]:
    """All variables, each once: a function's parameters first, then others in order of first use."""
    body = expr.body if isinstance(expr, ex.Function) else expr
    return list({id(v): v for v in (*bound_vars(expr), *(e for e in ex.post_order(body) if isinstance(e, ex.Var)))}.values())


def bound_vars(expr: ex.Expr | ex.Function) -> list[ex.Var]:
    """The parameters of a function; an expression binds none."""
    return list(expr.params) if isinstance(expr, ex.Function) else []


def free_vars(expr: ex.Expr | ex.Function) -> list[ex.Var]:
    """The variables that are used but not bound, in order of first use."""
    bound = {id(v) for v in bound_vars(expr)}
    return [v for v in all_vars(expr) if id(v) not in bound]


# Workloads: the key of fused functions for which the same kernel needs the same number of instructions.

_ZERO_POINTS = frozenset({"zero_point", "input_zp", "weight_zp", "pad_value", "output_zp"})
_CLAMPS = frozenset({"lo", "hi"})
_NUMBERS = frozenset({"multiplier", "fraction", "table", "diff_min", "input_multiplier", "output_multiplier"})
_SHIFTS = frozenset({"shift", "input_shift", "output_shift", "left_shift"})


def workload_key(func: ex.Function) -> str | None:
    """A key for the operators, attributes, shapes and types of a fused function; None if it contains more than operators.

    Of trained numbers, only what kernels look at counts: whether a zero point is 0, whether there is a clamp, one multiplier or
    many, and the direction of shifts.  So networks with the same architecture have the same workloads.
    """
    nodes, body = _numbered(func)
    text = "\n".join([*(f"{_node(e)} {read}" for e, read in nodes), f"{body} {func.attrs.get('Compiler', '')}"])
    return None if "?" in text else hashlib.sha256(text.encode()).hexdigest()[:24]


def workload_text(func: ex.Function) -> str:
    """A readable description of a workload: its operators, and the shapes of operands, constants and result."""
    nodes = ex.post_order(func.body)
    calls = [e for e in nodes if isinstance(e, ex.Call)]
    names = "+".join(c.name or "?" for c in calls)
    constants = [e.type for e in nodes if isinstance(e, ex.Constant) and len(e.type.shape) > 1]
    operands_ = " ".join(str(t) for t in [*(p.type for p in func.params), *constants])
    return f"{names} {operands_} -> {func.body.type}"


def _numbered(func: ex.Function) -> tuple[list[tuple[ex.Expr, list[int]]], int]:
    """The parameters and other nodes of a function, each with the numbers of its operands in this list; and the body's number."""
    nodes = [*func.params, *(e for e in ex.post_order(func.body) if not isinstance(e, ex.Var))]
    place = {id(e): i for i, e in enumerate(nodes)}
    return [(e, [place[id(o)] for o in ex.operands(e)]) for e in nodes], place[id(func.body)]


def _node(expr: ex.Expr) -> str:
    match expr:
        case ex.Var():
            return f"var {expr.type}"
        case ex.Constant():
            return f"constant {expr.type} {expr.stored or ''}"
        case ex.Call():
            if isinstance(expr.op, ex.Function):
                return "?"
            return f"call {expr.name} {_attrs(expr.attrs, getattr(expr.type, 'dtype', ''))} {expr.type}"
        case ex.Tuple():
            return "tuple"
        case ex.TupleGetItem():
            return f"field {expr.index}"
    return "?"


def _attrs(attrs: object, dtype: str) -> str:
    if attrs is None:
        return ""
    if not is_dataclass(attrs):
        return "?"
    return " ".join(f"{f.name}={_value(f.name, getattr(attrs, f.name), dtype)}" for f in fields(attrs))


def _value(name: str, value: object, dtype: str) -> str:
    if isinstance(value, QuantParams):
        return ""
    if isinstance(value, tuple | list):
        if name in _NUMBERS:
            return f"{len(value)} numbers"
        if name in _SHIFTS:
            return f"{len(value)} shifts {_direction(value)}"
        return ",".join(_value(name, v, dtype) for v in value)
    if isinstance(value, float) or name in _NUMBERS:
        return "number"
    if name in _ZERO_POINTS and isinstance(value, int):
        return "0" if value == 0 else "zero point"
    if name in _CLAMPS and isinstance(value, int) and is_int(dtype):
        return "end" if value in int_range(dtype) else "clamp"
    if name in _SHIFTS and isinstance(value, int):
        return f"shift {_direction((value,))}"
    if value is None or isinstance(value, str | int | bool):
        return str(value)
    return _attrs(value, dtype) if is_dataclass(value) else "?"


def _direction(shifts: Sequence[int]) -> str:
    """The directions that occur: left (positive), right, both."""
    return f"{'left' if max(shifts, default=0) > 0 else ''}{'right' if min(shifts, default=0) <= 0 else ''}"


# Keys: fused functions with the same key can share a kernel.


def group_key(func: ex.Function) -> bytes | None:
    """A hash of operators, attributes, types and constants, independent of names and positions in the file.

    None for a function that contains anything but operator calls, or attributes that are not plain values.
    """
    digest = hashlib.sha256()
    nodes, body = _numbered(func)
    for expr, read in nodes:
        text = _text(expr)
        if text is None:
            return None
        digest.update(f"{text} {read}\n".encode())
        if isinstance(expr, ex.Constant):
            digest.update(np.ascontiguousarray(expr.data).tobytes())
    if not all(map(_is_plain, func.attrs.values())):
        return None
    digest.update(f"{body} {sorted((k, repr(v)) for k, v in func.attrs.items())}".encode())
    return digest.digest()


def _text(expr: ex.Expr) -> str | None:
    match expr:
        case ex.Var():
            return f"var {expr.type!r}"
        case ex.Constant():
            return f"constant {expr.type!r} {expr.stored!r} {expr.data.dtype} {expr.data.shape}"
        case ex.Call():
            if isinstance(expr.op, ex.Function) or not _is_plain(expr.attrs):
                return None
            return f"call {expr.op.name} {expr.attrs!r} {expr.type!r}"
        case ex.Tuple():
            return "tuple"
        case ex.TupleGetItem():
            return f"field {expr.index}"
    return None


def _is_plain(attrs: object) -> bool:
    """Whether equal attributes always have equal text; arrays, which cannot be hashed, do not."""
    try:
        hash(attrs)
    except TypeError:
        return False
    return attrs is None or type(attrs).__hash__ is not object.__hash__


# Cost: multiplications and weights.


@dataclass(frozen=True, slots=True)
class Cost:
    """Multiply-accumulates per inference, and bytes of the layers' weights (without biases)."""

    macs: int = 0
    weight_bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.macs + other.macs, self.weight_bytes + other.weight_bytes)


_INTEGER = ("nn.conv2d", "nn.depthwise_conv2d", "nn.dense", "nn.conv2d_transpose")
LAYERS = frozenset({*_INTEGER, *(f"{name}_float" for name in _INTEGER)})


def cost(func: ex.Function) -> Cost:
    """Sum over convolutions and fully connected layers, including fused ones; padding counts as if it were read."""
    total = Cost()
    for expr in ex.post_order(func.body):
        if isinstance(expr, ex.Call) and isinstance(expr.op, ex.Function):
            total += cost(expr.op)
        elif ex.is_call(expr, *LAYERS):
            total += layer_cost(expr)
    return total


def layer_cost(expr: ex.Call) -> Cost:
    """One layer: each output element needs its channel's weights; in a transposed convolution, each input element does."""
    weight = ex.tensor_type(expr.args[1])
    stored = weight.nbytes if isinstance(expr.args[1], ex.Constant) else 0
    name = expr.name.removesuffix("_float")
    if name == "nn.conv2d_transpose":
        return Cost(ex.tensor_type(expr.args[0]).size * prod(weight.shape[:-1]), stored)
    taps = prod(weight.shape[:-1]) if name == "nn.depthwise_conv2d" else prod(weight.shape[1:])
    return Cost(ex.tensor_type(expr).size * taps, stored)


__getattr__ = missing_in("relay.analysis")


# Trip counts that follow from constants: a counter with constant start, step and bound.


MOST_ITERATIONS = 4096
"""Most iterations to try; a loop with more has an unknown trip count."""

MOST_OF_A_CONDITION = 64
"""Most elements of a value that may take part in counting; larger values are data."""


def trip_count(loop: ex.While) -> int | None:
    """Iterations of a loop; None if they depend on data, exceed MOST_ITERATIONS, or never end.

    The deciding variables (those that the condition reads, and those that they are computed from) must start as small constants.
    Then the condition and these variables are evaluated with the operators' own meaning until the condition fails.
    """
    deciding = deciding_variables(loop)
    values: list[Array] = []
    for i in deciding:
        value = constant_value(loop.args[i])
        if value is None or value.size > MOST_OF_A_CONDITION:
            return None
        values.append(value)
    condition = _part(loop.cond, deciding, loop.cond.body)
    step = _part(loop.body, deciding, ex.make_tuple([results_of(loop.body)[i] for i in deciding])) if deciding else None
    if not _is_small(condition) or (step is not None and not _is_small(step)):
        return None
    for count in range(MOST_ITERATIONS + 1):
        (holds,) = evaluate(condition, values)
        if not holds.reshape(()):
            return count
        if step is None:
            return None
        values = [np.asarray(v) for v in evaluate(step, values)]
    return None


def deciding_variables(loop: ex.While) -> list[int]:
    """The loop variables that the condition depends on, directly or in a later iteration."""
    return _with_sources(loop, _reads(loop.cond, loop.cond.body))


def live_variables(loop: ex.While, used: set[int]) -> list[int]:
    """The loop variables that decide, or that the variables in `used` are computed from."""
    return _with_sources(loop, {*deciding_variables(loop), *used})


def _with_sources(loop: ex.While, variables: set[int]) -> list[int]:
    """The variables, and those that they are computed from in this iteration or an earlier one."""
    reads = [_reads(loop.body, r) for r in results_of(loop.body)]
    while (more := variables.union(*(reads[i] for i in variables))) != variables:
        variables = more
    return sorted(variables)


def fields_of(expr: ex.Expr) -> tuple[ex.Expr, ...]:
    """The fields of a tuple, or the expression itself if it is one tensor."""
    if isinstance(expr, ex.Tuple):
        return expr.fields
    if isinstance(expr.type, TensorType):
        return (expr,)
    return tuple(ex.get_item(expr, i, span=expr.span) for i in range(len(expr.type.fields)))


def results_of(func: ex.Function) -> tuple[ex.Expr, ...]:
    """The results of a function, as expressions."""
    return fields_of(func.body)


def constant_value(expr: ex.Expr) -> Array | None:
    """The value of an expression over constants only; None if it depends on anything else or is large."""
    if isinstance(expr, ex.Constant):
        return np.asarray(expr.data)
    nodes = ex.post_order(expr)
    if any(isinstance(e, ex.Var) for e in nodes) or not isinstance(expr.type, TensorType) or not all(map(_is_scalar_work, nodes)):
        return None
    (value,) = evaluate(ex.Function((), expr), [])
    return np.asarray(value)


def _is_scalar_work(expr: ex.Expr) -> bool:
    types = (expr.type,) if isinstance(expr.type, TensorType) else expr.type.fields
    return not ex.inner_functions(expr) and sum(prod(t.shape) for t in types) <= MOST_OF_A_CONDITION


def _is_small(func: ex.Function) -> bool:
    return all(_is_scalar_work(e) for e in ex.post_order(func.body) if not isinstance(e, ex.Tuple))


def _reads(func: ex.Function, root: ex.Expr) -> set[int]:
    """The indices of the parameters of `func` that an expression in its body depends on."""
    numbers = {id(p): i for i, p in enumerate(func.params)}
    return {numbers[id(e)] for e in ex.post_order(root) if id(e) in numbers}


def _part(func: ex.Function, params: Sequence[int], body: ex.Expr) -> ex.Function:
    return ex.Function(tuple(func.params[i] for i in params), body)


# Chains of element-wise calls that depend on a single tensor, element by element.


BY_CHANNEL = frozenset({"qnn.requantize", "nn.bias_add"})
"""Element-wise operators whose attributes or operands may hold one number per channel."""

COSTLY = frozenset({"elu", "exp", "log", "sigmoid", "tanh"})
"""Float functions that take far longer than a table lookup."""

LEAST_ELEMENTS = 1024


def source_of(expr: ex.Expr, sources: dict[int, ex.Expr], dtype: str) -> ex.Expr | None:
    """The tensor of type `dtype` that an element-wise call depends on, element by element; None if there is none.

    `sources` holds the results for the nodes before it.
    """
    if not isinstance(expr, ex.Call) or not expr.name or not isinstance(expr.type, TensorType):
        return None
    if expr.name in BY_CHANNEL or T_OP_PATTERN.get(expr.name) > OpPattern.BROADCAST:
        return None
    origins: list[ex.Expr] = []
    for arg in expr.args:
        if isinstance(arg, ex.Constant) and arg.data.size == 1:
            continue
        if not isinstance(arg.type, TensorType) or arg.type.shape != expr.type.shape or isinstance(arg, ex.Constant):
            return None
        origins.append(sources.get(id(arg), arg))
    same = origins and all(x is origins[0] for x in origins)
    return origins[0] if same and ex.tensor_type(origins[0]).dtype == dtype else None


def chain_to(expr: ex.Expr, x: ex.Expr) -> list[ex.Call]:
    """The calls from x to the expression, in execution order; the expression is the last one."""
    order: list[ex.Call] = []
    seen = {id(x)}

    def visit(e: ex.Expr) -> None:
        if id(e) in seen or not isinstance(e, ex.Call):
            return
        seen.add(id(e))
        for arg in e.args:
            visit(arg)
        order.append(e)

    visit(expr)
    return order


def is_costly(expr: ex.Expr, x: ex.Expr) -> bool:
    """Whether a table of one or two kilobytes pays off: a costly function of x with many elements."""
    return ex.tensor_type(expr).size >= LEAST_ELEMENTS and any(c.name in COSTLY for c in chain_to(expr, x))


def on_values(expr: ex.Call, args: list[Array]) -> Array:
    """Evaluate a call of a chain on vectors instead of its tensors; scalar operands stay."""
    new: list[ex.Expr] = []
    for old, data in zip(expr.args, args, strict=True):
        type_ = ex.tensor_type(old)
        new.append(ex.const(data, dtype=type_.dtype, quant=type_.quant))
    alone = ex.again(expr, new)
    with np.errstate(all="ignore"):
        return np.asarray(call_op(alone, [a.data for a in alone.args if isinstance(a, ex.Constant)]))


def scalar_of(expr: ex.Constant) -> Array:
    return np.asarray(expr.data).reshape(())


def results(expr: ex.Expr, x: ex.Expr, data: Array) -> Array:
    """The value of the expression for these elements of x, a vector."""
    values: dict[int, Array] = {id(x): data}
    for step in chain_to(expr, x):
        values[id(step)] = on_values(step, [scalar_of(a) if isinstance(a, ex.Constant) else values[id(a)] for a in step.args])
    return values[id(expr)]


def is_moved(expr: ex.Expr) -> TypeGuard[ex.Call]:
    """Whether an expression is a slice or a view of its operand."""
    return isinstance(expr, ex.Call) and (expr.name == "strided_slice" or (bool(expr.name) and bool(F_IS_VIEW.find(expr.name))))


def moved_from(expr: ex.Expr) -> ex.Expr:
    """The expression that this one is a slice or view of, through any number of slices and views."""
    while is_moved(expr):
        expr = expr.args[0]
    return expr


# Ranges of a graph's inputs, if operators do not accept all values: positions in a table, divisors.
#
# An operator declares which values of its operands have a meaning (F_DOMAIN).  The resulting ranges of the inputs are found by
# trial: all elements of an input get the same number, and the graph is run up to the operands in question.  The accepted numbers
# are assumed to be an interval around the first one found.


Range = tuple[float, float]

MOST_NODES = 200
MOST_ELEMENTS = 1 << 18
"""The path to an operand is run some hundred times, so longer paths are skipped and their inputs not restricted."""

FURTHEST = 1 << 20
USUAL = (-128, 127)
"""Default end on a side where nothing limits the input, for inputs of wide types."""

FIRST_TRIED = (0, 1, 2, 3, 5, 8, 16, 32, 64, 127, -1, -2, -8, -32, -128)


@dataclass(frozen=True, slots=True)
class _Limited:
    """An operand that must be in [low, high]."""

    expr: ex.Expr
    low: float
    high: float

    def holds(self, value: Array) -> bool:
        return bool(((value >= self.low) & (value <= self.high)).all())


def input_ranges(func: ex.Function) -> dict[int, Range]:
    """Parameter index -> lowest and highest value of its elements, for each parameter that some operator restricts."""
    limited = [operand for operand in _limited(func) if _is_short(operand.expr)]
    params = {i for o in limited for i, p in enumerate(func.params) if any(e is p for e in ex.post_order(o.expr))}
    if not params:
        return {}
    trial = ex.Function(func.params, ex.make_tuple([o.expr for o in limited]), {})

    def passes(values: Mapping[int, float]) -> bool:
        with np.errstate(all="ignore"):
            given = [np.full(p.type.shape, values.get(i, 0), numpy_dtype(p.type.dtype)) for i, p in enumerate(func.params)]
            interval = evaluate(trial, given)
        return all(o.holds(v) for o, v in zip(limited, interval, strict=True))

    every = [_limits(func.params[i]) for i in params]
    fitting = (v for v in FIRST_TRIED if all(low <= v <= high for low, high in every))
    first = next((v for v in fitting if passes(dict.fromkeys(params, v))), None)
    if first is None:
        return {}

    def passes_with(i: int, value: float) -> bool:
        return passes({**dict.fromkeys(params, first), i: value})

    ranges = {}
    for i in sorted(params):
        limits = _limits(func.params[i])
        interval = _around(first, limits, partial(passes_with, i))
        if interval != limits:
            low = interval[0] if interval[0] > limits[0] else max(interval[0], min(first, USUAL[0]))
            high = interval[1] if interval[1] < limits[1] else min(interval[1], max(first, USUAL[1]))
            ranges[i] = low, high
    return _together(ranges, first, passes)


def _limited(func: ex.Function) -> list[_Limited]:
    """Operands, computed or passed in, for which an operator accepts only some values."""
    restricted = []
    for node in ex.post_order(func.body):
        if not isinstance(node, ex.Call) or not node.name or node.name not in F_DOMAIN:
            continue
        domain = F_DOMAIN.get(node.name)([a.type for a in node.args], node.attrs)
        restricted += [
            _Limited(node.args[i], *limits) for i, limits in domain.items() if not isinstance(node.args[i], ex.Constant)
        ]
    return restricted


def _is_short(expr: ex.Expr) -> bool:
    nodes = [e for e in ex.post_order(expr) if not isinstance(e, ex.Constant)]
    sizes = (e.type.size for e in nodes if isinstance(e.type, TensorType))
    layers = any(isinstance(e, ex.Call) and e.name.startswith("nn.") for e in nodes)
    return (
        len(nodes) <= MOST_NODES
        and sum(sizes) <= MOST_ELEMENTS
        and not layers
        and not any(isinstance(e, ex.Tuple) for e in nodes)
    )


def _limits(param: ex.Var) -> Range:
    if is_float(param.type.dtype):
        return -FURTHEST, FURTHEST
    low, high = (0, 1) if param.type.dtype == "bool" else int_range(param.type.dtype)
    return max(low, -FURTHEST), min(high, FURTHEST)


def _around(first: int, limits: Range, passes: Callable[[float], bool]) -> Range:
    """The range of whole numbers around `first` that pass, up to `limits`: growing steps, then bisection."""
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
    """Shrink the ranges until inputs pass at their ends all at once: a position may be the sum of two inputs."""
    while any(low < first or high > first for low, high in ranges.values()):
        corners = ({i: r[end] for i, r in ranges.items()} for end in (0, 1))
        if all(passes(c) for c in corners):
            break
        ranges = {i: (first - (first - low) // 2, first + (high - first) // 2) for i, (low, high) in ranges.items()}
    return ranges
