"""Which part of a tensor a stage has to compute where it is attached, and how its loops run over that part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from aot.support.dataclass import dataclass
from aot.te.affine import Affine, affine
from aot.te.operation import IterVar, Reduce, Tensor
from aot.te.relation import axis_values, loop_extents
from aot.te.schedule import Stage
from aot.tir.analysis.bounds import Interval, interval
from aot.tir.buffer import Buffer
from aot.tir.expr import Call, Expr, Load, Var
from aot.tir.functor import Cloner, loads, walk_expr
from aot.tir.transform.simplify import simplified_expr

Body = Expr | Reduce
Ranges = dict[Var, Interval]


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """A stage in its place.

    `starts` and `sizes`: the part of the tensor that is computed, in terms of the loops around; the buffer holds just that.
    `extents` of all axes and loops; `variables` of the loops; `places`: the axes' variables in the rule -> their values;
    `elements`: the indices of the buffer that are stored; `guards`: conditions under which the rule applies.
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
        """Indices of the tensor as indices of the buffer."""
        out: list[Expr] = []
        for index, start in zip(indices, self.starts, strict=True):
            whole = not start.terms and not start.offset
            out.append(index if whole else affine(simplified_expr(index, ranges)).plus(start, -1).expr())
        return tuple(out)


def value_of(body: Body) -> Expr:
    """The expression of a rule, of a reduction what it combines."""
    return body.value if isinstance(body, Reduce) else body


def make_geometry(stage: Stage, body: Body, buffer: Buffer, *, starts: Sequence[Affine], ranges: Ranges) -> Geometry:
    """The loops of a stage over a buffer of the part's shape; the ranges of its loops are added to `ranges`."""
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


def fixed_variables(parent: Geometry, axis: IterVar, known: Mapping[Stage, Geometry]) -> set[Var]:
    """The loop variables that have a value inside of loop `axis` of a stage."""
    leaves = parent.stage.leaves
    found = {parent.variables[leaf] for leaf in leaves[: leaves.index(axis) + 1]}
    if parent.stage.attached is not None:
        outer, place = parent.stage.attached
        found |= fixed_variables(known[outer], place, known)
    return found


def needed_part(
    tensor: Tensor, readers: Sequence[Geometry], *, fixed: set[Var], ranges: Ranges
) -> tuple[list[Affine], list[int]]:  # fmt: skip
    """(starts, sizes) of the smallest box that holds all that the readers read while the `fixed` variables keep their values."""
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
    """The accesses, their indices in terms of loops."""
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
