"""Data movement (concatenate, pad, transpose, resize, slices, and chains of these): runs of bytes, copied as words if possible.

Element-wise operators before and after a movement are computed on the way.  The movement is analysed at compile time into loop
nests (see `find_nests`), so no element is tested at run time.  Words or halfwords are copied if all strides, offsets and lengths
are multiples of them and the tensors are long enough that aligning them costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from math import gcd, prod
from typing import cast as typed

import numpy as np
import numpy.typing as npt

from aot.ir.op import F_EVALUATE, Op
from aot.ir.type import TensorType
from aot.op.common.te_rule import TeContext
from aot.relay.expr import Call, Constant, Expr, Var, post_order, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float, itemsize
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr as Scalar
from aot.tir.expr import Imm, imm
from aot.tir.function import FuncAttrs, Move
from aot.topi.generic.elementwise import ANCHORS as ELEMENTWISE
from aot.topi.generic.elementwise import INSTRUCTIONS
from aot.topi.generic.flat import is_elementwise
from aot.topi.layer.elementwise import te_of
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

MOVEMENTS = ("concatenate", "nn.pad", "transpose", "image.resize_nearest", "strided_slice", "reshape")
"""Operators whose `evaluate` only moves elements, whatever their values."""

UNROLL = 4
MAX_STRAIGHT = 8
"""Longest run that is copied without a loop, in units."""


@dataclass(frozen=True, slots=True)
class _Source:
    """What element numbers refer to: a tensor, an element-wise expression of tensors, or a call on elements of another source."""

    node: Expr
    of: int = 0
    fill: int = 0


@dataclass(frozen=True, slots=True)
class Movement:
    """`nests` move elements of `sources` (numbered from 1) to the places of `core`; then the element-wise calls of `epilogue`
    follow.
    """

    sources: tuple[_Source, ...]
    nests: tuple[Nest, ...]
    epilogue: tuple[Call, ...]


class _NotMovementError(Exception):
    pass


def plan_movement(group: Group) -> Movement | None:
    """The movement that a group amounts to, or None."""
    if not isinstance(group.result.type, TensorType) or group.result.type.size == 0:
        return None
    if group.result.type.dtype == "complex64":
        return None  # only elements that are a single number
    if not any(_is_movement(e) for e in post_order(group.result)):
        return None
    core, epilogue = _peel(group.result)
    finder = _Finder()
    try:
        codes = finder.codes(core)
    except _NotMovementError:
        return None
    nests = find_nests(codes)
    return None if nests is None else Movement(tuple(finder.sources), tuple(nests), epilogue)


def _is_movement(e: Expr) -> bool:
    return isinstance(e, Call) and isinstance(e.op, Op) and e.op.name in MOVEMENTS


def _is_elementwise(e: Expr) -> bool:
    """An element-wise call whose operands all have its shape."""
    return isinstance(e, Call) and is_elementwise(e) and all(a.type.shape == e.type.shape for a in e.args)  # type: ignore[union-attr]


def _peel(result: Expr) -> tuple[Expr, tuple[Call, ...]]:
    """Split a group after its last movement: (movement, later calls); each call reads the one before and whole tensors."""
    calls: list[Call] = []
    while _is_elementwise(result):
        call = typed(Call, result)
        inner = [a for a in call.args if isinstance(a, Call)]
        if len(inner) != 1:
            break
        calls.insert(0, call)
        result = inner[0]
    return result, tuple(calls)


class _Finder:
    """Evaluates a group on element numbers instead of values."""

    def __init__(self) -> None:
        self.sources: list[_Source] = []
        self._known: dict[int, Codes] = {}

    def codes(self, node: Expr) -> Codes:
        if id(node) not in self._known:
            self._known[id(node)] = self._find(node)
        return self._known[id(node)]

    def _find(self, node: Expr) -> Codes:
        if not any(_is_movement(e) for e in post_order(node)):
            if not all(isinstance(e, (Var, Constant)) or _is_elementwise(e) for e in post_order(node)):
                raise _NotMovementError
            return codes_of(self._enter(_Source(node)), tensor_type(node).shape)
        if not isinstance(node, Call):
            raise _NotMovementError
        if _is_movement(node):
            return self._moved(node)
        if _is_elementwise(node) and len(node.args) == 1:
            return self._mapped(node, self.codes(node.args[0]))
        raise _NotMovementError

    def _enter(self, source: _Source) -> int:
        self.sources.append(source)
        return len(self.sources)

    def _moved(self, call: Call) -> Codes:
        fill = getattr(call.attrs, "pad_value", 0)
        # fill values that element numbers have no room for
        if fill != 0 if is_float(tensor_type(call).dtype) else not -HALF <= fill < HALF:
            raise _NotMovementError
        args = [self.codes(a) for a in call.args]
        moved = F_EVALUATE.get(str(call.op))(*args, attrs=call.attrs, out_type=tensor_type(call))
        if moved.dtype != np.int64 or moved.shape != tensor_type(call).shape:
            raise _NotMovementError
        return typed(Codes, moved)

    def _mapped(self, call: Call, codes: Codes) -> Codes:
        """One new source for each source and each plain value among the operand's elements."""
        numbers = source_numbers(codes)
        out = np.empty_like(codes)
        for number in np.unique(numbers):
            here = numbers == number
            for value in np.unique(codes[here]) if number == 0 else (0,):
                mine = here & (codes == value) if number == 0 else here
                new = self._enter(_Source(call, int(number), int(value)))
                out[mine] = new * SOURCE + (0 if number == 0 else codes[mine] - int(number) * SOURCE)
        return out


def accepts(group: Group, _target: Target) -> bool:
    return plan_movement(group) is not None


def lower(group: Group, _target: Target, name: str) -> Lowered:
    movement = plan_movement(group)
    assert movement is not None
    return _Kernel(group, movement, name).lowered()


class _Kernel:
    """Emits the nests of one movement."""

    def __init__(self, group: Group, movement: Movement, name: str) -> None:
        self._group, self._movement = group, movement
        self._b = IRBuilder(name)
        self._ctx = TeContext(self._b)
        self._units = self._alignments()
        self._buffers: dict[int, Buffer] = {}
        for var in group.params:
            size, align = var.type.size, self._units.get(id(var), 1)
            self._buffers[id(var)] = self._b.input("data", (size,), var.type.dtype, align=align)
        result = tensor_type(group.result)
        self._out = self._b.output("out", (result.size,), result.dtype, align=self._units.get(0, 1))
        self._tensors: dict[int, TensorFn] = {}
        self._values = [self._source_tensor(s) for s in movement.sources]
        self._value: Scalar = imm(0)
        self._final = self._epilogue()

    def lowered(self) -> Lowered:
        instructions = code = 24
        for nest in self._movement.nests:
            each = self._nest(nest)
            instructions += each
            code += 40 + 12 * len(nest.axes) + 16 * self._cost(nest)
        calls = [e for e in post_order(self._group.result) if isinstance(e, Call)]
        words = "_".join(str(c.op).rpartition(".")[2] for c in calls[:4])
        kernel = f"generic.copy_{words}(nests={len(self._movement.nests)})"
        func = self._b.finish(FuncAttrs(kernel=kernel, span=self._group.anchor.span, moves=self._moves()))
        return Lowered(func, dict(self._ctx.constants), instructions, code)

    def _moves(self) -> tuple[Move, ...]:
        """The runs, if the movement only copies runs of parameters."""
        moves = []
        width = itemsize(tensor_type(self._group.result).dtype)
        numbers = {id(var): i for i, var in enumerate(self._group.params)}
        for nest in self._movement.nests:
            raw = self._raw(nest)
            straight = nest.inner.count == 1 or (nest.inner.out, nest.inner.source) == (1, 1)
            if not isinstance(raw, Var) or len(nest.axes) > 1 or not straight:
                return ()
            moves.append(Move(numbers[id(raw)], nest.start * width, nest.out * width, nest.inner.count * width))
        return tuple(moves)

    # ---- what is copied in which units

    def _raw(self, nest: Nest) -> Var | Constant | None:
        """The tensor whose bytes the nest copies unchanged; None otherwise."""
        if self._movement.epilogue or nest.source == 0:
            return None
        node = self._movement.sources[nest.source - 1].node
        return node if isinstance(node, (Var, Constant)) else None

    def _unit(self, nest: Nest) -> int:
        """Bytes to move at once: 4 or 2 if everything is a multiple of that, else the element's size."""
        result = tensor_type(self._group.result)
        element = itemsize(result.dtype)
        raw = self._raw(nest)
        plain_fill = nest.source == 0 and not self._movement.epilogue and not is_float(result.dtype)
        copied = plain_fill if raw is None else nest.inner.source == 1
        if element >= 4 or nest.inner.out != 1 or not copied:
            return element
        numbers = [nest.out, nest.inner.count, *(a.out for a in nest.axes[:-1]), result.size]
        if raw is not None:
            numbers += [nest.start, *(a.source for a in nest.axes[:-1]), tensor_type(raw).size]
        return max(element, gcd(4, element * gcd(*numbers)))

    def _alignments(self) -> dict[int, int]:
        """Required alignments of parameters in bytes; the result's is under 0."""
        table = {0: 1}
        for nest in self._movement.nests:
            raw, unit = self._raw(nest), self._unit(nest)
            for key in (0, *([id(raw)] if isinstance(raw, Var) else [])):
                table[key] = max(table.get(key, 1), unit)
        return table

    # ---- values

    def _node_tensor(self, node: Expr) -> TensorFn:
        """An element-wise expression over whole tensors, with one flat index."""
        if id(node) not in self._tensors:
            match node:
                case Var():
                    self._tensors[id(node)] = elements_of(self._buffers[id(node)])
                case Constant():
                    self._tensors[id(node)] = self._ctx.constant("table", node.data.reshape(-1))
                case Call():
                    self._tensors[id(node)] = self._apply(node, [self._node_tensor(a) for a in node.args])
                case _:
                    raise TypeError(type(node))
        return self._tensors[id(node)]

    def _apply(self, call: Call, args: list[TensorFn]) -> TensorFn:
        return te_of(self._ctx, call, args, (tensor_type(call).size,))

    def _source_tensor(self, source: _Source) -> TensorFn:
        if not isinstance(source.node, Call) or not any(map(_is_movement, post_order(source.node))):
            return self._node_tensor(source.node)
        argument = tensor_type(source.node.args[0])
        if source.of:
            inner = self._source_tensor(self._movement.sources[source.of - 1])
        else:
            value = imm(float(source.fill) if is_float(argument.dtype) else source.fill, argument.dtype)
            inner = TensorFn((argument.size,), argument.dtype, lambda _b, _i: value)
        return self._apply(source.node, [inner])

    def _epilogue(self) -> TensorFn:
        """The result of the epilogue at an index of the output, computed from `self._value`."""
        core = self._movement.epilogue[0] if self._movement.epilogue else None
        inner = next(a for a in core.args if isinstance(a, Call)) if core is not None else self._group.result
        type_ = tensor_type(inner)
        self._dtype = type_.dtype
        current = TensorFn((type_.size,), type_.dtype, lambda _b, _i: self._value)
        for call in self._movement.epilogue:
            args = [current if isinstance(a, Call) else self._node_tensor(a) for a in call.args]
            current = self._apply(call, args)
        return current

    # ---- loops

    def _nest(self, nest: Nest) -> int:
        """Emit a nest; return its instructions."""
        unit = self._unit(nest)
        factor = unit // itemsize(tensor_type(self._group.result).dtype)
        move = self._mover(nest, unit, factor)
        inner = Axis(nest.inner.count // factor, nest.inner.out, nest.inner.source)

        out: Scalar = imm(nest.out // factor)
        start: Scalar = imm(nest.start // factor)
        with ExitStack() as loops:
            for axis in nest.axes[:-1]:
                i = loops.enter_context(self._b.for_("i", axis.count))
                out, start = out + i * (axis.out // factor), start + i * (axis.source // factor)
            self._run(inner, out, start, move)
        looped = 0 if inner.count <= MAX_STRAIGHT else 4 + 3 * inner.count // UNROLL
        return prod(a.count for a in nest.axes[:-1]) * (inner.count * self._cost(nest) + looped + 6)

    def _cost(self, nest: Nest) -> int:
        """Instructions per unit."""
        source = self._movement.sources[nest.source - 1].node if nest.source else None
        calls = [e for e in post_order(source) if isinstance(e, Call)] if source is not None and self._raw(nest) is None else []
        calls += self._movement.epilogue
        return sum(INSTRUCTIONS.get(str(c.op), 12) for c in calls if not _is_movement(c)) + 1 + bool(nest.source) + len(calls)

    def _run(self, axis: Axis, out: Scalar, start: Scalar, move: Callable[[Scalar, Scalar, int], None]) -> None:
        """Emit the innermost loop: straight-line code, or UNROLL units per iteration and the remainder."""
        if axis.count <= MAX_STRAIGHT:
            for k in range(0, axis.count, UNROLL):
                move(out + k * axis.out, start + k * axis.source, min(UNROLL, axis.count - k))
            return
        whole = axis.count - axis.count % UNROLL
        with self._b.for_("k", whole, step=UNROLL) as i:
            move(out + i * axis.out, start + i * axis.source, UNROLL)
        if whole < axis.count:
            move(out + whole * axis.out, start + whole * axis.source, axis.count - whole)

    def _mover(self, nest: Nest, unit: int, factor: int) -> Callable[[Scalar, Scalar, int], None]:
        """A function (place in the result, place in the source, units) that moves some units: loads first, then stores."""
        b, axis = self._b, nest.inner
        dtype = {1: "uint8", 2: "uint16", 4: "uint32"}.get(unit, "")
        raw = self._raw(nest)

        def words(out: Scalar, start: Scalar, count: int) -> None:
            values: list[Scalar] = [imm(_pattern(nest.fill, unit, factor), dtype)] * count
            if raw is not None:
                source = self._buffers[id(raw)] if isinstance(raw, Var) else self._constant(raw)
                values = [b.let("word", source.load(dtype, start + k)) for k in range(count)]
            for k, value in enumerate(values):
                b.store_as(self._out, dtype, out + k, value)

        def elements(out: Scalar, start: Scalar, count: int) -> None:
            values = [self._element(nest, out + k * axis.out, start + k * axis.source) for k in range(count)]
            values = [v if isinstance(v, Imm) else b.let("value", v) for v in values]
            for k, value in enumerate(values):
                b.store(self._out, out + k * axis.out, value)

        return words if factor > 1 else elements

    def _constant(self, node: Constant) -> Buffer:
        """The buffer of a constant operand."""
        load = self._node_tensor(node).at(self._b, (imm(0),))
        return typed(Buffer, getattr(load, "buffer"))  # noqa: B009

    def _element(self, nest: Nest, out: Scalar, start: Scalar) -> Scalar:
        if nest.source:
            self._value = self._values[nest.source - 1].at(self._b, (start,))
        else:
            self._value = imm(float(nest.fill) if is_float(self._dtype) else nest.fill, self._dtype)
        return self._final.at(self._b, (out,))


def _pattern(value: int, unit: int, factor: int) -> int:
    """`factor` copies of a value in one unit."""
    width = 8 * unit // factor
    return sum((value & ((1 << width) - 1)) << (width * k) for k in range(factor))


for _anchor in (*MOVEMENTS, *ELEMENTWISE):
    register_impl(OpImplementation("generic.copy", _anchor, accepts, lower, plevel=14))


# Finds where data movement reads each element from, as a few loop nests.
#
# Nothing here knows operators: the group is evaluated on the numbers of elements instead of their values, and the nests are
# derived from the result.  A code is an element's number, with the number of its source (from 1) in the upper bits; codes around
# 0 are plain values (such as the fill of a pad).


Codes = npt.NDArray[np.int64]

SOURCE_BITS = 40
SOURCE = 1 << SOURCE_BITS
HALF = SOURCE >> 1


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop: its count, and by how many elements it advances in the result and in the source."""

    count: int
    out: int
    source: int


@dataclass(frozen=True, slots=True)
class Nest:
    """out[out + sum i*axis.out] = source[start + sum i*axis.source], outermost axis first; or `fill` everywhere (source 0)."""

    source: int
    out: int
    start: int
    axes: tuple[Axis, ...]
    fill: int = 0

    @property
    def inner(self) -> Axis:
        return self.axes[-1]


def codes_of(source: int, shape: tuple[int, ...]) -> Codes:
    """The codes of all elements of a source."""
    return (np.arange(int(np.prod(shape)), dtype=np.int64) + source * SOURCE).reshape(shape)


def source_numbers(codes: Codes) -> Codes:
    """The number of each code's source; 0 for plain values."""
    return (codes + HALF) >> SOURCE_BITS


MAX_RUNS = 1 << 17
MAX_NESTS = 12


def find_nests(codes: Codes) -> list[Nest] | None:
    """Nests that together move every element once; None if the movement is too irregular."""
    flat = codes.reshape(-1)
    sources = source_numbers(flat)
    nests: list[Nest] = []
    for source in np.unique(sources):
        if source:
            source_nests = _nests(int(source), np.flatnonzero(sources == source), flat, fill=None)
            if source_nests is None:
                return None
            nests += source_nests
    for value in np.unique(flat[sources == 0]):
        source_nests = _nests(0, np.flatnonzero(flat == value), flat, fill=int(value))
        if source_nests is None:
            return None
        nests += source_nests
    return nests if len(nests) <= MAX_NESTS else None


_Item = tuple[int, int, tuple[Axis, ...]]
"""(first element of the result, of the source, axes)"""


def _nests(source: int, out: Codes, flat: Codes, *, fill: int | None) -> list[Nest] | None:
    """The nests of one source.

    The longest runs are not always best: if an image is enlarged, the second half of a doubled pixel and the first half of the
    next one form a run.  So runs are also cut to the common divisor of their lengths, and the shorter list is used.
    """
    read = out if fill is not None else flat[out] - source * SOURCE
    breaks = np.flatnonzero((np.diff(out) != 1) | (np.diff(read) != 1)) + 1
    starts = np.concatenate([[0], breaks])
    lengths = np.diff(np.concatenate([starts, [out.size]]))
    common = int(np.gcd.reduce(lengths))
    if starts.size > MAX_RUNS:
        return None
    items = _loops(_runs(out, read, starts, lengths), cut=False)
    if len(items) > 1 and out.size // common <= MAX_RUNS:
        starts = np.arange(0, out.size, common)
        items = min(items, _loops(_runs(out, read, starts, np.full(starts.size, common)), cut=True), key=len)
    return [Nest(source, o, 0 if fill is not None else s, _tidy(axes), fill or 0) for o, s, axes in items]


def _runs(out: Codes, read: Codes, starts: Codes, lengths: Codes) -> list[_Item]:
    return [(int(out[s]), int(read[s]), (Axis(int(n), 1, 1),)) for s, n in zip(starts, lengths, strict=True)]


def _loops(items: list[_Item], *, cut: bool) -> list[_Item]:
    """Join neighbours of equal form at equal distances into one item with a further axis, repeatedly."""
    while True:
        rows = list(_rows(items))
        if len(rows) == len(items):
            return items
        common = math.gcd(*(end - start for start, end in rows)) if cut else 0
        if common > 1:
            rows = [(i, i + common) for start, end in rows for i in range(start, end, common)]
        items = [_joined(items, start, end) for start, end in rows]


def _rows(items: list[_Item]) -> Iterator[tuple[int, int]]:
    """[start, end) of neighbours of equal form at equal distances, from left to right."""
    i = 0
    while i < len(items):
        step = _step(items, i)
        end = i + 1
        while step is not None and _step(items, end - 1) == step:
            end += 1
        after = _step(items, end - 1) if end - i == 2 else None
        if after is not None and after == _step(items, end):
            end = i + 1  # the second one belongs to a longer row; this one stays alone
        yield i, end
        i = end


def _joined(items: list[_Item], start: int, end: int) -> _Item:
    out, source, axes = items[start]
    step = _step(items, start)
    return (out, source, (Axis(end - start, *step), *axes)) if end - start > 1 and step is not None else items[start]


def _step(items: list[_Item], i: int) -> tuple[int, int] | None:
    """The distance from item i to the next one, if both have the same form."""
    if i + 1 >= len(items) or items[i][2] != items[i + 1][2]:
        return None
    return items[i + 1][0] - items[i][0], items[i + 1][1] - items[i][1]


def _tidy(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Drop axes of one step; merge an axis that continues where its inner axis ends."""
    out: list[Axis] = []
    for axis in reversed([a for a in axes if a.count > 1] or [axes[-1]]):
        if out and axis.out == out[0].count * out[0].out and axis.source == out[0].count * out[0].source:
            out[0] = Axis(axis.count * out[0].count, out[0].out, out[0].source)
        else:
            out.insert(0, axis)
    return tuple(out)
