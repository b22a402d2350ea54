"""How often each node is read, kept up to date while a graph is being rewritten."""

from __future__ import annotations

from aot.relay.expr import Expr, Function, users


class Uses:
    """Reads of every node, the function's result counting as one. Never too small, so `count(x) == 1` may be relied on."""

    def __init__(self, func: Function) -> None:
        self._counts = {key: len(readers) for key, readers in users(func).items()}
        self._counts[id(func.body)] = self._counts.get(id(func.body), 0) + 1
        self._alive: list[Expr] = []

    def count(self, expr: Expr) -> int:
        """How often `expr` is read; a node that a rule has just made, inside its result, is read there only."""
        return self._counts.get(id(expr), 1)

    def replace(self, old: Expr, new: Expr) -> None:
        """All readers of `old` read `new` from now on; `new` may have readers of its own already."""
        if old is new:
            return
        self._alive.append(new)  # so that its id stays its own
        self._counts[id(new)] = self._counts.get(id(new), 0) + self.count(old)
