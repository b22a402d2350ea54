"""Functions of one byte become tables of 256 bytes."""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array, Op
from aot.ir.transform import PassContext, function_pass
from aot.relay.analysis.one_tensor import is_costly, results, source_of
from aot.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    call,
    is_call,
    operands,
    post_order,
    tensor_type,
    users,
    with_operands,
)


@function_pass(opt_level=2)
def fold_to_table(func: Function, _context: PassContext) -> Function:
    """Replace element-wise calls that depend on one int8 tensor by `qnn.lut` of that tensor.

    In and out: operator calls.  Such are x * sigmoid(x), hard-swish in parts, and float32 operators between DEQUANTIZE and
    QUANTIZE.  The table is what the operators' own `evaluate` makes of the 256 codes, so it is exact.  A call stays that is
    the only one of its function and reads the tensor once: its kernel is as good, and needs no table.  Where the result of
    costly functions stays a float, `qnn.lut_float` has it.
    """
    source: dict[int, Expr] = {}
    done: dict[int, Expr] = {}
    for expr in post_order(func.body):
        new = with_operands(expr, [done[id(o)] for o in operands(expr)])
        x = source_of(new, source, "int8")
        if isinstance(new, Call) and x is not None and tensor_type(new).dtype == "int8" and not _is_simple(new, x):
            new = _lut(x, _table(new, x), new)
        if x is not None:
            source[id(new)] = x
        done[id(expr)] = new
    return _fold_floats(Function(func.params, done[id(func.body)], func.attrs))


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
    return results(expr, x, np.arange(-128, 128).astype(np.int8))


def _fold_floats(func: Function) -> Function:
    """Costly functions of one int8 tensor whose result stays a float, as a sum with another tensor reads it."""
    source: dict[int, Expr] = {}
    readers = users(func)
    done: dict[int, Expr] = {}
    for expr in post_order(func.body):
        x = source_of(expr, source, "int8")
        done[id(expr)] = with_operands(expr, [done[id(o)] for o in operands(expr)])
        if x is None:
            continue
        source[id(expr)] = x
        inner = [r for r in readers.get(id(expr), []) if source_of(r, source, "int8") is x]
        outside = expr is func.body or len(inner) < len(readers[id(expr)])
        assert isinstance(expr, Call)
        if tensor_type(expr).dtype == "float32" and outside and is_costly(expr, x):
            done[id(expr)] = _lut_float(expr, x, done[id(x)])
    return Function(func.params, done[id(func.body)], func.attrs)


def _lut_float(expr: Call, x: Expr, data: Expr) -> Call:
    attrs_type = Op("qnn.lut_float").attrs_type
    assert attrs_type is not None
    return call("qnn.lut_float", [data], attrs_type(tuple(_table(expr, x).tolist())), span=expr.span)
