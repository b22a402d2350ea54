"""Checks of rules: types that fit, numbers in range, and indices that stay inside their tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from aot.errors import Problem, UsageError
from aot.support.dataclass import dataclass
from aot.support.dtype import bits, int_range, is_float
from aot.tir.arith import Interval, interval
from aot.tir.expr import ARITHMETIC, COMPARISONS, LOGICAL, BinOp, Expr, Imm, Load, Select, Var, as_expr
from aot.tir.functor import children, walk_expr
from aot.tir.printer import print_expr

_WHOLE_NUMBERS = frozenset({"<<", ">>", "&", "|", "^", "%"})
_OF_BOOL = frozenset({"&&", "||", "==", "!="})
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

Facts = dict[object, Interval]
"""The variable part of an expression -> the bounds that conditions give it."""


def check_expression(expr: Expr, where: str) -> None:
    """Raise UsageError E5070 for the first node that breaks a type rule."""
    for e in walk_expr(expr):
        fault = _fault(e)
        if fault:
            raise UsageError(Problem("E5070", f"{fault}, in {print_expr(e)}", where))


def _fault(e: Expr) -> str:
    match e:
        case Imm(value, dtype) if is_float(dtype):
            return "" if isinstance(value, float) else f"{value!r} is not a {dtype}"
        case Imm(value, dtype):
            low, high = int_range(dtype)
            fits = isinstance(value, int) and low <= value <= high
            return "" if fits else f"{value!r} is not a {dtype}"
        case Select(cond, then, orelse):
            if cond.dtype != "bool":
                return f"a condition of type {cond.dtype}"
            return "" if then.dtype == orelse.dtype else f"a choice between {then.dtype} and {orelse.dtype}"
        case BinOp(op, a, b):
            return _operator_fault(op, a, b)
        case _:
            return ""


def _operator_fault(op: str, a: Expr, b: Expr) -> str:
    dtype = a.dtype
    if op not in ARITHMETIC | COMPARISONS | LOGICAL:
        return f"unknown operator {op}"
    if a.dtype != b.dtype:
        return f"{op} of {a.dtype} and {b.dtype}"
    if (dtype == "bool") != (op in _OF_BOOL) and op not in ("==", "!="):
        return f"{op} of {dtype}" + ("; convert with astype" if dtype == "bool" else "")
    if is_float(dtype):
        return f"{op} of {dtype}" if op in _WHOLE_NUMBERS else ""
    if isinstance(b, Imm) and op in ("/", "%") and b.value == 0:
        return "a division by zero"
    if isinstance(b, Imm) and op in ("<<", ">>") and not 0 <= b.value < bits(dtype):
        return f"a shift of {dtype} by {b.value}"
    return ""


def check_indices(expr: Expr, ranges: Mapping[Var, Interval], where: str) -> None:
    """Raise UsageError E5071 if an index cannot be proven to be inside its tensor.

    Conditions of an enclosing `if_then_else` count if they bound the very index or its variable part.
    """
    _Indices(ranges, where).visit(expr, {})


class _Indices:
    def __init__(self, ranges: Mapping[Var, Interval], where: str) -> None:
        self._ranges = ranges
        self._where = where

    def visit(self, expr: Expr, facts: Facts) -> None:
        match expr:
            case Select(cond, then, orelse):
                self.visit(cond, facts)
                self.visit(then, self._with(facts, cond, truth=True))
                self.visit(orelse, self._with(facts, cond, truth=False))
            case BinOp("&&", a, b):
                self.visit(a, facts)
                self.visit(b, self._with(facts, a, truth=True))
            case _:
                if isinstance(expr, Load):
                    self._check(expr, facts)
                for child in children(expr):
                    self.visit(child, facts)

    def _check(self, load: Load, facts: Facts) -> None:
        for dim, (index, extent) in enumerate(zip(load.indices, load.buffer.shape, strict=True)):
            low, high = self._bounds(index, facts)
            if low < 0 or high >= extent:
                raise UsageError(
                    Problem(
                        "E5071",
                        f"index {dim} of {print_expr(load)} is in {low}..{high}, the dimension has {extent}; "
                        "clip it with te.clip, or guard it with te.if_then_else",
                        self._where,
                    )
                )

    def _bounds(self, index: Expr, facts: Facts) -> Interval:
        low, high = interval(index, self._ranges)
        key, offset = key_of(index)
        if key in facts:
            low, high = max(low, facts[key][0] + offset), min(high, facts[key][1] + offset)
        return low, high

    def _with(self, facts: Facts, cond: Expr, *, truth: bool) -> Facts:
        """The facts plus what the condition implies."""
        match cond:
            case BinOp("&&", a, b) if truth:
                return self._with(self._with(facts, a, truth=True), b, truth=True)
            case BinOp("||", a, b) if not truth:
                return self._with(self._with(facts, a, truth=False), b, truth=False)
            case BinOp("<" | "<=" | ">" | ">=" | "==" as op, a, b) if a.dtype == "int32":
                return self._bounded(facts, (op, a, b), truth=truth)
            case _:
                return facts

    def _bounded(self, facts: Facts, comparison: tuple[str, Expr, Expr], *, truth: bool) -> Facts:
        op, a, b = comparison
        if isinstance(a, Imm):
            op, a, b = _FLIPPED.get(op, op), b, a
        if not isinstance(b, Imm) or (op == "==" and not truth):
            return facts
        limit = int(b.value)
        low, high = interval(a, self._ranges)
        if not truth:
            op = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[op]
        match op:
            case "<":
                high = min(high, limit - 1)
            case "<=":
                high = min(high, limit)
            case ">":
                low = max(low, limit + 1)
            case ">=":
                low = max(low, limit)
            case _:
                low, high = max(low, limit), min(high, limit)
        key, offset = key_of(a)
        old = facts.get(key, (low - offset, high - offset))
        return {**facts, key: (max(old[0], low - offset), min(old[1], high - offset))}


# Index arithmetic as sums of multiples: what is equal, what varies, what remains after subtracting a start.


@dataclass(frozen=True, slots=True)
class Affine:
    """offset + the sum of factor * atom; an atom is any other form of expression, compared by structure."""

    offset: int = 0
    terms: Mapping[Expr, int] = field(default_factory=dict)

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        """self + factor * other."""
        terms = dict(self.terms)
        for atom, f in other.terms.items():
            terms[atom] = terms.get(atom, 0) + factor * f
        return Affine(self.offset + factor * other.offset, {a: f for a, f in terms.items() if f})

    def scaled(self, factor: int) -> Affine:
        """factor * self."""
        return Affine().plus(self, factor)

    def only(self, atoms: Iterable[Expr]) -> Affine:
        """The terms of these atoms, without the offset."""
        kept = set(atoms)
        return Affine(0, {a: f for a, f in self.terms.items() if a in kept})

    def expr(self) -> Expr:
        """As an int32 expression, with the terms in insertion order."""
        total: Expr | None = None
        for atom, factor in self.terms.items():
            term = atom * abs(factor) if total is not None else atom * factor
            total = term if total is None else total + term if factor > 0 else total - term
        return as_expr(self.offset) if total is None else total + self.offset


def affine(expr: Expr) -> Affine:
    """An int32 expression as a sum of multiples."""
    match expr:
        case Imm(value):
            return Affine(int(value))
        case BinOp("+", a, b):
            return affine(a).plus(affine(b))
        case BinOp("-", a, b):
            return affine(a).plus(affine(b), -1)
        case BinOp("*", a, Imm(value)) | BinOp("*", Imm(value), a):
            return affine(a).scaled(int(value))
        case _:
            return Affine(0, {expr: 1})


def key_of(expr: Expr) -> tuple[object, int]:
    """(variable part, offset): expressions with equal variable parts differ only by their offsets."""
    form = affine(expr)
    return frozenset(form.terms.items()), form.offset
