"""Functions of one byte become tables of 256 bytes."""

from __future__ import annotations

import numpy as np

from aot.ir.op import T_OP_PATTERN, Array, Op, OpPattern
from aot.ir.transform import PassContext, function_pass
from aot.ir.type import TensorType
from aot.relay.expr import Call, Constant, Expr, Function, call, const, is_call, operands, post_order, tensor_type, with_operands
from aot.relay.interpreter import call_op

BY_CHANNEL = frozenset({"qnn.requantize", "nn.bias_add"})
"""Element-wise operators whose attributes or operands may hold a number for each channel."""


@function_pass(opt_level=2)
def fold_to_table(func: Function, _context: PassContext) -> Function:
    """Replace element-wise calls that depend on one int8 tensor by `qnn.lut` of that tensor.

    In and out: operator calls.  Such are x * sigmoid(x), hard-swish in parts, and float32 operators between DEQUANTIZE and
    QUANTIZE.  The table is what the operators' own `evaluate` makes of the 256 codes, so it is exact.  A call stays that is
    the only one of its function and reads the tensor once: its kernel is as good, and needs no table.
    """
    source: dict[int, Expr] = {}
    done: dict[int, Expr] = {}
    for expr in post_order(func.body):
        new = with_operands(expr, [done[id(o)] for o in operands(expr)])
        x = _source(new, source)
        if isinstance(new, Call) and x is not None and tensor_type(new).dtype == "int8" and not _is_simple(new, x):
            new = _lut(x, _table(new, x), new)
        if x is not None:
            source[id(new)] = x
        done[id(expr)] = new
    return Function(func.params, done[id(func.body)], func.attrs)


def _source(expr: Expr, known: dict[int, Expr]) -> Expr | None:
    """The int8 tensor whose elements an element-wise call depends on, each of its own on one; None of other nodes.

    `known` has that of the nodes before it.
    """
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or not isinstance(expr.type, TensorType):
        return None
    name = expr.op.name
    if name in BY_CHANNEL or T_OP_PATTERN.get(name) > OpPattern.BROADCAST:
        return None
    found: list[Expr] = []
    for arg in expr.args:
        if isinstance(arg, Constant) and arg.data.size == 1:
            continue
        if not isinstance(arg.type, TensorType) or arg.type.shape != expr.type.shape or isinstance(arg, Constant):
            return None
        found.append(known.get(id(arg), arg))
    same = found and all(x is found[0] for x in found)
    return found[0] if same and tensor_type(found[0]).dtype == "int8" else None


def _is_simple(expr: Call, x: Expr) -> bool:
    """Whether the call is all of the function, or a table already."""
    return (is_call(expr, "qnn.lut") and expr.args[0] is x) or [a for a in expr.args if not isinstance(a, Constant)] == [x]


def _lut(x: Expr, table: Array, whole: Call) -> Call:
    """The table of x in the place of a call."""
    attrs_type = Op("qnn.lut").attrs_type
    assert attrs_type is not None
    return call("qnn.lut", [x], attrs_type(tuple(table.tolist()), tensor_type(whole).quant), span=whole.span)


def _table(expr: Call, x: Expr) -> Array:
    """The results for the codes -128 to 127."""
    values: dict[int, Expr] = {id(x): const(np.arange(-128, 128).astype(np.int8), quant=tensor_type(x).quant)}

    def value(e: Expr) -> Expr:
        if id(e) not in values:
            values[id(e)] = (
                const(e.data.reshape(()), dtype=e.type.dtype, quant=e.type.quant) if isinstance(e, Constant) else run(e)
            )
        return values[id(e)]

    def run(e: Expr) -> Expr:
        assert isinstance(e, Call), "an element-wise call"
        assert isinstance(e.op, Op)
        alone = call(e.op, [value(a) for a in e.args], e.attrs, span=e.span)
        result = np.asarray(call_op(alone, [a.data for a in alone.args if isinstance(a, Constant)]))
        return const(result, dtype=tensor_type(alone).dtype, quant=tensor_type(alone).quant)

    found = value(expr)
    assert isinstance(found, Constant)
    return found.data.reshape(-1)
