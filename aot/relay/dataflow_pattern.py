"""Patterns of expressions, as in TVM: `is_op("nn.bias_add")(is_op("nn.conv2d")(wildcard(), is_constant()), is_constant())`.

`pattern.match(expr)` says whether an expression matches; `pattern.find(expr)` also returns what each part matched; `rewrite`
replaces every match in a graph.  A pattern that occurs twice in a larger one matches the same expression both times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from typing import Any

from aot.errors import Problem, UsageError, call_place
from aot.errors.tvm_names import missing_in
from aot.ir.op import Op
from aot.ir.type import TensorType
from aot.relay.expr import Call, Constant, Expr, ExprMutator, Function, Tuple, TupleGetItem, Var
from aot.support.dataclass import dataclass
from aot.support.dtype import known_dtypes

Bound = Mapping[int, Expr]
"""Pattern (by id) -> the expression that it matched."""

COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "bitwise_xor"})
"""Operators that accept their two operands in either order."""


FORMS = {
    "nn.conv2d": ("nn.conv2d", "nn.conv2d_float"),
    "nn.conv2d_transpose": ("nn.conv2d_transpose", "nn.conv2d_transpose_float"),
    "nn.dense": ("nn.dense", "nn.dense_float"),
    "nn.depthwise_conv2d": ("nn.depthwise_conv2d", "nn.depthwise_conv2d_float"),
    "clip": ("clip", "relu"),
}
"""The operators that a name matches in a pattern, for integers and float32: those that `relay.NAME` may create."""


@dataclass(frozen=True, slots=True)
class Match:
    """The result of a match: `match[pattern]` is the expression that a part of the pattern matched."""

    root: Expr
    bound: Bound

    def __getitem__(self, pattern: Pattern) -> Expr:
        if id(pattern) not in self.bound:
            raise _wrong("the pattern is not part of the one that was matched")
        return self.bound[id(pattern)]

    def __contains__(self, pattern: Pattern) -> bool:
        return id(pattern) in self.bound


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Base class of all patterns."""

    def bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        """Each way in which `expr` matches, given what other patterns have matched already."""
        if id(self) in bound:
            if bound[id(self)] is expr:
                yield bound
            return
        for partial in self._bindings(expr, bound):
            yield {**partial, id(self): expr}

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        raise NotImplementedError

    def find(self, expr: Expr) -> Match | None:
        """What each part matched, in the first way that fits; None if the expression does not match."""
        first = next(self.bindings(expr, {}), None)
        return None if first is None else Match(expr, first)

    def match(self, expr: Expr) -> bool:
        """Whether the expression matches."""
        return self.find(expr) is not None

    def parts(self) -> tuple[Pattern, ...]:
        """The direct parts of this pattern."""
        return ()

    def __or__(self, other: Pattern) -> Pattern:
        return AltPattern(self, _pattern(other))

    def has_attr(self, attrs: Mapping[str, Any]) -> Pattern:
        """The same pattern, restricted to these attribute values (E5106 for an attribute that the operator of `is_op` lacks)."""
        if not isinstance(attrs, Mapping):
            raise _wrong(f"has_attr needs a dictionary of attributes, not {attrs!r}")
        required = dict(attrs)
        declared = _attributes(self)
        missing = sorted(set(required) - declared) if declared is not None else []
        if missing:
            raise _wrong(
                f"has_attr: {', '.join(missing)} is no attribute of the operator; there are {', '.join(sorted(declared or ()))}"
            )

        def holds(expr: Expr) -> bool:
            return isinstance(expr, Call) and all(getattr(expr.attrs, k, Ellipsis) == v for k, v in required.items())

        return WherePattern(self, holds)

    def has_dtype(self, dtype: str) -> Pattern:
        """The same pattern, restricted to this element type (E5106 if it is unknown)."""
        if dtype not in known_dtypes():
            raise _wrong(f"has_dtype: there is no element type {dtype!r}; there are {', '.join(known_dtypes())}")
        return WherePattern(self, lambda e: isinstance(e.type, TensorType) and e.type.dtype == dtype)

    def has_shape(self, shape: Sequence[int]) -> Pattern:
        """The same pattern, restricted to this shape."""
        expected = tuple(shape)
        return WherePattern(self, lambda e: isinstance(e.type, TensorType) and e.type.shape == expected)

    def where(self, condition: Callable[[Expr], bool]) -> Pattern:
        """The same pattern, restricted by a Python predicate on the expression."""
        if not callable(condition):
            raise _wrong("where needs a function of an expression")
        return WherePattern(self, condition)

    def optional(self, wrap: Callable[[Pattern], Pattern]) -> Pattern:
        """This pattern, or `wrap` applied to it: `conv.optional(lambda x: is_op("clip")(x))`."""
        if not callable(wrap):
            raise _wrong("optional needs a function of a pattern")
        return AltPattern(_pattern(wrap(self)), self)


@dataclass(frozen=True, slots=True, eq=False)
class WildcardPattern(Pattern):
    """Matches anything."""

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        yield bound


@dataclass(frozen=True, slots=True, eq=False)
class CallPattern(Pattern):
    """A call of one of the operators, over matching operands if patterns for them are given."""

    ops: tuple[str, ...]
    args: tuple[Pattern, ...] | None = None

    def __call__(self, *args: Pattern) -> CallPattern:
        """The same over matching operands (E5106 if the pattern names no operator)."""
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
    """A tuple, with matching fields if patterns for them are given."""

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
    """A field of a matching tuple; any field if no index is given."""

    value: Pattern
    index: int | None = None

    def parts(self) -> tuple[Pattern, ...]:
        return (self.value,)

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        if isinstance(expr, TupleGetItem) and self.index in (None, expr.index):
            yield from self.value.bindings(expr.value, bound)


@dataclass(frozen=True, slots=True, eq=False)
class AltPattern(Pattern):
    """Either of two patterns; the left one is tried first."""

    left: Pattern
    right: Pattern

    def parts(self) -> tuple[Pattern, ...]:
        return self.left, self.right

    def _bindings(self, expr: Expr, bound: Bound) -> Iterator[Bound]:
        yield from self.left.bindings(expr, bound)
        yield from self.right.bindings(expr, bound)


@dataclass(frozen=True, slots=True, eq=False)
class WherePattern(Pattern):
    """A pattern with a condition."""

    inner: Pattern
    condition: Callable[[Expr], bool] = field(repr=False)

    def parts(self) -> tuple[Pattern, ...]:
        return (self.inner,)

    def __call__(self, *args: Pattern) -> Pattern:
        """`is_op(...).has_attr(...)(operands)` is `is_op(...)(operands).has_attr(...)`."""
        if not isinstance(self.inner, CallPattern | WherePattern):
            raise _wrong("only the pattern of an operator has operands")
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


def is_op(*names: str) -> CallPattern:
    """A call of one of these operators; call the pattern with others to restrict the operands.

    A name matches what `relay.NAME` creates, for integers and for float32 (`FORMS`).  UsageError E5101 for an operator that is
    not registered (import a plug-in first), E5106 without a name.
    """
    if not names or not all(isinstance(n, str) for n in names):
        raise _wrong(f"is_op needs names of operators, not {names!r}")
    return CallPattern(tuple(dict.fromkeys(form for n in names for form in FORMS.get(Op.get(n).name, (n,)))))


def wildcard() -> Pattern:
    """The pattern that matches every expression."""
    return WildcardPattern()


def is_constant() -> Pattern:
    """The pattern that matches every constant, of any shape and dtype."""
    return wildcard().where(lambda expr: isinstance(expr, Constant))


def is_var(name: str = "") -> Pattern:
    """A variable, with this name if given."""
    return wildcard().where(lambda expr: isinstance(expr, Var) and name in ("", expr.name))


def is_expr(expr: Expr) -> Pattern:
    """The pattern that matches only this node."""
    if not isinstance(expr, Expr):
        raise _wrong(f"is_expr needs an expression, not {expr!r}")
    return wildcard().where(lambda other: other is expr)


def is_tuple(fields: Sequence[Pattern] | None = None) -> Pattern:
    """A tuple, with matching fields if patterns for them are given."""
    return TuplePattern(None if fields is None else tuple(map(_pattern, fields)))


def is_tuple_get_item(value: Pattern, index: int | None = None) -> Pattern:
    """A field of a matching tuple."""
    return TupleGetItemPattern(_pattern(value), index)


def rewrite(pattern: Pattern, replacement: Callable[[Match], Expr], root: Any) -> Any:
    """`root`, an expression or a function, with every match replaced by `replacement(match)`; operands are rewritten first.

    The function may return `match.root` to leave a match unchanged.

    `pattern`: a pattern made with `is_op`, `wildcard` and the like.
    """
    _pattern(pattern)

    class Rewriter(ExprMutator):
        def _visit_node(self, expr: Expr) -> Expr:
            match = pattern.find(expr) if isinstance(expr, Call | Tuple | TupleGetItem) else None
            return expr if match is None else replacement(match)

        def visit_function(self, func: Function) -> Function:
            return func if func.is_primitive else ExprMutator.visit_function(self, func)

    return Rewriter().visit(root)


def _attributes(pattern: Pattern) -> frozenset[str] | None:
    """The attributes of a pattern's operators; None if it is not a pattern of operators."""
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


__getattr__ = missing_in("relay.dataflow_pattern")
