"""The PrimFunc of a cascade: the nest as loops around calls of row kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache

import numpy as np

from aot.executor.cascade_nest import ALIGN, OUT, WINDOWS, Nest, distances, external_name, place_windows, reading
from aot.ir.op import Array
from aot.ir.span import NO_SPAN, Span
from aot.ir.type import TensorType
from aot.memory.plan import align_up
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, Var, equal, imm, logical_and, maximum, minimum
from aot.tir.function import FuncAttrs, PrimFunc
from aot.tir.stmt import CallPrim, Region
from aot.topi.strategy import Lowered

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


@dataclass(frozen=True, slots=True)
class Cascade:
    """`func` calls `callees` by these names; `constants` is the contents of the stream `params` for all of them."""

    func: PrimFunc
    callees: Mapping[str, PrimFunc]
    constants: Mapping[str, Array]


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
        (_, count, offset), rows = self.nest.drives[reader][0], reading(self.nest.nodes[reader], n)
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
            rows = reading(node, source)
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


def emit(nest: Nest, kernels: Kernels, *, name: str, span: Span = NO_SPAN, fed: bool = False) -> Cascade:
    """The cascade from the whole external tensors to the whole tensor of the last node.

    Its parameters: external_0 ..., out, params (all constants), and scratch: windows, and work for the scratch of the row
    kernels. Empty ones are left out.  With `fed`, all work is done by its callee FEED, which receives one row of external tensor
    0 and, as a scalar, the number of the row.
    """
    stream, places = _stream(kernels)
    offsets, total = place_windows(nest)
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
    return Cascade(func, main.callees, {"params": stream} if stream.size else {})


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
