"""Visitors and mutators of graphs: subclass one and override what you need.

Both go through the nodes operands first and each node once, without recursion, so a graph may be as deep as it likes.
"""

from __future__ import annotations

from typing import Any

from aot.errors import Problem, UsageError
from aot.ir.op import Op
from aot.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Tuple,
    TupleGetItem,
    Var,
    While,
    inner_functions,
    operands,
    post_order,
    with_inner_functions,
    with_operands,
)
from aot.support.caller import call_place


class ExprVisitor:
    """Looks at every node: `visit(expr)` or `visit(function)` calls `visit_call` and the like, operands before users.

    >>> from aot import relay
    >>> class Count(ExprVisitor):
    ...     calls = 0
    ...     def visit_call(self, call):
    ...         self.calls += 1
    >>> count = Count()
    >>> count.visit(relay.nn.relu(relay.nn.relu(relay.var("x", shape=(4,), dtype="int8"))))
    >>> count.calls
    2
    """

    def visit(self, root: Expr | Function) -> None:
        """Visit everything that `root` depends on; functions inside are visited by `visit_function`."""
        body = _checked(root)
        for expr in post_order(body):
            match expr:
                case Var():
                    self.visit_var(expr)
                case Constant():
                    self.visit_constant(expr)
                case Call():
                    if isinstance(expr.op, Function):
                        self.visit_function(expr.op)
                    self.visit_call(expr)
                case Tuple():
                    self.visit_tuple(expr)
                case TupleGetItem():
                    self.visit_tuple_getitem(expr)
                case If() | While():
                    for inner in inner_functions(expr):
                        self.visit_function(inner)
                    if isinstance(expr, If):
                        self.visit_if(expr)
                    else:
                        self.visit_while(expr)

    def visit_var(self, var: Var) -> None:
        """A parameter."""

    def visit_constant(self, constant: Constant) -> None:
        """A constant."""

    def visit_call(self, call: Call) -> None:
        """A call of an operator, or of a function."""

    def visit_tuple(self, fields: Tuple) -> None:
        """A tuple."""

    def visit_tuple_getitem(self, item: TupleGetItem) -> None:
        """A field of a tuple."""

    def visit_if(self, branch: If) -> None:
        """A branch; its functions have been visited."""

    def visit_while(self, loop: While) -> None:
        """A loop; its functions have been visited."""

    def visit_function(self, func: Function) -> None:
        """A function that is called, a branch, or a loop's condition or body; by default its body is visited."""
        self.visit(func)


class ExprMutator:
    """Rebuilds a graph: each method gets a node whose operands have been rewritten already, and returns what stands for it.

    What does not change is not copied, and what was shared stays shared.
    """

    def visit(self, root: Any) -> Any:
        """The rewritten expression, or the rewritten function."""
        if isinstance(root, Function):
            return self.visit_function(root)
        done: dict[int, Expr] = {}
        for expr in post_order(_checked(root)):
            new = self._visit_one(with_operands(expr, [done[id(o)] for o in operands(expr)]))
            if not isinstance(new, Expr):
                message = f"{type(self).__name__} puts a {type(new).__name__} in the place of an expression"
                raise UsageError(Problem("E5104", message, call_place()))
            done[id(expr)] = new
        return done[id(root)]

    def _visit_one(self, expr: Expr) -> Expr:
        match expr:
            case Var():
                return self.visit_var(expr)
            case Constant():
                return self.visit_constant(expr)
            case Call(op=Op()):
                return self.visit_call(expr)
            case Call(op=Function() as func):
                new = self.visit_function(func)
                return self.visit_call(expr if new is func else Call(new, expr.args, expr.attrs, new.body.type, expr.span))
            case Tuple():
                return self.visit_tuple(expr)
            case TupleGetItem():
                return self.visit_tuple_getitem(expr)
            case If() | While():
                inner = with_inner_functions(expr, [self.visit_function(f) for f in inner_functions(expr)])
                if isinstance(inner, If):
                    return self.visit_if(inner)
                assert isinstance(inner, While)
                return self.visit_while(inner)
            case _:
                raise TypeError(type(expr))

    def visit_var(self, var: Var) -> Expr:
        return var

    def visit_constant(self, constant: Constant) -> Expr:
        return constant

    def visit_call(self, call: Call) -> Expr:
        return call

    def visit_tuple(self, fields: Tuple) -> Expr:
        return fields

    def visit_tuple_getitem(self, item: TupleGetItem) -> Expr:
        return item

    def visit_if(self, branch: If) -> Expr:
        return branch

    def visit_while(self, loop: While) -> Expr:
        return loop

    def visit_function(self, func: Function) -> Function:
        """A function with its body rewritten; the parameters stay."""
        body = self.visit(func.body)
        return func if body is func.body else Function(func.params, body, func.attrs)


def _checked(root: Any) -> Expr:
    found = root.body if isinstance(root, Function) else root
    if not isinstance(found, Expr):
        raise UsageError(Problem("E5104", f"{type(root).__name__} is neither an expression nor a function", call_place()))
    return found
