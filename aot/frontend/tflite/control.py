"""Converters of control flow, variables and composites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from aot.frontend.tflite.convert import EVERY, ConvertContext, from_tflite, operand, require_dtype, reshaped, unsupported
from aot.frontend.view import OperatorView
from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.op.math.arithmetic import CompareAttrs
from aot.relay.analysis import results_of
from aot.relay.construct import if_then_else, while_loop
from aot.relay.expr import Constant, Expr, Function, If, Var, call, const, get_item, make_tuple, result_types, tensor_type
from aot.relay.state import Variable

# IF, STABLEHLO_CASE and WHILE: subgraphs that run under a condition, as relay.If and relay.While over functions.
#
# A variable that a subgraph uses is an additional operand, and if it is assigned an additional result.  Constant operands of a
# subgraph are constants inside; for a loop, only those that its body passes on unchanged.  Oracle: `kernels/if.cc`,
# `kernels/while.cc`, `kernels/stablehlo_case.cc`, which copy tensors into the subgraph and out of it byte by byte.


@from_tflite("IF", EVERY, "")
def convert_if(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """The branch's results; operand 0 is the condition."""
    cond = operand(ctx, op, 0)
    args = [operand(ctx, op, i) for i in range(1, len(op.inputs))]
    known = frozenset(i for i, a in enumerate(args) if isinstance(a, Constant))
    indices = [op.option(f"{which}_subgraph_index") for which in ("then", "else")]
    branches, variables = ctx.subgraphs(op, indices, args, known=known)
    _check_loop_shapes(ctx, op, *branches)
    args += [v.read() for v in variables]
    return _branch_results(ctx, op, if_then_else(cond, args, *branches, span=ctx.span(op)), variables)


def _check_loop_shapes(ctx: ConvertContext, op: OperatorView, first: Function, second: Function) -> None:
    """Refuse branches whose results differ in shape."""
    shapes = [[t.shape for t in result_types(b)] for b in (first, second)]
    if shapes[0] != shapes[1] and len(shapes[0]) == len(shapes[1]):
        i = next(i for i, (a, b) in enumerate(zip(*shapes, strict=True)) if a != b)
        message = f"result {i} has shape {list(shapes[0][i])} in one branch and {list(shapes[1][i])} in the other"
        unsupported(ctx, op, message, code="E1162")


@from_tflite("STABLEHLO_CASE", EVERY, "")
def convert_case(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """The results of the branch selected by operand 0; every other number selects the last branch."""
    index = operand(ctx, op, 0)
    require_dtype(ctx, op, tensor_type(index), ("int32",), what="a branch's number")
    if tensor_type(index).size != 1:
        unsupported(ctx, op, f"the branch index is {tensor_type(index)}", code="E1207")
    args = [operand(ctx, op, i) for i in range(1, len(op.inputs))]
    known = frozenset(i for i, a in enumerate(args) if isinstance(a, Constant))
    indices = [int(i) for i in op.option("branch_subgraph_indices")]
    if not indices:
        unsupported(ctx, op, "it has no branches", code="E1117")
    branches, variables = ctx.subgraphs(op, indices, args, known=known)
    for branch in branches[1:]:
        _check_loop_shapes(ctx, op, branches[0], branch)
    args = [reshaped(index, (1,), ctx.span(op)), *args, *(v.read() for v in variables)]
    return _branch_results(ctx, op, _chosen_branch(args, branches, 0, ctx.span(op)), variables)


def _chosen_branch(args: Sequence[Expr], branches: Sequence[Function], number: int, span: Span) -> If:
    """The branch with index `number` if args[0] equals it, else one of those after it; each gets the other args."""
    index = Var("index", tensor_type(args[0]))
    chosen, *others = (Function((index, *b.params), b.body) for b in branches[number : number + 2])
    other = others[0] if others else chosen
    if number + 2 < len(branches):
        params = [Var(f"arg{i}", tensor_type(a)) for i, a in enumerate(args)]
        other = Function(tuple(params), _chosen_branch(params, branches, number + 1, span))
    this = const(np.array([number], np.int32), span=span)
    return if_then_else(call("equal", [args[0], this], CompareAttrs(), span=span), args, chosen, other, span=span)


@from_tflite("WHILE", EVERY, "")
def convert_while(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """The loop variables' final values; the operands are their initial values."""
    args = [operand(ctx, op, i) for i in range(len(op.inputs))]
    inner = op.option("body_subgraph_index")
    known = frozenset(i for i in ctx.handed_on(inner) if i < len(args) and isinstance(args[i], Constant))
    indices = [op.option("cond_subgraph_index"), inner]
    (cond, body), variables = ctx.subgraphs(op, indices, args, known=known, loop=True)
    for i, (result, arg) in enumerate(zip(result_types(body), args, strict=False)):
        if isinstance(arg.type, TensorType) and arg.type.dtype == result.dtype and arg.type.shape != result.shape:
            shapes = f"{list(arg.type.shape)} before the loop and {list(result.shape)} after an iteration"
            unsupported(ctx, op, f"loop variable {i} has shape {shapes}", code="E1161")
    if ctx.oracle == "litert":
        body = _one_after_the_other(body, len(args))
    args += [v.read() for v in variables]
    return _branch_results(ctx, op, while_loop(args, cond, body, span=ctx.span(op)), variables)


def _one_after_the_other(body: Function, count: int) -> Function:
    """The body as LiteRT runs it if it passes a variable on at another position.

    LiteRT copies its results over the variables one by one, and the body's inputs are these variables: a result that is an
    earlier input is what was just written there.  TFLM copies them separately.  `count` variables are the operator's own."""
    results = list(results_of(body))
    numbers = {id(p): j for j, p in enumerate(body.params[:count])}
    for i, result in enumerate(results[:count]):
        j = numbers.get(id(result), i)
        if j < i:
            results[i] = results[j]
    return body if results == list(results_of(body)) else replace(body, body=make_tuple(results))


def _branch_results(ctx: ConvertContext, op: OperatorView, whole: Expr, variables: Sequence[Variable]) -> Sequence[Expr]:
    """A node for each result, with its own tensor of the file as origin; additional results go to variables."""
    if isinstance(whole.type, TensorType):
        results: list[Expr] = [whole]
    else:
        results = [get_item(whole, i, span=ctx.result_span(op, i)) for i in range(len(whole.type.fields))]
    for variable, value in zip(variables, results[len(op.outputs) :], strict=False):
        variable.assign(value)
    return results[: len(op.outputs)]


# STABLEHLO_COMPOSITE: a named group of operators that the file also contains as a subgraph, which replaces it.
#
# The name and the attributes are for compilers that know the composite; the subgraph is its meaning.
# Oracle: `stablehlo_composite.cc`, which runs the subgraph too.


@from_tflite("STABLEHLO_COMPOSITE", EVERY, "")
def convert_composite(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """The subgraph's outputs on the operands."""
    return ctx.inline(op, op.option("decomposition_subgraph_index"))


# VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, CALL_ONCE: values that persist between runs (aot.relay.state).
#
# A variable is identified by container and shared name.  Its type is set by the first operator that reads or assigns it, its
# initial value by the subgraph of CALL_ONCE: that subgraph has no operands, so the compiler runs it.  A variable that is read
# before it is assigned contains zeros (the zero point for int8 values), as in TFLM; LiteRT refuses such a model.


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
    """The value left by the preceding operators."""
    declared, shape = ctx.output_type(op), ctx.output_shape(op)
    type_ = None if shape is None else TensorType(shape, declared.dtype, declared.quant)
    return ctx.variable(op, 0, type_).read()


@from_tflite("ASSIGN_VARIABLE", EVERY, "")
def convert_assign_variable(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """Give the variable another value from here on."""
    value, variable = operand(ctx, op, 1), ctx.variable(op, 0, ctx.input_type(op, 1))
    if (variable.type.shape, variable.type.dtype) != (ctx.input_type(op, 1).shape, ctx.input_type(op, 1).dtype):
        message = f"{ctx.input_type(op, 1)} is assigned to the variable {variable.param.name}, which is {variable.type}"
        unsupported(ctx, op, message, code="E1151")
    variable.assign(value)
    return ()


@from_tflite("CALL_ONCE", EVERY, "")
def convert_call_once(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """Initial values."""
    ctx.initialize(op, op.option("init_subgraph_index"))
    return ()
