"""From a schedule to a PrimFunc: the loops of each stage, each in its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial

from aot.ir.module import IRModule
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.support.names import NameSupply
from aot.te.check import Affine, affine
from aot.te.operation import ComputeOp, IterVar, Reduce, Tensor, read_tensors, wrong
from aot.te.schedule import Schedule, Stage, axis_values, loop_extents
from aot.tir.arith import Interval, interval
from aot.tir.buffer import Buffer, flat_index
from aot.tir.expr import BinOp, Call, Cast, Expr, Imm, Load, Select, Var, as_expr, cast
from aot.tir.function import FuncAttrs, PrimFunc
from aot.tir.functor import Cloner, accesses, bodies, children, free_vars, loads, map_bodies, map_children, walk, walk_expr
from aot.tir.intrin import TensorIntrin
from aot.tir.printer import print_stmt
from aot.tir.schedule import ScheduleError
from aot.tir.stmt import Allocate, Block, For, ForKind, If, Let, Region, Stmt, Store
from aot.tir.transform import simplified, simplified_expr, unroll
from aot.tir.verify import verify

LOCAL_BYTES = 1024
"""Limit for a single local tensor: larger ones belong in the workspace."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a first lowering finds out: local buffers that must be arrays, and alignments that intrinsics need."""

    arrays: frozenset[Tensor] = frozenset()
    aligns: Mapping[Tensor, int] = field(default_factory=dict)


def lower(schedule: Schedule, args: Sequence[Tensor], name: str = "main") -> IRModule:
    """Lower a schedule to a module with one PrimFunc `name`; `args` are its parameters in order.

    They must include every placeholder that is read and every output (E5073).  Raises ScheduleError E5040 if the stages cannot be
    combined as scheduled.
    """
    return IRModule({name: lower_function(schedule, args, name)}, name)


def lower_function(schedule: Schedule, args: Sequence[Tensor], name: str) -> PrimFunc:
    """Like `lower`, but returns the function itself."""
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
    refused = partial(wrong, where=f"function {name}", code="E5073")
    if not isinstance(args, (list, tuple)) or not args:
        raise refused("the arguments are a list of tensors, at least one")
    for a in args:
        if not isinstance(a, Tensor):
            raise refused(f"an argument is {type(a).__name__}, not a tensor")
    if len({id(a) for a in args}) != len(args):
        raise refused("one tensor is given twice")
    computed = {id(s.tensor) for s in schedule.stages}
    read = {id(t): t for s in schedule.stages for t in read_tensors(s.body) if id(t) not in computed}
    for tensor in (*read.values(), *schedule.outputs):
        if all(a is not tensor for a in args):
            kind = "output" if id(tensor) in computed else "placeholder"
            raise refused(f"{kind} {tensor.name} is not among the arguments")
    for a in args:
        if isinstance(a.made_by, ComputeOp) and id(a) not in computed:
            raise refused(f"{a.name} is not computed by the schedule")


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
        """Lower the whole schedule."""
        for stage in reversed(self._stages):
            self._place(stage)
        body: list[Stmt] = []
        for stage in self._stages:
            if stage.attached is None:
                body += self._stage(stage)
        check_size(body, name)
        computed = {s.tensor for s in self._schedule.stages}
        buffers = self._buffers
        scratch = [b for t, b in buffers.items() if b.scope == "arena" and t not in self._args]
        opts = {p["opt"] for s in self._stages for p in s.pragmas.values() if "opt" in p}
        return PrimFunc(
            name,
            tuple(buffers[a] for a in self._args if a not in computed),
            tuple(buffers[a] for a in self._args if a in computed),
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
                    raise stage.refusal(f"a local tensor of {size} bytes; at most {LOCAL_BYTES}; use scope global")
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
            raise parent.refusal(f"{stage.tensor.name} is computed at {axis.name}, which is no longer one of its loops")
        if stage.tensor in self._args:
            raise stage.refusal("it is an argument, so it is computed as a whole")
        readers = self._readers(stage)
        if not readers:
            raise stage.refusal("nothing reads it")
        for reader in readers:
            if not _is_inside(reader, parent, axis):
                raise stage.refusal(f"{reader.tensor.name} reads it outside loop {axis.name} of {parent.tensor.name}")

    # ---- statements

    def _stage(self, stage: Stage) -> list[Stmt]:
        g = self._geometry[stage]
        start: list[Stmt] = [Allocate(g.buffer)] if g.buffer.scope == "local" else []
        outer = [c for c in g.guards if not self._own_loops(g, c)]
        return [*start, *_guarded(self._nest(g, 0, update=False), outer)]

    def _nest(self, g: Geometry, at: int, *, update: bool) -> tuple[Stmt, ...]:
        """The loops from number `at` on; with `update`, inside the reduction."""
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
        """The accumulators' initial values, over the data loops inside the first reduction loop."""
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
        """A rule's expression with axes replaced by loops and tensors by buffers."""
        if isinstance(expr, Var):
            return g.places.get(expr, expr)
        if isinstance(expr, Load) and expr.buffer is g.buffer:
            return expr
        new = map_children(expr, lambda e: self._value(e, g))
        if isinstance(new, Load) and isinstance(new.buffer, Tensor):
            source = new.buffer
            producer = next((s for s in self._stages if s.tensor is source), None)
            indices = new.indices if producer is None else self._geometry[producer].index(new.indices, self._ranges)
            return Load(self._buffers[source], indices, new.dtype)
        return new

    def _intrinsic(self, g: Geometry, leaf: IterVar, loop: For) -> Block:
        match = match_intrinsic(loop, g.stage.intrinsics[leaf], self._ranges)
        if isinstance(match, str):
            raise g.stage.refusal(f"tensorize with {g.stage.intrinsics[leaf].name}: {match}", leaf)
        block, aligns = match
        by_buffer = {b: t for t, b in self._buffers.items()}
        for buffer, align in aligns.items():
            if buffer.scope != "local":
                tensor = by_buffer[buffer]
                self.aligns[tensor] = max(align, self.aligns.get(tensor, 1))
        return block


def _is_inside(reader: Stage, parent: Stage, axis: IterVar) -> bool:
    """Whether a stage is computed entirely inside a loop of another stage, or is that stage."""
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
    """The rule of every stage, with the rules of inlined stages substituted for their elements."""
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


# Which part of a tensor a stage has to compute at its place, and how its loops run over that part.


Body = Expr | Reduce
Ranges = dict[Var, Interval]


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """A stage at its place.

    `starts` and `sizes`: the part of the tensor that is computed, in terms of the surrounding loops; the buffer holds only that.
    `extents` of all axes and loops; `variables` of the loops; `places`: the axes' variables in the rule -> their values;
    `elements`: the buffer indices that are stored; `guards`: conditions under which the rule applies.
    """

    stage: Stage
    body: Body
    buffer: Buffer
    starts: tuple[Affine, ...]
    sizes: tuple[int, ...]
    extents: Mapping[IterVar, int]
    variables: Mapping[IterVar, Var]
    places: Mapping[Var, Expr]
    elements: tuple[Expr, ...]
    guards: tuple[Expr, ...] = field(default=())

    def index(self, indices: Sequence[Expr], ranges: Ranges) -> tuple[Expr, ...]:
        """Convert indices of the tensor to indices of the buffer."""
        out: list[Expr] = []
        for index, start in zip(indices, self.starts, strict=True):
            whole = not start.terms and not start.offset
            out.append(index if whole else affine(simplified_expr(index, ranges)).plus(start, -1).expr())
        return tuple(out)


def value_of(body: Body) -> Expr:
    """The expression of a rule; for a reduction, the value that it combines."""
    return body.value if isinstance(body, Reduce) else body


def make_geometry(stage: Stage, body: Body, buffer: Buffer, *, starts: Sequence[Affine], ranges: Ranges) -> Geometry:
    """The loops of a stage over a buffer with the shape of the part; adds the ranges of its loops to `ranges`."""
    roots = dict(zip(stage.axis, buffer.shape, strict=True))
    reduced = {a: a.extent or 1 for a in (body.axes if isinstance(body, Reduce) else ())}
    extents = loop_extents(stage.relations, {**roots, **reduced})
    variables = {leaf: Var(leaf.name) for leaf in stage.leaves}
    ranges.update({v: (0, extents[leaf] - 1) for leaf, v in variables.items()})
    values, splits = axis_values(stage.relations, extents, dict(variables))
    guards = [value < extent for _, value, extent in splits if interval(value, ranges)[1] >= extent]
    places: dict[Var, Expr] = {a.var: values[a] for a in reduced}
    for axis, start, extent in zip(stage.axis, starts, stage.tensor.shape, strict=True):
        absolute = start.plus(affine(values[axis])).expr() if start.terms or start.offset else values[axis]
        places[axis.var] = absolute
        low, high = interval(absolute, ranges)
        whole = not start.terms and not start.offset and buffer.shape == stage.tensor.shape
        guards += [absolute < extent] if high >= extent and not whole else []
        guards += [absolute >= 0] if low < 0 else []
    elements = tuple(values[a] for a in stage.axis)
    return Geometry(
        stage, body, buffer, tuple(starts), buffer.shape, extents, variables, places, elements, tuple(guards)
    )  # fmt: skip


def fixed_variables(parent: Geometry, axis: IterVar, geometries: Mapping[Stage, Geometry]) -> set[Var]:
    """The loop variables that have a value inside loop `axis` of a stage."""
    leaves = parent.stage.leaves
    variables = {parent.variables[leaf] for leaf in leaves[: leaves.index(axis) + 1]}
    if parent.stage.attached is not None:
        outer, place = parent.stage.attached
        variables |= fixed_variables(geometries[outer], place, geometries)
    return variables


def needed_part(
    tensor: Tensor, readers: Sequence[Geometry], *, fixed: set[Var], ranges: Ranges
) -> tuple[list[Affine], list[int]]:  # fmt: skip
    """(starts, sizes) of the smallest box that contains all reads while the `fixed` variables keep their values."""
    boxes = [_box(load, fixed, ranges) for g in readers for load in _reads(tensor, g, ranges)]
    starts: list[Affine] = []
    sizes: list[int] = []
    for dim, extent in enumerate(tensor.shape):
        parts = [box[dim] for box in boxes]
        base = parts[0][0]
        low, high = min(p[1] for p in parts), max(p[2] for p in parts)
        if not base.terms:
            low, high = max(low, 0), min(high, extent - 1)
        if any(p[0].terms != base.terms for p in parts) or high - low + 1 >= extent:
            base, low, high = Affine(), 0, extent - 1
        starts.append(Affine(low, base.terms))
        sizes.append(high - low + 1)
    return starts, sizes


def _reads(tensor: Tensor, reader: Geometry, ranges: Ranges) -> Iterator[Load]:
    """The accesses, with indices in terms of loops."""
    cloner = Cloner(reader.places)
    for load in loads(value_of(reader.body)):
        if load.buffer is tensor:
            yield Load(tensor, tuple(simplified_expr(cloner.expr(i), ranges) for i in load.indices), load.dtype)


def _box(load: Load, fixed: set[Var], ranges: Ranges) -> list[tuple[Affine, int, int]]:
    """For each dimension (fixed part without offset, lowest, highest)."""
    box: list[tuple[Affine, int, int]] = []
    for index in load.indices:
        form = affine(index)
        still: dict[Expr, int] = {}
        low = high = form.offset
        for atom, factor in form.terms.items():
            if _is_fixed(atom, fixed):
                still[atom] = factor
                continue
            ends = [factor * v for v in interval(atom, ranges)]
            low, high = low + min(ends), high + max(ends)
        box.append((Affine(0, still), low, high))
    return box


def _is_fixed(atom: Expr, fixed: set[Var]) -> bool:
    nodes = list(walk_expr(atom))
    return not any(isinstance(n, (Load, Call)) for n in nodes) and all(n in fixed for n in nodes if isinstance(n, Var))


# Does a loop nest do exactly what an intrinsic does?  Both are executed in step, on symbols instead of memory.


MAX_STORES = 1 << 14
"""Most stores of a nest to compare."""


class MismatchError(Exception):
    """Why the nest does not match the intrinsic."""


@dataclass(slots=True)
class _Binding:
    """The parameters of the description: buffers as (buffer, start), scalars as expressions; and ranges of surrounding loops."""

    ranges: Mapping[Var, Interval]
    buffers: dict[Buffer, tuple[Buffer, Affine]] = field(default_factory=dict)
    scalars: dict[Var, Expr] = field(default_factory=dict)


def match_intrinsic(
    loop: For, intrin: TensorIntrin, ranges: Mapping[Var, Interval]
) -> tuple[Block, dict[Buffer, int]] | str:  # fmt: skip
    """(block that replaces the loop, alignments in bytes that buffers need), or the reason why the loop does something else.

    The description must make the same stores in the same order.
    """
    binding = _Binding(ranges)
    try:
        stores = _pairs(_run((loop,)), _run(intrin.desc.body))
        for actual, expected in stores:
            _element(binding, (actual.buffer, actual.indices, actual.dtype), (expected.buffer, expected.indices, expected.dtype))
            _same(binding, actual.value, expected.value)
        operands = tuple(_operand(binding, p, ranges) for p in intrin.desc.params)
        _check_aliases(binding, intrin)
    except MismatchError as error:
        return str(error)
    aligns: dict[Buffer, int] = {}
    for param, (buffer, _) in binding.buffers.items():
        aligns[buffer] = max(aligns.get(buffer, 1), param.align)
    return Block(intrin, operands), aligns


def _pairs(actual: Iterator[Store], expected: Iterator[Store]) -> Iterator[tuple[Store, Store]]:
    count = 0
    while True:
        a, w = next(actual, None), next(expected, None)
        if a is None and w is None:
            return
        if a is None or w is None:
            raise MismatchError(f"{'the loop' if a is None else 'the description'} makes only {count} stores")
        count += 1
        if count > MAX_STORES:
            raise MismatchError(f"more than {MAX_STORES} stores")
        yield a, w


def _run(body: tuple[Stmt, ...]) -> Iterator[Store]:
    """The stores of a nest in order, with loop variables replaced by their values."""
    return _statements(body, Cloner())


def _statements(body: tuple[Stmt, ...], env: Cloner) -> Iterator[Store]:
    for stmt in body:
        match stmt:
            case Store(buffer, indices, value, dtype):
                yield Store(buffer, tuple(env.expr(i) for i in indices), env.expr(value), dtype)
            case Let(var, value):
                env.variables[var] = env.expr(value)
            case For(var, start, stop, inner, step):
                first, last = env.expr(start), env.expr(stop)
                if not isinstance(first, Imm) or not isinstance(last, Imm):
                    raise MismatchError(f"the bounds of loop {var.name} are not constant")
                for turn in range(int(first.value), int(last.value), step):
                    env.variables[var] = Imm(turn, var.dtype)
                    yield from _statements(inner, env)
            case If(cond, then, orelse):
                condition = env.expr(cond)
                if not isinstance(condition, Imm):
                    raise MismatchError(f"a condition: {print_stmt(stmt).splitlines()[0]}")
                yield from _statements(then if condition.value else orelse, env)
            case _:
                raise MismatchError(f"a statement other than loops and stores: {print_stmt(stmt).splitlines()[0]}")


Place = tuple[Buffer, tuple[Expr, ...], str]


def _element(binding: _Binding, actual: Place, expected: Place) -> None:
    (buffer, indices, dtype), (param, param_indices, param_dtype) = actual, expected
    if dtype != param_dtype or buffer.dtype != param.dtype or dtype != buffer.dtype:
        raise MismatchError(f"{buffer.name} is {dtype}, {param.name} of the description {param_dtype}")
    place = simplified_expr(flat_index(buffer, indices), binding.ranges)
    start = affine(place).plus(affine(flat_index(param, param_indices)), -1)
    bound = binding.buffers.setdefault(param, (buffer, start))
    if bound[0] is not buffer:
        raise MismatchError(f"{param.name} of the description would be {bound[0].name} and {buffer.name}")
    if bound[1] != start:
        raise MismatchError(
            f"{buffer.name} is not used as {param.name} of the description is: other strides, or another order of loops"
        )


def _same(binding: _Binding, actual: Expr, expected: Expr) -> None:
    match actual, expected:
        case Load(b, i, t), Load(p, j, u):
            _element(binding, (b, i, t), (p, j, u))
        case _, Var():
            if binding.scalars.setdefault(expected, actual) != actual:
                raise MismatchError(f"scalar {expected.name} of the description would have two values")
        case Imm(v, t), Imm(w, u) if v == w and t == u:
            pass
        case (BinOp(f), BinOp(g)) | (Cast(f), Cast(g)) | (Call(f), Call(g)) if f == g:
            for x, y in zip(children(actual), children(expected), strict=True):
                _same(binding, x, y)
        case Select(), Select():
            for x, y in zip(children(actual), children(expected), strict=True):
                _same(binding, x, y)
        case _:
            raise MismatchError("the loop computes another expression than the description")


def _operand(binding: _Binding, param: Buffer | Var, ranges: Mapping[Var, Interval]) -> Region | Expr:
    if isinstance(param, Var):
        if param not in binding.scalars:
            raise MismatchError(f"scalar {param.name} of the description has no value")
        return binding.scalars[param]
    if param not in binding.buffers:
        raise MismatchError(f"{param.name} of the description is not used")
    buffer, start = binding.buffers[param]
    if buffer.scope == "local":
        if start != Affine() or buffer.size < param.size:
            raise MismatchError(f"local {buffer.name} is not {param.name} of the description as a whole")
        return Region(buffer, as_expr(0), param.dtype)
    index = start.expr()
    low, high = interval(index, ranges)
    if low < 0 or high + param.size > buffer.size:
        raise MismatchError(f"{param.name} of the description might leave {buffer.name}")
    step = max(1, param.align // itemsize(param.dtype))
    if any(v % step for v in (start.offset, *start.terms.values())):
        raise MismatchError(
            f"{param.name} of the description needs {param.align} bytes alignment, {buffer.name} has parts without"
        )
    return Region(buffer, index, param.dtype)


def _check_aliases(binding: _Binding, intrin: TensorIntrin) -> None:
    """Refuse an intrinsic that writes a buffer which it also reads under another name."""
    written = {binding.buffers[p][0] for p in (*intrin.desc.outputs, *intrin.desc.scratch)}
    used = [b for b, _ in binding.buffers.values()]
    for buffer in written:
        if used.count(buffer) > 1:
            raise MismatchError(f"{buffer.name} would be two operands of the intrinsic, one of them written")


# Unrolling as requested by schedules, and its effect on local buffers.


MAX_STATEMENTS = 1 << 14
"""Limit for a function once its loops are unrolled."""

MAX_SCALARS = 64
"""Most elements of a local buffer that become C variables of their own; with more it becomes an array."""


def auto_unrolled(loop: For, steps: int) -> For:
    """`loop` with every loop marked for unrolling whose body would be copied at most `steps` times in total."""
    marked = _marked(loop.body, steps)
    return replace(loop, kind="unroll", body=marked) if _copies(loop) <= steps else replace(loop, body=marked)


def _marked(body: tuple[Stmt, ...], steps: int) -> tuple[Stmt, ...]:
    inner = partial(_marked, steps=steps)
    return tuple(auto_unrolled(s, steps) if isinstance(s, For) else map_bodies(s, inner) for s in body)


def _extent(loop: For) -> int:
    assert isinstance(loop.stop, Imm)
    return int(loop.stop.value)


def _copies(stmt: Stmt) -> int:
    inner = max((_copies(s) for body in bodies(stmt) for s in body), default=1)
    return _extent(stmt) * inner if isinstance(stmt, For) else inner


def check_size(body: Iterable[Stmt], name: str) -> None:
    """Raise ScheduleError if unrolling makes a function too large."""
    total = sum(map(_statement_count, body))
    if total > MAX_STATEMENTS:
        raise ScheduleError(f"its unrolled loops make {total} statements; at most {MAX_STATEMENTS}", f"function {name}")


def _statement_count(stmt: Stmt) -> int:
    inner = sum(_statement_count(s) for body in bodies(stmt) for s in body)
    if isinstance(stmt, For):
        return inner * _extent(stmt) if stmt.kind == "unroll" else inner + 1
    return inner + 1


def needs_array(func: PrimFunc, buffer: Buffer) -> bool:
    """Whether a local buffer has indices known only at run time, or too many elements for C variables."""
    if buffer.size > MAX_SCALARS:
        return True
    name, shape = buffer.name, buffer.shape  # unrolling copies the buffer objects
    for stmt in walk(simplified(unroll(simplified(func))).body):
        for access in accesses(stmt):
            if not isinstance(access, (Load, Store)) or access.buffer.scope != "local":
                continue
            same = (access.buffer.name, access.buffer.shape) == (name, shape)
            if same and not all(isinstance(i, Imm) for i in access.indices):
                return True
    return False
