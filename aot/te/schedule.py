"""Schedules: how the loops of computes are arranged.

    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    io, ii = s[C].split(i, 4)
    s[C].reorder(io, j, ii)
    s[C].unroll(ii)

A primitive that cannot prove that it preserves the meaning raises ScheduleError (E5040), lists the loops of the stage, and leaves
the schedule unchanged.  What depends on other stages (whether a place for `compute_at` suits all readers, say) is checked when
the schedule is lowered, with the same error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from aot.errors.tvm_names import missing
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, is_signed
from aot.te.operation import ComputeOp, IterVar, PlaceholderOp, Reduce, Tensor, TensorOp, copy_of, read_tensors, tensor_of, wrong
from aot.tir.arith import interval
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, Var, imm
from aot.tir.functor import Cloner
from aot.tir.intrin import TensorIntrin
from aot.tir.schedule import ScheduleError

Scope = Literal["global", "local"]
MAX_UNROLL = 4096
"""Most copies of a loop's body."""

PRAGMAS = ("auto_unroll_max_step", "opt")


class Stage:
    """The loops of one tensor; created by `create_schedule`, looked up with `schedule[tensor]`."""

    def __init__(self, schedule: Schedule, tensor: Tensor, body: Expr | Reduce, *, scope: Scope = "global") -> None:
        made_by = tensor.made_by
        assert isinstance(made_by, ComputeOp)
        self.schedule = schedule
        self.tensor = tensor
        self.axis: tuple[IterVar, ...] = made_by.axis
        self.body = body
        self.scope: Scope = scope
        self.leaves: list[IterVar] = [*made_by.axis, *(body.axes if isinstance(body, Reduce) else ())]
        self.relations: list[Relation] = []
        self.marks: dict[IterVar, str] = {}
        self.intrinsics: dict[IterVar, TensorIntrin] = {}
        self.pragmas: dict[IterVar, dict[str, int | str]] = {}
        self.attached: tuple[Stage, IterVar] | None = None
        self.inlined = False

    def __getattr__(self, name: str) -> Any:
        """Raise E5091: the name exists in TVM but not here."""
        raise missing("te.Stage", name)

    @property
    def op(self) -> StageOp:
        """The axes of the stage, as currently computed."""
        return StageOp(self.tensor.name, self.axis, self.body.axes if isinstance(self.body, Reduce) else ())

    @property
    def leaf_iter_vars(self) -> tuple[IterVar, ...]:
        """The loops, outermost first."""
        return tuple(self.leaves)

    @property
    def is_output(self) -> bool:
        """Whether the tensor is a result of the schedule."""
        return any(t is self.tensor for t in self.schedule.outputs)

    # ---- loops of this stage

    def split(self, parent: IterVar, factor: int | None = None, nparts: int | None = None) -> tuple[IterVar, IterVar]:
        """Split a loop in two: `factor` iterations inside, or `nparts` outside; return (outer, inner).

        If the extent is not a multiple, a condition guards the last round.

        `parent`: the loop to split.
        """
        at = self._leaf(parent, "split")
        parts = nparts if factor is None else factor
        if (factor is None) == (nparts is None) or isinstance(parts, bool) or not isinstance(parts, int) or parts < 1:
            raise self.refusal("split needs either factor or nparts, a whole number of at least 1", parent)
        outer = IterVar(f"{parent.name}.outer", parent.kind, nparts or _ceil(parent.extent, factor))
        inner = IterVar(f"{parent.name}.inner", parent.kind, factor or _ceil(parent.extent, nparts))
        self.leaves[at : at + 1] = [outer, inner]
        self.relations.append(Split(parent, outer, inner, factor, nparts))
        return outer, inner

    def fuse(self, *axes: IterVar) -> IterVar:
        """Fuse directly nested loops into one; return it."""
        if len(axes) == 1 and isinstance(axes[0], (list, tuple)):
            axes = tuple(axes[0])
        if len(axes) < 2:
            raise self.refusal("fuse needs at least two loops")
        result = axes[0]
        self._check_adjacent(axes)
        for inner in axes[1:]:
            result = self._fuse(result, inner)
        return result

    def _check_adjacent(self, axes: Sequence[IterVar]) -> None:
        places = [self._leaf(a, "fuse") for a in axes]
        for outer, inner in pairwise(axes):
            if outer.kind != inner.kind:
                raise self.refusal("a data loop and a reduction cannot be fused", inner)
        if places != list(range(places[0], places[0] + len(places))):
            raise self.refusal("fuse needs directly nested loops, outermost first", axes[0])

    def _fuse(self, outer: IterVar, inner: IterVar) -> IterVar:
        extent = None if outer.extent is None or inner.extent is None else outer.extent * inner.extent
        fused = IterVar(f"{outer.name}.{inner.name}.fused", outer.kind, extent)
        at = self.leaves.index(outer)
        self.leaves[at : at + 2] = [fused]
        self.relations.append(Fuse(outer, inner, fused))
        return fused

    def reorder(self, *axes: IterVar) -> None:
        """Put loops into the given order, in the places that they occupy together.

        Refused if that would change the order of a float reduction, or of an integer one whose partial sums might overflow.
        """
        places = sorted(self._leaf(a, "reorder") for a in axes)
        if len(set(places)) != len(places):
            raise self.refusal("reorder accepts each loop only once")
        new = list(self.leaves)
        for place, axis in zip(places, axes, strict=True):
            new[place] = axis
        self._check_reduction(new)
        self.leaves = new

    def tile(self, x: IterVar, y: IterVar, x_factor: int, y_factor: int) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and put the inner ones inside; return (x outer, y outer, x inner, y inner).

        `x_factor`, `y_factor`: iterations of the inner loops.
        """
        self._leaf(x, "tile")
        self._leaf(y, "tile")
        if x is y:
            raise self.refusal("tile needs two different loops", x)
        before = self._state()
        try:
            xo, xi = self.split(x, x_factor)
            yo, yi = self.split(y, y_factor)
            self.reorder(xo, yo, xi, yi)
        except ScheduleError:
            self._restore(before)
            raise
        return xo, yo, xi, yi

    def unroll(self, axis: IterVar) -> None:
        """Copy the body of a loop for each iteration.

        `axis`: the loop.
        """
        self._leaf(axis, "unroll")
        if axis.extent is not None and axis.extent > MAX_UNROLL:
            raise self.refusal(f"unroll of {axis.extent} iterations; at most {MAX_UNROLL}", axis)
        self.marks[axis] = "unroll"

    def vectorize(self, axis: IterVar) -> None:
        """Compute the iterations of an innermost data loop side by side.

                The supported cores have no vectors that C can express, so this unrolls; the loop must still be vectorizable.

        `axis`: the loop.
        """
        at = self._leaf(axis, "vectorize")
        if axis.kind == "reduce":
            raise self.refusal("a reduction cannot be vectorized; use rfactor first", axis)
        if any(leaf not in self.marks for leaf in self.leaves[at + 1 :]):
            raise self.refusal("only the innermost loop, or one with unrolled loops inside, can be vectorized", axis)
        self.unroll(axis)
        self.marks[axis] = "vectorize"

    def pragma(self, axis: IterVar, name: str, value: int | str = 1) -> None:
        """A hint for everything inside a loop.

        "auto_unroll_max_step": unroll if that makes at most `value` copies; "opt": "speed" or "size", for GCC.

        `axis`: the loop; `name`, `value`: `auto_unroll_max_step` with a number, `opt` with "speed" or "size".
        """
        self._leaf(axis, "pragma")
        if not isinstance(name, str) or name not in PRAGMAS:
            raise self.refusal(f"unknown pragma {name!r}; known: {', '.join(PRAGMAS)}", axis)
        steps = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_UNROLL
        if not steps if name == "auto_unroll_max_step" else not isinstance(value, str) or value not in ("speed", "size"):
            raise self.refusal(f"pragma {name} of {value!r}", axis)
        self.pragmas.setdefault(axis, {})[name] = value

    def tensorize(self, axis: IterVar, intrin: TensorIntrin) -> None:
        """Replace a loop and everything in it by an intrinsic with the same meaning (checked when the schedule is lowered).

        `axis`: the outermost loop to replace; `intrin`: the TensorIntrin.
        """
        self._leaf(axis, "tensorize")
        if not isinstance(intrin, TensorIntrin):
            raise self.refusal(f"{type(intrin).__name__} is not a TensorIntrin", axis)
        self.intrinsics[axis] = intrin

    # ---- where the stage is computed

    def compute_at(self, parent: Stage, axis: IterVar) -> None:
        """Compute, inside a loop of a stage that reads the tensor, only what is read there.

        `parent`: the stage that reads it; `axis`: a loop of that stage.
        """
        if not isinstance(parent, Stage) or parent.schedule is not self.schedule or parent is self:
            raise self.refusal("compute_at needs another stage of the same schedule")
        parent._leaf(axis, "compute_at")
        if self.is_output:
            raise self.refusal("it is an output, so it is computed as a whole")
        place: Stage | None = parent
        while place is not None:
            if place is self:
                raise self.refusal(f"it would be computed inside itself, through {parent.tensor.name}")
            place = place.attached[0] if place.attached else None
        self.attached, self.inlined = (parent, axis), False

    def compute_root(self) -> None:
        """Compute the whole tensor before it is read, which is the default."""
        self.attached, self.inlined = None, False

    def compute_inline(self) -> None:
        """Substitute the rule for each element that is read."""
        if self.is_output:
            raise self.refusal("it is an output, so there is no reader to inline it into")
        if isinstance(self.body, Reduce):
            raise self.refusal("a reduction cannot be inlined")
        if self.relations or self.marks or self.intrinsics:
            raise self.refusal("its loops are scheduled already, and an inlined stage has none")
        if any(s.attached and s.attached[0] is self for s in self.schedule.stages):
            raise self.refusal("another stage is computed inside it")
        self.attached, self.inlined = None, True

    def set_scope(self, scope: Scope) -> Stage:
        """Set where the tensor is stored: "global" (the workspace) or "local" (registers or stack); returns the stage.

        `scope`: "global" or "local".
        """
        if not isinstance(scope, str) or scope not in ("global", "local"):
            raise self.refusal(f"unknown scope {scope!r}; known: global, local")
        if self.is_output and scope != "global":
            raise self.refusal("it is an output, which lives in the caller's memory")
        self.scope = scope
        return self

    # ---- helpers

    def refusal(self, message: str, axis: IterVar | None = None) -> ScheduleError:
        """Return an E5040 that lists the loops of the stage, with an arrow at `axis`.

        `message`: the reason; `axis`: the loop in question.
        """
        lines = [f"{message}; the loops are"]
        for depth, leaf in enumerate(self.leaves):
            mark = f"  {self.marks[leaf]}" if leaf in self.marks else ""
            lines.append(f"  {'  ' * depth}for {leaf!r}{mark}" + ("  <-- here" if leaf is axis else ""))
        return ScheduleError("\n".join(lines), f"stage {self.tensor.name}")

    def _leaf(self, axis: Any, primitive: str) -> int:
        for at, leaf in enumerate(self.leaves):
            if leaf is axis:
                return at
        what = axis.name if isinstance(axis, IterVar) else f"{type(axis).__name__}"
        raise self.refusal(f"{primitive} of {what}, which is not one of its loops")

    def _check_reduction(self, leaves: Sequence[IterVar]) -> None:
        if not isinstance(self.body, Reduce):
            return
        order = [leaf for leaf in leaves if leaf.kind == "reduce"]
        fault = "" if order == canonical_order(self.body.axes, self.relations) else commutes(self.body, self.axis)
        if fault:
            raise self.refusal(fault, order[0])

    def _state(self) -> tuple[list[IterVar], list[Relation]]:
        return list(self.leaves), list(self.relations)

    def _restore(self, state: tuple[list[IterVar], list[Relation]]) -> None:
        self.leaves, self.relations = state


@dataclass(frozen=True, slots=True)
class StageOp:
    """`stage.op`: the axes of what the stage computes."""

    name: str
    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...]


class Schedule:
    """All stages, producers before consumers; created by `create_schedule`."""

    def __getattr__(self, name: str) -> Any:
        """Raise E5091: the name exists in TVM but not here."""
        raise missing("te.Schedule", name)

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        self.outputs = tuple(outputs)
        self.stages: list[Stage] = []
        done: set[int] = set()

        def visit(tensor: Tensor) -> None:
            if id(tensor) in done:
                return
            done.add(id(tensor))
            if isinstance(tensor.made_by, ComputeOp):
                for read in tensor.made_by.input_tensors:
                    visit(read)
                self.stages.append(Stage(self, tensor, tensor.made_by.body))

        for tensor in self.outputs:
            visit(tensor)

    def __getitem__(self, item: Tensor | TensorOp) -> Stage:
        tensor = item.tensor if isinstance(item, TensorOp) else item
        for stage in self.stages:
            if stage.tensor is tensor:
                return stage
        if isinstance(tensor, Tensor):
            kind = "a placeholder, which has no loops" if isinstance(tensor.made_by, PlaceholderOp) else "not in this schedule"
            raise wrong(f"it is {kind}", f"tensor {tensor.name}")
        raise wrong(f"a schedule is indexed by a tensor, not by {type(item).__name__}")

    def cache_read(self, tensor: Tensor, scope: Scope, readers: Sequence[Tensor | TensorOp]) -> Tensor:
        """Copy a tensor into a cache that `readers` read instead; place it with compute_at.

        `scope`: "global" or "local", as in `Stage.set_scope`.
        """
        if not isinstance(tensor, Tensor):
            raise wrong(f"cache_read of {type(tensor).__name__}, which is not a tensor")
        if isinstance(readers, (Tensor, TensorOp)):
            readers = [readers]
        if not isinstance(readers, (list, tuple)):
            raise wrong("the readers of a cache are a list of tensors", f"tensor {tensor.name}")
        stages = [self[r] for r in readers]
        if not stages:
            raise wrong("cache_read without readers", f"tensor {tensor.name}")
        for stage in stages:
            if all(t is not tensor for t in read_tensors(stage.body)):
                raise stage.refusal(f"it does not read {tensor.name}")
        copy = copy_of(tensor, f"{tensor.name}.{scope}")
        assert isinstance(copy.made_by, ComputeOp)
        stage = Stage(self, copy, copy.made_by.body).set_scope(scope)
        first = min(self.stages.index(s) for s in stages)
        for reader in stages:
            reader.body = reads_from(reader.body, {tensor: copy})
        self.stages.insert(first, stage)
        return copy

    def cache_write(self, tensor: Tensor, scope: Scope) -> Tensor:
        """Compute the tensor into a cache, which its own stage then copies; place the cache with compute_at.

        `scope`: "global" or "local", as in `Stage.set_scope`.
        """
        stage = self[tensor]
        if stage.relations or stage.marks or stage.attached or stage.intrinsics:
            raise stage.refusal("cache_write comes before other primitives on the stage")
        cache = copied_rule(stage.axis, stage.body, stage.tensor, name=f"{stage.tensor.name}.{scope}")
        assert isinstance(cache.made_by, ComputeOp)
        new = Stage(self, cache, cache.made_by.body).set_scope(scope)
        stage.body = cache[tuple(a.var for a in stage.axis)]
        stage.leaves = list(stage.axis)
        self.stages.insert(self.stages.index(stage), new)
        return cache

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Tensor:
        """Split a reduction into partial ones, one per iteration of a loop, and a second reduction that combines them; return the
        first.

        `axis` is a reduction axis, or half of a split reduction axis.  `factor_axis` is its place among the dimensions of the new
        tensor.
        """
        stage = self[tensor]
        stage._leaf(axis, "rfactor")
        if not isinstance(stage.body, Reduce) or axis.kind != "reduce":
            raise stage.refusal("rfactor needs a reduction loop", axis)
        if isinstance(factor_axis, bool) or not isinstance(factor_axis, int) or not 0 <= factor_axis <= len(stage.axis):
            raise stage.refusal(f"factor_axis {factor_axis!r}; there are {len(stage.axis)} dimensions", axis)
        fault = commutes(stage.body, stage.axis)
        if fault:
            raise stage.refusal(fault, axis)
        factored_rule = factored(
            stage.axis, stage.body, tuple(stage.relations), axis=(axis, factor_axis), name=f"{tensor.name}.rf"
        )
        if isinstance(factored_rule, str):
            raise stage.refusal(factored_rule, axis)
        partial, body = factored_rule
        assert isinstance(partial.made_by, ComputeOp)
        stage.body, stage.relations = body, []
        stage.leaves = [*stage.axis, *body.axes]
        stage.marks, stage.pragmas, stage.intrinsics = {}, {}, {}
        self.stages.insert(self.stages.index(stage), Stage(self, partial, partial.made_by.body))
        return partial


def create_schedule(ops: TensorOp | Tensor | Sequence[TensorOp | Tensor]) -> Schedule:
    """The default schedule of the given outputs and everything they are computed from: one loop nest per tensor.

    `ops`: an operation, such as `C.op`, or several.
    """
    items = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    outputs: list[Tensor] = []
    for item in items:
        tensor = item.tensor if isinstance(item, TensorOp) else item
        if not isinstance(tensor, Tensor) or not isinstance(tensor.made_by, ComputeOp):
            raise wrong(f"create_schedule needs the operations of computes, not {item!r}")
        if all(t is not tensor for t in outputs):
            outputs.append(tensor)
    if not outputs:
        raise wrong("create_schedule without an output")
    return Schedule(outputs)


def _ceil(extent: int | None, part: int | None) -> int | None:
    return None if extent is None or part is None else -(-extent // part)


# How loops derive from axes: splits and fusions, their extents, and the axes' values in terms of the loops.


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """`parent` = outer * factor + inner; either factor or nparts is given, the other follows from the extent."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: int | None
    nparts: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Fuse:
    """`fused` = outer * extent of inner + inner."""

    outer: IterVar
    inner: IterVar
    fused: IterVar


Relation = Split | Fuse


def canonical_order(roots: Sequence[IterVar], relations: Sequence[Relation]) -> list[IterVar]:
    """The reduction loops in the order in which they visit the elements as the axes do."""
    order = list(roots)
    for relation in relations:
        match relation:
            case Split(parent, outer, inner) if parent in order:
                at = order.index(parent)
                order[at : at + 1] = [outer, inner]
            case Fuse(outer, inner, fused) if outer in order:
                order.remove(inner)
                order[order.index(outer)] = fused
            case _:
                pass
    return order


def loop_extents(relations: Sequence[Relation], roots: Mapping[IterVar, int]) -> dict[IterVar, int]:
    """The extents of all axes and loops of a stage whose axes have the extents `roots`."""
    extents = dict(roots)
    for relation in relations:
        match relation:
            case Split(parent, outer, inner, factor, nparts):
                total = extents[parent]
                extents[inner] = factor if factor is not None else -(-total // (nparts or 1))
                extents[outer] = nparts if nparts is not None else -(-total // (factor or 1))
            case Fuse(outer, inner, fused):
                extents[fused] = extents[outer] * extents[inner]
    return extents


def axis_values(
    relations: Sequence[Relation], extents: Mapping[IterVar, int], leaves: Mapping[IterVar, Expr]
) -> tuple[dict[IterVar, Expr], list[tuple[IterVar, Expr, int]]]:
    """The value of every axis and loop, and the required guards: (axis, its value, its extent).

    `leaves` gives the values of the loops.  A guard is required if the rounds of a split cover more than its parent.
    """
    values = dict(leaves)
    guards: list[tuple[IterVar, Expr, int]] = []
    for relation in reversed(relations):
        match relation:
            case Split(parent, outer, inner):
                values[parent] = values[outer] * extents[inner] + values[inner]
                if extents[outer] * extents[inner] != extents[parent]:
                    guards.append((parent, values[parent], extents[parent]))
            case Fuse(outer, inner, fused):
                size = imm(extents[inner])
                values[outer], values[inner] = values[fused] / size, values[fused] % size
    return values, guards


# Deriving new rules: reading from a cache, copying a rule with its own axes, partial reductions.


Body = Expr | Reduce


def commutes(body: Reduce, data: Sequence[IterVar]) -> str:
    """Why the values of a reduction may not be combined in another order; "" if they may.

    Float results depend on the order.  Signed partial sums may overflow in one order but not in another, unless all of them fit.
    """
    dtype = body.dtype
    if is_float(dtype):
        return f"this changes the order of a {body.combiner} of {dtype}, and with it the rounding"
    if body.combiner in ("max", "min") or not is_signed(dtype):
        return ""
    ranges = {a.var: (0, (a.extent or int_range("int32")[1]) - 1) for a in (*data, *body.axes)}
    low, high = interval(body.value, ranges)
    count = 1
    for axis in body.axes:
        count *= axis.extent or 1
    least, most = int_range(dtype)
    if body.combiner == "sum" and count * min(low, 0) >= least and count * max(high, 0) <= most:
        return ""
    return (
        f"this changes the order of a {body.combiner} of {dtype}, and partial results might overflow: "
        f"{count} values in {low}..{high}; accumulate in a wider type"
    )


def map_body(body: Body, cloner: Cloner) -> Body:
    """A rule with its variables and tensors replaced."""
    if isinstance(body, Reduce):
        return Reduce(body.combiner, cloner.expr(body.value), body.axes)
    return cloner.expr(body)


def reads_from(body: Body, tensors: Mapping[Tensor, Tensor]) -> Body:
    """A rule that reads from replacements of some tensors."""
    replaced: dict[Buffer, Buffer] = {old: new for old, new in tensors.items()}
    return map_body(body, Cloner(buffers=replaced))


def copied_rule(axis: Sequence[IterVar], body: Body, tensor: Tensor, *, name: str) -> Tensor:
    """A tensor with the same rule and data axes of its own; reduction axes are shared."""
    fresh = tuple(IterVar(f"{a.name}.c", "data", a.extent) for a in axis)
    places: dict[Var, Expr] = {a.var: f.var for a, f in zip(axis, fresh, strict=True)}
    return tensor_of(ComputeOp(name, fresh, map_body(body, Cloner(places))), tensor.shape)


def factored(
    axes: Sequence[IterVar], body: Reduce, relations: tuple[Relation, ...], *, axis: tuple[IterVar, int], name: str
) -> tuple[Tensor, Reduce] | str:
    """(tensor of partial results, reduction that combines them), or the reason why that is impossible.

    `axis`: the loop that becomes dimension number axis[1] of the partial results.
    """
    loop, position = axis
    split = _parts(body, relations, loop)
    if isinstance(split, str):
        return split
    root, factor, other = split
    extent = loop.extent or 1
    chosen = IterVar(loop.name, "data", extent)
    places: dict[Var, Expr] = {}
    remaining = tuple(a for a in body.axes if a is not root)
    if other is None:
        places[root.var] = chosen.var
    else:
        left = IterVar(other.name, "reduce", other.extent)
        outer, inner = (chosen, left) if factor > 0 else (left, chosen)
        places[root.var] = outer.var * abs(factor) + inner.var
        remaining = tuple(left if a is root else a for a in body.axes)
    fresh = [IterVar(f"{a.name}.f", "data", a.extent) for a in axes]
    places |= {a.var: f.var for a, f in zip(axes, fresh, strict=True)}
    value = Cloner(places).expr(body.value)
    all_axes = (*fresh[:position], chosen, *fresh[position:])
    op = ComputeOp(name, all_axes, Reduce(body.combiner, value, remaining) if remaining else value)
    partial = tensor_of(op, tuple(a.extent or 1 for a in all_axes))
    last = IterVar(f"{loop.name}.v", "reduce", extent)
    indices: list[Expr] = [a.var for a in axes]
    element = partial[(*indices[:position], last.var, *indices[position:])]
    return partial, Reduce(body.combiner, element, (last,))


def _parts(body: Reduce, relations: tuple[Relation, ...], loop: IterVar) -> tuple[IterVar, int, IterVar | None] | str:
    """(axis, factor of the split, other half): the factor is negative if `loop` is the inner half."""
    if not relations and loop in body.axes:
        return loop, 1, None
    if len(relations) == 1 and isinstance(relations[0], Split) and relations[0].parent in body.axes:
        split = relations[0]
        outer, inner, total = split.outer.extent or 1, split.inner.extent or 1, split.parent.extent
        if outer * inner != total:
            return f"the split into {outer} times {inner} does not divide the {total} iterations"
        if loop is split.outer:
            return split.parent, inner, split.inner
        if loop is split.inner:
            return split.parent, -inner, split.outer
    return "rfactor takes a reduction axis, or one half of its split, before other primitives on the stage"
