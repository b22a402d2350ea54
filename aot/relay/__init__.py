"""The graph IR: expressions, text, verifier, interpreter; passes are in `transform`.

`relay.nn.conv2d(x, w, strides=2)` and `relay.add(a, b)` build calls (aot.relay.construct); `relay.is_op("nn.conv2d")` starts a
pattern (aot.relay.dataflow_pattern).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aot.ir.module import Dialect, IRModule, register_dialect
from aot.ir.op import Array
from aot.ir.structural import Structure, register_structure
from aot.relay import analysis
from aot.relay.analysis import free_vars
from aot.relay.construct import Namespace, if_then_else, named, while_loop
from aot.relay.dataflow_pattern import is_constant, is_expr, is_op, is_tuple, is_tuple_get_item, is_var, wildcard
from aot.relay.expr import (
    Call,
    Constant,
    Expr,
    ExprMutator,
    ExprVisitor,
    Function,
    If,
    Tuple,
    TupleGetItem,
    Var,
    While,
    bind_params_by_name,
    call,
    const,
    get_item,
    make_tuple,
    map_inner_functions,
    var,
)
from aot.relay.interpreter import EndlessLoopError, evaluate
from aot.relay.printer import print_func
from aot.relay.verify import verify

__all__ = [
    "Call", "Constant", "Expr", "ExprMutator", "ExprVisitor", "Function", "If", "Tuple", "TupleGetItem", "Var",
    "While", "analysis", "bind_params_by_name", "call", "const", "evaluate", "get_item", "if_then_else", "image",
    "is_constant", "is_expr", "is_op", "is_tuple", "is_tuple_get_item", "is_var", "make_tuple", "nn", "qnn", "var",
    "vision", "while_loop", "wildcard",
]  # fmt: skip

nn = Namespace("nn")
qnn = Namespace("qnn")
image = Namespace("image")
vision = Namespace("vision")


def __getattr__(name: str) -> Any:
    """`relay.add`: the constructor of an operator; `relay.signal`: all constructors with this prefix, including plug-ins'."""
    if name.startswith("_"):
        raise AttributeError(f"module 'aot.relay' has no attribute '{name}'")
    return named(name)


def _evaluate_drawn(func: Function, inputs: Sequence[Array]) -> list[Array]:
    """Evaluate on random operands, with which a loop may never end: then there are no results."""
    try:
        return evaluate(func, inputs, limit=MOST_DRAWN_ITERATIONS)
    except EndlessLoopError:
        return []


MOST_DRAWN_ITERATIONS = 64
"""Iteration limit of a loop on random operands."""


def _to_full_text(module: IRModule) -> str:
    from aot.relay.parser import print_module  # few compilations print or read text

    return print_module(module)


def _from_text(text: str, name: str) -> IRModule:
    from aot.relay.parser import parse_module

    return parse_module(text, name)


register_dialect(
    Dialect(
        "relay",
        Function,
        to_text=lambda func, name: print_func(func, name),
        verify=verify,
        input_types=lambda func: [p.type for p in func.params],
        evaluate=_evaluate_drawn,
        from_expr=lambda expr: Function(tuple(free_vars(expr)), expr) if isinstance(expr, Expr) else None,
        to_full_text=_to_full_text,
        from_text=_from_text,
        map_inner=map_inner_functions,
    )
)

register_structure(Var, Structure(parts=lambda v: (v.type,), variable=True))
register_structure(Function, Structure(parts=lambda f: (f.attrs, f.body), defines=lambda f: f.params, shared=True))
for _node in (Call, If, Tuple, TupleGetItem, While):
    register_structure(_node, Structure(shared=True))
