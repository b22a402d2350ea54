"""Inline calls of plain functions, and infer the type of every node again, starting from the parameters."""

from __future__ import annotations

from dataclasses import replace

from aot.errors import internal
from aot.ir.op import F_INFER_TYPE, Op, TypeRuleError
from aot.ir.transform import PassContext, function_pass
from aot.ir.type import TensorType, Type
from aot.relay.expr import Call, Expr, Function, check_operands, inlined, map_inner_functions, rewrite


@function_pass(required=True)
def infer_type(func: Function, _context: PassContext) -> Function:
    """Run every operator's type rule again, operands first; a call of an unmarked function is replaced by the function's body.

    In: any function.  Out: the same graph, with the type that the rule gives on each operator call; if the rule says nothing
    about quantisation parameters, those on the call stay.  Nodes whose type does not change are kept.  A rule that refuses its
    operands is our own fault at this point (E9001): converters have checked the model before.  UsageError E1160 if a function's
    parameters do not fit the operands of its call.
    """
    return _inferred(func)


def _inferred(func: Function) -> Function:
    return rewrite(func, lambda new: _written_out(new) if isinstance(new, Call) and _is_plain(new.op) else _typed(new))


def _is_plain(op: Op | Function) -> bool:
    """A function that is neither fused nor a code generator's; only a user's Python code creates these."""
    return isinstance(op, Function) and not any(op.attrs.get(key) for key in ("Primitive", "Composite", "Compiler"))


def _written_out(call: Call) -> Expr:
    """The body of the called function, with the calls inside it, its branches and its loops inlined too."""
    assert isinstance(call.op, Function)
    check_operands(call.op, call.args, str(call.span))
    return inlined(_inferred(map_inner_functions(call.op, _inferred)), call.args)


def _typed(expr: Expr) -> Expr:
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return expr
    try:
        inferred = F_INFER_TYPE.get(expr.op.name)([a.type for a in expr.args], expr.attrs)
    except TypeRuleError as error:
        raise internal(f"{expr.op}: {error.message}", where=str(expr.span)) from error
    annotated = _with_note(inferred, expr.type)
    return expr if annotated == expr.type else replace(expr, type=annotated)


def _with_note(inferred: Type, old: Type) -> Type:
    """`inferred` with the old quantisation parameters if it has none of its own."""
    match inferred, old:
        case TensorType(quant=None), TensorType() if inferred.dtype == old.dtype:
            return replace(inferred, quant=old.quant)
        case _:
            return inferred
