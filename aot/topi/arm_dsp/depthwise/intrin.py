"""Strips of a depthwise convolution over one channel's int16 plane, each one asm block (plans: plan.py).

A strip is `rows` lines by `outputs` columns of the result.  Two register plans.  Resident: all weight words of the
channel stay in registers (3x3, short 1-D kernels); two outputs at a time, or one where the stride is even.  Streamed:
up to four outputs at a time, weights read by LDM for each of the kernel's rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast, clamp, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_dsp.depthwise.plan import NUMBERS, RESIDENT_WORDS, Mac, RequantForm, Strip, row_macs
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions, counted, counted_offset
from aot.topi.intrin.dsp import SMMLA, SMMLAR
from aot.topi.layer.requant import sign_term

TABLE = 256
"""Bytes of a table."""

HALF_MAX = 32767
"""The largest int16."""


@lru_cache(maxsize=256)
def dw_strip(strip: Strip) -> TensorIntrin:
    """out[y, x] = clamp((hi(acc * multiplier) + constant) >> shift), acc = bias + sum of plane * weight, over a strip.

    Operands: plane int16 (aligned to 4 bytes) from the strip's first pixel on; params int32, a channel's stream; out
    int8 from the strip's first result on; where shared, also the rows, and the steps of the result in bytes.  With a table it
    comes before `out`: int8[256] by code, -128 first.
    """
    b = IRBuilder("dw_strip")
    layout, (sy, sx) = strip.layout, strip.stride
    each = 2 if strip.rounding.halves else 1
    written = ((strip.rows - 1) * strip.row_step + (strip.outputs - 1) * strip.column_step) // each + 1
    plane = b.input("plane", (UNKNOWN_EXTENT if strip.shared else strip.plane_size,), "int16", align=4)
    params = b.input("params", (UNKNOWN_EXTENT if strip.shared else strip.stream_words,), "int32", align=4)
    table = b.input("table", (TABLE,), "int8") if strip.rounding.table else None
    out = b.output("out", (UNKNOWN_EXTENT if strip.shared else written,), strip.rounding.dtype)
    scalars = tuple(Var(n) for n in ("rows", "column_step", "row_step")) if strip.shared else ()
    rows, column_step, row_step = scalars or (imm(strip.rows), imm(strip.column_step), imm(strip.row_step))
    numbers = [b.let(n, params[i]) for n, i in zip(NUMBERS, strip.number_indices, strict=False)]
    places = [[layout.half((r, k)) for k in range(layout.kw)] for r in range(layout.kh)]
    pitch = places[1][0] - places[0][0] if layout.kh > 1 else 0
    regular = not strip.packed and all(p == r * pitch + places[0][k] for r, row in enumerate(places) for k, p in enumerate(row))
    with b.for_("y", rows) as y, b.for_("i", strip.outputs) as i:
        # a shared strip stores its first result last, so that a column step of 0 leaves just that one
        x: Expr = strip.outputs - 1 - i if strip.shared else i
        acc = b.local("acc", (1,), "int32", init=numbers[0])
        at = b.let("at", y * (sy * strip.pitch) + x * sx)

        def tap(line: Expr, k: int, weight: Expr) -> None:
            b.store(acc, 0, acc[0] + cast("int32", plane[line + k]) * weight)

        if regular:
            with b.for_("r", layout.kh) as r:
                for k in range(layout.kw):
                    tap(at + r * (strip.dilation * strip.pitch), k, cast("int32", params.load("int16", r * pitch + places[0][k])))
        else:
            for row in range(layout.kh):
                for k in range(layout.kw):
                    tap(at + row * strip.dilation * strip.pitch, k, _weight(params, places[row][k], packed=strip.packed))
        result = requantized(b, strip.rounding, acc[0], numbers)
        b.store(out, y * (row_step // each) + x * (column_step // each), result if table is None else table[result + TABLE // 2])
    func = replace(b.finish(), scalars=scalars)
    return TensorIntrin(strip.name, func, lambda ops: _emit(ops, strip), requires="dsp")


def _weight(params: Buffer, half: int, *, packed: bool) -> Expr:
    if not packed:
        return cast("int32", params.load("int16", half))
    return cast("int32", params.load("int8", 4 * (half // 4) + half // 2 % 2 + half % 2 * 2)) * 256


def unpack(register: str, other: str) -> list[str]:
    """The two words of weights times 256 of a packed word, whose bytes are low a, low b, high a, high b of words a and b."""
    mask = "#0xff00ff00"
    return [f"and {other}, {register}, {mask}", f"lsl {register}, {register}, #8", f"and {register}, {register}, {mask}"]


def requantized(b: IRBuilder, rounding: RequantForm, acc: Expr, numbers: Sequence[Expr]) -> Expr:
    """The meaning of the block's requantisation; `numbers`: bias, constant, multiplier and, where it varies, shift."""
    scaled = b.let("scaled", acc)
    constant = numbers[1] + sign_term(scaled, rounding.prescale) if rounding.signed else numbers[1]
    total = (SMMLAR if rounding.rounded else SMMLA)(scaled, numbers[2], constant)
    shift = imm(rounding.shift) if rounding.shift >= 0 else numbers[3]
    return clamp(total >> shift, rounding.lo, rounding.hi)


def _emit(operands: Mapping[str, COperand], strip: Strip) -> BlockText:
    emitter = _Resident(strip) if strip.layout.resident else _Streamed(strip)
    text = emitter.text()
    spill = ['[out] "+m"(aot_out)'] if emitter.out_in_memory else []
    values = [f"const int32_t aot_step = {operands['column_step'].value};"] if strip.shared else []
    if strip.shared:
        back = f"{operands['row_step'].value} - {emitter.moved} * aot_step"
        values.append(f"const int32_t aot_back = {back};")
    loads = ['[step] "m"(aot_step)', '[back] "m"(aot_back)'] * strip.shared
    table = operands["table"].pointer if strip.rounding.table else ""
    values += [f"const int8_t *const aot_table = {table} + {TABLE // 2};"] if table else []
    loads += ['[table] "m"(aot_table)'] if table else []
    loads += ['[end] "m"(aot_end)'] * emitter.loop + [f'[{n}] "m"(aot_{n})' for n, _ in emitter.in_memory]
    line = 2 * strip.stride[0] * strip.pitch
    end = f"(const uint8_t *)aot_x + {operands['rows'].value + f' * {line}' if strip.shared else line * strip.rows}"
    return AsmBlock(
        [
            f'register const void *aot_x __asm("r0") = {operands["plane"].pointer};',
            f'register const void *aot_p __asm("r1") = {operands["params"].pointer};',
            f'register void *aot_o __asm("r2") = {operands["out"].pointer};',
            *(["void *aot_out = aot_o;"] if spill else []),
            *([f"const void *const aot_end = {end};"] if emitter.loop else []),
            *values,
            *(f"const int32_t aot_{n} = ((const int32_t *)aot_p)[{i}];" for n, i in emitter.in_memory),
        ],
        text,
        outs=['"+r"(aot_x)', '"+r"(aot_p)', '"+r"(aot_o)', *spill],
        ins=loads,
        clobbers=emitter.clobbers,
    ).emit()


@lru_cache(maxsize=256)
def instructions(strip: Strip, rows: int) -> int:
    """Instructions that one block executes over that many rows, counted from its text."""
    return (_Resident(strip) if strip.layout.resident else _Streamed(strip)).instructions(rows)


@lru_cache(maxsize=256)
def code_bytes(strip: Strip) -> int:
    return (_Resident(strip) if strip.layout.resident else _Streamed(strip)).code_bytes()


def add_immediate(register: str, value: int) -> list[str]:
    """ADD or SUB of any constant: one instruction for up to 12 bits or 8 bits anywhere, else one for each such part."""
    op, rest, lines = ("add" if value >= 0 else "sub"), abs(value), []
    while rest:
        shift = rest.bit_length() - 8
        part = rest >> shift << shift if rest > 4095 else rest
        lines.append(f"{op} {register}, {register}, #{part}")
        rest -= part
    return lines


def load_words(register: str, other: str, base: str, offset: int) -> list[str]:
    """Two consecutive words; LDRD reaches 1020 bytes."""
    if 0 <= offset <= 1020:
        return [f"ldrd {register}, {other}, [{base}, #{offset}]"]
    return [f"ldr {register}, [{base}, #{offset}]", f"ldr {other}, [{base}, #{offset + 4}]"]


def clamp_lines(rounding: RequantForm, accs: Sequence[str]) -> list[str]:
    """SSAT with the common shift and, for bounds other than int8's, compares."""
    shift = f", asr #{rounding.shift}" if rounding.shift > 0 else ""
    if rounding.halves:
        return [f"{'usat' if rounding.lo == 0 else 'ssat'} {a}, #{15 if rounding.lo == 0 else 16}, {a}{shift}" for a in accs]
    lines = [f"ssat {a}, #8, {a}{shift}" for a in accs]
    for a in accs:
        if rounding.lo > -128:
            lines += [f"cmp {a}, #{rounding.lo}", "it lt", f"movlt {a}, #{rounding.lo}"]
        if rounding.hi < 127:
            lines += [f"cmp {a}, #{rounding.hi}", "it gt", f"movgt {a}, #{rounding.hi}"]
    return lines


class _Emitter:
    """What both register plans share: requantisation, stores, the loop over lines."""

    acc: tuple[str, ...]
    pixels: tuple[str, str]
    clobbers: tuple[str, ...] = ()
    out_in_memory = False

    def __init__(self, strip: Strip) -> None:
        self.strip = strip
        self.store = "strh" if strip.rounding.halves else "strb"
        self.in_memory: list[tuple[str, int]] = []

    def head(self) -> list[str]:
        raise NotImplementedError

    def line(self) -> list[str | Repeat]:
        """One line of the strip, pointers moved on to the next."""
        raise NotImplementedError

    def text(self) -> list[str | Repeat]:
        loop = self.loop
        scratch = self.pixels[0]
        ending = [f"ldr {scratch}, %[end]", f"cmp r0, {scratch}", "bne 1b"]
        return [*self.head(), *(["1:"] if loop else []), *self.line(), *(ending if loop else [])]

    @property
    def loop(self) -> bool:
        return self.strip.shared or self.strip.rows > 1

    @property
    def moved(self) -> int:
        """Columns by which a shared strip has moved the result's pointer when a line is done."""
        single = self.strip.layout.resident and self.strip.stride[1] % 2 == 0
        return self.strip.outputs - 1 if single else (self.strip.outputs - 1) // 2 * 2

    def shared_stores(self, accs: Sequence[str], out: str, spare: str, *, last: bool) -> list[str]:
        """Stores by pairs, the step being in memory; then to the next pair, or after the last one to the next line."""
        lines = [f"ldr {spare}, %[step]"] if len(accs) > 1 else []
        for j in range(0, len(accs), 2):
            if j:
                lines.append(f"add {out}, {out}, {spare}, lsl #1")
            lines += [f"strb {a}, [{out}, {spare}]" for a in accs[j + 1 : j + 2]] + [f"strb {accs[j]}, [{out}]"]
        if last:
            return [*lines, f"ldr {spare}, %[back]", f"add {out}, {out}, {spare}"]
        return [*lines, f"add {out}, {out}, {spare}, lsl #1"]

    def instructions(self, rows: int) -> int:
        return count_instructions(self.head()) + rows * (count_instructions(self.line()) + 3 * self.loop)

    def code_bytes(self) -> int:
        return 4 * count_instructions(self.text())

    def clamped(self, accs: Sequence[str], spare: str) -> list[str]:
        lines, rounding = clamp_lines(self.strip.rounding, accs), self.strip.rounding
        if rounding.halves and rounding.hi < HALF_MAX:
            lines.append(f"movw {spare}, #{rounding.hi}")
            lines += [line for a in accs for line in (f"cmp {a}, {spare}", "it gt", f"movgt {a}, {spare}")]
        if not self.strip.rounding.table:
            return lines
        return [*lines, f"ldr {spare}, %[table]", *(f"ldrsb {a}, [{spare}, {a}]" for a in accs)]

    def high_multiply(self, accs: Sequence[str], multiplier: str, constant: str, spare: str) -> list[str]:
        rounding, lines = self.strip.rounding, []
        for a in accs:
            if rounding.signed and rounding.prescale > 1:
                lines += [f"asr {spare}, {a}, #31", f"add {spare}, {constant}, {spare}, lsl #{rounding.prescale - 1}"]
            elif rounding.signed:
                lines.append(f"add {spare}, {constant}, {a}, asr #31")
            lines.append(f"smmla{'r' * rounding.rounded} {a}, {a}, {multiplier}, {spare if rounding.signed else constant}")
        return lines


class _Resident(_Emitter):
    """Weights, bias and constant in r4 and up; multiplier and shift there too where there is room, else in FPU
    registers or memory.
    """

    pixels = ("r12", "r3")

    def __init__(self, strip: Strip) -> None:
        super().__init__(strip)
        step = strip.step
        self.acc = ("r1", "lr")[:step]
        pool = [f"r{i}" for i in range(4, 12)]
        count = len(strip.layout.words)
        if count > RESIDENT_WORDS:
            raise ValueError(f"{count} weight words do not fit the registers")
        self.words, self.bias, self.constant = pool[:count], pool[count], pool[count + 1]
        self.loaded = pool[count : count + 2]
        self.places: list[str] = []
        vector = ["s15", "s14"]
        for i, name in enumerate(("multiplier", "shift")[: strip.constants - 2]):
            index = count + 2 + i
            if index < len(pool):
                self.places.append(pool[index])
                self.loaded.append(pool[index])
            elif strip.fpu:
                self.places.append(vector[i])
            else:
                self.places.append(f"%[{name}]")
                self.in_memory.append((name, strip.weight_words + 2 + i))
        floats = [p for p in self.places if p.startswith("s")]
        self.clobbers = ("r3", *(f"r{i}" for i in range(4, 13)), "lr", *floats)

    def head(self) -> list[str]:
        first = self.strip.weight_words + 2
        lines = [f"vldr {p}, [r1, #{4 * (first + i)}]" for i, p in enumerate(self.places) if p.startswith("s")]
        count = len(self.words)
        if not self.strip.packed:
            return [*lines, f"ldm r1, {{{', '.join((*self.words, *self.loaded))}}}"]
        for i in range(0, count, 2):
            one = self.words[i]
            lines += [f"ldr {one}, [r1], #4", *unpack(one, self.words[i + 1] if i + 1 < count else self.pixels[0])]
        return [*lines, f"ldm r1, {{{', '.join(self.loaded)}}}"]

    def line(self) -> list[str | Repeat]:
        strip, step = self.strip, self.strip.step
        full, rest = divmod(strip.outputs, step)
        if strip.shared:
            return self._shared_line()
        reach = (strip.outputs - 1) * strip.column_step
        far = reach > 4095
        lines: list[str | Repeat] = []
        if full > 1:
            lines += counted(full, self._step(step, None, far=far))
        else:
            lines += self._step(step, 0, far=far)
        if rest:
            lines += self._step(rest, full, far=far)
        moved = strip.outputs * strip.column_step if far else 0
        return [*lines, *add_immediate("r0", 2 * strip.stride[0] * strip.pitch), *add_immediate("r2", strip.row_step - moved)]

    def _shared_line(self) -> list[str | Repeat]:
        strip, step = self.strip, self.strip.step
        lines: list[str | Repeat] = []
        for first in range(0, strip.outputs, step):
            count = min(step, strip.outputs - first)
            accs = self.acc[:count]
            lines += self._sums(count, first // step)
            if step == 2:
                lines += self.shared_stores(accs, "r2", self.pixels[0], last=first + count == strip.outputs)
            elif first + 1 == strip.outputs:
                spare = self.pixels[0]
                lines += [f"strb {accs[0]}, [r2]", f"ldr {spare}, %[back]", f"add r2, r2, {spare}"]
            else:
                lines += [f"strb {accs[0]}, [r2]", f"ldr {self.pixels[0]}, %[step]", f"add r2, r2, {self.pixels[0]}"]
        return [*lines, *add_immediate("r0", 2 * strip.stride[0] * strip.pitch)]

    def _step(self, outputs: int, index: int | None, *, far: bool) -> list[str]:
        """`outputs` results of step `index`, or of the step that `counted` counts."""
        strip, lines = self.strip, self._sums(outputs, index)
        if far:
            return lines + [
                line for a in self.acc[:outputs] for line in (f"{self.store} {a}, [r2]", *add_immediate("r2", strip.column_step))
            ]
        for j, a in enumerate(self.acc[:outputs]):
            offset = counted_offset(index, strip.step * strip.column_step, j * strip.column_step)
            lines.append(f"{self.store} {a}, [r2, #{offset}]")
        return lines

    def _sums(self, outputs: int, index: int | None) -> list[str]:
        """The requantised results of a step."""
        strip, layout = self.strip, self.strip.layout
        started: set[int] = set()
        lines: list[str] = []
        words_a_step = strip.step * strip.stride[1] * 2
        for r in range(layout.kh):
            macs = row_macs(layout, r, (0, layout.kw), strip.stride[1], outputs)
            needed = sorted({m.pixels for m in macs})
            while needed:
                pair = needed[:2] if needed[1:2] == [needed[0] + 1] else needed[:1]
                needed = needed[len(pair) :]
                offset = r * strip.row_bytes + 4 * pair[0]
                limit = offset + words_a_step * (-(-strip.outputs // strip.step) - 1)
                if len(pair) == 2 and limit <= 1020:
                    lines.append(f"ldrd {self.pixels[0]}, {self.pixels[1]}, [r0, #{counted_offset(index, words_a_step, offset)}]")
                else:
                    lines += [
                        f"ldr {self.pixels[i]}, [r0, #{counted_offset(index, words_a_step, offset + 4 * i)}]"
                        for i in range(len(pair))
                    ]
                for m in macs:
                    if m.pixels in pair:
                        addend = self.acc[m.output] if m.output in started else self.bias
                        started.add(m.output)
                        register = self.pixels[pair.index(m.pixels)]
                        lines.append(f"smla{m.op} {self.acc[m.output]}, {register}, {self.words[m.word]}, {addend}")
        return lines + self._finish(self.acc[:outputs])

    def _finish(self, accs: Sequence[str]) -> list[str]:
        spare = self.pixels
        multiplier, lines = self._get(self.places[0], spare[0])
        lines = [*lines, *self.high_multiply(accs, multiplier, self.constant, spare[1])]
        if self.strip.rounding.shift < 0:
            shift, more = self._get(self.places[1], spare[1])
            lines += [*more, *(f"asr {a}, {a}, {shift}" for a in accs)]
        return [*lines, *self.clamped(accs, spare[1])]

    def _get(self, place: str, register: str) -> tuple[str, list[str]]:
        if place.startswith("s"):
            return register, [f"vmov {register}, {place}"]
        if place.startswith("%"):
            return register, [f"ldr {register}, {place}"]
        return place, []


class _Streamed(_Emitter):
    """Accumulators r3 and up; weight words above them, pixels in the last two; the result's pointer in memory where
    that is too tight.
    """

    def __init__(self, strip: Strip) -> None:
        super().__init__(strip)
        free = ["r3", *(f"r{i}" for i in range(4, 13)), "lr"]
        self.acc = tuple(free[: strip.outputs])
        widest = max(len(strip.layout.chunk_words(c)) for c in strip.layout.chunks)
        room = len(free) - strip.outputs - 2
        self.out_in_memory = widest > room
        if self.out_in_memory:
            free.insert(0, "r2")
            self.acc = tuple(free[: strip.outputs])
            room += 1
        if widest > room:
            raise ValueError(f"{widest} weight words do not fit the registers")
        self.words = free[strip.outputs : strip.outputs + widest]
        self.pixels = (free[-2], free[-1])
        self.clobbers = ("r3", *(f"r{i}" for i in range(4, 13)), "lr")

    def head(self) -> list[str]:
        return []

    def line(self) -> list[str | Repeat]:
        strip, layout = self.strip, self.strip.layout
        last = self.acc[-1]
        lines = [f"ldr {last}, [r1], #4"]
        started: set[int] = set()
        base = 0
        for r in range(layout.kh):
            for chunk in layout.chunks:
                count = len(layout.chunk_words(chunk))
                names = self.words[:count]
                lines.append(f"ldm r1!, {{{', '.join(names)}}}" if count > 1 else f"ldr {names[0]}, [r1], #4")
                lines += self._macs(row_macs(layout, r, chunk, strip.stride[1], strip.outputs), r, base, started)
                base += count
        return [*lines, *self._finish()]

    def _macs(self, macs: list[Mac], r: int, base: int, started: set[int]) -> list[str]:
        lines: list[str] = []
        needed = sorted({m.pixels for m in macs})
        while needed:
            pair = needed[:2] if needed[1:2] == [needed[0] + 1] else needed[:1]
            needed = needed[len(pair) :]
            offset = r * self.strip.row_bytes + 4 * pair[0]
            if len(pair) == 2:
                lines += load_words(*self.pixels, "r0", offset)
            else:
                lines.append(f"ldr {self.pixels[0]}, [r0, #{offset}]")
            for m in macs:
                if m.pixels in pair:
                    addend = self.acc[m.output] if m.output in started else self.acc[-1]
                    started.add(m.output)
                    register = self.pixels[pair.index(m.pixels)]
                    lines.append(f"smla{m.op} {self.acc[m.output]}, {register}, {self.words[m.word - base]}, {addend}")
        return lines

    def _finish(self) -> list[str]:
        """Multiplier and constant are read into the weights' registers and the pixels', which are free now."""
        strip, accs = self.strip, self.acc
        constant, multiplier = self.pixels
        lines = [f"ldrd {constant}, {multiplier}, [r1], #8"]
        spare = self.words[0]
        lines += self.high_multiply(accs, multiplier, constant, spare)
        if strip.rounding.shift < 0:
            lines += [f"ldr {spare}, [r1], #4", *(f"asr {a}, {a}, {spare}" for a in accs)]
        lines += [*self.clamped(accs, spare), *add_immediate("r1", -4 * strip.stream_words)]
        out = self.pixels[1] if self.out_in_memory else "r2"
        if self.out_in_memory:
            lines.append(f"ldr {out}, %[out]")
        moved = 0
        if strip.shared:
            lines += self.shared_stores(accs, out, self.words[0], last=True)
        for j, a in enumerate(accs if not strip.shared else ()):
            if j * strip.column_step - moved > 4095:
                lines += add_immediate(out, j * strip.column_step - moved)
                moved = j * strip.column_step
            lines.append(f"{self.store} {a}, [{out}, #{j * strip.column_step - moved}]")
        lines += add_immediate(out, strip.row_step - moved) if not strip.shared else []
        if self.out_in_memory:
            lines.append(f"str {out}, %[out]")
        return [*lines, *add_immediate("r0", 2 * strip.stride[0] * strip.pitch)]
