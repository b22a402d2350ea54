"""Patterns of expressions, in TVM's words: `is_op("nn.bias_add")(is_op("nn.conv2d")(wildcard(), is_constant()), is_constant())`.

`pattern.match(expr)` says whether an expression has the form, `pattern.find(expr)` also what stands where; `rewrite` replaces
every place of a graph that has the form.  A pattern that occurs twice in a larger one stands for the same expression both times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from typing import Any

from aot.errors import Problem, UsageError, call_place
from aot.errors.tvm_names import missing
from aot.ir.op import Op
from aot.ir.type import TensorType
from aot.relay.expr import Call, Constant, Expr, ExprMutator, Function, Tuple, TupleGetItem, Var
from aot.support.dataclass import dataclass
from aot.support.dtype import known_dtypes

Bound = Mapping[int, Expr]
"""Pattern (by id) -> the expression that it stands for."""

COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "bitwise_xor"})
"""Operators whose two operands may stand in either order."""


FORMS = {
    "nn.conv2d": ("nn.conv2d", "nn.conv2d_float"),
    "nn.conv2d_transpose": ("nn.conv2d_transpose", "nn.conv2d_transpose_float"),
    "nn.dense": ("nn.dense", "nn.dense_float"),
    "nn.depthwise_conv2d": ("nn.depthwise_conv2d", "nn.depthwise_conv2d_float"),
    "clip": ("clip", "relu"),
}
"""The operators that one name stands for in a pattern, of integers and of float32: those that `relay.NAME` makes calls of."""


@dataclass(frozen=True, slots=True)
class Match:
    """What stands where: `match[pattern]` is the expression; the patterns are the objects of which the whole was made."""

    root: Expr
    bound: Bound

    def __getitem__(self, pattern: Pattern) -> Expr:
        if id(pattern) not in self.bound:
            raise _wrong("the pattern is not a part of what was matched")
        return self.bound[id(pattern)]

    def __contains__(self, pattern: Pattern) -> bool:
        return id(pattern) in self.bound


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """The base of all patterns."""

    def bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        """Each way in which `expr` has this form, given what other patterns stand for already."""
        if id(self) in bound:
            if bound[id(self)] is expr:
                yield bound
            return
        for found in self._bindings(expr, bound):
            yield {**found, id(self): expr}

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        raise NotImplementedError

    def find(self, expr: Expr) -> Match | None:
        """What stands where, in the first way that fits; None if the expression has another form."""
        first = next(self.bindings(expr, {}), None)
        return None if first is None else Match(expr, first)

    def match(self, expr: Expr) -> bool:
        """Whether the expression has this form."""
        return self.find(expr) is not None

    def parts(self) -> tuple[Pattern, ...]:
        """The patterns of which this one is made directly."""
        return ()

    def __or__(self, other: Pattern) -> Pattern:
        return AltPattern(self, _pattern(other))

    def has_attr(self, attrs: Mapping[str, Any]) -> Pattern:
        """The same with attributes of these values (E5106 for an attribute that the operator of `is_op` does not have)."""
        if not isinstance(attrs, Mapping):
            raise _wrong(f"has_attr takes a dictionary of attributes, not {attrs!r}")
        wanted = dict(attrs)
        known = _attributes(self)
        missing = sorted(set(wanted) - known) if known is not None else []
        if missing:
            raise _wrong(
                f"has_attr: {', '.join(missing)} is no attribute of the operator; there are {', '.join(sorted(known or ()))}"
            )
        return WherePattern(self, lambda e: isinstance(e, Call) and _has_attrs(e, wanted))

    def has_dtype(self, dtype: str) -> Pattern:
        """The same of this element type (E5106 for an unknown one)."""
        if dtype not in known_dtypes():
            raise _wrong(f"has_dtype: there is no element type {dtype!r}; there are {', '.join(known_dtypes())}")
        return WherePattern(self, lambda e: isinstance(e.type, TensorType) and e.type.dtype == dtype)

    def has_shape(self, shape: Sequence[int]) -> Pattern:
        """The same of this shape."""
        wanted = tuple(shape)
        return WherePattern(self, lambda e: isinstance(e.type, TensorType) and e.type.shape == wanted)

    def where(self, condition: Callable[[Expr], bool]) -> Pattern:
        """The same, where a Python function of the expression says so."""
        if not callable(condition):
            raise _wrong("where takes a function of an expression")
        return WherePattern(self, condition)

    def optional(self, wrap: Callable[[Pattern], Pattern]) -> Pattern:
        """This, or this inside of what `wrap` makes of it: `conv.optional(lambda x: is_op("clip")(x))`."""
        if not callable(wrap):
            raise _wrong("optional takes a function of a pattern")
        return AltPattern(_pattern(wrap(self)), self)


@dataclass(frozen=True, slots=True, eq=False)
class WildcardPattern(Pattern):
    """Anything."""

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        yield bound


@dataclass(frozen=True, slots=True, eq=False)
class KindPattern(Pattern):
    """An expression of one class, with a name where one is given."""

    kind: type
    name: str = ""

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        if isinstance(expr, self.kind) and (not self.name or getattr(expr, "name", "") == self.name):
            yield bound


@dataclass(frozen=True, slots=True, eq=False)
class ExprPattern(Pattern):
    """This very node."""

    expr: Expr

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        if expr is self.expr:
            yield bound


@dataclass(frozen=True, slots=True, eq=False)
class CallPattern(Pattern):
    """A call of one of the operators; over operands of these forms, where they are given."""

    ops: tuple[str, ...]
    args: tuple[Pattern, ...] | None = None

    def __call__(self, *args: Pattern) -> CallPattern:
        """The same over operands of these forms (E5106 without a name)."""
        return CallPattern(self.ops, tuple(map(_pattern, args)))

    def parts(self) -> tuple[Pattern, ...]:
        return self.args or ()

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.name not in self.ops:
            return
        if self.args is None:
            yield bound
        elif len(self.args) == len(expr.args):
            yield from _all(self.args, expr.args, bound)
            if expr.op.name in COMMUTATIVE:
                yield from _all(self.args, expr.args[::-1], bound)


@dataclass(frozen=True, slots=True, eq=False)
class TuplePattern(Pattern):
    """A tuple, of fields of these forms where they are given."""

    fields: tuple[Pattern, ...] | None = None

    def parts(self) -> tuple[Pattern, ...]:
        return self.fields or ()

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        if isinstance(expr, Tuple) and self.fields is None:
            yield bound
        elif isinstance(expr, Tuple) and self.fields is not None and len(self.fields) == len(expr.fields):
            yield from _all(self.fields, expr.fields, bound)


@dataclass(frozen=True, slots=True, eq=False)
class TupleGetItemPattern(Pattern):
    """A field of a tuple of a form; any field if no index is given."""

    value: Pattern
    index: int | None = None

    def parts(self) -> tuple[Pattern, ...]:
        return (self.value,)

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        if isinstance(expr, TupleGetItem) and self.index in (None, expr.index):
            yield from self.value.bindings(expr.value, bound)


@dataclass(frozen=True, slots=True, eq=False)
class AltPattern(Pattern):
    """One form or another; the first is tried first."""

    left: Pattern
    right: Pattern

    def parts(self) -> tuple[Pattern, ...]:
        return self.left, self.right

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        yield from self.left.bindings(expr, bound)
        yield from self.right.bindings(expr, bound)


@dataclass(frozen=True, slots=True, eq=False)
class WherePattern(Pattern):
    """A form with a condition."""

    inner: Pattern
    condition: Callable[[Expr], bool] = field(repr=False)

    def parts(self) -> tuple[Pattern, ...]:
        return (self.inner,)

    def __call__(self, *args: Pattern) -> Pattern:
        """`is_op(...).has_attr(...)(operands)` is `is_op(...)(operands).has_attr(...)`."""
        if not isinstance(self.inner, CallPattern | WherePattern):
            raise _wrong("only the pattern of an operator takes operands")
        return WherePattern(self.inner(*args), self.condition)

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        if self.condition(expr):
            yield from self.inner.bindings(expr, bound)


def _all(patterns: Sequence[Pattern], exprs: Sequence[Expr], bound: Bound) -> Iterator[Bound]:
    if not patterns:
        yield bound
        return
    for first in patterns[0].bindings(exprs[0], bound):
        yield from _all(patterns[1:], exprs[1:], first)


def _has_attrs(expr: Call, wanted: Mapping[str, Any]) -> bool:
    missing = object()
    return all(getattr(expr.attrs, key, missing) == value for key, value in wanted.items())


def is_op(*names: str) -> CallPattern:
    """A call of the operator, or of one of several; called with patterns, over operands of these forms.

    A name stands for what `relay.NAME` makes, of integers and of float32 (`FORMS`).  UsageError E5101 for an operator that is not
    registered (yet: a plug-in's is imported before), E5106 without a name.
    """
    if not names or not all(isinstance(n, str) for n in names):
        raise _wrong(f"is_op takes names of operators, not {names!r}")
    return CallPattern(tuple(dict.fromkeys(form for n in names for form in FORMS.get(Op.get(n).name, (n,)))))


def wildcard() -> Pattern:
    """The pattern that fits every expression."""
    return WildcardPattern()


def is_constant() -> Pattern:
    """The pattern that fits every constant, of any shape and dtype."""
    return KindPattern(Constant)


def is_var(name: str = "") -> Pattern:
    """A variable, of that name where one is given."""
    return KindPattern(Var, name)


def is_expr(expr: Expr) -> Pattern:
    """This very node."""
    if not isinstance(expr, Expr):
        raise _wrong(f"is_expr takes an expression, not {expr!r}")
    return ExprPattern(expr)


def is_tuple(fields: Sequence[Pattern] | None = None) -> Pattern:
    """A tuple, of fields of these forms where they are given."""
    return TuplePattern(None if fields is None else tuple(map(_pattern, fields)))


def is_tuple_get_item(value: Pattern, index: int | None = None) -> Pattern:
    """A field of a tuple of this form."""
    return TupleGetItemPattern(_pattern(value), index)


def rewrite(pattern: Pattern, replacement: Callable[[Match], Expr], root: Any) -> Any:
    """`root`, an expression or a function, with `replacement(match)` wherever it has the form; operands are rewritten first.

    The function may return `match.root` to leave a place as it is.

    `pattern`: the form, of `is_op`, `wildcard` and the like.
    """
    _pattern(pattern)

    class Rewriter(ExprMutator):
        def visit_call(self, call: Call) -> Expr:
            return self._replaced(call)

        def visit_tuple(self, fields: Tuple) -> Expr:
            return self._replaced(fields)

        def visit_tuple_getitem(self, item: TupleGetItem) -> Expr:
            return self._replaced(item)

        def visit_function(self, func: Function) -> Function:
            return func if func.is_primitive else ExprMutator.visit_function(self, func)

        def _replaced(self, expr: Expr) -> Expr:
            match = pattern.find(expr)
            return expr if match is None else replacement(match)

    return Rewriter().visit(root)


def _attributes(pattern: Pattern) -> frozenset[str] | None:
    """The attributes that the operators of a pattern have; None of a pattern that is not one of operators."""
    while isinstance(pattern, WherePattern):
        pattern = pattern.inner
    if not isinstance(pattern, CallPattern):
        return None
    kinds = [kind for name in pattern.ops if (kind := Op.get(name).attrs_type) is not None]
    return frozenset(f.name for kind in kinds for f in fields(kind))


def _pattern(value: Any) -> Pattern:
    if not isinstance(value, Pattern):
        raise _wrong(f"{value!r} is not a pattern; wildcard() stands for anything")
    return value


def _wrong(message: str) -> UsageError:
    return UsageError(Problem("E5106", message, call_place()))


def __getattr__(name: str) -> Any:
    """What TVM has under a name that is not here (E5091)."""
    raise missing("relay.dataflow_pattern", name)
