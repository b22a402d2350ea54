"""What two fused functions have in common where the same kernel takes them as many instructions: TVM's workload."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass

from aot.ir.type import QuantParams, TensorType
from aot.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, operands, post_order
from aot.support.dtype import int_range, is_int

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
