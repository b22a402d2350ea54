"""Rows of weights that flash holds as float16 or integers: how a block of channels is packed and widened into FPU registers.

A row is the weights of one tap for up to eight channels, in whole words.  A block's rows follow its biases and, for integers, the
scales and any zero points, all as float32: value = scale * (float(stored integer) - zero), with the reference's single rounding
(the difference is exact).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from aot.ir.op import Array
from aot.op.common.te_rule import pack_nibbles
from aot.relay.expr import Constant
from aot.relay.stored import Codes, codes_of, encoded
from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, binop, cast, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_fpu.dot import DATA, DotForm, Text, assembled, described, emit, finish, run_length, scalars, vector
from aot.topi.intrin.asm_text import count_instructions

LEAST = 128
"""Fewest weights of a layer for which a small form is worth its code."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """`kind`: float16, int8 or int4; `channels`: weights per row; `zero`: with zero points."""

    kind: str
    channels: int
    zero: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.channels}" + "_zero" * self.zero

    @property
    def words(self) -> int:
        """Words per row."""
        return -(-self.channels * {"float16": 2, "int8": 1}.get(self.kind, 0) // 4) or 1

    @property
    def parameters(self) -> int:
        """Words of scales and zero points."""
        return self.channels * (0 if self.kind == "float16" else 2 if self.zero else 1)

    @property
    def dtype(self) -> str:
        """The type as which a description reads the stored weights."""
        return "uint32" if self.kind == "int4" else self.kind

    @property
    def per_word(self) -> int:
        """Elements of `dtype` per word."""
        return {"float16": 2, "int8": 4}.get(self.kind, 1)

    def value(self, codes: Buffer, parameters: Buffer | None, row: Expr, channel: int) -> Expr:
        """A weight in a block's description; `codes` are seen as `dtype`."""
        start = row * (self.words * self.per_word)
        if self.kind == "float16":
            return cast("float32", codes[start + channel])
        assert parameters is not None
        if self.kind == "int4":
            nibble = cast("int32", (codes[start] >> 4 * channel) & 15)
            code = cast("float32", binop("^", nibble, 8) - 8)
        else:
            code = cast("float32", cast("int32", codes[start + channel]))
        code = code - parameters[self.channels + channel] if self.zero else code
        return code * parameters[channel]

    def load(self, first: int, *, scale: int, zero: int) -> list[str]:
        """Load the next row into s`first` and up; scales are in s`scale`, zero points in s`zero` and up.  Clobbers a and b."""
        n = self.channels
        if self.kind == "float16":
            text = [f"vldmia %[w]!, {vector(first, self.words)}"]
            return text + [f"vcvt{'bt'[c % 2]}.f32.f16 s{first + c}, s{first + c // 2}" for c in reversed(range(n))]
        text = []
        for c in range(0, n, 2):
            text += self._integers(first, c)
        text += [f"vcvt.f32.s32 s{first + c}, s{first + c}" for c in range(n)]
        text += [f"vsub.f32 s{first + c}, s{first + c}, s{zero + c}" for c in range(n * self.zero)]
        return text + [f"vmul.f32 s{first + c}, s{first + c}, s{scale + c}" for c in range(n)]

    def _integers(self, first: int, c: int) -> list[str]:
        """Load weights c and c + 1 of a row as integers."""
        width = 4 if self.kind == "int4" else 8
        at = c * width % 32
        text = ["ldr %[a], [%[w]], #4"] if at == 0 else []
        text.append(f"sbfx %[b], %[a], #{at}, #{width}")
        if c + 1 == self.channels:
            return [*text, f"vmov s{first + c}, %[b]"]
        done = c + 2 == self.channels or (at + 2 * width) % 32 == 0  # the word is used up
        into = "a" if done else "u"
        return [*text, f"sbfx %[{into}], %[a], #{at + width}, #{width}", f"vmov s{first + c}, s{first + c + 1}, %[b], %[{into}]"]

    def load_scales(self, first: int) -> Text:
        """Load the scales into s`first` and up; the pointer advances to the zero points."""
        return [] if self.kind == "float16" else [f"vldmia %[s]!, {vector(first, self.channels)}"]

    def load_zeros(self, first: int) -> Text:
        """Load the zero points into s`first` and up."""
        return [f"vldmia %[s], {vector(first, self.channels)}"] * self.zero


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """Weights [taps, channels] in their small form; integers have a float32 `scale` and an int32 `zero` per channel."""

    kind: str
    codes: Array
    scale: Array | None = None
    zero: Array | None = None

    def row(self, channels: int) -> RowForm:
        return RowForm(self.kind, channels, self.zero is not None)

    def words(self, channels: int) -> int:
        """Words of a block."""
        row = self.row(channels)
        return channels + row.parameters + row.words * len(self.codes)

    def pack(self, bias: Array, block: int) -> Array:
        """Pack blocks of up to `block` channels as words: bias, scales, zero points, rows."""
        parts: list[Array] = []
        for first in range(0, bias.size, block):
            part = slice(first, first + block)
            numbers = [a[part].astype(np.float32) for a in (bias, self.scale, self.zero) if a is not None]
            parts += [a.view(np.uint32) for a in numbers] + [self._rows(self.codes[:, part])]
        return np.concatenate(parts)

    def _rows(self, codes: Array) -> Array:
        row = self.row(codes.shape[1])
        width = {"float16": 2, "int8": 4}.get(self.kind, 8) * row.words
        padded = np.pad(codes, ((0, 0), (0, width - codes.shape[1])))
        data = pack_nibbles(padded) if self.kind == "int4" else np.ascontiguousarray(padded)
        return np.frombuffer(data.tobytes(), np.uint32)


def stored_matrix(weight: Constant, matrix: Array, *, channel_axis: int) -> StoredMatrix | None:
    """`matrix` [taps, channels], which has the elements of `weight` in another order, in the form that the file has.

    None if there is no smaller form, if scales are not per channel, or if there are few weights.
    """
    original: Codes | None = codes_of(weight) if matrix.size >= LEAST else None
    if original is None:
        return None
    if original.scale is None:
        return StoredMatrix("float16", matrix.astype(np.float16))
    rank = weight.data.ndim
    if original.scale.size > 1 and original.scale.shape[channel_axis % rank] == 1:
        return None
    channels = matrix.shape[1]
    zeros = np.zeros(1, np.int32) if original.zero is None else original.zero
    scale, zero = (np.broadcast_to(a.reshape(-1), channels) for a in (original.scale, zeros))
    codes = encoded(matrix, original.dtype, scale, zero)
    return None if codes is None else StoredMatrix(codes.dtype, codes.data, scale, None if codes.zero is None else zero)


# One pixel by up to eight channels; each weight is widened where it is used: float16 with VCVT, integers with VCVT and scales.
#
# For layers with a few pixels, for which widening the weights to scratch memory first does not pay off.


_STORED_SCALE = 16


@dataclass(frozen=True, slots=True)
class StoredForm(DotForm):
    """DotForm for one pixel and one run, with rows of weights as stored in flash; zero points and data share registers."""

    kind: str = "float16"
    zero: bool = False

    @property
    def row(self) -> RowForm:
        return RowForm(self.kind, self.channels, self.zero)

    @property
    def title(self) -> str:
        return f"dot_{self.kind}" + "_zero" * self.zero

    @property
    def pointers(self) -> tuple[str, ...]:
        return ("x0", "w", *(["s"] if self.row.parameters else []), "bias")

    @property
    def temporaries(self) -> tuple[str, ...]:
        return ("t", "u", "a", "b") if self.row.parameters else ("t", "u")

    @property
    def together(self) -> int:
        return 1 if self.zero else 4

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        text: list[str] = []
        for done in range(0, count, self.together):
            size = min(self.together, count - done)
            data = [f"vldmia %[x0]!, {vector(DATA, size)}"]
            text += [] if self.zero else data
            for k in range(size):
                zeros = [str(line) for line in self.row.load_zeros(DATA)]
                text += zeros + self.row.load(self.free, scale=_STORED_SCALE, zero=DATA)
                text += (data if self.zero else []) + self.products(self.free, k, first=first and done + k == 0)
        return text

    def text(self) -> Text:
        return [*self.row.load_scales(_STORED_SCALE), *DotForm.text(self)]


@cache
def stored_dot(form: StoredForm) -> TensorIntrin:
    """out[c] = clamp(sum over taps of x0 * w[.., c] + bias[c]) for c < channels.

    Operands: x0 float32; w, the rows, as `form.row.dtype`; for integers s float32, scales and zero points; bias; out; for a loop,
    trips.
    """
    b = IRBuilder(form.name)
    numbers, row = scalars(form), form.row
    x = b.input("x0", (UNKNOWN_EXTENT,), "float32", align=4)
    w = b.input("w", (UNKNOWN_EXTENT,), row.dtype, align=4)
    s = b.input("s", (UNKNOWN_EXTENT,), "float32", align=4) if row.parameters else None
    bias = b.input("bias", (UNKNOWN_EXTENT,), "float32", align=4)
    out = b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)
    acc = b.local("acc", (1, form.channels), "float32", init=imm(0.0, "float32"))
    with b.for_("k", run_length(form, numbers)) as k:
        value = b.let("x", x[k])
        for c in range(form.channels):
            b.store(acc, (0, c), acc[0, c] + value * row.value(w, s, k, c))
    finish(b, form, acc, bias, out, numbers)
    return described(b, numbers.values(), lambda ops: emit(form, ops))


# Widens a block's rows of weights to float32 in scratch memory, once for all pixels.


_SCALE, _ZERO, _ROW = 0, 8, 16


@cache
def unfold(row: RowForm) -> TensorIntrin:
    """out[r * channels + c] = weight c of row r for r < rows.

    Operands: w, the rows, as `row.dtype`; for integers s float32, scales and zero points; out; rows.
    """
    b = IRBuilder(f"unfold_{row.name}")
    rows = Var("rows")
    w = b.input("w", (UNKNOWN_EXTENT,), row.dtype, align=4)
    s = b.input("s", (UNKNOWN_EXTENT,), "float32", align=4) if row.parameters else None
    out = b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)
    with b.for_("r", rows) as r:
        for c in range(row.channels):
            b.store(out, r * row.channels + c, row.value(w, s, r, c))
    return described(b, [rows], lambda ops: _emit(row, ops))


def _loop(row: RowForm) -> list[str]:
    text = row.load(_ROW, scale=_SCALE, zero=_ZERO)
    return [*text, f"vstmia %[o]!, {vector(_ROW, row.channels)}", "subs %[rows], %[rows], #1", "bne 1b"]


def _emit(row: RowForm, operands: Mapping[str, COperand]) -> BlockText:
    text: Text = [*row.load_scales(_SCALE), *row.load_zeros(_ZERO), "1:", *_loop(row)]
    pointers = ["w", *(["s"] if row.parameters else [])]
    temporary = ["a", "b", "u"] if row.parameters else []
    declarations = [f"const void *aot_{n} = {operands[n].pointer};" for n in pointers]
    declarations += [f"void *aot_o = {operands['out'].pointer};", f"int32_t aot_rows = {operands['rows'].value};"]
    declarations += [f"uint32_t {', '.join(f'aot_{n}' for n in temporary)};"] if temporary else []
    return assembled(declarations, text, moved=[*pointers, "o", "rows"], spoilt=temporary)


def unfold_instructions(row: RowForm, rows: int) -> int:
    """Instructions per execution."""
    return 10 + rows * count_instructions(_loop(row))


def unfold_code(row: RowForm) -> int:
    """Bytes of code."""
    return 4 * count_instructions(_loop(row)) + 48
