"""Convolution with int8 or int4 weights, with DSP instructions: blocks of three output pixels x two channels, any window.

The windows of three pixels are packed once as 16-bit numbers and used by all channels; weights stay packed in flash and are
unpacked in registers (weights.py).  A block uses all 14 registers, so that each loaded word serves several
products.

Scratch: 6 bytes per tap of the window, with each of its rows rounded up to four bytes and the whole window to a word of weights;
with padding also one row of the window; with int4 weights three more words.  Flash: one byte or half a byte per weight, rounded
in the same way.
"""

from __future__ import annotations

from functools import partial
from math import prod

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.topi.arm_dsp.weights import TAPS, W4, W8, PackedWeights, QuadPlan, Weights, pack_unroll, run_quads
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_instructions, lowered, match_for, match_layer, open_io
from aot.topi.layer.im2col import RunPacker, WindowRuns, first_pixel, is_rows
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

PIXELS, CHANNELS = 3, 2


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs from counts under QEMU.

    Per word: instructions and bytes of code.  More instructions per block, per other tensor of the epilogue, and per three
    pixels.  Per pixel, besides packing its runs: if these are rows of the data, and if they are windows.
    """

    each: int
    each_code: int
    block: int
    operand: int
    tile: int
    row: float
    window: float


COSTS = {"w8": Costs(18, 72, 0, 0, 0, 2.0, 7.7), "w4": Costs(41, 164, 8, 16, 12, 16.0, 16.0)}


def accepts(group: Group, target: Target, *, weights: Weights) -> bool:
    """Whether the layer has at least three output pixels, provably fitting accumulators, and the short requantisation."""
    layer = match_for(group, target, "dsp")
    return layer is not None and prod(layer.out_type.shape[:-1]) >= PIXELS and weights.form.requant(layer, target) is not None


def lower(group: Group, target: Target, name: str, *, weights: Weights, common: bool = False) -> Lowered:
    """Lower a convolution: groups of three pixels; for each, pack the windows, then pairs of channels."""
    layer = match_layer(group)
    assert layer is not None
    runs = WindowRuns(layer)
    plan = weights.plan(runs.count * run_quads(runs.length), cost=COSTS[weights.name].each, common=common)
    matrix = weights.arrange(layer.weight.reshape(layer.channels, -1), runs.count, plan)
    rows = prod(layer.out_type.shape[:-1])
    lead = (rows - PIXELS,) if common else ()
    requant = weights.form.best_requant(layer, target, common=common)
    stream = PackedWeights(matrix, layer.bias, requant, block=CHANNELS, whole=True, common=common, lead=lead, form=weights.form)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(rows * layer.channels,))
    kernel = _Kernel(b, io, layer, stream, plan, weights)
    kernel.tiles(rows)
    instructions, described = kernel.instructions(rows) + epilogue_instructions(layer), f"arm_dsp.conv2d_{weights.name}"
    return lowered(io, layer, described + "_common" * common, instructions, kernel.code(), unroll=plan.unroll)


class _Kernel:
    """Emits the loops: groups of three pixels, packing, pairs of channels."""

    def __init__(
        self, b: IRBuilder, io: LayerIo, layer: FusedLayer, stream: PackedWeights, plan: QuadPlan, weights: Weights
    ) -> None:
        self._b, self._io, self._layer, self._stream, self._plan, self._w = b, io, layer, stream, plan, weights
        self._shared = bool(plan.rest)
        self._unroll = 1 if self._shared else 4
        self._params = io.constant("params", stream.data(), "int32")
        self._quads = stream.quads * weights.quads
        self._words = b.scratch("words", (TAPS * PIXELS * self._quads,), "int16", align=4)
        self._runs = WindowRuns(layer)
        self._run_quads = run_quads(self._runs.length)
        self._window = None if is_rows(layer) else RunPacker(b, layer, io.data, pixels=PIXELS, pack=self._pack_run)
        self._sums = b.scratch("sums", (PIXELS,), "int32") if weights.sums else None

    def tiles(self, rows: int) -> None:
        b, stream = self._b, self._stream
        used = self._runs.count * self._run_quads
        if used < self._quads:
            with b.for_("z", TAPS * PIXELS * self._quads, start=TAPS * PIXELS * used) as z:
                b.store(self._words, z, 0)
        # The common form reads this number from the stream, so that one function serves layers of all sizes.
        last: Expr = b.let("last", self._params[0]) if self._shared else imm(rows - PIXELS)
        even = rows % PIXELS == 0 and not self._shared
        with b.for_("t", -(-rows // PIXELS)) as t:
            first = first_pixel(b, self._layer, t * PIXELS, last=last, even=even)
            self._pack(first)
            if stream.blocks:
                with b.for_("n", stream.blocks) as n:
                    self._block(first, n, CHANNELS)
            if stream.remainder:
                self._block(first, imm(stream.blocks), stream.remainder)

    def _pack(self, first: Expr) -> None:
        if self._sums is not None:
            for i in range(PIXELS):
                self._b.store(self._sums, i, 0)
        if self._window is not None:
            self._window.pack(first)
            return
        with self._b.for_("p", PIXELS) as p:
            self._pack_run(p, imm(0), (self._io.data, (first + p) * self._runs.length))

    def _pack_run(self, p: Expr, n: Expr, source: tuple[Buffer, Expr]) -> None:
        """Pack run number `n` of pixel `p` from (buffer, start) on."""
        words = region(self._words, p * self._w.pixel_step + n * (self._run_quads * TAPS * PIXELS))
        sums = None if self._sums is None else region(self._sums, p)
        self._w.pack_run(self._b, source, self._runs.length, words=words, sums=sums, pixels=PIXELS, unroll=self._unroll)

    def _block(self, first: Expr, n: Expr, count: int) -> None:
        """Compute three pixels x two channels and store `count` of the channels."""
        b, stream, plan = self._b, self._stream, self._plan
        start = b.let("block", stream.start(n))
        acc = b.local("acc", (CHANNELS * PIXELS,), "int32")
        for j in range(CHANNELS):
            bias = b.let("bias", self._params[start + j])
            for p in range(PIXELS):
                b.store(acc, PIXELS * j + p, self._start(bias, p))
        weights = stream.weights(self._params, start, CHANNELS)
        b.block(self._w.matmul(plan.unroll, plan.rest), weights, self._words, acc, imm(stream.quads))
        at = b.let("at", first * stream.channels + n * CHANNELS)
        params_of = stream.requant_params(b, self._params, start, count=CHANNELS)
        for j in range(count):
            requant_params = params_of(j)
            for p in range(PIXELS):
                self._io.store(
                    (at + (p * stream.channels + j),), stream.requant.emit_scaled(b, acc[PIXELS * j + p], requant_params)
                )

    def _start(self, bias: Expr, p: int) -> Expr:
        """Return the start value of an accumulator of pixel `p`."""
        return bias if self._sums is None else cast("int32", cast("uint32", bias) + cast("uint32", self._sums[p]))

    def instructions(self, rows: int) -> int:
        """Return the instructions of one call."""
        stream, runs, costs = self._stream, self._runs, COSTS[self._w.name]
        run = self._w.run_instructions(runs.length, unroll=self._unroll)
        packed = -(-rows // PIXELS) * PIXELS
        if self._window is None:
            pack = int(packed * (run + costs.row))
        else:
            pack = runs.instructions(packed / rows, run=run, pixel=costs.window)
        outputs = PIXELS * (4 - stream.shift_is_immediate + 2 * stream.requant.signed) + stream.fields_loaded
        block = self._plan.instructions(costs.each) + CHANNELS * outputs + 17
        block += costs.block + costs.operand * len(self._io.operands)  # the sums, and fewer registers are left
        return pack + -(-rows // PIXELS) * (len(stream.counts) * block + costs.tile)

    def code(self) -> int:
        """Return the bytes of code."""
        pack = 50 + 24 * (min(self._unroll, pack_unroll(self._run_quads)) + bool(self._runs.length % TAPS))
        window = 0 if self._window is None else 60 + (90 + pack) * any(self._layer.attrs.padding)
        stores = 28 * CHANNELS * PIXELS * len(self._layer.epilogue)
        stores += 68 + 44 * self._stream.requant.signed if self._shared else 0
        each = self._plan.code(COSTS[self._w.name].each_code) + 230 + stores
        return 70 + pack + window + each * (1 + bool(self._stream.remainder))


for _weights, _level in ((W8, 11), (W4, 7)):
    _name, _accepts, _lower = (
        f"arm_dsp.conv2d_{_weights.name}",
        partial(accepts, weights=_weights),
        partial(lower, weights=_weights),
    )
    register_impl(OpImplementation(_name, "nn.conv2d", _accepts, _lower, plevel=_level))
    register_impl(OpImplementation(f"{_name}_common", "nn.conv2d", _accepts, partial(_lower, common=True), plevel=_level - 1))
