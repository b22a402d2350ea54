"""Functions made of parts of a graph: fuse_ops for our own kernels, four passes for external code generators.

fuse_ops groups operators into primitive functions, one kernel each, by pattern kind over the post-dominator tree (as TVM does).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from aot.errors import Problem, UsageError, call_place
from aot.ir.module import IRModule
from aot.ir.op import F_IS_VIEW, T_OP_PATTERN, OpPattern
from aot.ir.transform import Pass, PassContext, Sequential, function_pass, module_pass, register_option
from aot.ir.type import TensorType
from aot.relay import expr as ex
from aot.relay.analysis import moved_from
from aot.relay.dataflow_pattern import CallPattern, Match, Pattern
from aot.relay.state import result_exprs, state_of, state_vars
from aot.support.dataclass import dataclass
from aot.support.entry_points import reach
from aot.support.text import did_you_mean

RESIDUAL = register_option(
    "fuse.residual", True, "fuse an element-wise operator of two tensors (a residual ADD) into the operator before it"
)
MAX_DEPTH = register_option("fuse.max_depth", 32, "the largest number of operators in one fused function")

_ANCHORS = (OpPattern.COMM_REDUCE, OpPattern.OUT_ELEMWISE_FUSABLE)
_ALONE = OpPattern.OPAQUE
_LONGEST_NAME = 4


@function_pass(required=True)
def fuse_ops(func: ex.Function, context: PassContext) -> ex.Function:
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


def pattern_kind(expr: ex.Expr) -> OpPattern:
    """How `expr` may be fused; views, tuples, and calls that yield a tuple count as OPAQUE."""
    if not isinstance(expr, ex.Call) or not is_fusable(expr) or not isinstance(expr.type, TensorType):
        return _ALONE
    return T_OP_PATTERN.get(expr.name)


def window_joins(func: ex.Function) -> frozenset[int]:
    """Ids of the concatenate calls that start with rows of a state and end with the rows that the next run starts with.

    As layers of their own they are windows (executor/copy_elision.py): kept rows are not copied.  `slide_window` has already
    joined the rows of its states in the best way.
    """
    joins = set[int]()
    for state, var, new in zip(state_of(func), state_vars(func), result_exprs(func)[1], strict=True):
        if state.slid:
            continue
        join = moved_from(new)
        if ex.is_call(join, "concatenate") and moved_from(join.args[0]) is var:
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

    def group_of(self, expr: ex.Expr) -> int:
        return self.find(self._tree.number[id(expr)])

    def members(self) -> dict[int, list[ex.Expr]]:
        """Group -> its calls in post-order; only groups of operator calls that are not views."""
        table: dict[int, list[ex.Expr]] = {}
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
            front = ex.operands(expr)[0] if id(expr) in self._joins else None
            if front is not None and ex.is_call(front, "strided_slice") and self._path(self._tree.number[id(front)]) == [i]:
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
        tensors = {id(o) for o in ex.operands(expr) if not isinstance(o, ex.Constant)}
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
        return any(id(o) in inside and not _same_shape(o, b) for b in broadcasts for o in ex.operands(b))

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


def is_fusable(expr: ex.Expr) -> bool:
    """Whether a node becomes (part of) a primitive function: an operator's call that is not a view."""
    return isinstance(expr, ex.Call) and bool(expr.name) and not F_IS_VIEW.find(expr.name)


def _same_shape(a: ex.Expr, b: ex.Expr) -> bool:
    return isinstance(a.type, TensorType) and isinstance(b.type, TensorType) and a.type.shape == b.type.shape


def _rebuild(func: ex.Function, groups: _Groups) -> ex.Function:
    """The function with a call for each group, placed where the group's last call was."""
    members = groups.members()
    done: dict[int, ex.Expr] = {}
    for expr in ex.post_order(func.body):
        if not is_fusable(expr):
            done[id(expr)] = ex.with_operands(expr, [done[id(o)] for o in ex.operands(expr)])
        elif members[groups.group_of(expr)][-1] is expr:
            done[id(expr)] = call_group(members[groups.group_of(expr)], done)
    return replace(func, body=done[id(func.body)])


def call_group(calls: Sequence[ex.Expr], outside: dict[int, ex.Expr]) -> ex.Call:
    """A primitive function of these calls, in order, applied to what they read from outside (operand's id -> its replacement).

    Kernels of layers keep the data in their own format, so a follower that reads the data too has its own parameter for it.
    """
    inside: dict[int, ex.Expr] = {}
    arguments: list[ex.Expr] = []
    params: list[ex.Var] = []
    for expr in calls:
        for o in ex.operands(expr):
            if id(o) in inside:
                continue
            if isinstance(o, ex.Constant):
                inside[id(o)] = o
                continue
            argument = outside[id(o)]
            assert isinstance(argument.type, TensorType), f"{argument.span}: an operator reads a tuple"
            inside[id(o)] = param = ex.Var(f"p{len(params)}", argument.type, argument.span)
            params.append(param)
            arguments.append(argument)
        inside[id(expr)] = ex.with_operands(expr, [inside[id(o)] for o in ex.operands(expr)])
        if expr is calls[0] and pattern_kind(expr) == OpPattern.OUT_ELEMWISE_FUSABLE:
            inside = {id(expr): inside[id(expr)]}
    last = calls[-1]
    attrs: dict[str, Any] = {"Primitive": 1, "name": group_name(calls)}
    return ex.Call(ex.Function(tuple(params), inside[id(last)], attrs), tuple(arguments), None, last.type, last.span)


def group_name(calls: Sequence[ex.Expr]) -> str:
    """`conv2d_requantize_add`: the operators' names without their namespaces; bias_add is omitted."""
    names = [str(c.op).rpartition(".")[2] for c in calls if isinstance(c, ex.Call)]
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

    order: tuple[ex.Expr, ...]
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


def post_dominator_tree(func: ex.Function) -> PostDominatorTree:
    """Build the tree: the immediate post-dominator is the least common ancestor of all users (one pass, users first).

    This is the algorithm of Cooper, Harvey and Kennedy ("A simple, fast dominance algorithm", 2001), which needs a single sweep
    on an acyclic graph; numbers in post-order serve as the comparison key, since a user's number is above its operands'.
    """
    order = ex.post_order(func.body)
    number = {id(e): i for i, e in enumerate(order)}
    consumers: list[list[int]] = [[] for _ in order]
    for i, expr in enumerate(order):
        for o in ex.operands(expr):
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


# Bring your own code generator: let a library or another compiler implement parts of a graph, in TVM's four steps.
#
#     MergeComposite(table)      a match of a pattern becomes a call of a function; attrs["Composite"] is the pattern's name
#     AnnotateTarget(compiler)   functions made from the compiler's patterns get attrs["Compiler"]
#     MergeCompilerRegions()     a function read only by one other function of the same compiler is merged into its reader
#     PartitionGraph()           each remaining function becomes primitive and gets its own symbol, attrs["global_symbol"]
#
# A pattern table is a list of (name, pattern) or (name, pattern, check); the names begin with the compiler's (`cmsis-nn.conv2d`).
# `check(call)`, called with the outermost call, may reject a match.

Check = Callable[[ex.Call], bool]
Entry = tuple[str, Pattern] | tuple[str, Pattern, Check]


@dataclass(frozen=True, slots=True)
class Composite:
    """A pattern that an external code generator accepts."""

    name: str
    pattern: Pattern
    check: Check | None = None


_TABLES: dict[str, tuple[Composite, ...]] = {}


def register_pattern_table(compiler: str) -> Callable[[Callable[[], Sequence[Entry]]], Callable[[], Sequence[Entry]]]:
    """Register the pattern table that the decorated function returns, for `compiler`; UsageError E5120 if it is invalid."""

    def register(table: Callable[[], Sequence[Entry]]) -> Callable[[], Sequence[Entry]]:
        if not isinstance(compiler, str) or not compiler or not callable(table):
            raise _wrong("register_pattern_table takes the name of a compiler and decorates a function without arguments")
        if compiler in _TABLES:
            raise UsageError(Problem("E5102", f"the pattern table of {compiler} is registered twice", call_place()))
        entries = table_of(table())
        for entry in entries:
            if not entry.name.startswith(f"{compiler}."):
                raise _wrong(f"the pattern {entry.name!r} of {compiler} has a name that does not begin with {compiler}.")
        _TABLES[compiler] = entries
        return table

    return register


def get_pattern_table(compiler: str) -> tuple[Composite, ...]:
    """The registered table of `compiler`; UsageError E5121 if there is none."""
    if compiler not in _TABLES:
        reach("pattern tables")
    if compiler not in _TABLES:
        known = ", ".join(sorted(_TABLES)) or "none"
        raise UsageError(Problem("E5121", f"there is no pattern table of {compiler!r}; there are {known}", call_place()))
    return _TABLES[compiler]


def table_of(given: Any) -> tuple[Composite, ...]:
    """A table's entries, validated (E5120)."""
    if not isinstance(given, list | tuple):
        raise _wrong(f"a pattern table is a list of (name, pattern) or (name, pattern, check), not {given!r}")
    found = []
    for entry in given:
        if isinstance(entry, Composite):
            found.append(entry)
            continue
        if not isinstance(entry, tuple) or len(entry) not in (2, 3) or not isinstance(entry[0], str):
            raise _wrong(f"an entry of a pattern table is (name, pattern) or (name, pattern, check), not {entry!r}")
        if not isinstance(entry[1], Pattern) or (len(entry) == 3 and not callable(entry[2])):
            raise _wrong(f"the entry {entry[0]!r} needs a pattern, and a check that is a function")
        found.append(Composite(*entry))
    return tuple(found)


def _wrong(message: str) -> UsageError:
    return UsageError(Problem("E5120", message, call_place()))


@module_pass(required=True)
def merge_composite(module: IRModule, _context: PassContext, *, table: Sequence[Composite] = ()) -> IRModule:
    """Replace each match of a pattern in the table by a call of a composite function."""
    return _mapped(module, lambda func: _merge_composites(func, table))


@module_pass(required=True)
def annotate_target(module: IRModule, _context: PassContext, *, compilers: Sequence[str] = ()) -> IRModule:
    """Mark the composite functions of these compilers' patterns."""
    return _mapped(module, lambda func: ex.rewrite(func, lambda expr: _annotated(expr, compilers)))


@module_pass(required=True)
def merge_compiler_regions(module: IRModule, _context: PassContext) -> IRModule:
    """Join neighbouring functions of the same compiler."""
    return _mapped(module, _merge_regions)


@module_pass(required=True)
def partition_graph(module: IRModule, _context: PassContext) -> IRModule:
    """Turn marked composites into primitive functions, and unmarked ones back into operator calls."""
    return _mapped(module, _partition)


def _mapped(module: IRModule, rule: Callable[[ex.Function], ex.Function]) -> IRModule:
    return replace(module, functions={k: rule(f) if isinstance(f, ex.Function) else f for k, f in module.functions.items()})


def MergeComposite(pattern_table: Sequence[Entry | Composite]) -> Pass:  # noqa: N802 - TVM's name
    """The pass `merge_composite` for a table.

    Entries are tried in order, starting with the calls latest in the graph.  A match counts if nothing outside reads its inner
    values.

    `pattern_table`: (name of the composite, pattern) in order of preference.
    """
    return merge_composite.configured(table=table_of(pattern_table))


def AnnotateTarget(compilers: str | Sequence[str]) -> Pass:  # noqa: N802
    """The pass `annotate_target` for these compilers (UsageError if one is not a name)."""
    names = (compilers,) if isinstance(compilers, str) else tuple(compilers)
    if not names or not all(isinstance(n, str) for n in names):
        raise _wrong(f"AnnotateTarget takes names of compilers, not {compilers!r}")
    return annotate_target.configured(compilers=names)


def MergeCompilerRegions() -> Pass:  # noqa: N802
    """The pass `merge_compiler_regions`, under TVM's name."""
    return merge_compiler_regions


def PartitionGraph() -> Pass:  # noqa: N802
    """The pass `partition_graph`, under TVM's name."""
    return partition_graph


def partition_for(compiler: str, *, only: Sequence[str] | None = None) -> Sequential:
    """The passes that give each match of a compiler's patterns a function; `only`: names of some patterns, without the prefix."""
    table = get_pattern_table(compiler)
    names = [c.name.removeprefix(f"{compiler}.") for c in table]
    unknown = [n for n in only or () if n not in names]
    if unknown:
        near = did_you_mean(unknown[0], names)
        raise UsageError(
            Problem("E5121", f"{compiler} has no {', '.join(unknown)}{near}; it has {', '.join(dict.fromkeys(names))}")
        )
    chosen = [c for c, n in zip(table, names, strict=True) if only is None or n in only]
    return Sequential((MergeComposite(chosen), AnnotateTarget(compiler), PartitionGraph()), f"partition for {compiler}")


def _merge_composites(func: ex.Function, table: Sequence[Composite]) -> ex.Function:
    readers = ex.users(func)
    taken: set[int] = set()
    found: dict[int, tuple[Composite, list[ex.Expr]]] = {}
    order = ex.post_order(func.body)
    for expr in reversed(order):
        for composite in table:
            calls = _composite_calls(composite, expr, taken, readers) if isinstance(expr, ex.Call) else None
            if calls is not None:
                taken.update(map(id, calls))
                found[id(expr)] = composite, calls
                break
    position = {id(e): i for i, e in enumerate(order)}
    done: dict[int, ex.Expr] = {}
    for expr in order:
        if id(expr) in found:
            composite, calls = found[id(expr)]
            group = call_group(sorted(calls, key=lambda e: position[id(e)]), done)
            assert isinstance(group.op, ex.Function)
            attrs = {"Composite": composite.name, "name": composite.name}
            done[id(expr)] = replace(group, op=ex.Function(group.op.params, group.op.body, attrs))
        elif id(expr) not in taken:
            done[id(expr)] = ex.with_operands(expr, [done[id(o)] for o in ex.operands(expr)])
    return ex.Function(func.params, done[id(func.body)], func.attrs)


def _composite_calls(
    composite: Composite, root: ex.Call, taken: set[int], readers: dict[int, list[ex.Expr]]
) -> list[ex.Expr] | None:  # fmt: skip
    """The operator calls of a match at `root`; None if it does not match, or if others read values inside it."""
    match = composite.pattern.find(root)
    if match is None:
        return None
    calls = list({id(e): e for e in _described(composite.pattern, match)}.values())
    inside = {id(e) for e in calls}
    if inside & taken or id(root) not in inside:
        return None
    for e in calls:
        if e is not root and any(id(r) not in inside for r in readers.get(id(e), [])):
            return None
    return calls if composite.check is None or composite.check(root) else None


def _described(pattern: Pattern, match: Match) -> Iterator[ex.Expr]:
    """The calls that match the operators of a pattern."""
    if isinstance(pattern, CallPattern) and pattern in match:
        yield match[pattern]
    for part in pattern.parts():
        if part in match:
            yield from _described(part, match)


def _composite_of(expr: ex.Expr) -> ex.Function | None:
    """The function that a call of a composite runs."""
    is_composite = isinstance(expr, ex.Call) and isinstance(expr.op, ex.Function) and "Composite" in expr.op.attrs
    return expr.op if is_composite else None  # type: ignore[return-value,union-attr]


def _annotated(expr: ex.Expr, compilers: Sequence[str]) -> ex.Expr:
    func = _composite_of(expr)
    compiler = next((c for c in compilers if func is not None and func.attrs["Composite"].startswith(f"{c}.")), None)
    if func is None or compiler is None:
        return expr
    assert isinstance(expr, ex.Call)
    return replace(expr, op=replace(func, attrs={**func.attrs, "Compiler": compiler}))


def _merge_regions(func: ex.Function) -> ex.Function:
    """Merge functions into their reader if nothing else reads them; repeat until nothing changes."""
    while True:
        readers = ex.users(func)
        calls = [e for e in ex.post_order(func.body) if isinstance(e, ex.Call)]
        pair = next(((c, o) for c in calls for o in c.args if _may_join(c, o, readers)), None)
        if pair is None:
            return func
        func = _with_joined(func, *pair)


def _with_joined(func: ex.Function, reader: ex.Call, operand: ex.Expr) -> ex.Function:
    done: dict[int, ex.Expr] = {}
    body = ex.rebuild(func.body, lambda old, new: _joined(new, done[id(operand)]) if old is reader else new, done)
    return replace(func, body=body)


def _may_join(reader: ex.Call, operand: ex.Expr, readers: dict[int, list[ex.Expr]]) -> bool:
    if not isinstance(reader.op, ex.Function) or not isinstance(operand, ex.Call) or not isinstance(operand.op, ex.Function):
        return False
    compiler = reader.op.attrs.get("Compiler")
    return compiler is not None and operand.op.attrs.get("Compiler") == compiler and len(readers[id(operand)]) == 1


def _joined(reader: ex.Expr, inner: ex.Expr) -> ex.Call:
    """Both functions as one."""
    assert isinstance(reader, ex.Call)
    assert isinstance(inner, ex.Call)
    assert isinstance(reader.op, ex.Function)
    assert isinstance(inner.op, ex.Function)
    params = [(p, a) for p, a in zip(reader.op.params, reader.args, strict=True) if a is not inner]
    (joint,) = [p for p, a in zip(reader.op.params, reader.args, strict=True) if a is inner]
    body = ex.substituted(reader.op.body, {id(joint): inner.op.body})
    both = (*zip(inner.op.params, inner.args, strict=True), *params)
    names = f"{inner.op.attrs['Composite']}+{reader.op.attrs['Composite']}"
    attrs = {**reader.op.attrs, "Composite": names, "name": names}
    return replace(reader, op=ex.Function(tuple(p for p, _ in both), body, attrs), args=tuple(a for _, a in both))


def _partition(func: ex.Function) -> ex.Function:
    count: dict[str, int] = {}

    def rule(expr: ex.Expr) -> ex.Expr:
        composite = _composite_of(expr)
        if composite is None:
            return expr
        assert isinstance(expr, ex.Call)
        compiler = composite.attrs.get("Compiler")
        if compiler is None:
            return ex.inlined(composite, expr.args)
        number = count[compiler] = count.get(compiler, -1) + 1
        word = re.sub(r"\W", "_", str(composite.attrs["Composite"]).removeprefix(f"{compiler}."))
        symbol = re.sub(r"\W", "_", compiler) + f"_main_{number}"
        attrs = {**composite.attrs, "Primitive": 1, "global_symbol": symbol, "name": word}
        return replace(expr, op=replace(composite, attrs=attrs))

    return ex.rewrite(func, rule)
