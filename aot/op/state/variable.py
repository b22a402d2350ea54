"""VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, CALL_ONCE: values that stay from run to run (aot.relay.state).

A variable is known by container and shared name.  Its type is that of the first operator that reads or assigns it, its value
at the start what the subgraph of CALL_ONCE assigns: that subgraph takes no operands, so it is run by the compiler.  A variable
that is read before anything was assigned holds zeros (the zero point of int8 values), as in TFLM; LiteRT refuses such a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.type import TensorType
from aot.op.convert import EVERY, ConvertContext, from_tflite, operand, unsupported
from aot.relay.expr import Expr, const


@from_tflite("VAR_HANDLE", EVERY, "")
def convert_var_handle(ctx: ConvertContext, op: OperatorView) -> Expr:
    """The number of the variable, a constant."""
    shape = ctx.output_shape(op) or ()
    if prod(shape) != 1:
        unsupported(ctx, op, f"shape of result 0: {list(shape)} is declared, but a handle is one number", code="E1120")
    number = ctx.resource_id(f"{op.option('container')}/{op.option('shared_name')}")
    return const(np.full(shape, number, np.int32), span=ctx.span(op))


@from_tflite("READ_VARIABLE", EVERY, "")
def convert_read_variable(ctx: ConvertContext, op: OperatorView) -> Expr:
    """The value that the operators before have left."""
    declared, shape = ctx.output_type(op), ctx.output_shape(op)
    type_ = None if shape is None else TensorType(shape, declared.dtype, declared.quant)
    return ctx.variable(op, 0, type_).read()


@from_tflite("ASSIGN_VARIABLE", EVERY, "")
def convert_assign_variable(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """From here on the variable has another value."""
    value, variable = operand(ctx, op, 1), ctx.variable(op, 0, ctx.input_type(op, 1))
    if (variable.type.shape, variable.type.dtype) != (ctx.input_type(op, 1).shape, ctx.input_type(op, 1).dtype):
        message = f"{ctx.input_type(op, 1)} is assigned to the variable {variable.param.name}, which is {variable.type}"
        unsupported(ctx, op, message, code="E1151")
    variable.assign(value)
    return ()


@from_tflite("CALL_ONCE", EVERY, "")
def convert_call_once(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """Values at the start."""
    ctx.initialize(op, op.option("init_subgraph_index"))
    return ()
