"""Constructors: `relay.nn.conv2d(x, w, strides=2)` builds a call of a registered operator.

Every operator has a constructor.  Operands come first; attributes follow by name, or by position after the operands.  Numbers and
arrays among the operands become constants; a single number stands for an attribute that is a pair.  An operator's file may
register a constructor with more convenient parameters (`F_CONSTRUCT`).  Every mistake raises E5100 with the place of the call.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError, call_place
from aot.errors.tvm_names import is_tvm_name, missing
from aot.ir.op import OP_INFO, AttrMap, OpInfo, op_info
from aot.ir.span import NO_SPAN, Span
from aot.ir.type import TensorType, TupleType
from aot.relay.expr import Call, Expr, Function, If, While, call, const, refused, result_types, tensor_type
from aot.relay.verify import is_condition, same_type
from aot.support.entry_points import reach

Constructor = Callable[..., Any]
"""Returns an expression, or a tuple of several (`nn.batch_norm`)."""

F_CONSTRUCT: AttrMap[Constructor] = AttrMap("FConstruct")
"""Custom constructors, by the name under which they are called; not all of them are operators (`nn.relu`)."""


class UnknownOperatorError(UsageError, AttributeError):
    """E5101: the name of no operator; also an AttributeError, so that hasattr works."""


class Namespace:
    """The constructors of operators whose names start with `prefix.`, as attributes."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return named(f"{self._prefix}.{name}")

    def __dir__(self) -> list[str]:
        return [n.removeprefix(f"{self._prefix}.") for n in names() if n.startswith(f"{self._prefix}.")]

    def __repr__(self) -> str:
        return f"<constructors of {self._prefix}>"


def names() -> tuple[str, ...]:
    """The names of all constructors."""
    return tuple(sorted({*OP_INFO, *F_CONSTRUCT}))


def named(name: str) -> Constructor | Namespace:
    """What `relay.NAME` is: the constructor with that name, or the constructors of operators whose names start with `NAME.`.

    UnknownOperatorError E5101 if there is neither, TvmNameError E5091 for a name from TVM.
    """
    reach("constructors")
    if name in F_CONSTRUCT or name in OP_INFO:
        return constructor(name)
    if any(n.startswith(f"{name}.") for n in names()):
        return Namespace(name)
    if is_tvm_name(f"relay.{name}"):
        raise missing("relay", name)
    return constructor(name)


def constructor(name: str) -> Constructor:
    """The function that builds calls of the operator; UnknownOperatorError E5101 if there is no such operator."""
    reach("constructors")
    if name not in F_CONSTRUCT:
        try:
            op_info(name)
        except UsageError as error:
            raise UnknownOperatorError(*error.problems) from None
    special = F_CONSTRUCT.find(name)

    def build(*args: Any, **attrs: Any) -> Any:
        try:
            built = generic(name, *args, **attrs) if special is None else special(*args, **attrs)
        except UsageError:
            raise
        except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
            raise refused(name, str(error).replace("()", "") or type(error).__name__) from error
        return _checked(name, built)

    build.__name__ = build.__qualname__ = name.rpartition(".")[2]
    build.__doc__ = special.__doc__ if special is not None else describe(op_info(name))
    return build


def describe(info: OpInfo) -> str:
    """Operands and attributes of an operator as text, for help()."""
    lines = [info.doc, "", "Operands:", *(f"  {a.name}: {a.type}: {a.doc}" for a in info.arguments)]
    if info.attrs_type is not None:
        lines += ["Attributes:", *(f"  {f.name}: {f.type}" for f in fields(info.attrs_type))]
    return "\n".join(lines)


def generic(name: str, *args: Any, **attrs: Any) -> Call:
    """A call of the operator; the attributes are the fields of its dataclass."""
    info = op_info(name)
    count = _operand_count(info, args)
    operands = operands_of(name, *_flat(args[:count]))
    return call(name, operands, make_attrs(info, args[count:], attrs))


def _operand_count(info: OpInfo, args: Sequence[Any]) -> int:
    if info.most is not None and info.fewest == info.most:
        return info.most
    count = 0
    while count < len(args) and _is_operand(args[count]) and (info.most is None or count < info.most):
        count += 1
    return count


def _is_operand(value: Any) -> bool:
    return isinstance(value, Expr) or (isinstance(value, list | tuple) and any(isinstance(v, Expr) for v in value))


def _flat(args: Iterable[Any]) -> list[Any]:
    flat: list[Any] = []
    for a in args:
        flat += a if _is_operand(a) and not isinstance(a, Expr) else [a]
    return flat


def operands_of(name: str, *args: Any) -> list[Expr]:
    """Operands as expressions; numbers and arrays become constants of the type of the first expression."""
    typed = next((a.type for a in args if isinstance(a, Expr)), None)
    operands: list[Expr] = []
    for i, a in enumerate(args):
        if isinstance(a, Expr):
            operands.append(a)
        elif isinstance(a, np.ndarray):
            operands.append(const(a))
        elif isinstance(a, int | float | np.generic) and isinstance(typed, TensorType):
            operands.append(const(a, dtype=typed.dtype))
        else:
            raise refused(name, f"operand {i} is a {type(a).__name__}, not an expression")
    return operands


def make_attrs(info: OpInfo, positional: Sequence[Any], by_name: dict[str, Any]) -> Any:
    """The operator's attributes; raises TypeRuleError for missing, unknown or mistyped attributes."""
    if info.attrs_type is None:
        if positional or by_name:
            raise refused(info.name, f"the operator has no attributes, {', '.join([*map(repr, positional), *by_name])} given")
        return None
    declared = fields(info.attrs_type)
    if len(positional) > len(declared):
        raise refused(info.name, f"{len(positional)} values for {len(declared)} attributes after the operands")
    values = dict(zip((f.name for f in declared), positional, strict=False))
    for key, value in by_name.items():
        if key in values or key not in {f.name for f in declared}:
            trouble = (
                "is given twice" if key in values else f"is not an attribute; there are {', '.join(f.name for f in declared)}"
            )
            raise refused(info.name, f"{key} {trouble}")
        values[key] = value
    missing = [f.name for f in declared if f.name not in values and f.default is MISSING and f.default_factory is MISSING]
    if missing:
        raise refused(info.name, f"needs {', '.join(missing)}")
    hints = typing.get_type_hints(info.attrs_type)
    fitted = {key: fitted_to(value, hints[key]) for key, value in values.items()}
    for key, value in fitted.items():
        if value is MISSING:
            hint = hints[key]
            is_class = isinstance(hint, type) and not typing.get_args(hint)
            text = hint.__name__ if is_class else str(hint).replace("typing.", "")
            raise refused(info.name, f"{key} takes {text}, not {values[key]!r}")
    return info.attrs_type(**fitted)


def fitted_to(value: Any, hint: Any) -> Any:
    """`value` converted to the annotated type of a field; MISSING if it does not fit."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        options = (fitted_to(value, h) for h in inner)
        return next((found for found in options if found is not MISSING), MISSING)
    if origin is tuple:
        return _fitted_tuple(value, inner)
    if hint is bool:
        return bool(value) if isinstance(value, bool | np.bool_) else MISSING
    if hint is int:
        return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else MISSING
    if hint is float:
        return float(value) if isinstance(value, int | float | np.number) and not isinstance(value, bool) else MISSING
    if hint is None or hint is type(None):
        return None if value is None else MISSING
    return value if hint is Any or not isinstance(hint, type) or isinstance(value, hint) else MISSING


def _fitted_tuple(value: Any, inner: tuple[Any, ...]) -> Any:
    many = len(inner) == 2 and inner[1] is Ellipsis
    if isinstance(value, int) and inner == (int, int):
        value = (value, value)
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str) or (not many and len(value) != len(inner)):
        return MISSING
    fitted = tuple(
        fitted_to(v, inner[0] if many else h) for v, h in zip(value, inner * len(value) if many else inner, strict=False)
    )
    return MISSING if any(f is MISSING for f in fitted) else fitted


def _checked(name: str, built: Any) -> Any:
    """Check the result of a constructor: an expression, or several as a Python tuple."""
    if isinstance(built, tuple) and built:
        return tuple(_checked(name, b) for b in built)
    if not isinstance(built, Expr):
        raise UsageError(Problem("E5104", f"the constructor of {name} made a {type(built).__name__}", call_place()))
    for tensor in built.type.fields if isinstance(built.type, TupleType) else (built.type,):
        if not all(isinstance(n, int) and n > 0 for n in tensor.shape):
            raise refused(name, f"yields {tensor}, which has no elements")
    return built


def reshaped(expr: Expr, shape: Sequence[int], span: Span) -> Expr:
    """`expr` reshaped; unchanged if the shape matches."""
    if tensor_type(expr).shape == tuple(shape):
        return expr
    return with_span(constructor("reshape")(expr, newshape=tuple(shape)), span)


def transposed(expr: Expr, axes: Sequence[int], span: Span) -> Expr:
    """`expr` with its dimensions permuted."""
    return with_span(constructor("transpose")(expr, axes=tuple(axes)), span)


def with_span(expr: Expr, span: Span) -> Expr:
    """The same call with another span."""
    assert isinstance(expr, Call)
    return replace(expr, span=span)


def if_then_else(
    cond: Expr, args: Sequence[Expr], then_branch: Function, else_branch: Function, *, span: Span = NO_SPAN
) -> If:  # fmt: skip
    """`then_branch(args)` if `cond`, one bool, holds, else `else_branch(args)`; UsageError E1160 if types do not match."""
    if not is_condition(cond.type):
        raise _misfit(f"the condition of a branch is one bool, not {cond.type}", span)
    for word, branch in (("then", then_branch), ("else", else_branch)):
        _check_parameters(f"the {word} branch", branch, args, span)
    if not same_type(then_branch.body.type, else_branch.body.type):
        raise _misfit(f"one branch yields {then_branch.body.type}, the other {else_branch.body.type}", span)
    return If(cond, tuple(args), then_branch, else_branch, then_branch.body.type, span)


def while_loop(args: Sequence[Expr], cond: Function, body: Function, *, span: Span = NO_SPAN) -> While:
    """The loop variables, initially `args`, after running `body` while `cond` holds; UsageError E1160 if types do not match."""
    if not args:
        raise _misfit("a loop without variables never ends or never starts", span)
    _check_parameters("the condition", cond, args, span)
    _check_parameters("the body", body, args, span)
    if not is_condition(cond.body.type):
        raise _misfit(f"the condition of a loop yields one bool, not {cond.body.type}", span)
    results = result_types(body)
    if len(results) != len(args):
        raise _misfit(f"the body yields {len(results)} results for {len(args)} loop variables", span)
    for i, (result, arg) in enumerate(zip(results, args, strict=True)):
        if not same_type(result, arg.type):
            raise _misfit(f"loop variable {i} is {arg.type} before the loop and {result} after an iteration", span)
    return While(tuple(args), cond, body, body.body.type, span)


def _check_parameters(what: str, func: Function, args: Sequence[Expr], span: Span) -> None:
    if len(func.params) != len(args):
        raise _misfit(f"{what} has {len(func.params)} parameters for {len(args)} operands", span)
    for i, (param, arg) in enumerate(zip(func.params, args, strict=True)):
        if not same_type(param.type, arg.type):
            raise _misfit(f"operand {i} is {arg.type}, {what} takes {param.type}", span)


def _misfit(message: str, span: Span) -> UsageError:
    return UsageError(Problem("E1160", message, str(span) if span != NO_SPAN else call_place()))
