"""Functions of one float that end in QUANTIZE become comparisons with the floats at which their code changes."""

from __future__ import annotations

from aot.ir.op import Op
from aot.ir.transform import PassContext, function_pass
from aot.relay.analysis.one_tensor import chain_to, is_costly, source_of
from aot.relay.analysis.steps import find_steps
from aot.relay.expr import Call, Expr, Function, call, is_call, operands, post_order, tensor_type, users, with_operands


@function_pass(opt_level=2)
def fold_to_steps(func: Function, _context: PassContext) -> Function:
    """Replace chains of element-wise calls from one float32 tensor to int8 by `qnn.steps` of that tensor.

    In and out: operator calls.  Such is MISH between a normalisation and QUANTIZE: three functions of the C library for an
    element, of which a byte is kept.  Only chains that hold such a function, of many elements, that nothing else reads; a chain
    of which the steps can't be proved stays.
    """
    source: dict[int, Expr] = {}
    readers = users(func)
    steps: dict[int, Call] = {}
    for expr in post_order(func.body):
        x = source_of(expr, source, "float32")
        if x is None:
            continue
        source[id(expr)] = x
        if is_call(expr, "qnn.quantize") and tensor_type(expr).dtype == "int8" and _pays(expr, x, readers):
            found = _steps(expr, x)
            if found is not None:
                steps[id(expr)] = found
    return _replaced(func, steps) if steps else func


def _pays(expr: Expr, x: Expr, readers: dict[int, list[Expr]]) -> bool:
    """Whether the chain is worth a table, and none of its results between is read outside."""
    chain = chain_to(expr, x)
    inside = {id(c) for c in chain}
    alone = all(id(reader) in inside for c in chain[:-1] for reader in readers[id(c)])
    return alone and is_costly(expr, x)


def _steps(expr: Expr, x: Expr) -> Call | None:
    found = find_steps(expr, x)
    attrs_type = Op("qnn.steps").attrs_type
    assert attrs_type is not None
    if found is None:
        return None
    attrs = attrs_type(tuple(found.starts.tolist()), tuple(found.codes.tolist()), found.nan, tensor_type(expr).quant)
    return call("qnn.steps", [x], attrs, span=expr.span)


def _replaced(func: Function, steps: dict[int, Call]) -> Function:
    """With these calls in the place of others, which read what the chains read."""
    done: dict[int, Expr] = {}
    for expr in post_order(func.body):
        new = steps.get(id(expr))
        done[id(expr)] = with_operands(new or expr, [done[id(o)] for o in operands(new or expr)])
    return Function(func.params, done[id(func.body)], func.attrs)
