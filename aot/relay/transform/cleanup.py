"""The standard clean-up passes: dead code, common subexpressions, constants, types, control flow."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import cast

from aot.errors import internal
from aot.ir.op import F_INFER_TYPE, Array, Op, TypeRuleError
from aot.ir.transform import PassContext, function_pass, register_option
from aot.ir.type import TensorType, TupleType, Type
from aot.relay import expr as ex
from aot.relay.analysis import constant_value, fields_of, live_variables, results_of, trip_count
from aot.relay.interpreter import call_op
from aot.relay.stored import inheriting


@function_pass(opt_level=1)
def dead_code(func: ex.Function, _context: PassContext) -> ex.Function:
    """Remove dead tuple fields and dead parameters of fused functions.

    In and out: any function.  A node that nothing reads is not part of the graph in the first place.  What remains: field i of an
    explicit tuple (replaced by the field itself, so that the others die), and arguments that a fused function does not use.  The
    parameters of `func` are its interface and stay.  Not done: operators with several results if one of them is unused.
    """
    return ex.rewrite(func, _simplified)


def _simplified(expr: ex.Expr) -> ex.Expr:
    match expr:
        case ex.TupleGetItem(value=ex.Tuple(fields=fields)):
            return fields[expr.index]
        case ex.Call(op=ex.Function() as func):
            return _without_dead_params(expr, func)
        case _:
            return expr


def _without_dead_params(expr: ex.Call, func: ex.Function) -> ex.Call:
    used = {id(e) for e in ex.post_order(func.body)}
    alive = [(p, a) for p, a in zip(func.params, expr.args, strict=True) if id(p) in used]
    if len(alive) == len(func.params):
        return expr
    smaller = ex.Function(tuple(p for p, _ in alive), func.body, func.attrs)
    return replace(expr, op=smaller, args=tuple(a for _, a in alive))


@function_pass(opt_level=2)
def eliminate_common_subexpr(func: ex.Function, _context: PassContext) -> ex.Function:
    """Merge calls of the same operator with equal attributes and operands, and constants of equal type and bytes.

    In and out: operator calls.  The first one in post-order stays, with its span.  Law: operators have no side effects, so equal
    operands give equal results.  Not done: calls of fused functions, commutativity.
    """
    seen: dict[Hashable, ex.Expr] = {}

    def merged(expr: ex.Expr) -> ex.Expr:
        key = _key(expr)
        return expr if key is None else seen.setdefault(key, expr)

    return ex.rewrite(func, merged)


def _key(expr: ex.Expr) -> Hashable | None:
    """Equal for nodes that compute the same; None if that cannot be decided (attributes that cannot be hashed)."""
    match expr:
        case ex.Constant():
            return ("const", expr.type, sha256(expr.data.tobytes()).digest())
        case ex.TupleGetItem():
            return ("item", id(expr.value), expr.index)
        case ex.Call(op=Op() as op):
            key = (op.name, expr.attrs, expr.type, tuple(id(a) for a in expr.args))
            try:
                hash(key)
            except TypeError:
                return None
            return key
        case _:
            return None


MAX_GROWTH = register_option("fold.max_growth", 1024, "bytes by which a folded result may exceed the constants it comes from")


@function_pass(opt_level=1)
def fold_constant(func: ex.Function, context: PassContext) -> ex.Function:
    """Replace calls whose operands are all constants by their value, computed by the operator's own `evaluate`.

    In and out: operator calls.  A call stays if its value needs over `fold.max_growth` more bytes of flash than its operands (a
    broadcast, a resize).  Calls without operands and calls of functions stay.
    """
    limit = context.option(MAX_GROWTH.key)
    return ex.rewrite(func, lambda expr: _folded(expr, limit))


def _folded(expr: ex.Expr, limit: int) -> ex.Expr:
    match expr:
        case ex.Call(op=Op(), args=args) if args and all(isinstance(a, ex.Constant) for a in args):
            return _value(expr, limit)
        case ex.TupleGetItem(value=ex.Tuple(fields=fields)) if isinstance(fields[expr.index], ex.Constant):
            return fields[expr.index]
        case _:
            return expr


def _value(expr: ex.Call, limit: int) -> ex.Expr:
    arguments = [a for a in expr.args if isinstance(a, ex.Constant)]
    size = sum(f.nbytes for f in (expr.type.fields if isinstance(expr.type, TupleType) else (expr.type,)))
    if size - sum(a.type.nbytes for a in arguments) > limit:
        return expr
    value = call_op(expr, [a.data for a in arguments])
    if isinstance(expr.type, TensorType):
        return inheriting(ex.Constant(cast(Array, value), expr.type, expr.span), arguments)
    fields = [ex.Constant(v, t, expr.span) for v, t in zip(value, expr.type.fields, strict=True)]
    return ex.make_tuple(fields, span=expr.span)


# Inline calls of plain functions, and infer the type of every node again, starting from the parameters.


@function_pass(required=True)
def infer_type(func: ex.Function, _context: PassContext) -> ex.Function:
    """Run every operator's type rule again, operands first; a call of an unmarked function is replaced by the function's body.

    In: any function.  Out: the same graph, with the type that the rule gives on each operator call; if the rule says nothing
    about quantisation parameters, those on the call stay.  Nodes whose type does not change are kept.  A rule that refuses its
    operands is our own fault at this point (E9001): converters have checked the model before.  UsageError E1160 if a function's
    parameters do not fit the operands of its call.
    """
    return _inferred(func)


def _inferred(func: ex.Function) -> ex.Function:
    return ex.rewrite(func, lambda new: _written_out(new) if isinstance(new, ex.Call) and _is_plain(new.op) else _typed(new))


def _is_plain(op: Op | ex.Function) -> bool:
    """A function that is neither fused nor a code generator's; only a user's Python code creates these."""
    return isinstance(op, ex.Function) and not any(op.attrs.get(key) for key in ("Primitive", "Composite", "Compiler"))


def _written_out(call: ex.Call) -> ex.Expr:
    """The body of the called function, with the calls inside it, its branches and its loops inlined too."""
    assert isinstance(call.op, ex.Function)
    ex.check_operands(call.op, call.args, str(call.span))
    return ex.inlined(_inferred(ex.map_inner_functions(call.op, _inferred)), call.args)


def _typed(expr: ex.Expr) -> ex.Expr:
    if not isinstance(expr, ex.Call) or not expr.name:
        return expr
    try:
        inferred = F_INFER_TYPE.get(expr.name)([a.type for a in expr.args], expr.attrs)
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


# Simplifies branches with constant conditions, loops that end at once, and loop variables that do not vary.

MOST_COPIES = 1
"""Loops with at most this many iterations are inlined; for one iteration that is never worse, as no loop remains."""


@function_pass(opt_level=1)
def simplify_control_flow(func: ex.Function, _context: PassContext) -> ex.Function:
    """Rewrite branches and loops by these laws, until none applies.

    In and out: any function with the same results.
    1. A branch with a constant condition is the selected function.
    2. A loop with no iteration is its initial values; a loop of MOST_COPIES iterations is its body, inlined.
    3. A loop variable that the body passes on unchanged, and that starts as a constant, is that constant inside.
    4. A loop variable that neither decides, nor is read outside, nor is needed for another one that is, is removed.
    Not done: moving loop-invariant code out of a loop.
    """
    while True:
        new = _sweep(func)
        if new is func:
            return func
        func = new


def _sweep(func: ex.Function) -> ex.Function:
    """One sweep over the nodes, operands first; returns `func` itself if nothing changes."""
    order = ex.post_order(func.body)
    if not any(isinstance(e, ex.If | ex.While) for e in order):
        return func
    used = _used_fields(func, order)

    def simplified(old: ex.Expr, new: ex.Expr) -> ex.Expr:
        match new:
            case ex.If():
                value = constant_value(new.cond)  # law 1
                return new if value is None else ex.inlined(new.then_branch if value.reshape(()) else new.else_branch, new.args)
            case ex.While():
                return _loop(new, used.get(id(old), set()))
            case ex.TupleGetItem(value=ex.Tuple(fields=fields)):
                return fields[new.index]
        return new

    body = ex.rebuild(func.body, simplified)
    return func if body is func.body else replace(func, body=body)


def _used_fields(func: ex.Function, order: Sequence[ex.Expr]) -> dict[int, set[int]]:
    """Per loop (by id), the variables whose final values are read; all of them if the tuple is used as a whole."""
    used: dict[int, set[int]] = {}
    for expr in order:
        for o in ex.operands(expr):
            if isinstance(o, ex.While):
                whole = set(range(len(o.args)))
                used.setdefault(id(o), set()).update({expr.index} if isinstance(expr, ex.TupleGetItem) else whole)
    if isinstance(func.body, ex.While):
        used[id(func.body)] = set(range(len(func.body.args)))
    return used


def _loop(expr: ex.While, used: set[int]) -> ex.Expr:
    """Laws 2 to 4."""
    count = trip_count(expr)
    if count is not None and count <= MOST_COPIES:
        values: Sequence[ex.Expr] = expr.args
        for _ in range(count):
            values = fields_of(ex.inlined(expr.body, values))
        return values[0] if isinstance(expr.type, TensorType) else ex.make_tuple(values, span=expr.span)
    return _without_dead(_with_constants(expr), used)


def _with_constants(expr: ex.While) -> ex.While:
    """Law 3; the variable itself stays, and is then dead unless its value is read."""
    results = results_of(expr.body)
    passed_on = (i for i, param in enumerate(expr.body.params) if results[i] is param)
    constants = {i: a for i in passed_on if isinstance(a := expr.args[i], ex.Constant)}
    cond = _bound(expr.cond, constants)
    body = _bound(expr.body, constants, keep=True)
    return expr if cond is expr.cond and body is expr.body else replace(expr, cond=cond, body=body)


def _bound(func: ex.Function, constants: Mapping[int, ex.Constant], *, keep: bool = False) -> ex.Function:
    """`func` with constants for some parameters; with `keep`, results that are parameters are kept."""
    table: dict[int, ex.Expr] = {id(func.params[i]): value for i, value in constants.items()}
    results = results_of(func)
    handed_on = {id(p) for p in func.params} if keep else set()
    if not any(id(e) in table for r in results if id(r) not in handed_on for e in ex.post_order(r)):
        return func
    new = [r if keep and id(r) in table else ex.substituted(r, table) for r in results]
    return replace(func, body=new[0] if isinstance(func.body.type, TensorType) else ex.make_tuple(new, span=func.body.span))


def _without_dead(expr: ex.While, used: set[int]) -> ex.Expr:
    """Law 4: a tuple of the remaining variables' values; removed variables are represented by their initial values."""
    live = live_variables(expr, used) or [0]
    if len(live) == len(expr.args):
        return expr
    results = results_of(expr.body)
    new = [results[i] for i in live]
    body = ex.Function(tuple(expr.body.params[i] for i in live), new[0] if len(new) == 1 else ex.make_tuple(new), expr.body.attrs)
    cond = ex.Function(tuple(expr.cond.params[i] for i in live), expr.cond.body, expr.cond.attrs)
    smaller = ex.While(tuple(expr.args[i] for i in live), cond, body, body.body.type, expr.span)
    fields: list[ex.Expr] = list(expr.args)
    for k, i in enumerate(live):
        fields[i] = smaller if len(live) == 1 else ex.get_item(smaller, k, span=expr.span)
    return ex.make_tuple(fields, span=expr.span)
