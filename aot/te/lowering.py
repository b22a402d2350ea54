"""From a schedule to a PrimFunc: the loops of each stage, in their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from aot.errors import Problem, UsageError
from aot.ir.module import IRModule
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.support.names import NameSupply
from aot.te.affine import Affine
from aot.te.operation import ComputeOp, IterVar, Reduce, Tensor, read_tensors
from aot.te.region import Body, Geometry, Ranges, fixed_variables, make_geometry, needed_part, value_of
from aot.te.schedule import Schedule, Stage
from aot.te.tensorize import match_intrinsic
from aot.te.unrolling import auto_unrolled, check_size, needs_array
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, Imm, Load, Var, cast
from aot.tir.function import FuncAttrs, PrimFunc
from aot.tir.functor import Cloner, free_vars, map_children
from aot.tir.stmt import Allocate, Block, For, ForKind, If, Stmt, Store
from aot.tir.verify import verify

LOCAL_BYTES = 1024
"""Limit for one local tensor: larger ones belong in the workspace."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a first lowering finds out about the buffers: which local ones are arrays, and alignments that intrinsics want."""

    arrays: frozenset[Tensor] = frozenset()
    aligns: Mapping[Tensor, int] = field(default_factory=dict)


def lower(schedule: Schedule, args: Sequence[Tensor], name: str = "main") -> IRModule:
    """The module of one PrimFunc `name` that computes a schedule; `args` are its parameters in order.

    Every placeholder that is read and every output must be among them (E5073).  Raises ScheduleError E5040 if the stages
    cannot be put together as they were scheduled.
    """
    return IRModule({name: lower_function(schedule, args, name)}, name)


def lower_function(schedule: Schedule, args: Sequence[Tensor], name: str) -> PrimFunc:
    """As `lower`, the function itself."""
    check_args(schedule, args, name)
    first = _Lowering(schedule, args, Needs())
    func = first.function(name)
    needs = Needs(frozenset(t for t, b in first.locals.items() if needs_array(func, b)), first.aligns)
    if needs.arrays or needs.aligns:
        func = _Lowering(schedule, args, needs).function(name)
    verify(func)
    return func


def check_args(schedule: Schedule, args: Sequence[Tensor], name: str) -> None:
    """Raise UsageError E5073 if the arguments are not the tensors of the schedule."""
    where = f"function {name}"
    if not isinstance(args, (list, tuple)) or not args:
        raise UsageError(Problem("E5073", "the arguments are a list of tensors, at least one", where))
    for a in args:
        if not isinstance(a, Tensor):
            raise UsageError(Problem("E5073", f"an argument is {type(a).__name__}, not a tensor", where))
    if len({id(a) for a in args}) != len(args):
        raise UsageError(Problem("E5073", "one tensor is given twice", where))
    known = {id(s.tensor) for s in schedule.stages}
    read = {id(t): t for s in schedule.stages for t in read_tensors(s.body) if id(t) not in known}
    for tensor in (*read.values(), *schedule.outputs):
        if all(a is not tensor for a in args):
            kind = "output" if id(tensor) in known else "placeholder"
            raise UsageError(Problem("E5073", f"{kind} {tensor.name} is not among the arguments", where))
    for a in args:
        if isinstance(a.made_by, ComputeOp) and id(a) not in known:
            raise UsageError(Problem("E5073", f"{a.name} is not computed by the schedule", where))


class _Lowering:
    def __init__(self, schedule: Schedule, args: Sequence[Tensor], needs: Needs) -> None:
        self._schedule = schedule
        self._needs = needs
        self._names = NameSupply()
        self._ranges: Ranges = {}
        self._stages = [s for s in schedule.stages if not s.inlined]
        self._bodies = _inlined(schedule)
        self._geometry: dict[Stage, Geometry] = {}
        self._buffers: dict[Tensor, Buffer] = {}
        self._args = list(args)
        self.locals: dict[Tensor, Buffer] = {}
        self.aligns: dict[Tensor, int] = {}
        for tensor in args:
            self._buffers[tensor] = self._buffer(tensor, tensor.shape, "global")

    def function(self, name: str) -> PrimFunc:
        """The whole schedule."""
        for stage in reversed(self._stages):
            self._place(stage)
        body: list[Stmt] = []
        for stage in self._stages:
            if stage.attached is None:
                body += self._stage(stage)
        check_size(body, name)
        made = {s.tensor for s in self._schedule.stages}
        buffers = self._buffers
        scratch = [b for t, b in buffers.items() if b.scope == "arena" and t not in self._args]
        opts = {p["opt"] for s in self._stages for p in s.pragmas.values() if "opt" in p}
        return PrimFunc(
            name,
            tuple(buffers[a] for a in self._args if a not in made),
            tuple(buffers[a] for a in self._args if a in made),
            tuple(body),
            scratch=tuple(reversed(scratch)),
            attrs=FuncAttrs("te", opt="size" if opts == {"size"} else "speed", args=tuple(buffers[a].name for a in self._args)),
        )

    # ---- places

    def _place(self, stage: Stage) -> None:
        body, tensor = self._bodies[stage], stage.tensor
        starts, sizes = [Affine()] * tensor.ndim, list(tensor.shape)
        if stage.attached is not None:
            parent, axis = stage.attached
            self._check_place(stage, parent, axis)
            readers = [self._geometry[s] for s in self._readers(stage)]
            fixed = fixed_variables(self._geometry[parent], axis, self._geometry)
            starts, sizes = needed_part(tensor, readers, fixed=fixed, ranges=self._ranges)
        if tensor not in self._buffers:
            self._buffers[tensor] = self._buffer(tensor, tuple(sizes), stage.scope)
            if stage.scope == "local":
                self.locals[tensor] = self._buffers[tensor]
                if self._buffers[tensor].nbytes > LOCAL_BYTES:
                    size = self._buffers[tensor].nbytes
                    raise stage.refusal(f"a local tensor of {size} bytes; at most {LOCAL_BYTES}, otherwise use scope global")
        buffer = self._buffers[tensor]
        self._geometry[stage] = make_geometry(stage, body, buffer, starts=starts, ranges=self._ranges)

    def _buffer(self, tensor: Tensor, shape: tuple[int, ...], scope: str) -> Buffer:
        name = self._names.fresh(tensor.name)
        align = max(itemsize(tensor.dtype), self._needs.aligns.get(tensor, 1))
        if tensor in self._args:
            return Buffer(name, shape, tensor.dtype, "param", align)
        if scope == "local":
            return Buffer(name, shape, tensor.dtype, "local", 1, indexed=tensor in self._needs.arrays)
        return Buffer(name, shape, tensor.dtype, "arena", max(align, 4))

    def _readers(self, stage: Stage) -> list[Stage]:
        return [s for s in self._stages if any(t is stage.tensor for t in read_tensors(self._bodies[s]))]

    def _check_place(self, stage: Stage, parent: Stage, axis: IterVar) -> None:
        if parent not in self._geometry:
            raise stage.refusal(f"compute_at {parent.tensor.name}, which does not read it, or is inlined")
        if axis not in parent.leaves:
            raise parent.refusal(f"{stage.tensor.name} is computed at {axis.name}, which is not one of its loops any more")
        if stage.tensor in self._args:
            raise stage.refusal("it is an argument, which is computed as a whole")
        readers = self._readers(stage)
        if not readers:
            raise stage.refusal("nothing reads it")
        for reader in readers:
            if not _is_inside(reader, parent, axis):
                raise stage.refusal(f"{reader.tensor.name} reads it outside of loop {axis.name} of {parent.tensor.name}")

    # ---- statements

    def _stage(self, stage: Stage) -> list[Stmt]:
        g = self._geometry[stage]
        start: list[Stmt] = [Allocate(g.buffer)] if g.buffer.scope == "local" else []
        outer = [c for c in g.guards if not self._own_loops(g, c)]
        return [*start, *_guarded(self._nest(g, 0, update=False), outer)]

    def _nest(self, g: Geometry, at: int, *, update: bool) -> tuple[Stmt, ...]:
        """Loops number `at` and on; with `update`, inside of the reduction."""
        leaves = g.stage.leaves
        if at == len(leaves) and (update or not isinstance(g.body, Reduce)):
            return (self._store(g),)
        if isinstance(g.body, Reduce) and not update and leaves[at].kind == "reduce":
            return (*self._init(g, leaves[at:]), *self._nest(g, at, update=True))
        leaf = leaves[at]
        inner: list[Stmt] = []
        for other in self._stages:
            if other.attached is not None and other.attached[0] is g.stage and other.attached[1] is leaf:
                inner += self._stage(other)
        inner += self._nest(g, at + 1, update=update)
        bound = [c for c in g.guards if self._own_loops(g, c) and max(self._own_loops(g, c)) == at]
        kind: ForKind = "unroll" if leaf in g.stage.marks else "serial"
        loop = For(g.variables[leaf], Imm(0), Imm(g.extents[leaf]), _guarded(inner, bound), kind=kind)
        steps = g.stage.pragmas.get(leaf, {}).get("auto_unroll_max_step")
        if isinstance(steps, int):
            loop = auto_unrolled(loop, steps)
        if leaf in g.stage.intrinsics:
            return (self._intrinsic(g, leaf, loop),)
        return (loop,)

    def _own_loops(self, g: Geometry, cond: Expr) -> list[int]:
        variables = free_vars(cond)
        return [n for n, leaf in enumerate(g.stage.leaves) if g.variables[leaf] in variables]

    def _init(self, g: Geometry, leaves: Sequence[IterVar]) -> tuple[Stmt, ...]:
        """The accumulators' first values, over the data loops that lie inside of the first reduction."""
        assert isinstance(g.body, Reduce)
        first = len(g.stage.leaves) - len(leaves)
        data = [leaf for leaf in leaves if leaf.kind == "data"]
        body: tuple[Stmt, ...] = (Store(g.buffer, g.elements, g.body.identity(), g.buffer.dtype),)
        reduced = {g.variables[leaf] for leaf in leaves if leaf.kind == "reduce"}
        inside = [c for c in g.guards if any(n >= first for n in self._own_loops(g, c)) and not free_vars(c) & reduced]
        body = _guarded(body, inside)
        for leaf in reversed(data):
            kind: ForKind = "unroll" if leaf in g.stage.marks else "serial"
            body = (For(g.variables[leaf], Imm(0), Imm(g.extents[leaf]), body, kind=kind),)
        return Cloner().body(body)

    def _store(self, g: Geometry) -> Store:
        body = g.body
        value = body.combine(Load(g.buffer, g.elements, g.buffer.dtype)) if isinstance(body, Reduce) else body
        return Store(g.buffer, g.elements, cast(g.buffer.dtype, self._value(value, g)), g.buffer.dtype)

    def _value(self, expr: Expr, g: Geometry) -> Expr:
        """A rule's expression with loops for axes, and buffers for tensors."""
        if isinstance(expr, Var):
            return g.places.get(expr, expr)
        if isinstance(expr, Load) and expr.buffer is g.buffer:
            return expr
        new = map_children(expr, lambda e: self._value(e, g))
        if isinstance(new, Load) and isinstance(new.buffer, Tensor):
            source = new.buffer
            made = next((s for s in self._stages if s.tensor is source), None)
            indices = new.indices if made is None else self._geometry[made].index(new.indices, self._ranges)
            return Load(self._buffers[source], indices, new.dtype)
        return new

    def _intrinsic(self, g: Geometry, leaf: IterVar, loop: For) -> Block:
        found = match_intrinsic(loop, g.stage.intrinsics[leaf], self._ranges)
        if isinstance(found, str):
            raise g.stage.refusal(f"tensorize with {g.stage.intrinsics[leaf].name}: {found}", leaf)
        block, aligns = found
        by_buffer = {b: t for t, b in self._buffers.items()}
        for buffer, align in aligns.items():
            if buffer.scope != "local":
                tensor = by_buffer[buffer]
                self.aligns[tensor] = max(align, self.aligns.get(tensor, 1))
        return block


def _is_inside(reader: Stage, parent: Stage, axis: IterVar) -> bool:
    """Whether a stage is computed entirely inside a loop of another one, or is that stage."""
    if reader is parent:
        return True
    place = reader.attached
    while place is not None:
        if place[0] is parent:
            return place[1] in parent.leaves and parent.leaves.index(place[1]) >= parent.leaves.index(axis)
        place = place[0].attached
    return False


def _guarded(body: Iterable[Stmt], conditions: Sequence[Expr]) -> tuple[Stmt, ...]:
    result = tuple(body)
    for cond in reversed(conditions):
        result = (If(cond, result),)
    return result


def _inlined(schedule: Schedule) -> dict[Stage, Body]:
    """The rules, with those of inlined stages in the place of their elements."""
    rules: dict[Buffer, tuple[Stage, Expr]] = {}

    def visit(expr: Expr) -> Expr:
        new = map_children(expr, visit)
        if isinstance(new, Load) and new.buffer in rules:
            stage, rule = rules[new.buffer]
            return Cloner({a.var: i for a, i in zip(stage.axis, new.indices, strict=True)}).expr(rule)
        return new

    bodies: dict[Stage, Body] = {}
    for stage in schedule.stages:
        body = stage.body
        bodies[stage] = Reduce(body.combiner, visit(body.value), body.axes) if isinstance(body, Reduce) else visit(body)
        if stage.inlined:
            rules[stage.tensor] = stage, value_of(bodies[stage])
    return bodies
