"""float32 layers in MVE vectors, with the reference's order of accumulation; subnormal numbers count as zero (--fast-float)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import product

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, binop, imm
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.arm_fpu.conv2d import plan, plan_depthwise, plan_depthwise_stored, plan_stored, title_of
from aot.topi.arm_fpu.dot import CHANNELS, Clamp, DotForm, Text, bits_of, constant, dot, float_operands
from aot.topi.arm_fpu.layer import DEPTHWISE, UNROLL, FloatLayer, Tile, WindowKernel, with_relu
from aot.topi.intrin.asm_text import AsmBlock, Operands, Repeat, asm, block_of, count_instructions
from aot.topi.layer.elementwise import Rows, Runs, runs_of
from aot.topi.strategy import Group, Lowered, register_planned

LANES = 4
"""Numbers per vector."""
LOAD, STORE = "vldrw{}.u32", "vstrw{}.32"

_POINTERS = ("r0", "r1")
"""Registers of the data of two pixels; r2 is the stream of weights, r12 the number of remaining runs, LR counts taps."""
_DATA = (("r3", "r4", "r5", "r6"), ("r8", "r9", "r10", "r11"))
_INFINITE = 0x7F800000


@dataclass(frozen=True, slots=True)
class VectorForm(DotForm):
    """DotForm with the channels in vectors; the last vector may have fewer than four."""

    @property
    def name(self) -> str:
        return DotForm.name.fget(self).replace("_vmla", "")  # type: ignore[attr-defined,no-any-return]

    @property
    def vectors(self) -> int:
        """Vectors per pixel."""
        return -(-self.channels // LANES)

    @property
    def last(self) -> int:
        """Channels of the last vector if it is partial, else 0."""
        return self.channels % LANES

    @property
    def accumulators(self) -> list[str]:
        """Registers of the sums, one pixel after the other."""
        return [f"q{i}" for i in range(self.pixels * self.vectors)]

    @property
    def together(self) -> int:
        """Taps in one part of the loop's body."""
        return LANES

    def run(self, *, first: bool = False) -> Text:
        if not self.loop:
            return [*self.taps(self.unroll + self.remainder, first=first)]
        whole, remainder = divmod(self.unroll, self.together)
        body: Text = [Repeat(whole, self.taps(self.together)), *self.taps(remainder)]
        return ["ldr lr, %[trips]", "dls lr, lr", "2:", *body, "le lr, 2b", *self.taps(self.remainder)]

    def all_runs(self) -> Text:
        if not self.runs:
            return self.run(first=self.starts)
        text: Text = [*self.run(first=True), *self.steps(), "beq 3f"] if self.starts else []
        return [*text, "1:", *self.run(), *self.steps(), "bne 1b", "3:"]

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        text: list[str] = []
        for done in range(0, count, LANES):
            size = min(LANES, count - done)
            for p in range(self.pixels):
                pointer, data = _POINTERS[p], ", ".join(_DATA[p][:size])
                text.append(f"ldr {data}, [{pointer}], #4" if size == 1 else f"ldmia {pointer}!, {{{data}}}")
            for k in range(size):
                text += self.moves(LOAD, "r2", 4) + self.products(0, k, first=first and done + k == 0)
        return text

    def moves(self, op: str, pointer: str, first: int) -> list[str]:
        """LOAD or STORE a number per channel, to or from vectors from number `first` on; the pointer advances."""
        text = [f"{op.format('')} q{first + v}, [{pointer}], #{4 * LANES}" for v in range(self.channels // LANES)]
        if self.last:
            text += ["vpst", f"{op.format('t')} q{first + self.vectors - 1}, [{pointer}], #{4 * self.last}"]
        return text

    def products(self, weights: int, k: int, *, first: bool = False) -> list[str]:
        """The products of one tap; another instruction separates each product from its addition."""
        terms = [(p * self.vectors + v, 4 + v, _DATA[p][k]) for p in range(self.pixels) for v in range(self.vectors)]
        if first:
            return [f"vmul.f32 q{acc}, q{w}, {x}" for acc, w, x in terms]
        text: list[str] = []
        for i in range(len(terms) + 1):
            if i < len(terms):
                text.append(f"vmul.f32 q{6 + i % 2}, q{terms[i][1]}, {terms[i][2]}")
            if i:
                text.append(f"vadd.f32 q{terms[i - 1][0]}, q{terms[i - 1][0]}, q{6 + (i - 1) % 2}")
        return text

    def zeros(self) -> Text:
        return [f"vmov.i32 {q}, #0" for q in self.accumulators]

    def mask(self) -> list[str]:
        """Set the predicate to the lanes of a partial last vector."""
        return [f"mov lr, #{self.last}", "vctp.32 lr"] if self.last else []

    def steps(self) -> list[str]:
        """Move from the end of a run to the next one; the flags tell whether there is one."""
        text = ["ldr lr, %[gap]", *(f"add {x}, {x}, lr" for x in _POINTERS[: self.sources])]
        text += ["ldr lr, %[skip]", "add r2, r2, lr"] if self.pixels == 1 else []
        return [*text, "subs r12, r12, #1"]

    def text(self) -> Text:
        start: Text = [*self.mask(), *(["ldr r12, %[runs]"] if self.runs else [])]
        return [*start, *([] if self.starts else self.zeros()), *self.all_runs(), *self.finish()]

    def finish(self) -> Text:
        """Add the bias, clamp and store."""
        n = self.vectors
        text: Text = ["ldr lr, %[bias]", *self.moves(LOAD, "lr", 4)]
        text += [f"vadd.f32 {q}, {q}, q{4 + i % n}" for i, q in enumerate(self.accumulators)]
        text += [*self.clamped(), *(self.mask() if self.clamps else []), "ldr r3, %[o]", *self.moves(STORE, "r3", 0)]
        if self.pixels == 2:
            text += ["ldr r3, %[o]", "ldr r4, %[step]", "add r3, r3, r4", *self.moves(STORE, "r3", n)]
        return text

    @property
    def clamps(self) -> bool:
        """Whether comparisons overwrite the predicate of the mask."""
        return self.clamp.lo not in (None, 0.0) or self.clamp.hi is not None

    def clamped(self) -> Text:
        """Clamp; comparisons with NaN are false, so NaN is kept."""
        lo, hi, text = self.clamp.lo, self.clamp.hi, list[str]()
        if lo == 0.0:  # compare as integers: negative floats are negative integers; -0 and negative NaN do not occur
            text += ["vmov.i32 q6, #0", *(f"vmax.s32 {q}, {q}, q6" for q in self.accumulators)]
        elif lo is not None:
            text += [*constant("r3", bits_of(lo)), "vdup.32 q6, r3"]
            text += [line for q in self.accumulators for line in (f"vpt.f32 gt, q6, {q}", f"vmovt {q}, q6")]
        if hi is not None:
            text += constant("r3", bits_of(hi))
            text += [line for q in self.accumulators for line in (f"vpt.f32 gt, {q}, r3", f"vdupt.32 {q}, r3")]
        if not self.clamp.keeps:
            return [*text]
        largest: Text = ["mov r3, #0", *(f"vmaxnmav.f32 r3, {q}" for q in self.accumulators), f"cmp r3, #{_INFINITE}"]
        return [*largest, "bne 9f", *text, "9:"]

    def cost(self, *, runs: float, trips: float) -> float:
        """Instructions per execution."""
        each = trips * (count_instructions(self.taps(self.unroll)) + self.loop) + count_instructions(self.taps(self.remainder))
        each += 2 * self.loop + (len(self.steps()) + 1) * self.runs
        ends = count_instructions(self.finish())
        if self.clamp.keeps:
            ends -= 4 * len(self.accumulators) + 5
        saved = len(self.accumulators) if self.starts else -len(self.accumulators)
        return runs * each + ends - saved + 2 * bool(self.last) + self.runs


@cache
def vector_dot(form: VectorForm) -> TensorIntrin:
    """`dot` in vectors, with the same operands."""
    name = f"arm_mve.{form.name}"
    return replace(dot(form), name=name, emit=lambda ops: emit(form, ops), requires="mve.fp", ordered=True)


def emit(form: VectorForm, operands: Operands) -> BlockText:
    """The assembly of a block; values needed once are read from memory."""
    moved = {**{f"x{p}": _POINTERS[p] for p in range(form.sources)}, "w": "r2"}
    inside = {"bias": operands["bias"].pointer, "o": operands["out"].pointer}
    declarations = [f"{'' if n == 'o' else 'const '}void *const aot_{n} = {pointer};" for n, pointer in inside.items()]
    numbers = {n: operands[n].value for n in ("step", "trips", "runs", "gap", "skip", "tap") if n in operands}
    declarations += [f"const int32_t aot_{n} = {'' if n in ('trips', 'runs') else '4 * '}{v};" for n, v in numbers.items()]
    declarations += [f'register const void *aot_{n} __asm("{r}") = {operands[n].pointer};' for n, r in moved.items()]
    free = [r for p in range(form.pixels) for r in _DATA[p]]
    return AsmBlock(
        declarations,
        form.text(),
        outs=[f'"+r"(aot_{n})' for n in moved],
        ins=[f'[{n}] "m"(aot_{n})' for n in (*inside, *numbers)],
        clobbers=[*free, "r12", "lr", *(f"q{i}" for i in range(8))],
    ).emit()


# Convolutions and fully connected layers of float32: two neighbouring pixels by eight channels, straight from the image.
#
# Loops and packed weights are the same as in `arm_fpu.conv2d`.  Only with --fast-float.


def _plan(group: Group, target: Target, operator: str, *, small: bool) -> FloatLayer | None:
    if not (target.has("mve") and target.has("ftz")):
        return None
    return (plan_stored if small else plan)(group, operator)


def _lower(group: Group, _target: Target, name: str, layer: FloatLayer, *, small: bool) -> Lowered:
    kernel = _Kernel(IRBuilder(name), group, layer, fused=True, small=small)
    return replace(kernel.lowered(f"arm_mve.{title_of(layer)}_float", unroll=UNROLL), cycles=0)


class _Kernel(WindowKernel):
    """The kernel of `arm_fpu.conv2d` with channels in vectors."""

    def form(self, pixels: int, count: int) -> DotForm:
        f = super().form(pixels, count)
        return VectorForm(f.pixels, f.channels, f.fused, f.unroll, f.remainder, f.loop, f.runs, f.clamp, "float")

    def intrin(self, form: DotForm) -> TensorIntrin:
        assert isinstance(form, VectorForm)
        return vector_dot(form)

    def price(self, form: DotForm, *, runs: int, trips: float) -> tuple[float, float]:
        assert isinstance(form, VectorForm)
        return form.cost(runs=runs, trips=trips), 0.0


for _operator in ("nn.conv2d_float", "nn.dense_float", "nn.depthwise_conv2d_float"):
    _name = _operator.removeprefix("nn.").removesuffix("_float").removeprefix("depthwise_")
    for _small in (False, True):
        register_planned(
            f"arm_mve.{_name}_float" + "_stored" * _small,
            _operator,
            partial(_plan, operator=_operator, small=_small),
            partial(_lower, small=_small),
            plevel=38 - 2 * _small,
            keeps=_small,
        )


# Depthwise windows in vectors: one or two pixels by all channels; the block loops over channels, up to eight at a time.
#
# Registers: r0 and r1 data of the pixels, r2 weights, r5 biases, r6 and r8 results, r9 remaining blocks of channels, r10 and r11
# increments of a pointer after a tap and after a run, r12 remaining runs; q0 to q3 sums, q4 and q5 weights, q6 and q7 data, then
# products.


NEAREST = 508
"""Most bytes by which a vector load can advance its pointer."""

_RESULTS = ("r6", "r8")


@dataclass(frozen=True, slots=True)
class DepthwiseVectors(VectorForm):
    """VectorForm with one data channel per result channel.

    `near`: bytes from a tap's data to the next tap's; 0 if loads cannot advance the pointer that far.
    """

    near: int = 0

    @property
    def together(self) -> int:
        return 1

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        text: list[str] = []
        for k in range(count):
            text += self.moves(LOAD, "r2", 4)
            for p in range(self.pixels):
                pointer, goes = _POINTERS[p], f", #{self.near}" if self.near else ""
                for v in reversed(range(self.vectors)):
                    place = f"[{pointer}, #{4 * LANES}]" if v else f"[{pointer}]{goes}"
                    masked = self.last > 0 and v == self.vectors - 1
                    text += ["vpst", f"vldrwt.u32 q{6 + v}, {place}"] if masked else [f"vldrw.u32 q{6 + v}, {place}"]
                text += [] if self.near else [f"add {pointer}, {pointer}, r10"]
                sums = list(enumerate(self.accumulators[p * self.vectors : (p + 1) * self.vectors]))
                if first and k == 0:
                    text += [f"vmul.f32 {q}, q{6 + v}, q{4 + v}" for v, q in sums]
                else:
                    text += [f"vmul.f32 q{6 + v}, q{6 + v}, q{4 + v}" for v, _ in sums]
                    text += [f"vadd.f32 {q}, {q}, q{6 + v}" for v, q in sums]
        return text

    def steps(self) -> list[str]:
        text = [f"add {x}, {x}, r11" for x in _POINTERS[: self.pixels]]
        text += ["ldr lr, %[skip]", "add r2, r2, lr"] if self.pixels == 1 else []
        return [*text, "subs r12, r12, #1"]

    def text(self) -> Text:
        start: Text = [*self.mask(), "ldr r9, %[blocks]"]
        start += [] if self.near else ["ldr r10, %[tap]"]
        start += ["ldr r11, %[gap]"] if self.runs else []
        start += ["6:", *([] if self.starts else self.zeros()), *(["ldr r12, %[runs]"] if self.runs else [])]
        return [*start, *self.all_runs(), *self.finish(), *self._around(), "bne 6b"]

    def _around(self) -> Text:
        """Move to the next block's data, weights and biases."""
        text: Text = ["ldr lr, %[xback]", *(f"add {x}, {x}, lr" for x in _POINTERS[: self.pixels])]
        return [*text, "ldr lr, %[wback]", "add r2, r2, lr", "ldr lr, %[bback]", "add r5, r5, lr", "subs r9, r9, #1"]

    def finish(self) -> Text:
        n = self.vectors
        text: Text = [*self.moves(LOAD, "r5", 4)]
        text += [f"vadd.f32 {q}, {q}, q{4 + i % n}" for i, q in enumerate(self.accumulators)]
        text += [*self.clamped(), *(self.mask() if self.clamps else [])]
        return text + [line for p in range(self.pixels) for line in self.moves(STORE, _RESULTS[p], p * n)]

    def price(self, *, runs: float, trips: float, blocks: int) -> float:
        """Instructions per execution."""
        each = self.cost(runs=runs, trips=trips) - self.runs - len(self.mask()) + count_instructions(self._around()) + 1
        return blocks * (each + self.runs) + 4


@cache
def depthwise_vectors(form: DepthwiseVectors) -> TensorIntrin:
    """out[p * step + n * 8 + c] = clamp(sum over runs and taps of x_p[.., n * 8 + c] * w[n * each + .., c] + bias[n * each + c])
    for p < pixels, n < blocks, c < channels.

    Operands as for `dot`; then `tap`, elements from a tap's data to the next tap's; `blocks`; and `each`, elements from a block's
    weights and biases to the next block's.
    """
    b = IRBuilder(form.name)
    numbers = {n: Var(n) for n in (*form.numbers, "tap", "blocks", "each")}
    *xs, w, bias, out = float_operands(b, *form.pointers)
    taps, zero = form.run_length(numbers), imm(0)
    with b.for_("n", numbers["blocks"]) as n:
        acc = b.local("acc", (form.pixels, form.channels), "float32", init=imm(0.0, "float32"))
        with b.for_("r", numbers.get("runs", imm(1))) as r, b.for_("k", taps) as k:
            weights = n * numbers["each"] + r * (taps * form.channels + numbers.get("skip", zero)) + k * form.channels
            start = n * form.channels + r * (taps * numbers["tap"] + numbers.get("gap", zero)) + k * numbers["tap"]
            for p, x in enumerate(xs):
                for c in range(form.channels):
                    b.store(acc, (p, c), acc[p, c] + x[start + c] * w[weights + c])
        for p in range(form.pixels):
            at: Expr = numbers.get("step", zero) * p + n * form.channels
            for c in range(form.channels):
                b.store(out, at + c, form.clamp.meaning(b, acc[p, c] + bias[n * numbers["each"] + c]))
    emit = partial(_emit_depthwise, form)
    return block_of(b, "arm_mve", emit, *numbers.values(), requires="mve.fp", ordered=True)


def _emit_depthwise(form: DepthwiseVectors, operands: Operands) -> BlockText:
    value = {n: f"({o.value})" for n, o in operands.items() if o.value}
    taps = f"({value['trips']} * {form.unroll} + {form.remainder})" if form.loop else f"{form.unroll + form.remainder}"
    runs, gap, skip = (value.get(n, other) for n, other in (("runs", "1"), ("gap", "0"), ("skip", "0")))
    numbers: dict[str, str] = {n: value[n] for n in ("trips", "runs", "blocks") if n in value}
    numbers |= {n: f"4 * {value[n]}" for n in ("gap", "skip", "tap") if n in value and not (n == "tap" and form.near)}
    numbers["xback"] = f"4 * ({form.channels} - {runs} * ({taps} * {value['tap']} + {gap}))"
    numbers["wback"] = f"4 * ({value['each']} - {runs} * ({taps} * {form.channels} + {skip}))"
    numbers["bback"] = f"4 * ({value['each']} - {form.channels})"
    moved = {f"x{p}": (_POINTERS[p], operands[f"x{p}"].pointer) for p in range(form.pixels)}
    moved |= {"w": ("r2", operands["w"].pointer), "bias": ("r5", operands["bias"].pointer)}
    results = {
        f"o{p}": (_RESULTS[p], operands["out"].pointer if not p else f"(float *)aot_o0 + {value['step']}")
        for p in range(form.pixels)
    }
    declarations = [f"const int32_t aot_{n} = {v};" for n, v in numbers.items()]
    declarations += [f'register const void *aot_{n} __asm("{r}") = {p};' for n, (r, p) in moved.items()]
    declarations += [f'register void *aot_{n} __asm("{r}") = {p};' for n, (r, p) in results.items()]
    return AsmBlock(
        declarations,
        form.text(),
        outs=[f'"+r"(aot_{n})' for n in (*moved, *results)],
        ins=[f'[{n}] "m"(aot_{n})' for n in numbers],
        clobbers=["r3", "r9", "r10", "r11", "r12", "lr", *(f"q{i}" for i in range(8))],
    ).emit()


# Depthwise convolutions of float32 by vectors: two neighbouring pixels by all channels, straight from the image.
#
# Loops and packed weights are the same as in `arm_fpu.depthwise`.  Only with --fast-float.  Loads advance the pointers if taps
# are near enough.  In the `common` form a register does: layers of different depths share code, for an eighth more instructions.


def _plan_depthwise(group: Group, target: Target, *, small: bool, common: bool) -> FloatLayer | None:
    if not (target.has("mve") and target.has("ftz")):
        return None
    layer = (plan_depthwise_stored if small else plan_depthwise)(group)
    return None if layer is None or (common and _tap_bytes(layer) > NEAREST) else layer


def _tap_bytes(layer: FloatLayer) -> int:
    """Bytes from a tap's data to the next tap's in the same row."""
    return 4 * layer.columns.dilation * layer.depth


def _lower_depthwise(group: Group, _target: Target, name: str, layer: FloatLayer, *, small: bool, common: bool) -> Lowered:
    kernel = (_CommonDepthwise if common else _Depthwise)(IRBuilder(name), group, layer, fused=True, small=small)
    return replace(kernel.lowered("arm_mve.depthwise_float" + "_common" * common, channels=CHANNELS), cycles=0)


class _Depthwise(WindowKernel):
    """Channels in vectors; without an epilogue, one block of assembly computes all whole blocks of channels."""

    def form(self, pixels: int, count: int) -> DotForm:
        f = super().form(pixels, count)
        kind = "depthwise_float" + (f"_{self._near}" if self._near else "")
        sizes = (f.pixels, f.channels, f.fused, f.unroll, f.remainder, f.loop, f.runs, f.clamp)
        return DepthwiseVectors(*sizes, kind, near=self._near)

    @property
    def _near(self) -> int:
        """Bytes by which loads advance the pointers."""
        tap = _tap_bytes(self.layer)
        return tap if tap <= NEAREST else 0

    @property
    def _joined(self) -> bool:
        return self.io.results is None and self.stored is None

    def _channels(self, tile: Tile, pixel: Expr) -> None:
        if not self._joined:
            super()._channels(tile, pixel)
            return
        blocks, remainder = divmod(self.layer.channels, CHANNELS)
        size = CHANNELS * (1 + len(self._matrix))
        if blocks:
            self._block(tile, pixel, imm(0), imm(0), CHANNELS, blocks=blocks)
        if remainder:
            self._block(tile, pixel, imm(blocks * CHANNELS), imm(blocks * size), remainder)

    def more(self, count: int, blocks: int) -> list[Expr]:
        return [*super().more(count, blocks), imm(blocks), imm(count * (1 + len(self._matrix)))]

    def intrin(self, form: DotForm) -> TensorIntrin:
        assert isinstance(form, DepthwiseVectors)
        return depthwise_vectors(form)

    def price(self, form: DotForm, *, runs: int, trips: float) -> tuple[float, float]:
        assert isinstance(form, DepthwiseVectors)
        return form.price(runs=runs, trips=trips, blocks=1) - (14 if self._joined else 0), 0.0


class _CommonDepthwise(_Depthwise):
    """Pointers advance by a register, so that no instruction depends on the depth."""

    @property
    def _near(self) -> int:
        return 0


for _kept, _common in product((False, True), repeat=2):
    register_planned(
        "arm_mve.depthwise_float" + "_stored" * _kept + "_common" * _common,
        DEPTHWISE,
        partial(_plan_depthwise, small=_kept, common=_common),
        partial(_lower_depthwise, small=_kept, common=_common),
        plevel=38 - 2 * _kept - _common,
        keeps=_kept,
    )


# ADD, SUB, MUL and RELU of float32, four elements per iteration, with the clamp of an activation; the last vector is predicated.


OPERATORS = {"add": ("+", "vadd.f32"), "subtract": ("-", "vsub.f32"), "multiply": ("*", "vmul.f32")}
"""Operator -> its symbol in TIR, and the instruction."""


@dataclass(frozen=True, slots=True)
class ElementForm:
    """`op`: an operator of OPERATORS, or relu with one operand; `ones`: for each operand, whether it is one number for all
    elements.
    """

    op: str
    ones: tuple[bool, ...]
    clamp: Clamp

    @property
    def name(self) -> str:
        return f"{self.op}_float" + "".join("_one" if one else "_all" for one in self.ones) + self.clamp.name

    def before(self) -> list[str]:
        """Set up what is constant: numbers that are the same for all elements, bounds."""
        text = []
        for i, one in enumerate(self.ones):
            text += [f"ldr %[t], [%[x{i}]]", f"vdup.32 q{i}, %[t]"] if one else []
        for q, bound in (("q3", self.clamp.lo), ("q4", self.clamp.hi)):
            if bound is not None:
                text += [*constant("%[t]", bits_of(bound)), f"vdup.32 {q}, %[t]"]
        return text

    def vector_step(self) -> list[str]:
        """Code for four elements; comparisons with NaN are false, so NaN is kept."""
        text = [f"vldrw.u32 q{i}, [%[x{i}]], #{4 * LANES}" for i, one in enumerate(self.ones) if not one]
        result = "q2" if self.op in OPERATORS else "q0"
        text += [f"{OPERATORS[self.op][1]} q2, q0, q1"] if self.op in OPERATORS else []
        text += [f"vpt.f32 gt, q3, {result}", f"vmovt {result}, q3"] if self.clamp.lo is not None else []
        text += [f"vpt.f32 gt, {result}, q4", f"vmovt {result}, q4"] if self.clamp.hi is not None else []
        return [*text, f"vstrw.32 {result}, [%[out]], #{4 * LANES}"]

    def instructions(self, count: int) -> int:
        """Instructions that one block executes."""
        return -(-count // LANES) * (count_instructions(self.vector_step()) + 1) + len(self.before()) + 6

    @property
    def code(self) -> int:
        """Bytes of code."""
        return 4 * (len(self.vector_step()) + len(self.before()) + 8)


@cache
def elementwise(form: ElementForm) -> TensorIntrin:
    """out[i] = clamp(x0[i] op x1[i]) for `count` elements, at least one.

    Operands: x0 and x1 (not for relu) float32; one that is a number for all elements is read at index 0 only; out (may be either
    of them); count.
    """
    count, names = Var("count"), [f"x{i}" for i in range(len(form.ones))]
    b = IRBuilder(form.name)
    *xs, out = float_operands(b, *names)
    with b.for_("i", count) as i:
        values: list[Expr] = [x[imm(0) if one else i] for x, one in zip(xs, form.ones, strict=True)]
        value = binop(OPERATORS[form.op][0], *values) if form.op in OPERATORS else values[0]
        b.store(out, i, form.clamp.meaning(b, value))
    clobbers = ["lr", "q0", "q1", "q2", "q3", "q4"]

    def emit(operands: Operands) -> BlockText:
        text = [*form.before(), "dlstp.32 lr, %[n]", "1:", *form.vector_step(), "letp lr, 1b"]
        return asm(operands, text, f"{' '.join(names)} >out", "n=count", temporaries="t", clobbers=clobbers)

    return block_of(b, "arm_mve", emit, count, requires="mve.fp", ordered=True)


# ADD, SUB, MUL and RELU of float32 in vectors, alone or followed by RELUs.  Only with --fast-float.
#
# An operand may be repeated along the outer axes, or have one number per run of the other operand.


LEAST = 8
"""Shortest run for which vectors pay off."""


def _plan_elements(group: Group, target: Target, op: str) -> tuple[Runs, ElementForm] | None:
    anchor = group.anchor
    runs = runs_of(anchor, "float32", least=LEAST, outer=True) if target.has("mve") and target.has("ftz") else None
    if runs is None or len(runs.kinds) != (2 if op in OPERATORS else 1):
        return None
    (lo, hi), head, epilogue = with_relu((anchor.attrs.lo, anchor.attrs.hi), anchor, group.followers)
    if epilogue or head is not group.result or (lo is not None and hi is not None and lo > hi):
        return None
    return runs, ElementForm(op, tuple(k == "outer" for k in runs.kinds), Clamp(lo, hi))


def _lower_elements(group: Group, _target: Target, name: str, plan: tuple[Runs, ElementForm]) -> Lowered:
    b, (runs, form) = IRBuilder(name), plan
    rows = Rows(b, group, runs, dtype="float32")
    with b.for_("r", runs.rows) as r:
        at = {"whole": r * runs.length, "inner": imm(0), "outer": r}
        operands = [region(x, at[kind]) for x, kind in zip(rows.operands, runs.kinds, strict=True)]
        b.block(elementwise(form), *operands, region(rows.out, at["whole"]), imm(runs.length))
    func = b.finish(FuncAttrs(kernel=f"arm_mve.{form.op}_float", span=group.anchor.span))
    return Lowered(func, rows.constants, runs.rows * (form.instructions(runs.length) + 8) + 10, form.code + 60)


for _op in (*OPERATORS, "relu"):
    register_planned(f"arm_mve.{_op}_float", _op, partial(_plan_elements, op=_op), _lower_elements, plevel=38)
