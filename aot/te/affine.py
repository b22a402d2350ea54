"""Index arithmetic as sums of multiples: what is equal, what varies, what remains when a start is subtracted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from aot.support.dataclass import dataclass
from aot.tir.expr import BinOp, Expr, Imm, as_expr


@dataclass(frozen=True, slots=True)
class Affine:
    """offset + the sum of factor * atom; atoms are expressions of another form, equal by structure."""

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
        """The terms of some atoms, without the offset."""
        wanted = set(atoms)
        return Affine(0, {a: f for a, f in self.terms.items() if a in wanted})

    def expr(self) -> Expr:
        """As an int32 expression, terms in the order in which they came."""
        total: Expr | None = None
        for atom, factor in self.terms.items():
            term = atom * abs(factor) if total is not None else atom * factor
            total = term if total is None else total + term if factor > 0 else total - term
        return as_expr(self.offset) if total is None else total + self.offset


def affine(expr: Expr) -> Affine:
    """An int32 expression as a sum."""
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
    """(variable part, offset): equal parts of two expressions mean that they differ by their offsets."""
    form = affine(expr)
    return frozenset(form.terms.items()), form.offset
