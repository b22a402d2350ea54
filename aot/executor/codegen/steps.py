"""The main function in steps: a layer each, or what decides a branch or a loop, numbered in the order of the text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from aot.executor.codegen.main_text import runs_layers
from aot.support.dataclass import dataclass
from aot.tir.stmt import CallPrim, If, Stmt, While


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """Statements, at most one of which is a layer, and the number of the step after them."""

    number: int
    body: tuple[Stmt, ...]
    following: int

    @property
    def layer(self) -> int:
        """The number of its layer; -1 if it has none."""
        return next((s.layer for s in self.body if isinstance(s, CallPrim) and s.layer >= 0), -1)


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Which step comes next: `then` where the condition of `of` holds, else `orelse`.

    `counter` numbers the loops that stop with an error after `of.limit` turns; -1 for what is not one.
    """

    number: int
    of: If | While
    then: int
    orelse: int
    counter: int = -1


def make_steps(body: Sequence[Stmt], *, first: int) -> tuple[Step | Decision, ...]:
    """The steps of a body from number `first` on; the number after the last one stands for the end.

    What is no layer (results that are copied out) belongs to the layer before it, or to the one after it where there is none.
    """
    made: list[Step | Decision] = []
    _Layout(made).lay(body, first, first + _size(body))
    return tuple(sorted(made, key=lambda s: s.number))


class _Layout:
    def __init__(self, made: list[Step | Decision]) -> None:
        self._made = made
        self._counters = count()

    def lay(self, body: Sequence[Stmt], at: int, end: int) -> None:
        """Number a body from `at` on; after it comes step `end`."""
        items = _items(body)
        for k, item in enumerate(items):
            following = end if k == len(items) - 1 else at + _item_size(item)
            self._item(item, at, following)
            at += _item_size(item)

    def _item(self, item: tuple[Stmt, ...], at: int, following: int) -> None:
        match item:
            case (If(_, then, orelse) as branch,) if runs_layers(branch):
                other = at + 1 + _size(then)
                self._made.append(Decision(at, branch, at + 1 if then else following, other if orelse else following))
                self.lay(then, at + 1, following)
                self.lay(orelse, other, following)
            case (While(test=test, body=body) as loop,):
                decides = at + _size(test)
                counter = next(self._counters) if loop.limit else -1
                self.lay(test, at, decides)
                self._made.append(Decision(decides, loop, decides + 1 if body else at, following, counter))
                self.lay(body, decides + 1, at)
            case _:
                self._made.append(Step(at, item, following))


def _items(body: Sequence[Stmt]) -> list[tuple[Stmt, ...]]:
    """Branches and loops alone, every other layer with the statements around it that are none."""
    items: list[tuple[Stmt, ...]] = []
    open_ = False  # whether the last item may take more that is no layer
    waits = False  # whether it still waits for a layer
    for stmt in body:
        decides = runs_layers(stmt) and not isinstance(stmt, CallPrim)
        if decides or not open_ or (runs_layers(stmt) and not waits):
            items.append((stmt,))
            waits = not runs_layers(stmt)
        else:
            items[-1] = (*items[-1], stmt)
            waits = waits and not runs_layers(stmt)
        open_ = not decides
    return items


def _size(body: Sequence[Stmt]) -> int:
    return sum(map(_item_size, _items(body)))


def _item_size(item: tuple[Stmt, ...]) -> int:
    match item:
        case (If(_, then, orelse) as branch,) if runs_layers(branch):
            return 1 + _size(then) + _size(orelse)
        case (While(test=test, body=body),):
            return 1 + _size(test) + _size(body)
        case _:
            return 1
