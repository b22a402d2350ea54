"""Convolution by vectors of 16 bytes: two output pixels by four channels at a time, see intrin_matmul.py.

`arm_mve.conv2d` reads pointwise layers where they lie, and packs other windows one after another: scratch, two windows.
`arm_mve.conv2d_direct` reads the rows of windows inside the image where they lie, and packs those that leave it alone.
"""

from __future__ import annotations

from functools import partial
from math import prod

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.w8.window import WindowRuns, first_pixel, inside, is_rows, window_at
from aot.topi.arm_mve.intrin_matmul import CHANNELS, MOST_ROWS, PIXELS, Tile, code_bytes, instructions, matmul
from aot.topi.arm_mve.requant import VectorRequant, plan_vectors
from aot.topi.arm_mve.stream import VECTOR, Window, pack
from aot.topi.arm_mve.tail import Results
from aot.topi.arm_mve.window import WindowPacker, pack_instructions, stays_inside
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.strategy import Group, Lowered, register_planned


@dataclass(frozen=True, slots=True)
class _Plan:
    """`tile` multiplies windows that are packed or lie in one piece; `direct` those inside the image."""

    layer: FusedLayer
    requant: VectorRequant
    tile: Tile | None
    direct: Tile | None
    target: Target


def _plan(group: Group, target: Target, *, direct: bool) -> _Plan | None:
    layer = match_layer(group)
    if layer is None or not target.has("mve") or not tail_accepts(layer) or prod(layer.out_type.shape[:-1]) < PIXELS:
        return None
    requant = plan_vectors(layer.requant, layer.acc_low, layer.acc_high)
    if requant is None or (direct and is_rows(layer)):
        return None
    runs = WindowRuns(layer)
    packed = Tile(Window(1, runs.count * runs.length), layer.channels, requant.form)
    if not direct:
        return _Plan(layer, requant, packed, None, target)
    tile = Tile(Window(runs.rows, runs.length), layer.channels, requant.form, apart=True)
    if runs.columns > 1 or tile.vectors > MOST_ROWS:
        return None
    if not any(layer.attrs.padding):
        return _Plan(layer, requant, None, tile, target)
    return _Plan(layer, requant, packed, tile, target) if runs.length % VECTOR == 0 else None


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer = plan.layer
    rows = prod(layer.out_type.shape[:-1])
    tile = plan.direct or plan.tile
    assert tile is not None
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(rows * layer.channels,))
    weights = layer.weight.reshape(layer.channels, -1)
    stream = pack(weights, tile.window, lambda c: plan.requant.pack(layer.bias, range(c, c + CHANNELS)), channels=CHANNELS)
    kernel = _Pairs(b, io, plan, params=region(io.constant("params", stream, "int8", align=8)))
    kernel.pairs(rows)
    kind = "_direct" * (plan.direct is not None)
    func = b.finish(FuncAttrs(kernel=describe(f"arm_mve.conv2d{kind}", vectors=tile.vectors), span=layer.span, macs=layer.macs))
    return Lowered(func, io.constants, instructions=kernel.instructions(rows), code=kernel.code())


class _Pairs:
    """Emits the loop over pairs of output pixels."""

    def __init__(self, b: IRBuilder, io: LayerIo, plan: _Plan, *, params: Region) -> None:
        self._b, self._io, self._plan, self._params = b, io, plan, params
        self._layer = layer = plan.layer
        self._results = Results(b, io, layer, target=plan.target, size=PIXELS * layer.channels)
        self._packer = None
        if plan.tile is not None and not is_rows(layer):
            self._packer = WindowPacker(b, layer, io.data, windows=PIXELS)

    def pairs(self, rows: int) -> None:
        b = self._b
        with b.for_("t", -(-rows // PIXELS)) as t:
            first = first_pixel(b, self._layer, t * PIXELS, last=imm(rows - PIXELS), even=rows % PIXELS == 0)
            at = b.let("at", first * self._layer.channels)
            out = self._results.place(at)
            if self._plan.direct is not None:
                self._direct(first, out)
            elif self._packer is not None:
                self._packed(first, out)
            else:
                depth = self._layer.weight[0].size
                where = b.let("where", first * depth)
                self._multiply(self._plan.tile, (region(self._io.data, where), region(self._io.data, where + depth)), out, step=0)
            self._results.finish(at)
        self._results.end()

    def _direct(self, first: Expr, out: Region) -> None:
        """The windows where they lie, if both are inside the image."""
        b, layer = self._b, self._layer
        _, height, width, depth = layer.data_type.shape
        places = [window_at(b, layer, b.let("p", first + p), origin=layer.attrs.padding[:2]) for p in range(PIXELS)]
        starts = [b.let("start", ((image * height + y) * width + x) * depth) for image, y, x in places]
        windows = (region(self._io.data, starts[0]), region(self._io.data, starts[1]))
        step = layer.attrs.dilation[0] * width * depth
        test = stays_inside(layer, places)
        if test is None:
            self._multiply(self._plan.direct, windows, out, step=step)
            return
        with b.if_(test):
            self._multiply(self._plan.direct, windows, out, step=step)
        with b.else_():
            self._packed(first, out)

    def _packed(self, first: Expr, out: Region) -> None:
        assert self._packer is not None
        with self._b.for_("p", PIXELS) as p:
            self._packer.pack(first + p, p)
        self._multiply(self._plan.tile, (self._packer.window(0), self._packer.window(1)), out, step=0)

    def _multiply(self, tile: Tile | None, windows: tuple[Region, Region], out: Region, *, step: int) -> None:
        assert tile is not None
        self._b.block(matmul(tile), self._params, *windows, out, imm(step))

    def instructions(self, rows: int) -> int:
        """Of one call (from counts under QEMU)."""
        plan, pairs = self._plan, -(-rows // PIXELS)
        tail, end = self._results.instructions, self._results.instructions_at_end
        if plan.direct is None:
            assert plan.tile is not None
            pack = 0 if self._packer is None else PIXELS * pairs * pack_instructions(self._layer) / rows
            return int(pairs * (instructions(plan.tile) + 9 + tail) + pack) + end + 30
        around = self._around()
        total = pairs * (instructions(plan.direct) + 34 + tail)
        if plan.tile is not None and around:
            other = instructions(plan.tile) - instructions(plan.direct) + PIXELS * pack_instructions(self._layer) / rows
            total += int(around * other)
        return total + end + 30

    def _around(self) -> int:
        """Pairs of pixels of which one leaves the image, about."""
        attrs, (_, height, width, _) = self._layer.attrs, self._layer.data_type.shape
        images, rows, columns, _ = self._layer.out_type.shape
        _, kh, kw, _ = self._layer.weight.shape
        (sy, sx), (dy, dx), (top, left, *_rest) = attrs.strides, attrs.dilation, attrs.padding
        lines = inside(rows, 1, (kh - 1) * dy + 1, height, axis=(sy, 0, top))
        across = inside(columns, 1, (kw - 1) * dx + 1, width, axis=(sx, 0, left))
        whole = lines * (across // PIXELS if columns % PIXELS == 0 and left == 0 else max(across - 1, 0) // PIXELS)
        return images * (-(-rows * columns // PIXELS) - whole)

    def code(self) -> int:
        """Bytes."""
        tiles = sum(code_bytes(t) for t in (self._plan.tile, self._plan.direct) if t is not None)
        return tiles + 90 + (self._packer is not None) * 220 + self._results.code


for _kind, _level in (("", 41), ("_direct", 42)):
    register_planned(f"arm_mve.conv2d{_kind}", "nn.conv2d", partial(_plan, direct=bool(_kind)), _lower, plevel=_level)
register_planned("arm_mve.matmul", "nn.dense", partial(_plan, direct=False), _lower, plevel=41)
