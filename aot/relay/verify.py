"""Well-formedness of relay functions. Independent of the passes that it checks."""

from __future__ import annotations

from collections.abc import Iterator

from aot.errors import InternalError, Problem
from aot.ir.op import F_INFER_TYPE, F_IS_VIEW, TypeRuleError
from aot.ir.type import TensorType, TupleType, Type
from aot.relay import expr as ex
from aot.relay.printer import print_func
from aot.support.dtype import numpy_dtype


def verify(func: ex.Function, name: str = "main") -> None:
    """Raise InternalError E9003 with all faults; the function's text is attached as a note.

    Checked: every variable is a parameter of its own function (so fused functions are closed), parameters are distinct, every
    type follows from the operands' types by the operator's rule, calls of functions fit their parameters, branches and loops fit
    their operands, constants' arrays fit their types, fused functions contain operators only, tuples do not nest, and either all
    calls know their operator in the model or none does.
    """
    problems = [Problem("E9003", message, f"@{name}" + (f", {span}" if span else "")) for message, span in _faults(func)]
    if problems:
        error = InternalError(*problems)
        error.add_note(print_func(func, name))
        raise error


def _faults(func: ex.Function) -> Iterator[tuple[str, str]]:
    if len({id(p) for p in func.params}) != len(func.params):
        yield "a parameter occurs twice", ""
    bound = {id(p) for p in func.params}
    order = ex.post_order(func.body)
    for expr in order:
        for message in _node_faults(expr, bound):
            yield message, str(expr.span)
    yield from _span_faults(order)
    for expr in order:
        if isinstance(expr, ex.Call) and isinstance(expr.op, ex.Function):
            yield from _group_faults(expr.op)
        for inner in ex.inner_functions(expr):
            yield from _faults(inner)


def _node_faults(expr: ex.Expr, bound: set[int]) -> Iterator[str]:
    match expr:
        case ex.Var():
            if id(expr) not in bound:
                yield f"the variable {expr.name} is not a parameter of its function"
        case ex.Constant():
            if expr.data.shape != expr.type.shape or expr.data.dtype != numpy_dtype(expr.type.dtype):
                yield f"the constant holds {expr.data.dtype}{list(expr.data.shape)}, its type is {expr.type}"
        case ex.Tuple():
            if tuple(f.type for f in expr.fields) != expr.type.fields:
                yield f"a tuple of type {expr.type} has fields of {[str(f.type) for f in expr.fields]}"
        case ex.TupleGetItem():
            fields = expr.value.type.fields if isinstance(expr.value.type, TupleType) else ()
            if not 0 <= expr.index < len(fields):
                yield f"field {expr.index} of {expr.value.type}"
            elif not same_type(fields[expr.index], expr.type):
                yield f"field {expr.index} of {expr.value.type} is said to be {expr.type}"
        case ex.Call(op=ex.Function() as func):
            yield from _parameter_faults(func, expr.args)
            if not same_type(func.body.type, expr.type):
                yield f"the function yields {func.body.type}, but the call has type {expr.type}"
        case ex.If():
            yield from _if_faults(expr)
        case ex.While():
            yield from _while_faults(expr)
        case ex.Call():
            yield from _rule_faults(expr)


def _rule_faults(expr: ex.Call) -> Iterator[str]:
    if expr.name not in F_INFER_TYPE:
        yield f"the operator {expr.op} is not registered"
        return
    try:
        inferred = F_INFER_TYPE.get(expr.name)([a.type for a in expr.args], expr.attrs)
    except TypeRuleError as error:
        yield f"{expr.op}: {error.message}"
        return
    if not same_type(inferred, expr.type):
        yield f"{expr.op} yields {inferred}, but the call has type {expr.type}"
    if F_IS_VIEW.find(expr.name):
        old, new = expr.args[0].type, expr.type
        if not (isinstance(old, TensorType) and isinstance(new, TensorType) and old.nbytes == new.nbytes):
            yield f"{expr.op} is a view, but {old} and {new} differ in size"


def _if_faults(expr: ex.If) -> Iterator[str]:
    if not is_condition(expr.cond.type):
        yield f"the condition of a branch has type {expr.cond.type}, not one bool"
    for branch in (expr.then_branch, expr.else_branch):
        yield from _parameter_faults(branch, expr.args)
        if not same_type(branch.body.type, expr.type):
            yield f"a branch yields {branch.body.type}, but the whole has type {expr.type}"


def _while_faults(expr: ex.While) -> Iterator[str]:
    yield from _parameter_faults(expr.cond, expr.args)
    yield from _parameter_faults(expr.body, expr.args)
    if not is_condition(expr.cond.body.type):
        yield f"the condition of a loop yields {expr.cond.body.type}, not one bool"
    variables = [a.type for a in expr.args]
    results = ex.result_types(expr.body)
    if len(results) != len(variables) or not all(map(same_type, results, variables)):
        yield f"a loop's body yields {expr.body.body.type} for variables of {', '.join(map(str, variables))}"
    if not same_type(expr.body.body.type, expr.type):
        yield f"a loop's body yields {expr.body.body.type}, but the loop has type {expr.type}"


def is_condition(type_: Type) -> bool:
    """Whether a value of this type can decide a branch or a loop: one element of bool."""
    return isinstance(type_, TensorType) and type_.dtype == "bool" and type_.size == 1


def _parameter_faults(func: ex.Function, args: tuple[ex.Expr, ...]) -> Iterator[str]:
    if len(func.params) != len(args):
        yield f"{len(args)} arguments for {len(func.params)} parameters"
        return
    for param, arg in zip(func.params, args, strict=True):
        if not same_type(param.type, arg.type):
            yield f"the parameter {param.name} of type {param.type} is given {arg.type}"


def _group_faults(func: ex.Function) -> Iterator[tuple[str, str]]:
    name = str(func.attrs.get("name", ""))
    if not func.is_primitive and "Composite" not in func.attrs:  # PartitionGraph marks functions from MergeComposite as primitive
        yield f"the function {name} inside is not marked as primitive", ""
    used = {id(e) for e in ex.post_order(func.body)}
    for param in func.params:
        if id(param) not in used:
            yield f"the parameter {param.name} of {name} is not used", ""
    for expr in ex.post_order(func.body):
        if (isinstance(expr, ex.Call) and isinstance(expr.op, ex.Function)) or ex.inner_functions(expr):
            yield f"the primitive function {name} calls another function", str(expr.span)
            return
    for message, span in _faults(func):
        yield f"in {name}: {message}", span


def _span_faults(order: list[ex.Expr]) -> Iterator[tuple[str, str]]:
    calls = [e for e in order if isinstance(e, ex.Call)]
    lost = [c for c in calls if c.span.op_index < 0]
    if lost and len(lost) < len(calls):
        names = ", ".join(str(c.op.attrs.get("name", "fn")) if isinstance(c.op, ex.Function) else str(c.op) for c in lost[:5])
        yield f"{len(lost)} calls do not say which operator of the model they come from: {names}", ""


def same_type(a: Type, b: Type) -> bool:
    """Equal in shape and element type; quantisation parameters are annotations, not part of the type."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return (a.shape, a.dtype) == (b.shape, b.dtype)
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return len(a.fields) == len(b.fields) and all(same_type(x, y) for x, y in zip(a.fields, b.fields, strict=True))
    return False
