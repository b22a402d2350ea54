"""Post-dominators of a data-flow graph: which value all uses of a value finally flow into."""

from __future__ import annotations

from collections.abc import Sequence

from aot.relay.expr import Expr, Function, operands, post_order
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PostDominatorTree:
    """Nodes are numbered in post-order (operands before users); the root is the function's body.

    `parent[i]` is the immediate post-dominator of node i: the nearest node that lies on every path from i to the body (-1 at
    the body).
    `consumers[i]` are the nodes that read i, once per use.
    """

    order: tuple[Expr, ...]
    number: dict[int, int]
    consumers: tuple[tuple[int, ...], ...]
    parent: tuple[int, ...]

    def between(self, start: int, stop: int, *, limit: int) -> list[int] | None:
        """All nodes on paths from `start` to its post-dominator `stop`, ascending.

        `stop` is among them, `start` is not.  None if there are more than `limit`.
        """
        found: set[int] = set()
        stack = list(self.consumers[start])
        while stack:
            node = stack.pop()
            if node in found:
                continue
            found.add(node)
            if len(found) > limit:
                return None
            if node != stop:
                stack.extend(self.consumers[node])
        return sorted(found)


def post_dominator_tree(func: Function) -> PostDominatorTree:
    """Build the tree: the immediate post-dominator is the least common ancestor of all users (one pass, users first).

    This is the algorithm of Cooper, Harvey and Kennedy ("A simple, fast dominance algorithm", 2001), which needs a single sweep
    on an acyclic graph; numbers in post-order serve as the comparison key, since a user's number is above its operands'.
    """
    order = post_order(func.body)
    number = {id(e): i for i, e in enumerate(order)}
    consumers: list[list[int]] = [[] for _ in order]
    for i, expr in enumerate(order):
        for o in operands(expr):
            consumers[number[id(o)]].append(i)
    parent = [-1] * len(order)
    for i in range(len(order) - 2, -1, -1):
        parent[i] = _common_ancestor(consumers[i], parent)
    return PostDominatorTree(tuple(order), number, tuple(map(tuple, consumers)), tuple(parent))


def _common_ancestor(nodes: Sequence[int], parent: Sequence[int]) -> int:
    """Least common ancestor; a parent's number is above its child's, so the lower of two nodes climbs until they meet."""
    meet = nodes[0]
    for node in nodes[1:]:
        while meet != node:
            if meet < node:
                meet = parent[meet]
            else:
                node = parent[node]
    return meet
