"""Who reads each node, kept up to date while a graph is being rewritten."""

from __future__ import annotations

from aot.relay.expr import Expr, Function, users


class Uses:
    """The readers of every node, those of the function's result being one `None` more.

    Readers are nodes of the graph before the rewrite.  There may be some too many, never too few: `count(x) == 1` may be
    relied on.
    """

    def __init__(self, func: Function) -> None:
        self._readers: dict[int, list[Expr | None]] = {key: list(nodes) for key, nodes in users(func).items()}
        self._readers.setdefault(id(func.body), []).append(None)
        self._alive: list[Expr] = []

    def readers(self, expr: Expr) -> list[Expr | None]:
        """The readers of `expr`, once per use; None stands for the function's caller."""
        return self._readers.get(id(expr), [])

    def count(self, expr: Expr) -> int:
        """How often `expr` is read; a node that a rule has just made, inside its result, is read there only."""
        return len(self._readers.get(id(expr), [None]))

    def replace(self, old: Expr, new: Expr) -> None:
        """All readers of `old` read `new` from now on; `new` may have readers of its own already."""
        if old is not new:
            self._alive.append(new)  # so that its id stays its own
            self._readers[id(new)] = self._readers.get(id(new), []) + self.readers(old)
