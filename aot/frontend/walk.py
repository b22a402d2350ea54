"""What the walks over the graphs of all formats share: values of constants, faults of converters as problems, and main."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NoReturn

import numpy as np

from aot.errors import AotError
from aot.ir.op import F_EVALUATE, Array, Op, TypeRuleError
from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.numerics.fixed_point import NotAMultiplierError
from aot.relay.expr import Call, Constant, Expr, Function, Var, make_tuple, post_order
from aot.relay.state import STATE, StateTensor, Variable

MAX_FOLDED = 1 << 16
"""Maximum elements; operands for shapes or axes are small, larger ones are left to fold_constant."""


class Unknowable(Exception):  # noqa: N818 - not an error of the model
    """An operand's value follows from an operator that could not be converted, which has been reported."""


def evaluate(expr: Expr, *, most: int = MAX_FOLDED) -> Array | None:
    """The value of an expression over constants only; None if it depends on an input or has more than `most` elements."""
    if isinstance(expr, Constant):
        return np.asarray(expr.data)
    values: dict[int, Array] = {}
    for node in post_order(expr):
        match node:
            case Constant():
                values[id(node)] = np.asarray(node.data)
            case Call(op=Op(name=name), type=TensorType() as type_) if prod(type_.shape) <= most:
                args = [values[id(a)] for a in node.args]
                values[id(node)] = np.asarray(F_EVALUATE.get(name)(*args, attrs=node.attrs, out_type=type_))
            case _:
                return None
    return values[id(expr)]


@contextmanager
def converting(refuse: Callable[[str, str], NoReturn], *, divides_by_zero: Callable[[], bool]) -> Iterator[None]:
    """While a converter runs: what it raises is a problem of the operator, passed to `refuse` as code and message.

    `divides_by_zero`: whether a scale of the operator is 0.
    """
    try:
        yield
    except TypeRuleError as error:
        if error.__cause__ is not None:  # the rule's fault, not the model's
            refuse("E1124", f"the converter does not understand it ({error.message})")
        refuse("E1121", error.message)
    except NotAMultiplierError as error:
        refuse("E1226", str(error))
    except (AotError, Unknowable):
        raise
    except Exception as error:
        if isinstance(error, ArithmeticError | ValueError) and divides_by_zero():
            refuse("E1226", "it divides by the scale of an operand or of its result, which is 0")
        # A converter met values that its author did not expect.  For the user, the file is to blame; the tests treat this
        # code as a fault of ours.
        refuse("E1124", f"the converter does not understand it ({type(error).__name__}: {error})")


def main_function(
    params: Sequence[Var], outputs: Sequence[tuple[Expr, Span, TensorType]], states: Sequence[Variable], *, is_shared: bool
) -> Function:
    """`main`, from each output's value, name and declared type, and the variables that persist between runs.

    `is_shared`: whether several entry points of the model use these variables.
    """
    results = [*(value for value, _, _ in outputs), *(v.value for v in states)]
    body = results[0] if len(results) == 1 else make_tuple(results)
    attrs: dict[str, Any] = {"outputs": tuple(o[1] for o in outputs), "output_types": tuple(o[2] for o in outputs)}
    if states:
        attrs[STATE] = tuple(StateTensor(v.param.name, v.initial, is_shared) for v in states)
    return Function((*params, *(v.param for v in states)), body, attrs)
