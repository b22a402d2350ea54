"""Visitors, mutators and the variables of an expression."""

from __future__ import annotations

import pytest

from aot import relay
from aot.errors import UsageError
from aot.ir import IRModule
from aot.relay.expr import Call, Expr, Function, Var
from aot.relay.transform import fuse_ops
from tests.relay.functor_graph import X, graph


class Names(relay.ExprVisitor):
    """Writes down what it meets."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def visit_var(self, var: Var) -> None:
        self.seen.append(var.name)

    def visit_call(self, call: Call) -> None:
        self.seen.append("call" if isinstance(call.op, Function) else call.op.name)

    def visit_tuple(self, fields: relay.Tuple) -> None:
        self.seen.append("tuple")

    def visit_tuple_getitem(self, item: relay.TupleGetItem) -> None:
        self.seen.append(f".{item.index}")


def test_every_node_once_operands_first() -> None:
    names = Names()
    names.visit(graph())
    assert names.seen == ["x", "clip", "y", "concatenate", "tuple", ".0", ".1", "concatenate"]


def test_functions_inside_are_visited() -> None:
    names = Names()
    names.visit(fuse_ops(IRModule.from_expr(relay.clip(X, 0, 1)))["main"])  # type: ignore[arg-type]
    assert names.seen == ["x", "p0", "clip", "call"]


class Wider(relay.ExprMutator):
    """Clamps to -1 where it was 0."""

    def visit_call(self, call: Call) -> Expr:
        return relay.clip(call.args[0], -1, call.attrs.hi) if str(call.op) == "clip" else call


def test_mutator_rewrites_and_keeps_sharing() -> None:
    func = IRModule.from_expr(graph())["main"]
    assert isinstance(func, Function)
    new = Wider().visit(func)
    clips = [e for e in relay.expr.post_order(new.body) if isinstance(e, Call) and str(e.op) == "clip"]
    assert [c.attrs.lo for c in clips] == [-1]
    assert new.params == func.params


def test_mutator_returns_what_does_not_change() -> None:
    func = IRModule.from_expr(graph())["main"]
    assert relay.ExprMutator().visit(func) is func


def test_a_mutator_that_returns_nothing_is_named() -> None:
    class Lost(relay.ExprMutator):
        def visit_var(self, var: Var) -> Expr:
            return None  # type: ignore[return-value]

    with pytest.raises(UsageError, match="Lost puts a NoneType"):
        Lost().visit(graph())


def test_depth_does_not_matter() -> None:
    deep: Expr = X
    for i in range(5000):
        deep = relay.clip(deep, -100 + i % 2, 100)
    names = Names()
    names.visit(deep)
    assert len(names.seen) == 5001
    assert isinstance(relay.ExprMutator().visit(deep), Call)
