"""What can be known of a graph without running it: variables, cost, and which fused functions share kernels or figures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from math import prod
from typing import Any

import numpy as np

from aot.errors.tvm_names import missing
from aot.ir.op import Op
from aot.ir.type import QuantParams, TensorType
from aot.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, operands, post_order, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_int


def all_vars(expr: Expr | Function) -> list[Var]:
    """The variables that are used, and a function's own parameters before them; in order of first use, each once."""
    first = list(expr.params) if isinstance(expr, Function) else []
    body = expr.body if isinstance(expr, Function) else expr
    return list({id(v): v for v in (*first, *(e for e in post_order(body) if isinstance(e, Var)))}.values())


def bound_vars(expr: Expr | Function) -> list[Var]:
    """The parameters of a function; an expression binds none."""
    return list(expr.params) if isinstance(expr, Function) else []


def free_vars(expr: Expr | Function) -> list[Var]:
    """The variables that are used and not bound, in order of first use."""
    bound = {id(v) for v in bound_vars(expr)}
    return [v for v in all_vars(expr) if id(v) not in bound]


# Workloads: what fused functions have in common if the same kernel needs as many instructions for them.

_ZERO_POINTS = frozenset({"zero_point", "input_zp", "weight_zp", "pad_value", "output_zp"})
_CLAMPS = frozenset({"lo", "hi"})
_NUMBERS = frozenset({"multiplier", "fraction", "table", "diff_min", "input_multiplier", "output_multiplier"})
_SHIFTS = frozenset({"shift", "input_shift", "output_shift", "left_shift"})


def workload_key(func: Function) -> str | None:
    """A name for operators, attributes, shapes and types of a fused function; None for one that holds more than operators.

    Of numbers that come from training only that counts which kernels look at: whether a zero point is 0, whether there is a
    clamp, one multiplier or many, and which way is shifted.  So networks of one architecture have the same workloads.
    """
    text = "\n".join(_lines(func))
    return None if "?" in text else hashlib.sha256(text.encode()).hexdigest()[:24]


def workload_text(func: Function) -> str:
    """What a person recognises a workload by: its operators, and the shapes of operands, constants and result."""
    nodes = post_order(func.body)
    calls = [e for e in nodes if isinstance(e, Call)]
    names = "+".join(getattr(c.op, "name", "?") for c in calls)
    constants = [e.type for e in nodes if isinstance(e, Constant) and len(e.type.shape) > 1]
    operands_ = " ".join(str(t) for t in [*(p.type for p in func.params), *constants])
    return f"{names} {operands_} -> {func.body.type}"


def _lines(func: Function) -> Iterator[str]:
    nodes = [*func.params, *(e for e in post_order(func.body) if not isinstance(e, Var))]
    place = {id(e): i for i, e in enumerate(nodes)}
    for expr in nodes:
        yield f"{_node(expr)} {[place[id(o)] for o in operands(expr)]}"
    yield f"{place[id(func.body)]} {func.attrs.get('Compiler', '')}"


def _node(expr: Expr) -> str:
    match expr:
        case Var():
            return f"var {expr.type}"
        case Constant():
            return f"constant {expr.type} {expr.stored or ''}"
        case Call():
            if isinstance(expr.op, Function):
                return "?"
            return f"call {expr.op.name} {_attrs(expr.attrs, _dtype(expr))} {expr.type}"
        case Tuple():
            return "tuple"
        case TupleGetItem():
            return f"field {expr.index}"
    return "?"


def _dtype(expr: Call) -> str:
    return expr.type.dtype if isinstance(expr.type, TensorType) else ""


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
    """Which ways there are: left (positive), right, both."""
    return f"{'left' if max(shifts, default=0) > 0 else ''}{'right' if min(shifts, default=0) <= 0 else ''}"


# Keys: what fused functions have in common if the kernel of one is the kernel of the other.


def group_key(func: Function) -> bytes | None:
    """A hash of operators, attributes, types and constants, whatever the names and places in the file.

    None for a function that holds more than calls of operators, or attributes that are no plain values.
    """
    digest = hashlib.sha256()
    nodes = [*func.params, *(e for e in post_order(func.body) if not isinstance(e, Var))]
    place = {id(e): i for i, e in enumerate(nodes)}
    for expr in nodes:
        text = _text(expr)
        if text is None:
            return None
        digest.update(f"{text} {[place[id(o)] for o in operands(expr)]}\n".encode())
        if isinstance(expr, Constant):
            digest.update(np.ascontiguousarray(expr.data).tobytes())
    if not all(map(_is_plain, func.attrs.values())):
        return None
    digest.update(f"{place[id(func.body)]} {sorted((k, repr(v)) for k, v in func.attrs.items())}".encode())
    return digest.digest()


def _text(expr: Expr) -> str | None:
    match expr:
        case Var():
            return f"var {expr.type!r}"
        case Constant():
            return f"constant {expr.type!r} {expr.stored!r} {expr.data.dtype} {expr.data.shape}"
        case Call():
            if isinstance(expr.op, Function) or not _is_plain(expr.attrs):
                return None
            return f"call {expr.op.name} {expr.attrs!r} {expr.type!r}"
        case Tuple():
            return "tuple"
        case TupleGetItem():
            return f"field {expr.index}"
    return None


def _is_plain(attrs: object) -> bool:
    """Whether the attributes have one text for each value; arrays, which cannot be hashed, do not."""
    try:
        hash(attrs)
    except TypeError:
        return False
    return attrs is None or type(attrs).__hash__ is not object.__hash__


# Cost: multiplications and weights.


@dataclass(frozen=True, slots=True)
class Cost:
    """Multiply-accumulates of one inference, and bytes of the layers' weights (without biases)."""

    macs: int = 0
    weight_bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.macs + other.macs, self.weight_bytes + other.weight_bytes)


_INTEGER = ("nn.conv2d", "nn.depthwise_conv2d", "nn.dense", "nn.conv2d_transpose")
LAYERS = frozenset({*_INTEGER, *(f"{name}_float" for name in _INTEGER)})


def cost(func: Function) -> Cost:
    """Sum over convolutions and fully connected layers, also inside fused functions; padding counts as if it were read."""
    total = Cost()
    for expr in post_order(func.body):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            total += cost(expr.op)
        elif isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name in LAYERS:
            total += layer_cost(expr)
    return total


def layer_cost(expr: Call) -> Cost:
    """One layer: each output element takes its channel's share of the weights; transposed, each input element does."""
    weight = tensor_type(expr.args[1])
    stored = weight.nbytes if isinstance(expr.args[1], Constant) else 0
    assert isinstance(expr.op, Op)
    name = expr.op.name.removesuffix("_float")
    if name == "nn.conv2d_transpose":
        return Cost(tensor_type(expr.args[0]).size * prod(weight.shape[:-1]), stored)
    taps = prod(weight.shape[:-1]) if name == "nn.depthwise_conv2d" else prod(weight.shape[1:])
    return Cost(tensor_type(expr).size * taps, stored)


def __getattr__(name: str) -> Any:
    """What TVM has under a name that is not here (E5091)."""
    raise missing("relay.analysis", name)
