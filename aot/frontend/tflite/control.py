"""Converters of control flow, variables and composites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from aot.frontend.tflite.convert import EVERY, Operator, converter
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


@converter("IF", EVERY, "")
def _if(op: Operator) -> Sequence[Expr]:
    """The branch's results; operand 0 is the condition."""
    cond = op.operand(0)
    args = op.operands(*range(1, len(op.inputs)))
    known = frozenset(i for i, a in enumerate(args) if isinstance(a, Constant))
    indices = [op.option(f"{which}_subgraph_index") for which in ("then", "else")]
    branches, variables = op.ctx.subgraphs(op.view, indices, args, known=known)
    _check_loop_shapes(op, *branches)
    args += [v.read() for v in variables]
    return _branch_results(op, if_then_else(cond, args, *branches, span=op.span), variables)


def _check_loop_shapes(op: Operator, first: Function, second: Function) -> None:
    """Refuse branches whose results differ in shape."""
    shapes = [[t.shape for t in result_types(b)] for b in (first, second)]
    if shapes[0] != shapes[1] and len(shapes[0]) == len(shapes[1]):
        i = next(i for i, (a, b) in enumerate(zip(*shapes, strict=True)) if a != b)
        op.refuse(f"result {i} has shape {list(shapes[0][i])} in one branch and {list(shapes[1][i])} in the other", code="E1162")


@converter("STABLEHLO_CASE", EVERY, "")
def _case(op: Operator) -> Sequence[Expr]:
    """The results of the branch selected by operand 0; every other number selects the last branch."""
    index = op.operand(0)
    op.require_dtype(tensor_type(index), ("int32",), what="a branch's number")
    if tensor_type(index).size != 1:
        op.refuse(f"the branch index is {tensor_type(index)}", code="E1207")
    args = op.operands(*range(1, len(op.inputs)))
    known = frozenset(i for i, a in enumerate(args) if isinstance(a, Constant))
    indices = [int(i) for i in op.option("branch_subgraph_indices")]
    if not indices:
        op.refuse("it has no branches", code="E1117")
    branches, variables = op.ctx.subgraphs(op.view, indices, args, known=known)
    for branch in branches[1:]:
        _check_loop_shapes(op, branches[0], branch)
    args = [op.reshaped(index, (1,)), *args, *(v.read() for v in variables)]
    return _branch_results(op, _chosen_branch(args, branches, 0, op.span), variables)


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


@converter("WHILE", EVERY, "")
def _while(op: Operator) -> Sequence[Expr]:
    """The loop variables' final values; the operands are their initial values."""
    args = op.operands(*range(len(op.inputs)))
    inner = op.option("body_subgraph_index")
    known = frozenset(i for i in op.ctx.handed_on(inner) if i < len(args) and isinstance(args[i], Constant))
    indices = [op.option("cond_subgraph_index"), inner]
    (cond, body), variables = op.ctx.subgraphs(op.view, indices, args, known=known, loop=True)
    for i, (result, arg) in enumerate(zip(result_types(body), args, strict=False)):
        if isinstance(arg.type, TensorType) and arg.type.dtype == result.dtype and arg.type.shape != result.shape:
            shapes = f"{list(arg.type.shape)} before the loop and {list(result.shape)} after an iteration"
            op.refuse(f"loop variable {i} has shape {shapes}", code="E1161")
    if op.oracle == "litert":
        body = _one_after_the_other(body, len(args))
    args += [v.read() for v in variables]
    return _branch_results(op, while_loop(args, cond, body, span=op.span), variables)


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


def _branch_results(op: Operator, whole: Expr, variables: Sequence[Variable]) -> Sequence[Expr]:
    """A node for each result, with its own tensor of the file as origin; additional results go to variables."""
    if isinstance(whole.type, TensorType):
        results: list[Expr] = [whole]
    else:
        results = [get_item(whole, i, span=op.ctx.result_span(op.view, i)) for i in range(len(whole.type.fields))]
    for variable, value in zip(variables, results[len(op.outputs) :], strict=False):
        variable.assign(value)
    return results[: len(op.outputs)]


# STABLEHLO_COMPOSITE: a named group of operators that the file also contains as a subgraph, which replaces it.
#
# The name and the attributes are for compilers that know the composite; the subgraph is its meaning.
# Oracle: `stablehlo_composite.cc`, which runs the subgraph too.


@converter("STABLEHLO_COMPOSITE", EVERY, "")
def _composite(op: Operator) -> Sequence[Expr]:
    """The subgraph's outputs on the operands."""
    return op.ctx.inline(op.view, op.option("decomposition_subgraph_index"))


# VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, CALL_ONCE: values that persist between runs (aot.relay.state).
#
# A variable is identified by container and shared name.  Its type is set by the first operator that reads or assigns it, its
# initial value by the subgraph of CALL_ONCE: that subgraph has no operands, so the compiler runs it.  A variable that is read
# before it is assigned contains zeros (the zero point for int8 values), as in TFLM; LiteRT refuses such a model.


@converter("VAR_HANDLE", EVERY, "")
def _var_handle(op: Operator) -> Expr:
    """The number of the variable, a constant."""
    shape = op.result_shape() or ()
    if prod(shape) != 1:
        op.refuse(f"shape of result 0: {list(shape)} is declared, but a handle is one number", code="E1120")
    number = op.ctx.resource_id(f"{op.option('container')}/{op.option('shared_name')}")
    return const(np.full(shape, number, np.int32), span=op.span)


@converter("READ_VARIABLE", EVERY, "")
def _read_variable(op: Operator) -> Expr:
    """The value left by the preceding operators."""
    declared, shape = op.result_type(), op.result_shape()
    type_ = None if shape is None else TensorType(shape, declared.dtype, declared.quant)
    return op.variable(0, type_).read()


@converter("ASSIGN_VARIABLE", EVERY, "")
def _assign_variable(op: Operator) -> Sequence[Expr]:
    """Give the variable another value from here on."""
    value, variable = op.operand(1), op.variable(0, op.type(1))
    if (variable.type.shape, variable.type.dtype) != (op.type(1).shape, op.type(1).dtype):
        op.refuse(f"{op.type(1)} is assigned to the variable {variable.param.name}, which is {variable.type}", code="E1151")
    variable.assign(value)
    return ()


@converter("CALL_ONCE", EVERY, "")
def _call_once(op: Operator) -> Sequence[Expr]:
    """Initial values."""
    op.ctx.initialize(op.view, op.option("init_subgraph_index"))
    return ()
