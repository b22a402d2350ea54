"""qnn.lstm for cores with DSP instructions: blocks of one cell with all its gates, both matrix products by SMLAD.

Weights stay packed in flash, one byte each (weights.py).  The constants of a cell are together in one stream: first for the
data, then for the last output, a bias per gate and the weights in quads, one quad of each gate in turn.  So a packed quad of data
is loaded once and serves all gates.  The rest of a step is as in the generic kernel.

Scratch, besides the generic kernel's: two bytes per value of the data and of the output, rounded up to four values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from aot.ir.op import Array
from aot.numerics.fixed_point import SIGMOID16, TANH16
from aot.op import recurrent as lstm
from aot.op.common.te_rule import TeContext
from aot.op.qnn.quantize import RequantizeAttrs
from aot.op.recurrent import LstmAttrs, Scale
from aot.relay.expr import Constant, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm, select
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.arm_dsp.weights import (
    BYTES,
    MAX_WEIGHT,
    PRESCALE,
    TAPS,
    W8,
    QuadPlan,
    arrange,
    bias_words,
    dot_w8,
    plan_quads,
    run_quads,
)
from aot.topi.generic.recurrent import GATE_BITS, Functions, LstmKernel, Step, accepts
from aot.topi.intrin.asm_text import Operands, asm, block_of, count_instructions
from aot.topi.intrin.scalar import saturate
from aot.topi.layer.planes import counted
from aot.topi.layer.requant import HighMultiply, plan_high_multiply, plan_uniform
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

_LARGEST = 1 << 23
_LARGEST_PRODUCT = 1 << 30
_WIDE = 1 << 16
"""A number beyond this plus any int16 number is beyond int16 too."""

_DOT, _GATE, _CELL, _KEPT = 14, 10, 28, 60
"""Instructions (from counts under QEMU): per quad of all gates, two rescalings of a gate, a cell, and gates kept in memory."""


@dataclass(frozen=True, slots=True)
class _Matrix:
    """Weights [G, N, K] and biases [G, N] of one operand, the plan of its quads, and the buffer that holds the packed operand."""

    weights: Array
    biases: Array
    plan: QuadPlan
    words: Buffer
    depth: int

    def stream(self, cell: int) -> list[Array]:
        """Return the words of one cell: biases, then quads of all gates."""
        weights = arrange(self.weights[:, cell], 1, self.plan)
        return [bias_words(self.biases[:, cell], weights), BYTES.block(weights)]

    def largest(self, gate: int) -> int:
        """Return a bound of the gate's sums."""
        return int(_sums(self.weights[gate], self.biases[gate]).max())

    def size(self) -> int:
        """Words per cell."""
        return len(self.weights) * (1 + self.plan.quads)


class LstmW8Kernel(LstmKernel):
    """The generic kernel with other sums; where possible, each cell is computed entirely in registers."""

    def __init__(self, group: Group, target: Target, name: str, *, tabulated: bool) -> None:
        self.target, self.tabulated = target, tabulated
        self.kind = "arm_dsp.lstm_w8" + "_tables" * tabulated
        super().__init__(group, name, packed=True)
        constants = [a.data for a in group.anchor.args[3:7] if isinstance(a, Constant)]
        self.operands = [self._matrix(constants[i], constants[i + 2]) for i in range(2)]
        words = np.concatenate([w for cell in range(self.sizes.cells) for m in self.operands for w in m.stream(cell)])
        self.params = self.b.const("params", (words.size,), "int32")
        self.ctx.constants[self.params.name] = words.astype(np.int32)

    @property
    def keeps_gates(self) -> bool:
        attrs = self.attrs
        return bool(attrs.peephole_scales or attrs.norm or attrs.projection_scale)

    def make_functions(self) -> Functions:
        self.by_block = (Tabulated if self.tabulated else Computed)(self.b, self.ctx, self.attrs)
        return self.by_block

    def _matrix(self, weights: Array, biases: Array) -> _Matrix:
        gates, depth = self.attrs.gates, weights.shape[1]
        plan = plan_quads(run_quads(depth), cost=_DOT, common=False)
        words = self.b.scratch("words", (TAPS * plan.quads,), "int16", align=4)
        shape = (gates, self.sizes.cells)
        return _Matrix(weights.reshape(*shape, depth), biases.reshape(shape), plan, words, depth)

    # ---- sums

    def step(self, step: Step) -> None:
        if self.keeps_gates:
            super().step(step)
        else:
            for row in counted(self.b, self.sizes.rows, "row"):
                self.sums(row, step)

    def sums(self, row: Expr, step: Step) -> None:
        s = self.sizes
        sources = ((self.data, step.data + row * s.depth), (self.output, step.output + row * s.outputs))
        for matrix, source in zip(self.operands, sources, strict=True):
            W8.pack_run(self.b, source, matrix.depth, words=region(matrix.words), total=matrix.plan.quads)
        with self.b.for_("n", s.cells) as n:
            gates = self._gate_sums(n)
            i = row * s.cells + n
            if self.keeps_gates:
                for gate, value in enumerate(gates):
                    self.b.store(self.gates, self.gate(gate, i), value)
            else:
                self._whole_cell(gates, i, step)

    def _gate_sums(self, n: Expr) -> list[Expr]:
        """Return all gates of one cell before their activation functions."""
        b, attrs, (data, output) = self.b, self.attrs, self.operands
        start = b.let("start", n * (data.size() + output.size()))
        first = self._shares(data, start, attrs.input_scales, saturates=True)
        shares = self._shares(output, start + data.size(), attrs.recurrent_scales, saturates=attrs.is_tflm)
        return [b.let("gate", self.saturated(x + y)) for x, y in zip(first, shares, strict=True)]

    def _shares(self, matrix: _Matrix, start: Expr, scales: tuple[Scale, ...], *, saturates: bool) -> list[Expr]:
        """Return the operand's contribution to each gate of the cell whose words begin at `start`; see `_rescaled`."""
        b, gates = self.b, self.attrs.gates
        acc = b.local("acc", (gates,), "int32")
        for gate in range(gates):
            b.store(acc, gate, self.params[start + gate])
        weights = region(self.params, (start + gates) * 2, dtype="int16")
        b.block(dot_w8(gates, matrix.plan.unroll, matrix.plan.rest), weights, matrix.words, acc, imm(matrix.plan.quads))
        shares = [self._rescaled(acc[g], scales[g], matrix.largest(g), saturates=saturates) for g in range(gates)]
        return [b.let("share", value) for value in shares]

    def _rescaled(self, acc: Expr, scale: Scale, largest: int, *, saturates: bool) -> Expr:
        """Return a sum of at most `largest`, scaled by 2^PRESCALE, in the gate's scale.

        The result is saturated to int16, or so far beyond that its sum with an int16 number saturates.
        """
        limits = int_range("int16") if saturates else (-_WIDE, _WIDE)
        short = _short_form(scale, largest, limits, target=self.target, prescale=PRESCALE)
        if short is None:
            value = self.scaled(acc >> PRESCALE, scale)
            return self.saturated(value) if saturates else value
        requant_params = tuple(imm(int(f.values[0])) for f in short.params)
        return (short.emit_scaled if saturates else short.emit_wide)(self.b, acc, requant_params)

    # ---- cells

    def _whole_cell(self, gates: list[Expr], i: Expr, step: Step) -> None:
        """Compute a cell and its output from the sums of its gates."""
        b, attrs = self.b, self.attrs
        opened = [x for g, x in enumerate(gates) if g != attrs.cell_gate]
        *entry, forget, out = self.functions.sigmoid(opened)
        update = self.functions.tanh(gates[attrs.cell_gate])
        first = entry[0] if entry else b.let("entry", imm(32767) - forget)
        place = b.let("place", step.cell + i)
        cell = b.let("cell", self.new_cell(place, first, forget, update))
        b.store(self.cell, place, cell)
        activated = self.functions.tanh(cell, attrs.cell_bits) if attrs.has_cell_tanh else first
        value = b.let("value", self.hidden(out, activated, self.out.dtype))
        b.store(self.output, step.output + i, value)
        b.store(self.out, step.result + i, value)

    def hidden(self, opened: Expr, cell: Expr, dtype: str) -> Expr:
        scale, zp = self.attrs.hidden_scale, self.attrs.hidden_zp
        for prescale in (1, 0):
            short = _short_form(scale, _LARGEST_PRODUCT, int_range(dtype), target=self.target, prescale=prescale, zp=zp)
            if short is not None:
                requant_params = tuple(imm(int(f.values[0])) for f in short.params)
                return short.emit(self.b, self.b.let("product", opened * cell), requant_params)
        return super().hidden(opened, cell, dtype)

    def saturated(self, x: Expr) -> Expr:
        return saturate("ssat", 16)(x)

    def instructions(self) -> int:
        """Return the instructions of one call without normalisation and projection, which are as in the generic kernel."""
        s, gates = self.sizes, self.attrs.gates
        dots = sum(m.plan.instructions(_DOT * gates // 4) + 20 for m in self.operands)
        cell = self.by_block.instructions() + _CELL + (0 if not self.keeps_gates else _KEPT)
        row = s.cells * (dots + gates * _GATE + cell) + sum(W8.run_instructions(m.depth) for m in self.operands)
        return s.steps * s.rows * s.outer * row


def _short_form(
    scale: Scale, largest: int, limits: tuple[int, int], *, target: Target, prescale: int, zp: int = 0
) -> HighMultiply | None:
    """Return the requantisation of numbers up to `largest`, scaled by 2^prescale; only a right shift rounds a second time."""
    multiplier, shift = scale
    dtype = "int8" if limits == int_range("int8") else "int16"
    attrs = RequantizeAttrs((multiplier,), (shift,), zp, *limits, "double" if shift < 0 else "single", dtype)
    low, high = np.array([-largest]), np.array([largest])
    uniform = plan_uniform(attrs, low, high, target=target, prescale=prescale)
    return uniform or plan_high_multiply(attrs, low, high, target=target, prescale=prescale)


def accepts_w8(group: Group, target: Target, *, tabulated: bool) -> bool:
    """Accept bytes, weights without -128, and sums below 2^23 (the zero points are in the biases); perhaps tables must exist."""
    if not target.has("dsp") or not accepts(group, target) or tensor_type(group.anchor.args[0]).dtype != "int8":
        return False
    weight, recurrent, bias, recurrent_bias = (a.data.astype(np.int64) for a in group.anchor.args[3:7] if isinstance(a, Constant))
    for matrix, start in ((weight, bias), (recurrent, recurrent_bias)):
        if int(np.abs(matrix).max()) > MAX_WEIGHT or int(_sums(matrix, start).max()) >= _LARGEST:
            return False
    return not tabulated or tables(group.anchor.attrs) is not None


def _sums(weights: Array, biases: Array) -> Array:
    """Return bounds of the sums of each row."""
    bounds: Array = np.abs(weights.astype(np.int64)).sum(axis=1) * 128 + np.abs(biases.astype(np.int64))
    return bounds


def lower(group: Group, target: Target, name: str, *, tabulated: bool) -> Lowered:
    return LstmW8Kernel(group, target, name, tabulated=tabulated).lower()


for _tabulated in (False, True):
    _accepts, _lower = partial(accepts_w8, tabulated=_tabulated), partial(lower, tabulated=_tabulated)
    _name = "arm_dsp.lstm_w8" + "_tables" * _tabulated
    register_impl(OpImplementation(_name, "qnn.lstm", _accepts, _lower, plevel=15 - _tabulated))


_SCALAR = 30
"""Approximate instructions of TFLM's functions as scalar code."""


class Computed(Functions):
    """Activation functions by computation: gemmlowp's by the blocks below, TFLM's as scalar code."""

    def __init__(self, b: IRBuilder, ctx: TeContext, attrs: LstmAttrs) -> None:
        super().__init__(b, ctx, attrs)
        self._constants: dict[str, Buffer] = {}

    def sigmoid(self, values: Sequence[Expr]) -> list[Expr]:
        if self.attrs.is_tflm:
            return super().sigmoid(values)
        return self._block(sigmoid16(len(values)), GATE_BITS, values)

    def tanh(self, x: Expr, bits: int = GATE_BITS) -> Expr:
        if self.attrs.is_tflm:
            return super().tanh(x, bits)
        if bits > MOST_BITS:
            x, bits = _shifted(x, bits - MOST_BITS), MOST_BITS
        return self._block(tanh16(1, bits), bits + 1, [x])[0]

    def _block(self, block: TensorIntrin, bits: int, values: Sequence[Expr]) -> list[Expr]:
        return self._on_values(block, [self._constant(f"exp{bits}", numbers(bits))], values)

    def _constant(self, name: str, data: Array) -> Buffer:
        if name not in self._constants:
            buffer = self.b.const(name, data.shape, str(data.dtype))
            self.ctx.constants[buffer.name] = data
            self._constants[name] = buffer
        return self._constants[name]

    def _on_values(self, block: TensorIntrin, arrays: Sequence[Buffer], values: Sequence[Expr]) -> list[Expr]:
        """Return the block's results, in registers."""
        local = self.b.local("values", (len(values),), "int32")
        for i, value in enumerate(values):
            self.b.store(local, i, value)
        self.b.block(block, *arrays, local)
        return [self.b.let("value", local[i]) for i in range(len(values))]

    def instructions(self) -> int:
        """Return the instructions of one cell."""
        tanh = [GATE_BITS, *([min(self.attrs.cell_bits, MOST_BITS)] if self.attrs.has_cell_tanh else [])]
        if self.attrs.is_tflm:
            return _SCALAR * (self.attrs.gates - 1 + len(tanh))
        return (self.attrs.gates - 1) * (instructions(None) + 2) + sum(instructions(b) + 5 for b in tanh)


class Tabulated(Computed):
    """Activation functions from tables of all their values."""

    def __init__(self, b: IRBuilder, ctx: TeContext, attrs: LstmAttrs) -> None:
        super().__init__(b, ctx, attrs)
        half_tables = tables(attrs)
        assert half_tables is not None
        self._sigmoid, self._gate, self._cell = half_tables

    def table(self) -> None:
        return None

    def sigmoid(self, values: Sequence[Expr]) -> list[Expr]:
        return self._look_up("sigmoid", self._sigmoid, values)

    def tanh(self, x: Expr, bits: int = GATE_BITS) -> Expr:
        if not self.attrs.is_tflm and bits > GATE_BITS:
            x, bits = _shifted(x, bits - GATE_BITS), GATE_BITS
        return self._look_up(f"tanh{bits}", self._gate if bits == GATE_BITS else self._cell, [x])[0]

    def _look_up(self, name: str, table: HalfTable, values: Sequence[Expr]) -> list[Expr]:
        arrays = [self._constant(f"{name}_base", table.base), self._constant(f"{name}_rest", table.rest)]
        return self._on_values(look_up(len(values), table.shift, table.mirror), arrays, values)

    def instructions(self) -> int:
        return (self.attrs.gates - 1) * self._sigmoid.instructions + self._gate.instructions + self._cell.instructions + 10


def tables(attrs: LstmAttrs) -> tuple[HalfTable, HalfTable, HalfTable] | None:
    """Return the tables of sigmoid, of tanh for a gate and of tanh for the cell (perhaps the same); None if one has no table.

    TFLM's tanh with fewer integer bits rounds its argument, and has no table.
    """
    bits = attrs.cell_bits if attrs.is_tflm or (attrs.has_cell_tanh and attrs.cell_bits < GATE_BITS) else GATE_BITS
    sigmoid, gate, cell = (_table(attrs.activation, b) for b in (None, GATE_BITS, bits))
    return None if sigmoid is None or gate is None or cell is None else (sigmoid, gate, cell)


@cache
def _table(activation: str, bits: int | None) -> HalfTable | None:
    """Return the table of tanh for arguments with `bits` integer bits, or of sigmoid."""
    attrs = LstmAttrs(True, (), (), (0, 15), (0, 15), GATE_BITS, (0, 0), 0, activation=activation)

    def function(x: Array) -> Array:
        return lstm.sigmoid(x, attrs) if bits is None else lstm.tanh(x, attrs, bits)

    return half_table(function)


def _shifted(x: Expr, places: int) -> Expr:
    """Return x * 2^places, saturated to int16: where tanh with three integer bits saturates, so does tanh with more."""
    return saturate("ssat", 16)(x * (1 << places))


# Sigmoid and tanh of 16-bit numbers, as gemmlowp computes them (`aot.numerics.fixed16`), in about 50 instructions.
#
# A number a other than 0 is handled as m = |a| - 1: the bits of m are the bits of the fraction and of the factors of the
# exponential.  Half of a product's upper part, halves rounded up, is one SMMULR if an operand is scaled by 2^17.  With a factor f
# of 2^14 or more, which would then overflow 32 bits, v f / 2^15 = v (f - 2^15) / 2^15 + v is one SMMLAR.  Newton's steps have
# 2^17 times the estimate plus 1: the 1 moves halves of the difference that SMMLSR rounds to the side to which the reference
# rounds them.  An estimate of 2^14 times 2^17 overflows 32 bits: it saturates and gives the largest result of tanh, which is
# right. tests/topi/arm_dsp/test_lstm_functions.py compares all 65,536 numbers.


MOST_BITS = 3
"""Most integer bits of tanh's argument; with more, tanh saturates where this one does after a left shift."""

_FACTORS = (25520, 19875, 12055, 4435, 600, 11)
_SIGMOID_BITS = 3
_SHIFT = 17


def numbers(bits: int) -> Array:
    """Return int32: the constants of exp for arguments with `bits` integer bits, in the order in which they are loaded."""
    words = [(4096 - (1 << bits)) << _SHIFT, 0x14000, 10923 << _SHIFT, 28918 << _SHIFT]
    words += [f << _SHIFT for f in _FACTORS[: bits + 2]]
    words += [-15420 << _SHIFT, (23130 << _SHIFT) + 1, 8192]
    return np.array(words, np.int64).astype(np.uint32).view(np.int32)


@cache
def sigmoid16(count: int) -> TensorIntrin:
    """values[i] = 1 / (1 + e^-values[i]) with three integer bits.

    Operands: the numbers from `numbers(3)`; values int32[count] within int16.
    """
    return _function16(f"sigmoid16_{count}", count, SIGMOID16, None)


@cache
def tanh16(count: int, bits: int) -> TensorIntrin:
    """values[i] = tanh of values[i] with `bits` integer bits, 0 to `MOST_BITS`.

    Operands: the numbers from `numbers(bits + 1)`; values int32[count] within int16.
    """
    assert 0 <= bits <= MOST_BITS
    return _function16(f"tanh16_{count}_b{bits}", count, lambda x: TANH16(x, imm(bits)), bits)


def _function16(name: str, count: int, meaning: Callable[[Expr], Expr], bits: int | None) -> TensorIntrin:
    """Build a function of one value after another, as each needs all the registers there are; `bits`: None for sigmoid."""
    b = IRBuilder(name)
    b.input("numbers", (UNKNOWN_EXTENT,), "int32")
    values = b.output("values", (count,), "int32")
    lines: list[str] = []
    for i in range(count):
        b.store(values, i, meaning(values[i]))
        if i:
            lines.append(f"sub %[k], %[k], #{numbers(_SIGMOID_BITS if bits is None else bits + 1).nbytes}")
        lines += _sigmoid(f"%[v{i}]") if bits is None else _tanh(f"%[v{i}]", bits)
    clobbers = ["r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", *["lr"] * (bits == MOST_BITS)]

    def emit(operands: Operands) -> BlockText:
        return asm(operands, lines, "k=numbers", acc="v=values", clobbers=clobbers)

    return TensorIntrin(f"arm_dsp.{name}", b.finish(), emit, header="aot/fixed16.h")


def instructions(bits: int | None) -> int:
    """Return the instructions for one value of tanh with `bits` integer bits, or of sigmoid if None."""
    return count_instructions(_sigmoid("") if bits is None else _tanh("", bits))


def _sigmoid(value: str) -> list[str]:
    finish = ["lsl r9, r9, #3", "add r9, r9, r8, asr #16", f"eor r9, r9, {value}, asr #31", f"ubfx {value}, r9, #0, #15"]
    return [*_exp(value, _SIGMOID_BITS), *_reciprocal(saturates=False), *finish]


def _tanh(value: str, bits: int) -> list[str]:
    return [
        *_exp(value, bits + 1),
        *_reciprocal(saturates=True),
        *("lsl r9, r9, #4", "add r9, r9, r8, asr #15", "sub r9, r9, #32768", f"eor r9, r9, {value}, asr #31"),
        *(f"cmp {value}, #0", "it ne", f"addne {value}, r9, {value}, lsr #31"),
    ]


def _exp(value: str, bits: int) -> list[str]:
    """Return r12 = e^-|value| with 15 fractional bits."""
    width = 13 - bits
    lines = [
        *(f"rsb r10, {value}, #0", f"eor r9, {value}, {value}, asr #31", "sub r9, r9, r10, lsr #31"),
        "ldmia %[k]!, {r4, r5, r6, r8}",
        *(f"ubfx r10, r9, #0, #{width}", f"sub r10, r4, r10, lsl #{_SHIFT + bits}", f"asr r11, r10, #{_SHIFT}"),
        *("smmulr r12, r10, r11", "smmulr r4, r10, r12", "mla r5, r12, r12, r5", f"add r5, r4, r5, asr #{_SHIFT}"),
        *("smmlar r12, r5, r6, r12", "add r12, r12, #65537", "add r12, r11, r12, asr #1", "smmlar r12, r12, r8, r12"),
        f"ldmia %[k]!, {{{', '.join(_FACTOR_REGISTERS[: bits + 2])}}}",
    ]
    for i, register in enumerate(_FACTOR_REGISTERS[: bits + 2]):
        multiply = f"smmlar{{0}} r12, r12, {register}, r12" if _FACTORS[i] >= 1 << 14 else f"smmulr{{0}} r12, r12, {register}"
        if i % 2 == 0:  # this bit goes to N, the next one to C
            lines.append(f"lsls r11, r9, #{31 - width - i}")
        condition = "cs" if i % 2 else "mi"
        lines += [f"it {condition}", multiply.format(condition)]
    return lines


_FACTOR_REGISTERS = ("r4", "r5", "r6", "r8", "r10", "lr")


def _reciprocal(*, saturates: bool) -> list[str]:
    """Return r8 = 2^17 times the second estimate + 1, and r9 = a quarter of the last correction, from r12."""
    step = ["smmlsr r9, r12, r8, r6", "smmulr r9, r8, r9"]
    second = ["lsl r9, r9, #19", "qadd r8, r8, r9"] if saturates else ["add r8, r8, r9, lsl #19"]
    return [
        *("ldmia %[k]!, {r4, r5, r6}", "add r12, r12, #32768", "asr r12, r12, #1"),
        *("smmulr r8, r12, r4", f"add r8, r5, r8, lsl #{_SHIFT}"),
        *(*step, "add r8, r8, r9, lsl #19", *step, *second, *step),
    ]


# Functions of 16-bit numbers from a table of half of their values: a base per run of arguments and a byte per argument.
#
# f(-x) = mirror - f(x) holds for sigmoid and tanh in either arithmetic, so the table needs only magnitudes of arguments.
# gemmlowp's functions are off by several steps here and there, so no shorter table gives their exact values; within a run the
# values differ by less than 256.  About 33 KiB for sigmoid, 36 KiB for tanh, and 8 instructions per value.


SIZES = 32769
"""Magnitudes of arguments, from 0 to 32768."""

_MOST_SHIFT = 8
_SIGNS = {
    0: ["eor r9, r9, {v}, asr #31", "add {v}, r9, {v}, lsr #31"],
    32767: ["eor r9, r9, {v}, asr #31", "ubfx {v}, r9, #0, #15"],
    32768: ["eor r9, r9, {v}, asr #31", "add {v}, r9, {v}, lsr #31", "ubfx {v}, {v}, #0, #15"],
}
"""Code that turns f(|x|) in r9 into f(x) in {v}, by mirror; other mirrors have no code."""


@dataclass(frozen=True, slots=True)
class HalfTable:
    """f(x) = base[x >> shift] + rest[x] for 0 <= x <= 32768, f(-x) = mirror - f(x)."""

    base: Array
    rest: Array
    shift: int
    mirror: int

    @property
    def instructions(self) -> int:
        """Instructions per value."""
        return 6 + len(_SIGNS[self.mirror])


def half_table(function: Callable[[Array], Array]) -> HalfTable | None:
    """Return the table of a function of int16 arrays, with the fewest bases; None if it has no such form."""
    x = np.arange(-32768, 32768)
    values = function(x.astype(np.int16)).astype(np.int64)
    above, below = values[32769:], values[32767:0:-1]
    mirror = int(above[0] + below[0])
    if mirror not in _SIGNS or (above + below != mirror).any():
        return None
    sizes = np.append(values[32768:], mirror - values[0])
    for shift in range(_MOST_SHIFT, -1, -1):
        runs = np.pad(sizes, (0, -SIZES % (1 << shift)), mode="edge").reshape(-1, 1 << shift)
        base = runs.min(axis=1)
        rest = (runs - base[:, None]).reshape(-1)[:SIZES]
        if rest.max() < 256 and base.max() < 1 << 15:
            return HalfTable(base.astype(np.int16), rest.astype(np.uint8), shift, mirror)
    return None


@cache
def look_up(count: int, shift: int, mirror: int) -> TensorIntrin:
    """values[i] = f(values[i]); operands: base and rest of a HalfTable, values int32[count] within int16."""
    b = IRBuilder(f"look_up_{count}_s{shift}_m{mirror}")
    base, rest = b.input("base", (UNKNOWN_EXTENT,), "int16"), b.input("rest", (UNKNOWN_EXTENT,), "uint8")
    values = b.output("values", (count,), "int32")
    lines = []
    for i in range(count):
        x = b.let("x", values[i])
        size = b.let("size", select(x < 0, imm(0) - x, x))
        value = b.let("value", cast("int32", base[size >> shift]) + cast("int32", rest[size]))
        b.store(values, i, select(x < 0, imm(mirror) - value, value))
        v = f"%[v{i}]"
        lines += [f"eor r8, {v}, {v}, asr #31", f"add r8, r8, {v}, lsr #31", "ldrb r9, [%[rest], r8]", f"lsr r8, r8, #{shift}"]
        lines += ["ldrsh r8, [%[base], r8, lsl #1]", "add r9, r9, r8", *(line.format(v=v) for line in _SIGNS[mirror])]

    def emit(operands: Operands) -> BlockText:
        return asm(operands, lines, "*base *rest", acc="v=values", clobbers=["r8", "r9"])

    return block_of(b, "arm_dsp", emit, requires="thumb2")
