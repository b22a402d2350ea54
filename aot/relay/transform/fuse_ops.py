"""Group operators into primitive functions, one kernel each, by pattern kind over the post-dominator tree (as TVM's FuseOps)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from aot.ir.op import F_IS_VIEW, T_OP_PATTERN, OpPattern
from aot.ir.transform import PassContext, function_pass, register_option
from aot.ir.type import TensorType
from aot.relay.analysis import moved_from
from aot.relay.expr import Call, Constant, Expr, Function, Var, is_call, operands, post_order, with_operands
from aot.relay.state import result_exprs, state_of, state_vars
from aot.support.dataclass import dataclass

RESIDUAL = register_option(
    "fuse.residual", True, "fuse an element-wise operator of two tensors (a residual ADD) into the operator before it"
)
MAX_DEPTH = register_option("fuse.max_depth", 32, "the largest number of operators in one fused function")

_ANCHORS = (OpPattern.COMM_REDUCE, OpPattern.OUT_ELEMWISE_FUSABLE)
_ALONE = OpPattern.OPAQUE
_LONGEST_NAME = 4


@function_pass(required=True)
def fuse_ops(func: Function, context: PassContext) -> Function:
    """Replace each group of operator calls by a call of a primitive function.

    In: operator calls only.  Out: the body consists of calls of Functions with attrs {"Primitive": 1, "name": ...}, of calls of
    view operators (F_IS_VIEW, never fused), and of tuple nodes.  A group's parameters are the tensors it reads, in order of first
    use; a tensor that is read both by the anchor and by its followers is a parameter twice.  Constants stay inside.  Every group
    has one result, which post-dominates its members, so groups never depend on each other in a cycle.

    At opt_level 0 each call is a group.  Otherwise, in this order:
    0. a concatenation of a state with new rows is a group of its own (`window_joins`), with the slice that drops the oldest rows;
    1. an anchor (OUT_ELEMWISE_FUSABLE or COMM_REDUCE) absorbs the ELEMWISE and BROADCAST calls after it, provided that each
       reads the one before and has the anchor's shape.  A follower's other operands come from before the group.  Anchors late
       in the model choose first, so that the order of execution does not change;
    2. ELEMWISE and BROADCAST calls join the ELEMWISE, BROADCAST and INJECTIVE calls after them, unless a BROADCAST would
       compute an element several times;
    3. INJECTIVE calls join the ELEMWISE, BROADCAST and INJECTIVE calls after them.
    Not done: fusing anything in front of an anchor (a pooling window would compute it several times), joining through a tuple.
    """
    tree = post_dominator_tree(func)
    groups = _Groups(tree, window_joins(func), residual=context.option(RESIDUAL.key), max_depth=context.option(MAX_DEPTH.key))
    if context.opt_level > 0:
        groups.join_windows()
        groups.grow_anchors()
        groups.join(lambda kind: kind <= OpPattern.BROADCAST)
        groups.join(lambda kind: kind == OpPattern.INJECTIVE)
    return _rebuild(func, groups)


def pattern_kind(expr: Expr) -> OpPattern:
    """How `expr` may be fused; views, tuples, and calls that yield a tuple count as OPAQUE."""
    if not isinstance(expr, Call) or not is_fusable(expr) or not isinstance(expr.type, TensorType):
        return _ALONE
    return T_OP_PATTERN.get(expr.name)


def window_joins(func: Function) -> frozenset[int]:
    """Ids of the concatenate calls that start with rows of a state and end with the rows that the next run starts with.

    As layers of their own they are windows (executor/copy_elision.py): kept rows are not copied.  `slide_window` has already
    joined the rows of its states in the best way.
    """
    joins = set[int]()
    for state, var, new in zip(state_of(func), state_vars(func), result_exprs(func)[1], strict=True):
        if state.slid:
            continue
        join = moved_from(new)
        if is_call(join, "concatenate") and moved_from(join.args[0]) is var:
            joins.add(id(join))
    return frozenset(joins)


class _Groups:
    """A partition of the nodes into groups (union-find), each named by its last node."""

    def __init__(self, tree: PostDominatorTree, joins: frozenset[int], *, residual: bool, max_depth: int) -> None:
        self._tree = tree
        self._residual = residual
        self._max_depth = max_depth
        self._root = list(range(len(tree.order)))
        self._joins = joins
        self._kind = [_ALONE if id(e) in joins else pattern_kind(e) for e in tree.order]
        self._size = [1] * len(tree.order)
        self._anchored = [kind in _ANCHORS for kind in self._kind]

    def find(self, i: int) -> int:
        """The last node of i's group."""
        root = i
        while self._root[root] != root:
            root = self._root[root]
        while self._root[i] != root:
            self._root[i], i = root, self._root[i]
        return root

    def group_of(self, expr: Expr) -> int:
        return self.find(self._tree.number[id(expr)])

    def members(self) -> dict[int, list[Expr]]:
        """Group -> its calls in post-order; only groups of operator calls that are not views."""
        table: dict[int, list[Expr]] = {}
        for i, expr in enumerate(self._tree.order):
            if is_fusable(expr):
                table.setdefault(self.find(i), []).append(expr)
        return table

    def grow_anchors(self) -> None:
        """Rule 1: every anchor absorbs its followers, anchors late in the model first."""
        anchors = [i for i, kind in enumerate(self._kind) if kind in _ANCHORS]
        for anchor in sorted(anchors, key=lambda i: (self._tree.order[i].span.op_index, i), reverse=True):
            last = anchor
            while (path := self._followers(anchor, last)) is not None:
                self._merge(last, path)
                last = path[-1]

    def join_windows(self) -> None:
        """A slice of a state that only a window join reads becomes part of the join: the dropped rows are no longer kept."""
        for i, expr in enumerate(self._tree.order):
            front = operands(expr)[0] if id(expr) in self._joins else None
            if front is not None and is_call(front, "strided_slice") and self._path(self._tree.number[id(front)]) == [i]:
                self._merge(self._tree.number[id(front)], [i])

    def _followers(self, anchor: int, last: int) -> list[int] | None:
        """The only call that reads `last`, if it may follow the anchor; a path with branches would read earlier members."""
        path = self._path(last)
        if path is None:
            return None
        if len(path) > 1 or self._anchored[self.find(path[0])] or self._kind[path[0]] > OpPattern.BROADCAST:
            return None
        return path if self._follows(anchor, path[0]) else None

    def _follows(self, anchor: int, i: int) -> bool:
        """Whether call i, the only reader of the group so far, has the anchor's shape and reads no forbidden tensor."""
        expr = self._tree.order[i]
        tensors = {id(o) for o in operands(expr) if not isinstance(o, Constant)}
        return _same_shape(expr, self._tree.order[anchor]) and (self._residual or len(tensors) == 1)

    def join(self, may_join: Callable[[OpPattern], bool]) -> None:
        """Rules 2 and 3: groups whose last call `may_join` accepts join the group of their post-dominator."""
        for i in range(len(self._root)):
            if not may_join(self._kind[i]) or self._anchored[self.find(i)]:
                continue
            path = self._path(i) or ()
            fits = (self._kind[p] <= OpPattern.INJECTIVE and not self._anchored[self.find(p)] for p in path)
            if path and all(fits) and not self._computes_twice(i, path):
                self._merge(i, path)

    def _computes_twice(self, start: int, path: Sequence[int]) -> bool:
        """Whether a broadcast on the path reads some element of the group several times."""
        inside = {id(self._tree.order[i]) for i in (start, *path)}
        broadcasts = [self._tree.order[i] for i in path if self._kind[i] == OpPattern.BROADCAST]
        return any(id(o) in inside and not _same_shape(o, b) for b in broadcasts for o in operands(b))

    def _path(self, i: int) -> list[int] | None:
        """The nodes after i up to its post-dominator; None if that is in i's group or the group would grow too large."""
        stop = self._tree.parent[i]
        if stop < 0 or self.find(stop) == self.find(i):
            return None
        path = self._tree.between(i, stop, limit=self._max_depth)
        if path is None:
            return None
        joined = {self.find(p) for p in (i, *path)}
        return path if sum(self._size[g] for g in joined) <= self._max_depth else None

    def _merge(self, start: int, path: Sequence[int]) -> None:
        for i in (start, *path):
            a, b = sorted((self.find(i), self.find(path[-1])))
            if a != b:
                self._root[a] = b
                self._size[b] += self._size[a]
                self._anchored[b] = self._anchored[b] or self._anchored[a]


def is_fusable(expr: Expr) -> bool:
    """Whether a node becomes (part of) a primitive function: an operator's call that is not a view."""
    return isinstance(expr, Call) and bool(expr.name) and not F_IS_VIEW.find(expr.name)


def _same_shape(a: Expr, b: Expr) -> bool:
    return isinstance(a.type, TensorType) and isinstance(b.type, TensorType) and a.type.shape == b.type.shape


def _rebuild(func: Function, groups: _Groups) -> Function:
    """The function with a call for each group, placed where the group's last call was."""
    members = groups.members()
    done: dict[int, Expr] = {}
    for expr in post_order(func.body):
        if not is_fusable(expr):
            done[id(expr)] = with_operands(expr, [done[id(o)] for o in operands(expr)])
        elif members[groups.group_of(expr)][-1] is expr:
            done[id(expr)] = call_group(members[groups.group_of(expr)], done)
    return replace(func, body=done[id(func.body)])


def call_group(calls: Sequence[Expr], outside: dict[int, Expr]) -> Call:
    """A primitive function of these calls, in order, applied to what they read from outside (operand's id -> its replacement).

    Kernels of layers keep the data in their own format, so a follower that reads the data too has its own parameter for it.
    """
    inside: dict[int, Expr] = {}
    arguments: list[Expr] = []
    params: list[Var] = []
    for expr in calls:
        for o in operands(expr):
            if id(o) in inside:
                continue
            if isinstance(o, Constant):
                inside[id(o)] = o
                continue
            argument = outside[id(o)]
            assert isinstance(argument.type, TensorType), f"{argument.span}: an operator reads a tuple"
            inside[id(o)] = param = Var(f"p{len(params)}", argument.type, argument.span)
            params.append(param)
            arguments.append(argument)
        inside[id(expr)] = with_operands(expr, [inside[id(o)] for o in operands(expr)])
        if expr is calls[0] and pattern_kind(expr) == OpPattern.OUT_ELEMWISE_FUSABLE:
            inside = {id(expr): inside[id(expr)]}
    last = calls[-1]
    attrs: dict[str, Any] = {"Primitive": 1, "name": group_name(calls)}
    return Call(Function(tuple(params), inside[id(last)], attrs), tuple(arguments), None, last.type, last.span)


def group_name(calls: Sequence[Expr]) -> str:
    """`conv2d_requantize_add`: the operators' names without their namespaces; bias_add is omitted."""
    names = [str(c.op).rpartition(".")[2] for c in calls if isinstance(c, Call)]
    spoken = [n for n in names if n != "bias_add"] or names
    if len(spoken) > _LONGEST_NAME:
        return "_".join([*spoken[: _LONGEST_NAME - 1], f"and_{len(spoken) - _LONGEST_NAME + 1}_more"])
    return "_".join(spoken)


@dataclass(frozen=True, slots=True)
class PostDominatorTree:
    """Nodes are numbered in post-order (operands before users); the root is the function's body.

    `parent[i]` is the immediate post-dominator of node i: the nearest node on every path from i to the body (-1 for the body).
    `consumers[i]` are the nodes that read i, once per use.
    """

    order: tuple[Expr, ...]
    number: dict[int, int]
    consumers: tuple[tuple[int, ...], ...]
    parent: tuple[int, ...]

    def between(self, start: int, stop: int, *, limit: int) -> list[int] | None:
        """All nodes on paths from `start` to its post-dominator `stop`, ascending.

        Includes `stop`, excludes `start`.  None if there are more than `limit`.
        """
        nodes: set[int] = set()
        stack = list(self.consumers[start])
        while stack:
            node = stack.pop()
            if node in nodes:
                continue
            nodes.add(node)
            if len(nodes) > limit:
                return None
            if node != stop:
                stack.extend(self.consumers[node])
        return sorted(nodes)


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
