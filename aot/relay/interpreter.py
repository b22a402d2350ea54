"""Runs a graph with numpy: the meaning of every operator is its `evaluate`.

The interpreter is the specification for passes, kernels and generated C.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot.errors import internal
from aot.ir.instrument import difference, random_inputs
from aot.ir.op import F_EVALUATE, Array
from aot.ir.type import TensorType, TupleType, Type
from aot.relay.expr import Call, Constant, Expr, Function, If, Tuple, TupleGetItem, Var, While, operands, post_order
from aot.relay.state import input_vars, state_of, zero_window
from aot.support.dtype import numpy_dtype

Value = Array | tuple[Array, ...]
MOST_ITERATIONS = 1_000_000
"""Iterations after which a loop is considered endless."""

Observer = Callable[[Expr, Value], None]


class EndlessLoopError(ValueError):
    """A loop has run more often than allowed."""


def evaluate(func: Function, inputs: Sequence[Array], *, limit: int = MOST_ITERATIONS) -> list[Array]:
    """Run `func` on one array per parameter and return its outputs (one, or the fields of its tuple).

    Raises ValueError if an array does not have the shape or element type of its parameter, and EndlessLoopError if a loop has not
    ended after `limit` iterations.  Values are dropped after their last use, so the memory needed is about that of the widest
    place of the graph.
    """
    return _outputs(_run(func, inputs, None, limit))


def evaluate_all(func: Function, inputs: Sequence[Array]) -> tuple[list[Array], dict[int, Array]]:
    """Like `evaluate`, but also return each value of the graph by the index of its tensor in the .tflite (`Span.tensor`).

    Several nodes may come from one operator: the last one in execution order is the tensor.  Values inside fused functions are
    included.
    """
    values: dict[int, Array] = {}

    def observe(expr: Expr, value: Value) -> None:
        if expr.span.tensor >= 0 and not isinstance(value, tuple):
            values[expr.span.tensor] = value

    return _outputs(_run(func, inputs, observe)), values


def call_op(expr: Call, arguments: Sequence[Value]) -> Value:
    """Evaluate a call of a registered operator; the result is checked against the call's type (E9001)."""
    result = F_EVALUATE.get(expr.name)(*arguments, attrs=expr.attrs, out_type=expr.type)
    value: Value = tuple(np.asarray(r) for r in result) if isinstance(expr.type, TupleType) else np.asarray(result)
    if not _has_type(value, expr.type):
        raise internal(f"{expr.op} evaluates to {_describe(value)}, its type is {expr.type}", where=str(expr.span))
    return value


def _run(func: Function, inputs: Sequence[Any], observe: Observer | None, limit: int = MOST_ITERATIONS) -> Value:
    if len(inputs) != len(func.params):
        raise ValueError(f"{len(func.params)} inputs are expected, not {len(inputs)}")
    for var, value in zip(func.params, inputs, strict=True):
        if not _has_type(value, var.type):
            raise ValueError(f"the input {var.name} is {_describe(value)}, {var.type} is expected")
    env: dict[int, Value] = {id(var): value for var, value in zip(func.params, inputs, strict=True)}
    order = post_order(func.body)
    uses = Counter(id(o) for expr in order for o in operands(expr))
    uses[id(func.body)] += 1
    for expr in order:
        arguments = [env[id(o)] for o in operands(expr)]
        value = _step(expr, arguments, env, observe, limit)
        env[id(expr)] = value
        if observe is not None:
            observe(expr, value)
        for o in operands(expr):
            uses[id(o)] -= 1
            if not uses[id(o)]:
                del env[id(o)]
    return env[id(func.body)]


def _step(expr: Expr, arguments: list[Any], env: dict[int, Value], observe: Observer | None, limit: int) -> Value:
    match expr:
        case Var():
            if id(expr) not in env:
                raise internal(f"the variable {expr.name} is not a parameter of its function", where=str(expr.span))
            return env[id(expr)]
        case Constant():
            return expr.data
        case Tuple():
            return tuple(arguments)
        case TupleGetItem():
            field: Array = arguments[0][expr.index]
            return field
        case Call(op=Function() as func):
            return _run(func, arguments, observe)
        case Call():
            return call_op(expr, arguments)
        case If():
            return _run(expr.then_branch if _holds(arguments[0]) else expr.else_branch, arguments[1:], observe, limit)
        case While():
            return _loop(expr, arguments, observe, limit)


def _loop(expr: While, variables: list[Any], observe: Observer | None, limit: int) -> Value:
    count = 0
    while _holds(_run(expr.cond, variables, observe, limit)):
        if count == limit:
            raise EndlessLoopError(f"{expr.span}: a loop has not ended after {limit} iterations")
        count += 1
        variables = _outputs(_run(expr.body, variables, observe, limit))
    return tuple(variables) if isinstance(expr.type, TupleType) else variables[0]


def _holds(value: Value) -> bool:
    return bool(np.asarray(value).reshape(()))


def _has_type(value: Value, expected: Type) -> bool:
    if isinstance(expected, TensorType):
        return isinstance(value, np.ndarray) and value.shape == expected.shape and value.dtype == numpy_dtype(expected.dtype)
    return (
        isinstance(value, tuple)
        and len(value) == len(expected.fields)
        and all(_has_type(v, f) for v, f in zip(value, expected.fields, strict=True))
    )


def _describe(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_describe(v) for v in value)})"
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__


def _outputs(value: Value) -> list[Array]:
    return list(value) if isinstance(value, tuple) else [value]


class StatefulFunction:
    """`main` together with its state, initially the start values."""

    def __init__(self, main: Function) -> None:
        self.main = main
        self.state: list[Array] = []
        self.reset()

    def reset(self) -> None:
        """Reset the state to its initial values."""
        self.state = [s.initial.copy() for s in state_of(self.main)]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the outputs of one run on one array per input; after an EndlessLoopError the state is unchanged."""
        try:
            return self._keep(evaluate(self.main, [*inputs, *self.state]))
        except EndlessLoopError:
            self.reset()
            raise

    def run_all(self, inputs: Sequence[Array]) -> tuple[list[Array], dict[int, Array]]:
        """Like `run`, but also return each value of the graph by the index of its tensor in the .tflite."""
        results, values = evaluate_all(self.main, [*inputs, *self.state])
        return self._keep(results), values

    def _keep(self, results: list[Array]) -> list[Array]:
        cut = len(results) - len(self.state)
        self.state = [r.copy() for r in results[cut:]]
        return results[:cut]


RUNS_OVER_TIME = 3
"""Runs after which functions with a state count as equal; running a whole window is slow in Python."""


def same_over_time(before: Function, after: Function, seed: int) -> str:
    """The first difference between the outputs of two functions, run after run from their initial states; "" if there is none.

    Passes that change the state of a model, or make it read only new rows, must pass this check.  An input of `after` may have
    fewer rows along one axis: `before` then gets the window of the last rows, initially zeros.  Operands are random (`seed`).
    """
    one, other = StatefulFunction(before), StatefulFunction(after)
    windows = [zero_window(v.type) for v in input_vars(before)]
    for run in range(RUNS_OVER_TIME):
        rows = random_inputs([v.type for v in input_vars(after)], seed=seed * RUNS_OVER_TIME + run)
        windows = [_moved_on(w, r) for w, r in zip(windows, rows, strict=True)]
        try:
            fault = difference(one.run(windows), other.run(rows))
        except EndlessLoopError:
            return ""
        if fault:
            return f"run {run}: {fault}"
    return ""


def _moved_on(window: Array, rows: Array) -> Array:
    """The window after adding these rows, or the rows themselves if they fill it."""
    axis = next((a for a, (n, m) in enumerate(zip(window.shape, rows.shape, strict=True)) if n != m), None)
    if axis is None:
        return rows
    return np.ascontiguousarray(
        np.take(np.concatenate([window, rows], axis), range(rows.shape[axis], rows.shape[axis] + window.shape[axis]), axis)
    )
