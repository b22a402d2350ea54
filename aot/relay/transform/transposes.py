"""Passes that remove transposes: sink_transpose, and interleave_concat for channel shuffles.

sink_transpose moves them towards the results, past operators that work in any order of dimensions, until they cancel out.
Converters from PyTorch put each convolution between two transposes.  What is between one convolution and the next then runs in
the other order, and every tensor is moved twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any

import numpy as np

from aot.ir.op import T_OP_PATTERN, OpPattern
from aot.ir.span import Span
from aot.ir.transform import PassContext, function_pass
from aot.ir.type import TensorType
from aot.relay import expr as ex
from aot.relay.analysis import BY_CHANNEL
from aot.relay.construct import reshaped, transposed
from aot.support.dataclass import dataclass
from aot.support.dtype import is_int


@function_pass(opt_level=2)
def sink_transpose(func: ex.Function, _context: PassContext) -> ex.Function:
    """Rebuild what follows transposes in the order of dimensions before them, if that moves fewer elements.

    In and out: operator calls.  Law: f(T(x)) = T(f'(x)) for element-wise operators, borders, slices, reductions and
    concatenations, where f' is f with its dimensions renamed; an integer layer that reads T(x) row by row gets its weights
    reordered.  Consecutive transposes and reshapes are one transpose or none.  Each group of transposes that meet is judged on
    its own; a group that would not move fewer elements stays as it is.  Not done: GELU, whose last elements the reference
    computes differently; float reductions over dimensions that change places.
    """
    barred: set[int] = set()
    while True:
        work = _Sinking(func, frozenset(barred))
        new = work.run()
        worse = work.not_better() or work.twice()
        if not worse:
            return new if work.gains() else func
        barred |= worse


@dataclass(slots=True)
class _Sinking:
    """One walk over a function; `barred`: ids of nodes that stay where they are, transposes and their readers."""

    func: ex.Function
    barred: frozenset[int]
    plain: dict[int, ex.Expr] = field(default_factory=dict)
    moved: dict[int, Moved] = field(default_factory=dict)
    leader: dict[int, int] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)
    after: dict[int, int] = field(default_factory=dict)
    emitted: dict[tuple[int, Rearrangement], ex.Expr] = field(default_factory=dict)
    passed: dict[int, Moved] = field(default_factory=dict)

    def run(self) -> ex.Function:
        for expr in ex.post_order(self.func.body):
            sunk_value = self._sunk(expr)
            if sunk_value is None:
                self.plain[id(expr)] = ex.with_operands(expr, [self._whole(o) for o in ex.operands(expr)])
            else:
                self.moved[id(expr)] = sunk_value
        return ex.Function(self.func.params, self._whole(self.func.body), self.func.attrs)

    def gains(self) -> bool:
        return bool(self.before)

    def not_better(self) -> set[int]:
        """The transposes of groups that move as many elements as before, or more."""
        saved: Counter[int] = Counter()
        for node, elements in self.before.items():
            saved[self._leader(node)] += elements
        for node, elements in self.after.items():
            saved[self._leader(node)] -= elements
        return {node for node in self.before if saved[self._leader(node)] <= 0}

    def twice(self) -> set[int]:
        """One-operand operators that need the same transpose before and after them: once before them is enough."""
        return {
            key
            for key, before in self.passed.items()
            if {(id(before.base), before.by), (id(self.moved[key].base), before.by)} <= self.emitted.keys()
        }

    # ---- groups

    def _leader(self, node: int) -> int:
        while self.leader.get(node, node) != node:
            node = self.leader[node]
        return node

    def _join(self, nodes: list[int]) -> int:
        first = self._leader(nodes[0])
        for node in nodes[1:]:
            self.leader[self._leader(node)] = first
        return first

    # ---- values

    def _sunk(self, expr: ex.Expr) -> Moved | None:
        """The value of a call as a tensor in another order, if possible."""
        if not isinstance(expr, ex.Call) or not expr.name or id(expr) in self.barred:
            return None
        if expr.name == "transpose":
            return self._transposed(expr)
        args = [self.moved.get(id(a)) for a in expr.args]
        moved = [a for a in args if a is not None]
        if all(a.by.is_identity for a in moved):
            return None
        if expr.name == "reshape":
            return moved[0]
        rule = RULES.get(expr.name)
        if rule is None or not isinstance(expr.type, TensorType):
            return None
        new = rule(expr, [a or self.plain[id(e)] for a, e in zip(args, expr.args, strict=True)])
        if new is None:
            return None
        if len(args) == 1:
            self.passed[id(expr)] = moved[0]
        return replace(new, group=self._join([a.group for a in moved]))

    def _transposed(self, expr: ex.Call) -> Moved | None:
        data, axes = expr.args[0], tuple(expr.attrs.axes)
        shape = ex.tensor_type(data).shape
        own = Rearrangement.of(shape, axes)
        inner = self.moved.get(id(data))
        by = own if inner is None else inner.by.then(shape, axes)
        if by is None:
            return None
        self.before[id(expr)] = 0 if own.is_identity else own.elements
        self.leader[id(expr)] = id(expr)
        if inner is None:
            return Moved(self.plain[id(data)], by, id(expr), expr.span)
        return Moved(inner.base, by, self._join([inner.group, id(expr)]), expr.span)

    def _whole(self, expr: ex.Expr) -> ex.Expr:
        """The original expression, in its own shape."""
        value = self.moved.get(id(expr))
        if value is None:
            return self.plain[id(expr)]
        shape, by = ex.tensor_type(expr).shape, value.by
        if by.is_identity:
            return reshaped(value.base, shape, value.span)
        key = (id(value.base), by)
        if key not in self.emitted:
            self.emitted[key] = transposed(reshaped(value.base, by.sizes, value.span), by.order, value.span)
            self.after[value.group] = self.after.get(value.group, 0) + by.elements
        return reshaped(self.emitted[key], shape, value.span)


# f(T(x)) = T(f'(x)): an operator's equivalent on its operands before they were rearranged.


_UNARY = (
    "abs cast ceil clip cos elu exp floor hard_swish leaky_relu log logical_not negative relu rint rsqrt sigmoid sign sin sqrt"
    " square tanh qnn.dequantize qnn.lut qnn.lut16 qnn.lut_float qnn.quantize qnn.requantize8 qnn.sigmoid16 qnn.sqrt16 qnn.steps"
)
_BROADCAST = (
    "add atan2 bitwise_and bitwise_xor divide equal floor_divide floor_mod greater greater_equal less less_equal logical_and"
    " logical_or maximum minimum multiply not_equal power select squared_difference subtract qnn.add qnn.divide qnn.multiply"
    " qnn.prelu qnn.squared_difference"
)
_REDUCTIONS = "all any average mean reduce_max reduce_min sum"


@dataclass(frozen=True, slots=True)
class Moved:
    """`base` rearranged by `by`, in any shape; `group`: one of the transposes that it represents."""

    base: ex.Expr
    by: Rearrangement
    group: int
    span: Span


# ---- dimensions before and after


@dataclass(frozen=True, slots=True)
class _Aligned:
    """The source in `shape`, whose dimensions are the `groups` of the atoms of `by`; `result`: groups of the result."""

    by: Rearrangement
    shape: tuple[int, ...]
    groups: Groups
    result: Groups

    def source_of(self, dimension: int) -> int | None:
        """The dimension of the source that equals this dimension of the result, whole and in order; None if there is none."""
        atoms = tuple(self.by.order[i] for i in self.result[dimension])
        return self.groups.index(atoms) if atoms and atoms in self.groups else None

    def resized(self, dimension: int, size: int) -> Rearrangement:
        """The rearrangement if that dimension of the source has another extent."""
        first, *others = self.groups[dimension]
        sizes = tuple(size if a == first else n for a, n in enumerate(self.by.sizes))
        gone = frozenset(others) | (frozenset({first}) if size == 1 else frozenset())
        return Rearrangement(sizes, self.by.order).without(gone).simplified()


def _alignments(value: Moved, shape: Sequence[int]) -> list[_Aligned]:
    """All alignments of a value with this shape: by the shape of its source, and by single atoms."""
    alignments = []
    own = ex.tensor_type(value.base).shape
    by_source = value.by.split_source(own)
    if by_source is not None and (both := by_source[0].split_result(shape)) is not None:
        restored = both[0].split_source(own)
        assert restored is not None
        alignments.append(_Aligned(restored[0], own, restored[1], both[1]))
    single = value.by.split_result(shape)
    if single is not None:
        by, result = single
        alignments.append(_Aligned(by, by.sizes, tuple((a,) for a in range(len(by.sizes))), result))
    return alignments


# ---- element-wise operators


def _elementwise(expr: ex.Call, args: Sequence[Moved | ex.Expr]) -> Moved | None:
    """All rearranged operands must be alike and have the result's shape; others are constants, or vectors along one dimension."""
    shape = ex.tensor_type(expr).shape
    moved = [a for a in args if isinstance(a, Moved)]
    first = moved[0]
    whole = [ex.tensor_type(e).shape == shape for e, a in zip(expr.args, args, strict=True) if isinstance(a, Moved)]
    if not all(whole) or any(a.by != first.by for a in moved):
        return None
    if len(moved) == len(args):
        own = ex.tensor_type(first.base).shape
        return replace(first, base=ex.again(expr, [reshaped(a.base, own, expr.span) for a in moved]))
    for aligned in _alignments(first, shape):
        factors = [
            reshaped(a.base, aligned.shape, expr.span) if isinstance(a, Moved) else _before(a, aligned, shape, expr) for a in args
        ]
        new = [f for f in factors if f is not None]
        if len(new) == len(factors):
            return replace(first, base=reshaped(ex.again(expr, new), ex.tensor_type(first.base).shape, expr.span))
    return None


def _before(other: ex.Expr, aligned: _Aligned, shape: Sequence[int], expr: ex.Call) -> ex.Expr | None:
    """An operand broadcast to `shape` as one broadcast to the source's; None if that would move its elements at run time."""
    type_ = ex.tensor_type(other)
    if type_.size == 1:
        return reshaped(other, (), expr.span) if len(type_.shape) > len(aligned.shape) else other
    own = (1,) * (len(shape) - len(type_.shape)) + type_.shape
    places = [i for d, n in enumerate(own) if n != 1 for i in aligned.result[d]]
    atoms = [aligned.by.order[i] for i in places]
    target = []
    for group, n in zip(aligned.groups, aligned.shape, strict=True):
        inside = {a in atoms for a in group}
        if len(inside) > 1:
            return None
        target.append(n if inside == {True} else 1)
    if atoms == sorted(atoms):
        return reshaped(other, target, expr.span)
    if not isinstance(other, ex.Constant) or (type_.quant is not None and len(type_.quant.scale) > 1):
        return None
    box = np.asarray(other.data).reshape([aligned.by.sizes[a] for a in atoms])
    data = np.ascontiguousarray(box.transpose(np.argsort(atoms)).reshape(target))
    return ex.Constant(data, TensorType(tuple(target), type_.dtype, type_.quant), other.span)


# ---- borders, slices, reductions, concatenations


def _along(expr: ex.Call, args: Sequence[Moved | ex.Expr], dimensions: Sequence[int]) -> tuple[Moved, _Aligned, list[int]] | None:
    """The operand, and the dimensions of its source that correspond to these dimensions of its own."""
    (value,) = args
    assert isinstance(value, Moved)
    for aligned in _alignments(value, ex.tensor_type(expr.args[0]).shape):
        sources = [aligned.source_of(d) for d in dimensions]
        if None not in sources:
            return value, aligned, [f for f in sources if f is not None]
    return None


AttrsOf = Callable[[ex.Call, tuple[int, ...], dict[int, int]], Any]
"""(call, shape of its new operand, new dimension -> old dimension where that matters) -> the new attributes."""


def _pad(expr: ex.Call, args: Sequence[Moved | ex.Expr]) -> Moved | None:
    widths = expr.attrs.pad_width
    return _sized(expr, args, [d for d, w in enumerate(widths) if any(w)], _padded)


def _padded(expr: ex.Call, shape: tuple[int, ...], places: dict[int, int]) -> Any:
    width = tuple(expr.attrs.pad_width[places[e]] if e in places else (0, 0) for e in range(len(shape)))
    return replace(expr.attrs, pad_width=width)


def _slice(expr: ex.Call, args: Sequence[Moved | ex.Expr]) -> Moved | None:
    shape, attrs = ex.tensor_type(expr.args[0]).shape, expr.attrs
    cut = [d for d, n in enumerate(shape) if list(attrs.ranges[d]) != list(range(n))]
    return _sized(expr, args, cut, _cut)


def _cut(expr: ex.Call, shape: tuple[int, ...], places: dict[int, int]) -> Any:
    attrs = expr.attrs
    begin = tuple(attrs.begin[places[e]] if e in places else 0 for e in range(len(shape)))
    strides = tuple(attrs.strides[places[e]] if e in places else 1 for e in range(len(shape)))
    extents = tuple(attrs.extents[places[e]] if e in places else n for e, n in enumerate(shape))
    return replace(attrs, begin=begin, strides=strides, extents=extents)


def _sized(expr: ex.Call, args: Sequence[Moved | ex.Expr], dimensions: list[int], attrs_of: AttrsOf) -> Moved | None:
    """An operator that changes the extent of one dimension, or of several in turn."""
    aligned_dimensions = _along(expr, args, dimensions)
    if aligned_dimensions is None or not dimensions:
        return None
    value, aligned, sources = aligned_dimensions
    places = dict(zip(sources, dimensions, strict=True))
    base = ex.again(expr, [reshaped(value.base, aligned.shape, expr.span)], attrs_of(expr, aligned.shape, places))
    sizes = list(aligned.by.sizes)
    gone: set[int] = set()
    for e in sources:
        first, *others = aligned.groups[e]
        sizes[first] = ex.tensor_type(base).shape[e]
        gone |= {*others, *([first] if sizes[first] == 1 else [])}
    by = Rearrangement(tuple(sizes), aligned.by.order).without(frozenset(gone)).simplified()
    return replace(value, base=base, by=by)


def _reduce(expr: ex.Call, args: Sequence[Moved | ex.Expr]) -> Moved | None:
    """Over dimensions that keep their order, since floats are added in memory order."""
    shape = ex.tensor_type(expr.args[0]).shape
    aligned_dimensions = _along(expr, args, [a for a in expr.attrs.axes if shape[a] != 1])
    if aligned_dimensions is None or not aligned_dimensions[2] or aligned_dimensions[2] != sorted(aligned_dimensions[2]):
        return None
    value, aligned, sources = aligned_dimensions
    base = ex.again(expr, [reshaped(value.base, aligned.shape, expr.span)], replace(expr.attrs, axes=tuple(sources)))
    gone = frozenset(a for e in sources for a in aligned.groups[e])
    return replace(value, base=base, by=aligned.by.without(gone).simplified())


def _concatenate(expr: ex.Call, args: Sequence[Moved | ex.Expr]) -> Moved | None:
    """Only if all operands are rearranged alike."""
    axis, moved = expr.attrs.axis, [a for a in args if isinstance(a, Moved)]
    if len(moved) < len(args):
        return None
    all_ways = [_alignments(a, ex.tensor_type(e).shape) for a, e in zip(moved, expr.args, strict=True)]
    for ways in zip(*all_ways, strict=False):
        sources = {way.source_of(axis) for way in ways}
        source = next(iter(sources))
        if len(sources) > 1 or source is None:
            continue
        # all operands share everything but the extent of one dimension
        beside = {(tuple(n for e, n in enumerate(way.shape) if e != source), way.resized(source, 0)) for way in ways}
        if len(beside) > 1:
            continue
        bases = [reshaped(a.base, way.shape, expr.span) for a, way in zip(moved, ways, strict=True)]
        base = ex.again(expr, bases, replace(expr.attrs, axis=source))
        return replace(moved[0], base=base, by=ways[0].resized(source, ex.tensor_type(base).shape[source]))
    return None


# ---- fully connected layers


def _dense(expr: ex.Call, args: Sequence[Moved | ex.Expr]) -> Moved | None:
    """Integers only, whose products may be added in any order: the columns of the weights move instead."""
    data, weight = args[0], expr.args[1]
    rows, depth = ex.tensor_type(expr.args[0]).shape
    if not isinstance(data, Moved) or not isinstance(weight, ex.Constant) or not is_int(ex.tensor_type(expr.args[0]).dtype):
        return None
    split = data.by.split_result((rows, depth))
    if split is None:
        return None
    by, (lead, inner) = split
    if by.order[: len(lead)] != tuple(range(len(lead))):
        return None
    start = len(lead)
    columns = np.arange(depth).reshape(by.sizes[start:]).transpose([by.order[i] - start for i in inner]).reshape(-1)
    moved = np.empty_like(np.asarray(weight.data))
    moved[:, columns] = weight.data
    layer = ex.again(expr, [reshaped(data.base, (rows, depth), expr.span), replace(weight, data=moved)])
    whole = Rearrangement((prod(ex.tensor_type(layer).shape),), (0,))
    return replace(data, base=layer, by=whole)


Rule = Callable[[ex.Call, Sequence[Moved | ex.Expr]], Moved | None]

RULES: dict[str, Rule] = {
    **dict.fromkeys(f"{_UNARY} {_BROADCAST}".split(), _elementwise),
    **dict.fromkeys(_REDUCTIONS.split(), _reduce),
    "concatenate": _concatenate,
    "nn.dense": _dense,
    "nn.pad": _pad,
    "strided_slice": _slice,
}
"""Rules per operator."""


# A tensor in another order of its elements: any chain of transposes and reshapes, as one transpose of its atoms.
#
# The source, in row-major order, is a box of `sizes` (none of them 1), the atoms; the result is that box with its dimensions in
# `order`, again in row-major order.  Shapes at both ends are only views: a reshape changes nothing here.


Groups = tuple[tuple[int, ...], ...]
"""For each dimension of a shape, the positions of the atoms in it."""


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """`order[i]` is the atom of the source at position i of the result."""

    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def is_identity(self) -> bool:
        return self.order == tuple(range(len(self.order)))

    @property
    def moved(self) -> tuple[int, ...]:
        """The sizes in the order of the result."""
        return tuple(self.sizes[a] for a in self.order)

    @property
    def elements(self) -> int:
        return prod(self.sizes)

    @staticmethod
    def of(shape: Sequence[int], axes: Sequence[int]) -> Rearrangement:
        """The rearrangement of a single transpose."""
        kept = [a for a, n in enumerate(shape) if n != 1]
        return Rearrangement(tuple(shape[a] for a in kept), tuple(kept.index(a) for a in axes if shape[a] != 1)).simplified()

    def simplified(self) -> Rearrangement:
        """Use as few atoms as possible: merge neighbours that stay neighbours."""
        runs: list[list[int]] = []
        for a in self.order:
            if runs and runs[-1][-1] + 1 == a:
                runs[-1].append(a)
            else:
                runs.append([a])
        by_source = sorted(runs)
        return Rearrangement(
            tuple(prod(self.sizes[a] for a in run) for run in by_source), tuple(by_source.index(r) for r in runs)
        )

    def then(self, shape: Sequence[int], axes: Sequence[int]) -> Rearrangement | None:
        """This, followed by a transpose of the result in `shape`; None if its dimensions cut atoms as no box allows."""
        fine = self.split_result(shape)
        if fine is None:
            return None
        whole, groups = fine
        return Rearrangement(whole.sizes, tuple(whole.order[i] for a in axes for i in groups[a])).simplified()

    def split_result(self, shape: Sequence[int]) -> tuple[Rearrangement, Groups] | None:
        """The same with each atom in only one dimension of the result, and the atoms (positions in `order`) of each dimension."""
        parts = refine(self.moved, shape)
        if parts is None:
            return None
        pieces = dict(zip(self.order, parts[0], strict=True))
        sizes = [n for a in range(len(self.sizes)) for n in pieces[a]]
        places = _places([pieces[a] for a in range(len(self.sizes))])
        order = tuple(i for a in self.order for i in places[a])
        return Rearrangement(tuple(sizes), order), _places(parts[1])

    def split_source(self, shape: Sequence[int]) -> tuple[Rearrangement, Groups] | None:
        """The same for the dimensions of the source: each of its groups lists atoms."""
        split = self.inverse().split_result(shape)
        return None if split is None else (split[0].inverse(), split[1])

    def inverse(self) -> Rearrangement:
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return Rearrangement(self.moved, tuple(back))

    def without(self, atoms: frozenset[int]) -> Rearrangement:
        """The rearrangement without these atoms, which a reduction has removed."""
        kept = [a for a in range(len(self.sizes)) if a not in atoms]
        return Rearrangement(tuple(self.sizes[a] for a in kept), tuple(kept.index(a) for a in self.order if a not in atoms))


def refine(a: Sequence[int], b: Sequence[int]) -> tuple[list[list[int]], list[list[int]]] | None:
    """The factors of each dimension of two shapes with the same number of elements, such that both sequences of factors agree.

    None if that is impossible: [2, 3] and [3, 2], for instance.
    """
    parts: tuple[list[list[int]], list[list[int]]] = ([[] for _ in a], [[] for _ in b])
    shapes, at, left = (a, b), [0, 0], [1, 1]
    while True:
        for side in (0, 1):
            while left[side] == 1 and at[side] < len(shapes[side]):
                left[side] = shapes[side][at[side]]
                at[side] += 1
        if left == [1, 1]:
            return parts
        factor = min(left)
        if factor == 1 or left[0] % factor or left[1] % factor:
            return None
        for side in (0, 1):
            parts[side][at[side] - 1].append(factor)
            left[side] //= factor


def _places(parts: Sequence[Sequence[int]]) -> Groups:
    groups, place = [], 0
    for group in parts:
        groups.append(tuple(range(place, place + len(group))))
        place += len(group)
    return tuple(groups)


# A channel shuffle after a concatenation becomes a concatenation along another axis, which interleaves the operands.


@function_pass(opt_level=2)
def interleave_concat(func: ex.Function, _context: PassContext) -> ex.Function:
    """Replace channel shuffles of concatenations by concatenations that interleave.

    In and out: operator calls.  Law: with n operands of the same last axis, [..., n, c] transposed to [..., c, n] equals their
    concatenation as [..., c, 1] along the last axis.  Element-wise operators of one tensor and borders of other axes may be in
    between; nothing else may read anything in between, so that nothing is computed twice.
    """
    work = _Shuffles(func)
    for expr in ex.post_order(func.body):
        work.visit(expr)
    roots = work.roots()
    return work.rebuilt(roots) if roots else func


@dataclass(frozen=True, slots=True)
class _Shuffle:
    """A transpose, and the tensor whose last axis it splits in two parts that it exchanges."""

    of: ex.Expr
    root: ex.Call


@dataclass(slots=True)
class _Shuffles:
    func: ex.Function
    readers: dict[int, list[ex.Expr]] = field(init=False)
    shuffles: dict[int, _Shuffle] = field(default_factory=dict)
    """Shuffles by the id of their transpose."""
    views: set[int] = field(default_factory=set)
    """Reshapes between a tensor and the transpose."""
    done: dict[int, ex.Expr] = field(default_factory=dict)
    shuffled: dict[int, ex.Expr] = field(default_factory=dict)
    """By node on the path from a concatenation: the same value with its last axis shuffled."""

    def __post_init__(self) -> None:
        self.readers = ex.users(self.func)

    def visit(self, expr: ex.Expr) -> None:
        if not ex.is_call(expr, "transpose"):
            return
        (view,) = ex.operands(expr)
        axes, shape = expr.attrs.axes, ex.tensor_type(view).shape
        last = len(shape) - 1
        if last < 1 or tuple(axes) != (*range(last - 1), last, last - 1) or not ex.is_call(view, "reshape"):
            return
        of = ex.operands(view)[0]
        root = _way(of)[-1] if _way(of) else None
        if not isinstance(root, ex.Call) or ex.tensor_type(of).shape[-1] != shape[-2] * shape[-1] or len(root.args) != shape[-2]:
            return
        if all(ex.tensor_type(a).shape[-1] == shape[-1] for a in root.args):
            self.shuffles[id(expr)] = _Shuffle(of, root)
            self.views.add(id(view))

    def roots(self) -> set[int]:
        """The concatenations that only shuffles read."""
        removable = {id(s.root) for s in self.shuffles.values()}
        while True:
            left = [s for s in self.shuffles.values() if id(s.root) in removable]
            inside = self.views | {id(e) for s in left for e in _way(s.of)}
            bad = {id(s.root) for s in left if not all(self._only(e, inside) for e in _way(s.of))}
            if not bad:
                return removable
            removable -= bad

    def _only(self, expr: ex.Expr, inside: set[int]) -> bool:
        """Whether all readers are in between, or are the view of a shuffle that is removed."""
        return expr is not self.func.body and all(id(r) in inside for r in self.readers[id(expr)])

    def rebuilt(self, roots: set[int]) -> ex.Function:
        def interleaved(expr: ex.Expr, new: ex.Expr) -> ex.Expr:
            shuffle = self.shuffles.get(id(expr))
            if shuffle is None or id(shuffle.root) not in roots:
                return new
            return reshaped(self._shuffled(shuffle.of), ex.tensor_type(expr).shape, shuffle.root.span)

        return replace(self.func, body=ex.rebuild(self.func.body, interleaved, self.done))

    def _shuffled(self, expr: ex.Expr) -> ex.Expr:
        if id(expr) not in self.shuffled:
            if ex.is_call(expr, "concatenate"):
                self.shuffled[id(expr)] = self._interleaved(expr)
            else:
                data, *others = ex.operands(expr)
                self.shuffled[id(expr)] = ex.with_operands(expr, [self._shuffled(data), *others])
        return self.shuffled[id(expr)]

    def _interleaved(self, root: ex.Call) -> ex.Expr:
        """The concatenation of the operands, interleaved element by element, in its original shape."""
        *outer, channels = ex.tensor_type(root.args[0]).shape
        parts = [reshaped(self.done[id(a)], (*outer, channels, 1), root.span) for a in root.args]
        joined = ex.again(root, parts, replace(root.attrs, axis=len(outer) + 1))
        return reshaped(joined, ex.tensor_type(root).shape, root.span)


def _way(expr: ex.Expr) -> list[ex.Expr]:
    """The path back to a concatenation along the last axis, over nodes that work in any order of it; empty if there is none."""
    way: list[ex.Expr] = [expr]
    while not ex.is_call(root := way[-1], "concatenate"):
        data = _data_of(root)
        if data is None:
            return []
        way.append(data)
    return way if root.attrs.axis == len(ex.tensor_type(root).shape) - 1 else []


def _data_of(expr: ex.Expr) -> ex.Expr | None:
    """The operand of a border of other axes, or of an element-wise operator of one tensor."""
    if not isinstance(expr, ex.Call) or not expr.name or not isinstance(expr.type, TensorType) or not expr.args:
        return None
    data, *others = expr.args
    if isinstance(data, ex.Constant) or not all(isinstance(o, ex.Constant) and o.data.size == 1 for o in others):
        return None
    if expr.name == "nn.pad":
        return data if not any(expr.attrs.pad_width[-1]) else None
    simple = expr.name not in BY_CHANNEL and T_OP_PATTERN.get(expr.name) <= OpPattern.BROADCAST
    return data if simple and ex.tensor_type(data).shape == expr.type.shape else None
