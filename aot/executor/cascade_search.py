"""Cascades: which layers become some, by dynamic programming over cut points in the order of execution, and their PrimFuncs.

Under a limit on bytes, the segments that cover all layers with the fewest instructions are found exactly; `ram` searches for the
smallest limit whose plan stays within MOST_SLOWDOWN of the usual plan.  A segment's bytes are what the planner needs for its own
buffers, with everything else that is live packed beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field, replace
from functools import lru_cache
from itertools import accumulate

import numpy as np

from aot.errors import Problem, UsageError
from aot.executor.candidates import CandidateModule, candidates
from aot.executor.cascade_nest import ALIGN, OUT, WINDOWS, Nest, Node, Part, StripeConfig, distances, external_name, make_stripe
from aot.executor.copy_elision import Operand, call_distances
from aot.executor.lowered import CascadeRuns, KernelCall, LoweredModule, TensorRef
from aot.executor.selection import Candidate
from aot.ir.op import Array
from aot.ir.span import NO_SPAN, Span
from aot.ir.type import TensorType
from aot.memory.plan import BufferInfo, Conflict, align_up
from aot.memory.planner import plan
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, Var, equal, imm, logical_and, maximum, minimum
from aot.tir.function import FuncAttrs, PrimFunc
from aot.tir.stmt import CallPrim, Region
from aot.tir.transform import trial
from aot.topi.strategy import Lowered

# ---- the PrimFunc of a cascade: the nest as loops around calls of row kernels


UNROLL = 8


@lru_cache(maxsize=256)
def move_rows(size: int, *, words: bool) -> PrimFunc:
    """Copy `size` bytes upward, so that the target may start anywhere before the source and overlap it.

    `words`: both addresses and `size` are multiples of four.
    """
    b = IRBuilder("move_rows")
    align = 4 if words else 1
    source = b.input("source", (size,), "int8", align=align)
    target = b.output("target", (size,), "int8", align=align)
    unit = "int32" if words else "int8"
    count = size // itemsize(unit)
    full = count // UNROLL * UNROLL
    if full:
        with b.for_("i", full, step=UNROLL) as i:
            for k in range(UNROLL):
                b.store_as(target, unit, i + k, source.load(unit, i + k))
    for k in range(full, count):
        b.store_as(target, unit, k, source.load(unit, k))
    return b.finish(FuncAttrs(kernel=f"generic.move_rows(bytes={size})", opt="speed"))


def move_instructions(size: int, *, words: bool) -> int:
    """Estimate: a load and a store per unit, in a loop of eight."""
    units = size // (4 if words else 1)
    return 12 + 2 * units + 3 * (units // UNROLL)


@lru_cache(maxsize=256)
def fill_rows(count: int, dtype: str, value: int | float) -> PrimFunc:
    """Store `count` elements with the same value."""
    b = IRBuilder("fill_rows")
    target = b.output("target", (count,), dtype, align=1 if itemsize(dtype) == 1 else itemsize(dtype))
    with b.for_("i", count) as i:
        b.store(target, i, Imm(value, dtype))
    return b.finish(FuncAttrs(kernel=f"generic.fill_rows(elements={count})", opt="size"))


Kernels = Sequence[Lowered | None]
"""The row kernel of each node; None: the rows of the only link are copied."""


@dataclass(slots=True)
class _Emitter:
    """Emits the blocks of a nest; `offsets` are places of windows, `streams` those of constants in `params`."""

    nest: Nest
    kernels: Kernels
    externals: Sequence[Buffer]
    out: Buffer
    params: Buffer | None
    windows: Buffer | None
    work_space: Buffer | None
    offsets: Sequence[int]
    streams: Sequence[Mapping[str, int]]
    b: IRBuilder
    fed: bool = False
    """Whether external tensor 0 is a single row, which the first node of `feeding` reads."""
    callees: dict[str, PrimFunc] = field(default_factory=dict)

    def arrive(self, place: int, first: Expr) -> None:
        """Emit the rows of a node of `feeding` from `first` on, and everything that they make possible."""
        path = self.nest.feeding
        n = path[place]
        self.own_block(n, first)
        if place + 1 == len(path):
            return
        reader = path[place + 1]
        (_, count, offset), rows = self.nest.drives[reader][0], self.nest.nodes[reader].reading(n)
        behind = (count - 1) * self.nest.nodes[n].rows + offset - rows.before
        start = self.b.let(f"start{n}", first - behind)
        advance = rows.advance(self.nest.nodes[reader].rows)
        with self.b.if_(equal(start % advance, 0)):
            own = self.b.let(f"row{reader}", start * rows.repeat if rows.repeat > 1 else start / rows.stride)
            self.inputs(reader, own, 1)
            self.arrive(place + 1, own)

    def block(self, n: int, first: Expr) -> None:
        """Emit the rows of node n from `first` on, after its inputs."""
        self.inputs(n, first, 0)
        self.own_block(n, first)

    def inputs(self, n: int, first: Expr, skip: int) -> None:
        """Emit what node n drives, without the first `skip` of them."""
        node = self.nest.nodes[n]
        for source, count, offset in self.nest.drives[n][skip:]:
            rows = node.reading(source)
            start = first / rows.repeat if rows.repeat > 1 else first * rows.stride
            start = start + (offset - rows.before)
            if count == 1:
                self.block(source, self.b.let(f"row{source}", start))
            else:
                with self.b.for_(f"k{source}", count) as k:
                    self.block(source, self.b.let(f"row{source}", start + k * self.nest.nodes[source].rows))

    def own_block(self, n: int, first: Expr) -> None:
        """Emit the rows of node n, whose inputs are ready."""
        node = self.nest.nodes[n]
        low, high = self.nest.guards[n]
        with self.b.if_(logical_and(first >= low, first <= high)):
            if any(node.margins):
                with self.b.if_(equal(first, low)):
                    self._clear(n)
                with self.b.else_():
                    self._roll(n)
            else:
                self._roll(n)
            self._make(n, first)

    def _roll(self, n: int) -> None:
        node, window = self.nest.nodes[n], self.nest.windows[n]
        keep = (window - node.rows) * node.pitch
        if keep > 0:
            func = move_rows(keep, words=node.pitch % 4 == 0)
            self._call(func, [self._window(n, node.rows * node.pitch), self._window(n, 0)])

    def _clear(self, n: int) -> None:
        """Fill the margins, and with them the whole window, before its first rows are computed."""
        node = self.nest.nodes[n]
        dtype = node.type.dtype
        assert node.fill is not None
        func = fill_rows(self.nest.window_bytes(n) // itemsize(dtype), dtype, node.fill)
        self._call(func, [self._window(n, 0, dtype)])

    def _make(self, n: int, first: Expr) -> None:
        node = self.nest.nodes[n]
        low, high = self.nest.guards[n]
        if low >= 0 and high < node.height:
            self._compute(n, first)
            return
        with self.b.if_(logical_and(first >= 0, first < node.height)):
            self._compute(n, first)
        if node.fill is not None:
            with self.b.else_():
                dtype = node.type.dtype
                count = node.rows * node.row_bytes // itemsize(dtype)
                func = fill_rows(count, dtype, node.fill)
                self._call(func, [self._slot(n, dtype, imm(0))])

    def _compute(self, n: int, first: Expr) -> None:
        node, lowered = self.nest.nodes[n], self.kernels[n]
        if lowered is None:
            (link,) = node.links
            size = node.rows * node.row_bytes
            words = node.row_bytes % 4 == 0 and node.pitch % 4 == 0 and node.margins[0] % 4 == 0
            start = imm(0) if self.fed and link.external == 0 else first * node.row_bytes
            source = Region(self.externals[link.external], start, "int8")
            self._call(move_rows(size, words=words), [source, self._slot(n, "int8", first)])
            return
        func = lowered.func
        operands: list[Region | Expr] = [self._input(n, k, first, buffer) for k, buffer in enumerate(func.inputs)]
        operands.append(self._slot(n, func.outputs[0].dtype, first))
        for buffer in func.consts:
            assert self.params is not None
            operands.append(Region(self.params, imm(self.streams[n][buffer.name] // itemsize(buffer.dtype)), buffer.dtype))
        at = 0
        for buffer in func.scratch:
            assert self.work_space is not None
            at = align_up(at, max(ALIGN, buffer.align))
            operands.append(Region(self.work_space, imm(at // itemsize(buffer.dtype)), buffer.dtype))
            at += buffer.nbytes
        self._call(func, operands)

    def _input(self, n: int, k: int, first: Expr, buffer: Buffer) -> Region:
        node = self.nest.nodes[n]
        link, dtype = node.links[k], buffer.dtype
        if link.node is None:
            rows = link.rows
            row = first / rows.repeat if rows.repeat > 1 else first * rows.stride
            elements = buffer.nbytes // rows.window(node.rows) // itemsize(dtype)
            return Region(self.externals[link.external], (row - rows.before) * elements, dtype)
        source = self.nest.nodes[link.node]
        offset = (self.nest.windows[link.node] - self.nest.lags[n][k]) * source.pitch
        return self._window(link.node, offset if link.wide else offset + source.margins[0], dtype)

    def _window(self, n: int, offset: int, dtype: str = "int8") -> Region:
        assert self.windows is not None
        return Region(self.windows, imm((self.offsets[n] + offset) // itemsize(dtype)), dtype)

    def _slot(self, n: int, dtype: str, first: Expr) -> Region:
        """Where a node's new rows go: the end of its window, or their place in the result."""
        node = self.nest.nodes[n]
        if n == len(self.nest.nodes) - 1:
            return Region(self.out, first * (node.row_bytes // itemsize(dtype)), dtype)
        return self._window(n, (self.nest.windows[n] - node.rows) * node.pitch + node.margins[0], dtype)

    def _call(self, func: PrimFunc, operands: Sequence[Region | Expr]) -> None:
        key = next((k for k, f in self.callees.items() if f is func), None)
        if key is None:
            key = f"{self.b.name}_callee_{len(self.callees)}"
            self.callees[key] = func
        self.b.append(CallPrim(key, tuple(operands)))


def scratch_bytes(func: PrimFunc) -> int:
    """Scratch bytes of a row kernel, with each buffer aligned."""
    at = 0
    for buffer in func.scratch:
        at = align_up(at, max(ALIGN, buffer.align)) + buffer.nbytes
    return at


def fits_alignment(nest: Nest, n: int, func: PrimFunc) -> bool:
    """Whether a row kernel's tensors are aligned as it requires, wherever rows may start."""
    node = nest.nodes[n]
    out = func.outputs[0].align
    pairs = [(node.row_bytes, out), (node.pitch, out), (node.margins[0], out)]
    for link, buffer in zip(node.links, func.inputs, strict=True):
        pairs.append((buffer.nbytes // link.rows.window(node.rows), buffer.align))
        if link.node is not None and not link.wide:
            pairs += [(nest.nodes[link.node].pitch, buffer.align), (nest.nodes[link.node].margins[0], buffer.align)]
    return all(size % align == 0 and align <= ALIGN for size, align in pairs) and all(b.align <= ALIGN for b in func.scratch)


def emit(
    nest: Nest, kernels: Kernels, *, name: str, span: Span = NO_SPAN, fed: bool = False
) -> tuple[Lowered, Mapping[str, PrimFunc]]:  # fmt: skip
    """The cascade from the whole external tensors to the whole tensor of the last node, and the functions that it calls by name.

    Its parameters: external_0 ..., out, params (the constants of all row kernels), and scratch: windows, and work for the scratch
    of the row kernels. Empty ones are left out.  With `fed`, all work is done by its callee FEED, which receives one row of
    external tensor 0 and, as a scalar, the number of the row.
    """
    stream, places = _stream(kernels)
    offsets, total = nest.placed()
    funcs = [lowered.func for lowered in kernels if lowered is not None]
    align = max([ALIGN, *(f.align for g in funcs for f in (*g.inputs, *g.outputs))])
    work, result = max((scratch_bytes(f) for f in funcs), default=0), nest.nodes[-1].type

    def emitter(b: IRBuilder, types: Sequence[TensorType]) -> _Emitter:
        aligns = [align if t.nbytes // t.shape[1] % align == 0 else itemsize(t.dtype) for t in types]
        inputs = [b.input(external_name(i), t.shape, t.dtype, align=aligns[i]) for i, t in enumerate(types)]
        out = b.output(OUT, result.shape, result.dtype, align=align)
        params = b.const("params", (stream.size,), "int8", align=8) if stream.size else None
        windows = b.scratch(WINDOWS, (total,), "int8", align=ALIGN) if total else None
        space = b.scratch("work", (work,), "int8", align=ALIGN) if work else None
        return _Emitter(nest, kernels, inputs, out, params, windows, space, offsets, places, b, fed)

    b = IRBuilder(name)
    types = [t.type for t in nest.externals]
    main = emitter(b, types)
    if fed:
        row = replace(types[0], shape=(1, 1, *types[0].shape[2:]))
        main.callees = _feed(main, emitter(IRBuilder(FEED.format(name)), [row, *types[1:]]))
    else:
        rows = nest.nodes[-1].rows
        with b.for_("y", nest.nodes[-1].height, start=-nest.lead * rows, step=rows) as y:
            main.block(len(nest.nodes) - 1, y)
    names = ", ".join(f.attrs.kernel.partition("(")[0].rpartition(".")[2] for f in funcs)
    blocks = [node.height // node.rows for node in nest.nodes]
    macs = sum(k.func.attrs.macs * n for k, n in zip(kernels, blocks, strict=True) if k is not None)
    func = b.finish(FuncAttrs(f"cascade({names})", span, macs, "size", distances=distances(nest)))
    return Lowered(func, {"params": stream} if stream.size else {}), main.callees


FEED = "{}_feed"
"""The callee of a fed cascade that receives one row."""


def _feed(main: _Emitter, inner: _Emitter) -> dict[str, PrimFunc]:
    """Append calls of FEED for all rows to `main`; a row outside the image is passed as its nearest row, which is not read.

    `inner` emits FEED.
    """
    whole, number = main.externals[0], Var("number")
    inner.arrive(0, number)
    func = replace(inner.b.finish(FuncAttrs(kernel="feed()", opt="size")), scalars=(number,))
    first, last = main.nest.arrivals()
    buffers = [*main.externals[1:], main.out, main.params, main.windows, main.work_space]
    with main.b.for_("row", last + 1, start=first) as p:
        inside = maximum(minimum(p, whole.shape[1] - 1), 0)
        operands: list[Region | Expr] = [Region(whole, inside * inner.externals[0].size, whole.dtype)]
        operands += [Region(buffer, imm(0), buffer.dtype) for buffer in buffers if buffer is not None]
        main.b.append(CallPrim(inner.b.name, (*operands, p)))
    return {**inner.callees, inner.b.name: func}


def _stream(kernels: Kernels) -> tuple[Array, list[dict[str, int]]]:
    """All constants of all row kernels, concatenated, and the offset of each."""
    stream = bytearray()
    places: list[dict[str, int]] = []
    for lowered in kernels:
        places.append({})
        constants = {} if lowered is None else {b.name: lowered.constants[b.name] for b in lowered.func.consts}
        for key, data in constants.items():
            places[-1][key] = len(stream)
            stream += np.ascontiguousarray(data).tobytes()
            stream += bytes(-len(stream) % 8)
    return np.frombuffer(bytes(stream), np.int8), places


# ---- which layers become cascades


STYLES = (StripeConfig(1), StripeConfig(1, wide=True), StripeConfig(2), StripeConfig(4))
"""Styles to try for each layer of a cascade."""

SPARE = 1 << 16
"""Bytes for the scratch memory of the row kernels of the first cascade."""

PORTABLE = 1.6
"""Real cost of a portable convolution relative to its estimate (first layer of a MobileNet: 5.6 per product, not 3.5)."""

EFFORT = 2_000
"""Planner effort for the few buffers of one segment."""

CALL_INSTRUCTIONS = 40
"""Cost of calling a row kernel: guards, arguments, saved registers."""

Windows = tuple[tuple[int, int], ...]
"""What distinguishes cascades of the same layers: rows and margins of each node."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Layers first .. last: if `stripe` is None, one layer as a whole, by one of `kernels`; else one kernel per node."""

    first: int
    last: int
    peak: int
    instructions: int
    kernels: tuple[Candidate, ...] = ()
    stripe: Nest | None = None


class CascadeSearch:
    """The segments of a module that a search may choose from; all results are cached."""

    def __init__(self, lowered: CandidateModule, *, fed: TensorRef | None = None) -> None:
        self._lowered = lowered
        self._found = [_weighed(call.candidates) for call in lowered.calls]
        self.parts = list(map(Part.of, lowered.calls))
        self._lives = {t: life for t, life in _lives(lowered).items() if t is not fed}
        self._fed = fed
        self._outside = {s.old for s in lowered.states}
        self._readers = [i for i, c in enumerate(lowered.calls) if fed is not None and fed in map(lowered.root, c.inputs)]
        self._wholes: dict[tuple[int, int], int] = {}
        self._rows: dict[tuple[int, int, tuple[bool, ...]], tuple[Candidate, ...]] = {}
        self._made: dict[tuple[int, int, tuple[StripeConfig, ...]], tuple[Windows, int, Nest] | None] = {}
        self._bases: dict[tuple[int, int], dict[Windows, tuple[int, Nest]]] = {}
        self._least: dict[tuple[int, int], int] = {}
        self._trials: dict[PrimFunc, PrimFunc] = {}
        self._begun: list[int] = []
        self._ended: list[int] = []

    def again(self) -> CascadeSearch:
        """The same for another search: results are reused, but refinements of this search are not carried over."""
        other = copy(self)
        other._bases = {}
        return other

    # ---- whole layers

    def whole(self, i: int, limit: int) -> Segment | None:
        """Layer i by its fastest kernel under the limit; `kernels` are all that fit."""
        call = self._lowered.calls[i]
        if i in self._readers:
            return None
        other_bytes = self._others(i, i, {*map(self._lowered.root, call.inputs), *call.outputs})
        fitting = [c for k, c in enumerate(self._found[i]) if self._whole_peak(i, k, other_bytes, limit) <= limit]
        if not fitting:
            return None
        return Segment(i, i, 0, min(c.instructions for c in fitting), tuple(fitting))

    def _whole_peak(self, i: int, k: int, other_bytes: int, limit: int) -> int:
        """An upper bound of the bytes with kernel k; overlaps are examined only if they decide whether the limit is met."""
        call, candidate = self._lowered.calls[i], self._found[i][k]
        sizes = [t.type.nbytes for t in self._resident(call)]
        apart = other_bytes + sum(sizes) + candidate.scratch
        if apart <= limit or other_bytes + max(sizes) > limit:
            return apart
        if (i, k) not in self._wholes:
            self._wholes[i, k] = self._peak_of(i, i, call, self._tried(candidate.lowered.func))
        return self._wholes[i, k]

    def _tried(self, func: PrimFunc) -> PrimFunc:
        """The function after the TIR passes."""
        if func.core not in self._trials:
            self._trials[func.core] = trial(func.core)
        return self._trials[func.core]

    def _peak_of(self, first: int, last: int, call: KernelCall, func: PrimFunc) -> int:
        """What the planner needs while a call of `func` runs in place of layers first .. last."""
        root = self._lowered.root
        tensors = self._resident(call)
        names = {t: f"t{k}" for k, t in enumerate(tensors)}
        scratch = [f"s{k}" for k in range(len(func.scratch))]
        keys = [names.get(root(t), "") for t in call.tensors] + scratch
        ending = {names[t] for t in tensors if t in call.outputs or self._lives[t][1] <= last}
        buffers = [BufferInfo(names[t], t.type.nbytes, 4, 0, 0) for t in tensors]
        buffers += [BufferInfo(n, b.nbytes, max(4, b.align), 0, 0) for n, b in zip(scratch, func.scratch, strict=True)]
        allowed = {(c.a, c.b): c for c in call_distances(func, [Operand(k) for k in keys]) if {c.a, c.b} <= ending | set(scratch)}
        return self._others(first, last, set(tensors)) + _planned(buffers, allowed)

    def _resident(self, call: KernelCall) -> list[TensorRef]:
        """The tensors of a call that occupy memory, each once; constants and views occupy none."""
        return [t for t in dict.fromkeys(map(self._lowered.root, call.tensors)) if t in self._lives]

    def _others(self, first: int, last: int, own: set[TensorRef]) -> int:
        """Bytes of other tensors that are live while layers first .. last run."""
        total = self._alive(first, last)
        for t in own | self._outside:
            a, b = self._lives.get(t, (1, 0))
            if max(a, first) <= min(b, last):
                total -= _words(t)
        return total

    def _alive(self, first: int, last: int) -> int:
        """Bytes of all tensors that are live while layers first ..

        last run: those that have begun less those that ended before.
        """
        if not self._begun:
            begun, ended = ([0] * (len(self.parts) + 2) for _ in range(2))
            for t, (a, b) in self._lives.items():
                begun[a + 1] += _words(t)
                ended[b + 1] += _words(t)
            self._begun, self._ended = list(accumulate(begun)), list(accumulate(ended))
        return self._begun[last + 1] - self._ended[first]

    def wholes(self, limit: int) -> tuple[list[Segment | None], list[bool]]:
        """Each layer as a whole under the limit, and whether that is by its fastest kernel, so that no cascade is better."""
        wholes = [self.whole(i, limit) for i in range(len(self.parts))]
        fastest = [min(c.instructions for c in own) for own in self._found]
        return wholes, [w is not None and w.instructions == n for w, n in zip(wholes, fastest, strict=True)]

    @property
    def fed(self) -> bool:
        """Whether the input arrives row by row."""
        return self._fed is not None

    @property
    def everything(self) -> int:
        """Bytes that suffice for any cover of whole layers, after a first cascade if the input is fed by rows."""
        tensors = [t for p in self.parts for t in (*p.inputs, *p.outputs)]
        return sum(t.type.nbytes + 3 for t in tensors) + sum(max(c.scratch for c in own) for own in self._found) + SPARE

    # ---- cascades

    def cascades(self, i: int, j: int, limit: int) -> list[Segment]:
        """Cascades of layers i .. j under the limit, each with its fastest kernels."""
        if not self._closed(i, j) or self._least_bytes(i, j) > limit:
            return []
        if (i, j) not in self._bases:
            self._bases[i, j] = {}
            for style in STYLES:
                self._add(i, j, [style] * (j - i + 1))
        chosen = (self._choose(i, j, base, stripe, limit) for base, stripe in self._bases[i, j].values() if base <= limit)
        return [segment for segment in chosen if segment is not None]

    def runs(self, limit: int) -> Iterator[tuple[int, int]]:
        """First and last layer of each multi-layer run that may be a cascade, judging by `_least_bytes` and the limit."""
        for j in range(len(self.parts)):
            end = j
            for i in range(j, -1, -1):
                part = self.parts[i]
                if i < j:
                    end = max(end, *(self._lives[t][1] for t in part.outputs))
                if part.form is None or end > j:
                    break  # nor can any that starts earlier
                if i < j and self._closed(i, j) and self._least_bytes(i, j) <= limit:
                    yield i, j

    def _add(self, i: int, j: int, styles: Sequence[StripeConfig]) -> tuple[int, Nest] | None:
        """Build the cascade with one style per layer, and cache it."""
        style = (i, j, tuple(styles))
        if style not in self._made:
            self._made[style] = self._make(i, j, styles)
        cascade = self._made[style]
        return None if cascade is None else self._bases[i, j].setdefault(cascade[0], cascade[1:])

    def _make(self, i: int, j: int, styles: Sequence[StripeConfig]) -> tuple[Windows, int, Nest] | None:
        stripe = make_stripe(self.parts[i : j + 1], styles, self._fed)
        if stripe is None or not self._admissible(stripe):
            return None
        if self._fed in stripe.externals and not stripe.is_fed:
            return None
        windows = tuple((n.rows, sum(n.margins)) for n in stripe.nodes)
        return windows, self._base(i, j, stripe), stripe

    def refine(self, segment: Segment, limit: int) -> bool:
        """Look for styles that make a cascade faster under the limit; return whether there are any."""
        i, j = segment.first, segment.last
        styles, best, better = self._styles(segment), segment, True
        while better:
            better = False
            for k in range(len(styles)):
                for style in STYLES:
                    trial = [*styles[:k], style, *styles[k + 1 :]]
                    cascade = self._add(i, j, trial) if trial != styles else None
                    new = self._choose(i, j, *cascade, limit) if cascade is not None and cascade[0] <= limit else None
                    if new is not None and new.instructions < best.instructions:
                        styles, best, better = trial, new, True
        return best is not segment

    def _styles(self, segment: Segment) -> list[StripeConfig]:
        assert segment.stripe is not None
        nodes = [n for n in segment.stripe.nodes if n.maker is not None]  # in the order of the parts
        return [StripeConfig(n.rows, any(link.wide for link in n.links)) for n in nodes]

    def _least_bytes(self, i: int, j: int) -> int:
        """A quick lower bound: other live tensors, the larger of input and result, and the rows that every layer reads."""
        if (i, j) not in self._least:
            computed = {p.outputs[0] for p in self.parts[i : j + 1]}
            outside = ({self._lowered.root(t) for p in self.parts[i : j + 1] for t in p.inputs} - computed) & self._lives.keys()
            rows: dict[TensorRef, int] = {}
            for part in self.parts[i + 1 : j + 1]:
                assert part.form is not None
                for t, r in zip(part.inputs, part.form, strict=True):
                    if t in computed:
                        rows[t] = max(rows.get(t, 0), r.window(part.granule) * (t.type.nbytes // t.type.shape[1]))
            result = self.parts[j].outputs[0].type.nbytes
            self._least[i, j] = (
                self._others(i, j, outside | computed) + max([result, *(t.type.nbytes for t in outside)]) + sum(rows.values())
            )
        return self._least[i, j]

    def _closed(self, i: int, j: int) -> bool:
        """Whether only the last layer's result is read outside the run, and all layers are row-local."""
        parts = self.parts[i : j + 1]
        inside = [k for k in self._readers if i <= k <= j]
        if inside and (i > 0 or inside != self._readers or self.parts[0].inputs[0] is not self._fed):
            return False
        if any(p.form is None or len(p.outputs) != 1 for p in parts):
            return False
        inner = {p.outputs[0] for p in parts[:-1]}
        return all(self._lives[t][1] <= j for t in inner) and not inner & set(self._lowered.views.values())

    def _admissible(self, stripe: Nest) -> bool:
        values = self._lowered.values
        return all(t not in values and self._lowered.root(t) is t for t in stripe.externals)

    def _base(self, i: int, j: int, stripe: Nest) -> int:
        """Peak without the scratch of the row kernels."""
        _, total = stripe.placed()
        out = self.parts[j].outputs[0]
        kept = [(external_name(e), t) for e, t in enumerate(stripe.externals) if t is not self._fed]
        ending = {name for name, t in kept if self._lives[t][1] <= j} | {OUT, WINDOWS}
        buffers = [BufferInfo(name, t.type.nbytes, 4, 0, 0) for name, t in kept]
        buffers += [BufferInfo(OUT, out.type.nbytes, 4, 0, 0)]
        buffers += [BufferInfo(WINDOWS, total, 4, 0, 0)] if total else []
        allowed = {(a, b): Conflict(a, b, d) for (a, b), d in distances(stripe).items() if {a, b} <= ending}
        own = {t for p in self.parts[i : j + 1] for t in p.outputs}
        return self._others(i, j, {*stripe.externals, *own}) + _planned(buffers, allowed)

    def _row_kernels(self, layer: int, node: Node) -> tuple[Candidate, ...]:
        wide = tuple(link.wide for link in node.links)
        key = (layer, node.rows, wide)
        if key not in self._rows:
            func, module = self.parts[layer].at(node.rows, wide), self._lowered
            assert module.target is not None
            self._rows[key] = _weighed(
                candidates(func, module.target, f"rows_{layer}", module.config, keyed=False, cache=module.cache)
            )
        return self._rows[key]

    def _choose(self, i: int, j: int, base: int, stripe: Nest, limit: int) -> Segment | None:
        """The fastest kernels whose scratch fits under the limit."""
        kernels, total = [], _overhead(stripe)
        for n, node in enumerate(stripe.nodes):
            if node.maker is None:
                continue
            fitting = [
                c
                for c in self._row_kernels(i + node.maker, node)
                if scratch_bytes(c.lowered.func) <= limit - base and fits_alignment(stripe, n, c.lowered.func)
            ]
            if not fitting:
                return None
            best = min(fitting, key=lambda c: (c.instructions, c.scratch, c.constants))
            kernels.append(best)
            total += (best.instructions + CALL_INSTRUCTIONS) * (node.height // node.rows)
        return Segment(i, j, base + max(scratch_bytes(c.lowered.func) for c in kernels), total, tuple(kernels), stripe)


def _words(tensor: TensorRef) -> int:
    """Bytes, in whole words."""
    return -(-tensor.type.nbytes // 4) * 4


def _planned(buffers: Sequence[BufferInfo], allowed: dict[tuple[str, str], Conflict]) -> int:
    """The size of a plan for buffers that are all live at once."""
    clashes = []
    for k, a in enumerate(buffers):
        for b in buffers[k + 1 :]:
            clashes.append(allowed.get((a.name, b.name)) or allowed.get((b.name, a.name)) or Conflict(a.name, b.name))
    size = plan(buffers, clashes, effort=EFFORT).size
    return -(-size // 4) * 4


def _weighed(kernels: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Scale portable kernels to match those of the instruction set, whose estimates come from counts."""
    if all(c.kernel.startswith("generic.") for c in kernels):
        return tuple(kernels)
    return tuple(
        replace(c, instructions=int(PORTABLE * c.instructions)) if c.kernel.startswith("generic.") else c for c in kernels
    )


def _overhead(stripe: Nest) -> int:
    """Instructions for moving rows."""
    total = 0
    for n, node in enumerate(stripe.nodes):
        blocks = (stripe.guards[n][1] - stripe.guards[n][0]) // node.rows + 1
        keep = (stripe.windows[n] - node.rows) * node.pitch
        words = node.pitch % 4 == 0
        if keep > 0:
            total += blocks * move_instructions(keep, words=words)
        if node.maker is None:
            total += blocks * move_instructions(node.rows * node.row_bytes, words=words)
    return total


def _lives(lowered: LoweredModule) -> dict[TensorRef, tuple[int, int]]:
    """First and last call of each tensor that occupies memory."""
    end = len(lowered.calls)
    lives = {t: (-1, -1) for t in lowered.inputs} | {s.old: (-1, end) for s in lowered.states}
    for i, call in enumerate(lowered.calls):
        for t in call.outputs:
            lives[t] = (i, i)
        for t in call.tensors:
            root = lowered.root(t)
            if root in lives:
                lives[root] = lives[root][0], max(i, lives[root][1])
    for t in (*lowered.outputs, *(s.new for s in lowered.states)):
        root = lowered.root(t)
        if root in lives:
            lives[root] = lives[root][0], end
    return lives


# ---- the search


LONGEST = 20
"""Most layers in a cascade."""

STEP = 64
"""Resolution of the search for the smallest limit, in bytes."""


def cover(search: CascadeSearch, limit: int) -> list[Segment] | None:
    """Segments that cover all layers under the limit with the fewest instructions; None if there are none."""
    n = len(search.parts)
    wholes, settled = search.wholes(limit)
    cost: list[int | None] = [0] + [None] * n
    taken: list[Segment | None] = [None] * (n + 1)

    def offer(segment: Segment) -> None:
        before, best = cost[segment.first], cost[segment.last + 1]
        if before is not None and (best is None or before + segment.instructions < best):
            cost[segment.last + 1], taken[segment.last + 1] = before + segment.instructions, segment

    for j in range(n):
        whole = wholes[j]
        if whole is not None:
            offer(whole)
        for i in range(j, max(-1, j - LONGEST), -1):
            if search.parts[i].form is None:
                break
            if cost[i] is not None and not all(settled[i : j + 1]):
                for segment in search.cascades(i, j, limit):
                    offer(segment)
    if cost[n] is None:
        return None
    segments: list[Segment] = []
    while n:
        last = taken[n]
        assert last is not None
        segments.insert(0, last)
        n = last.first
    return segments


def best_cover(search: CascadeSearch, limit: int) -> list[Segment] | None:
    """Like `cover`, but refine the styles of its cascades until nothing gets faster."""
    segments = cover(search, limit)
    while segments is not None and any([search.refine(segment, limit) for segment in segments if segment.stripe is not None]):
        segments = cover(search, limit)
    return segments


def cost_of(segments: Sequence[Segment]) -> int:
    return sum(segment.instructions for segment in segments)


def smallest(search: CascadeSearch, high: int, *, most: int | None) -> tuple[list[Segment], int]:
    """The cover of at most `most` instructions under the least limit, within STEP bytes, and that limit; `high` must suffice."""
    low, best = 0, cover(search, high)
    assert best is not None, "whole layers fit into the sum of everything"
    while high - low > STEP:
        middle = (low + high) // 2
        segments = cover(search, middle)
        if segments is not None and most is not None and cost_of(segments) > most:
            segments = best_cover(search, middle)
        if segments is not None and (most is None or cost_of(segments) <= most):
            high, best = middle, segments
        else:
            low = middle
    return best, high


def tried_runs(search: CascadeSearch, limit: int) -> CascadeRuns:
    """How many runs of layers could be a cascade under the limit, by a lower bound on their bytes, and how many were examined."""
    _, settled = search.wholes(limit)
    lengths = [j - i + 1 for i, j in search.runs(limit) if not all(settled[i : j + 1])]
    return CascadeRuns(sum(length <= LONGEST for length in lengths), len(lengths))


def build_cascade(lowered: LoweredModule, segment: Segment, *, fed: bool) -> tuple[KernelCall, Mapping[str, PrimFunc]]:
    """The call that replaces the layers of the segment, with its only possible kernel, and the functions that it calls."""
    stripe = segment.stripe
    assert stripe is not None
    row_kernels = iter(segment.kernels)
    kernels = [None if node.maker is None else next(row_kernels).lowered for node in stripe.nodes]
    calls = lowered.calls[segment.first : segment.last + 1]
    name, span = f"cascade_{segment.first}", calls[-1].span
    lowered_cascade, callees = emit(stripe, kernels, name=name, span=span, fed=fed)
    func = lowered_cascade.func
    candidate = Candidate(
        func.attrs.kernel, replace(lowered_cascade, instructions=segment.instructions), ("cascade", segment.first),
        segment.instructions, sum(c.nbytes for c in lowered_cascade.constants.values()),
        sum({c.key: c.code for c in segment.kernels}.values()), sum(b.nbytes for b in func.scratch), is_cascade=True,
    )  # fmt: skip
    feed = (FEED.format(name), *stripe.arrivals()) if fed else None
    operators = dict(sorted(pair for c in calls for pair in c.operators.items()))
    call = KernelCall(
        name, stripe.externals, calls[-1].outputs, span=span, operators=operators, candidates=(candidate,),
        callees=tuple(callees), feed=feed,
    )  # fmt: skip
    return call, {**callees, name: func}


def use_cascades(lowered: LoweredModule, search: CascadeSearch, *, most: int | None) -> LoweredModule | None:
    """The lowered module with cascades if they pay off; `candidates` of its calls are then the kernels to choose from.

    With a workspace limit: the fewest instructions within it, None if nothing fits.  Otherwise in mode `ram`, or with a limit of
    0: the least workspace within `most` instructions (None: any number).  E5054 if the model cannot be fed by rows.
    """
    config, limit = lowered.config, search.everything
    if cover(search, limit) is None:
        where = lowered.inputs[0].name
        raise UsageError(
            Problem("E5054", f"the layers that read {where} cannot run row by row, so it cannot be fed by rows", where)
        )
    chosen: list[Segment] | None
    if not config.workspace_limit and (config.mode.least_ram or config.workspace_limit == 0):
        chosen, limit = smallest(search, limit, most=most)
    else:
        limit = config.workspace_limit or limit
        chosen = best_cover(search, limit)
    if chosen is None:
        return None
    calls: list[KernelCall] = []
    functions = dict(lowered.functions)
    for segment in chosen:
        if segment.stripe is None:
            calls.append(replace(lowered.calls[segment.first], candidates=segment.kernels))
        else:
            call, called = build_cascade(lowered, segment, fed=search.fed and segment.first == 0)
            calls.append(call)
            functions |= called
    runs = tried_runs(search, limit)
    return replace(lowered, functions=functions, cascade_runs=runs).with_calls(calls)
