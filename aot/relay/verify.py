"""Well-formedness of relay functions. Independent of the passes that it watches over."""

from __future__ import annotations

from collections.abc import Iterator

from aot.errors import InternalError, Problem
from aot.ir.op import F_INFER_TYPE, F_IS_VIEW, Op, TypeRuleError
from aot.ir.type import TensorType, TupleType, Type
from aot.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, post_order
from aot.relay.printer import print_func
from aot.support.dtype import numpy_dtype


def verify(func: Function, name: str = "main") -> None:
    """Raise InternalError E9003 with all faults; the function's text is attached as a note.

    Checked: every variable is a parameter of its own function (so fused functions are closed), parameters are distinct,
    every type follows from the operands' by the operator's rule, calls of functions fit their parameters, constants' arrays
    fit their types, fused functions hold operators only, tuples do not nest, and either all calls know their operator in the
    model or none does.
    """
    problems = [Problem("E9003", message, f"@{name}" + (f", {span}" if span else "")) for message, span in _faults(func)]
    if problems:
        error = InternalError(*problems)
        error.add_note(print_func(func, name))
        raise error


def _faults(func: Function) -> Iterator[tuple[str, str]]:
    if len({id(p) for p in func.params}) != len(func.params):
        yield "a parameter occurs twice", ""
    bound = {id(p) for p in func.params}
    order = post_order(func.body)
    for expr in order:
        for message in _node_faults(expr, bound):
            yield message, str(expr.span)
    yield from _span_faults(order)
    for expr in order:
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            yield from _group_faults(expr.op)


def _node_faults(expr: Expr, bound: set[int]) -> Iterator[str]:
    match expr:
        case Var():
            if id(expr) not in bound:
                yield f"the variable {expr.name} is not a parameter of its function"
        case Constant():
            if expr.data.shape != expr.type.shape or expr.data.dtype != numpy_dtype(expr.type.dtype):
                yield f"the constant holds {expr.data.dtype}{list(expr.data.shape)}, its type is {expr.type}"
        case Tuple():
            if tuple(f.type for f in expr.fields) != expr.type.fields:
                yield f"a tuple of type {expr.type} has fields of {[str(f.type) for f in expr.fields]}"
        case TupleGetItem():
            yield from _field_faults(expr)
        case Call(op=Function() as func):
            yield from _application_faults(expr, func)
        case Call():
            yield from _rule_faults(expr)


def _field_faults(expr: TupleGetItem) -> Iterator[str]:
    fields = expr.value.type.fields if isinstance(expr.value.type, TupleType) else ()
    if not 0 <= expr.index < len(fields):
        yield f"field {expr.index} of {expr.value.type}"
    elif not same_type(fields[expr.index], expr.type):
        yield f"field {expr.index} of {expr.value.type} is said to be {expr.type}"


def _rule_faults(expr: Call) -> Iterator[str]:
    assert isinstance(expr.op, Op)
    if expr.op.name not in F_INFER_TYPE:
        yield f"the operator {expr.op} is not registered"
        return
    try:
        inferred = F_INFER_TYPE.get(expr.op.name)([a.type for a in expr.args], expr.attrs)
    except TypeRuleError as error:
        yield f"{expr.op}: {error.message}"
        return
    if not same_type(inferred, expr.type):
        yield f"{expr.op} yields {inferred}, but the call has type {expr.type}"
    if F_IS_VIEW.find(expr.op.name) and not _same_bytes(expr.args[0].type, expr.type):
        yield f"{expr.op} is a view, but {expr.args[0].type} and {expr.type} differ in size"


def _same_bytes(a: Type, b: Type) -> bool:
    return isinstance(a, TensorType) and isinstance(b, TensorType) and a.nbytes == b.nbytes


def _application_faults(expr: Call, func: Function) -> Iterator[str]:
    if len(func.params) != len(expr.args):
        yield f"{len(expr.args)} arguments for {len(func.params)} parameters"
        return
    for param, arg in zip(func.params, expr.args, strict=True):
        if not same_type(param.type, arg.type):
            yield f"the parameter {param.name} of type {param.type} is given {arg.type}"
    if not same_type(func.body.type, expr.type):
        yield f"the function yields {func.body.type}, but the call has type {expr.type}"


def _group_faults(func: Function) -> Iterator[tuple[str, str]]:
    name = str(func.attrs.get("name", ""))
    if not func.is_primitive:
        yield f"the function {name} inside is not marked as primitive", ""
    used = {id(e) for e in post_order(func.body)}
    for param in func.params:
        if id(param) not in used:
            yield f"the parameter {param.name} of {name} is not used", ""
    for expr in post_order(func.body):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            yield f"the primitive function {name} calls another function", str(expr.span)
            return
    for message, span in _faults(func):
        yield f"in {name}: {message}", span


def _span_faults(order: list[Expr]) -> Iterator[tuple[str, str]]:
    calls = [e for e in order if isinstance(e, Call)]
    lost = [c for c in calls if c.span.op_index < 0]
    if lost and len(lost) < len(calls):
        names = ", ".join(str(c.op.attrs.get("name", "fn")) if isinstance(c.op, Function) else str(c.op) for c in lost[:5])
        yield f"{len(lost)} calls do not say which operator of the model they come from: {names}", ""


def same_type(a: Type, b: Type) -> bool:
    """Equal in shape and element type; quantisation parameters are notes on a tensor, not part of its form."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return (a.shape, a.dtype) == (b.shape, b.dtype)
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return len(a.fields) == len(b.fields) and all(same_type(x, y) for x, y in zip(a.fields, b.fields, strict=True))
    return False
