"""ADD and MUL of bytes on cores with products of 32 bits alone: one element after another, all numbers in registers.

A sum or a product that leaves the limits, which few do, is mended beside the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from aot.numerics.linear import SPLIT
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast, clamp
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_v6m.lanes import UNIFIED
from aot.topi.intrin.asm_text import AsmBlock

MOST_UNROLLED = 4

ALL = 14
"""Core registers stated of these blocks: they take all eight low ones, which clang and GCC without optimisation do not leave."""

Second = Literal["bytes", "one"]
"""The other factors: as bytes; one number for all."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What becomes of a sum: clamp(sum >> shift, lo, hi), `unroll` elements a turn."""

    shift: int
    lo: int
    hi: int
    unroll: int

    @property
    def clamped(self) -> bool:
        """Whether the limits are other ones than those of bytes; sums start less lo << shift then."""
        return (self.lo, self.hi) != int_range("int8")

    @property
    def name(self) -> str:
        limits = f"_{self.lo & 255:02x}_{self.hi & 255:02x}" if self.clamped else ""
        return f"asr{self.shift}{limits}_{self.unroll}"

    def inside(self, k: int) -> list[str]:
        """From the sum in `p` to the stored result of the turn's element k."""
        test = (
            [f"cmp %[p], #{self.hi - self.lo}", f"bhi 2{k}f"]
            if self.clamped
            else ["sxtb %[q], %[p]", "cmp %[q], %[p]", f"bne 2{k}f"]
        )
        back = [f"{'adds' if self.lo > 0 else 'subs'} %[p], #{abs(self.lo)}"] if self.clamped and self.lo else []
        return [f"asrs %[p], %[p], #{self.shift}", *test, f"3{k}:", *back, "strb %[p], [%[out], %[i]]", "adds %[i], #1"]

    def beside(self, k: int) -> list[str]:
        """What is beyond the limits becomes one of them."""
        mend = "bics" if self.clamped else "eors"
        return [
            f"2{k}:",
            "asrs %[q], %[p], #31",
            f"movs %[p], #{self.hi - self.lo if self.clamped else 127}",
            f"{mend} %[p], %[q]",
            f"b 3{k}b",
        ]

    def loop(self, sums: Sequence[str], negative: Sequence[str] = ()) -> list[str]:
        """All of it: `sums` makes the sum of one element; `negative` is the other way from `bmi 4` to `5:` in it."""
        body, aside = [], []
        for k in range(self.unroll):
            own = [line.replace("@", f"{k}") for line in sums]
            body += [*own, *self.inside(k)]
            aside += [*(line.replace("@", f"{k}") for line in negative), *self.beside(k)]
        return [UNIFIED, "1:", *body, "bmi 1b", "b 9f", *aside, "9:"]


@cache
def add_bytes(tail: Tail) -> TensorIntrin:
    """out[i] = clamp((x[i] * a + y[i] * b + bias) >> shift, lo, hi) of `count` elements, a multiple of tail.unroll.

    Operands: x, y, out (which may be x or y), a, b, bias, count.  12 instructions an element and one a turn; four more beyond the
    limits.
    """
    factors = (Var("a"), Var("b"), Var("bias"))
    count = Var("count")
    b = IRBuilder(f"add_bytes_{tail.name}")
    x = b.input("x", (UNKNOWN_EXTENT,), "int8")
    y = b.input("y", (UNKNOWN_EXTENT,), "int8")
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    with b.for_("i", count) as i:
        total = cast("int32", x[i]) * factors[0] + factors[2] + cast("int32", y[i]) * factors[1]
        b.store(out, i, cast("int8", clamp(total >> tail.shift, tail.lo, tail.hi)))
    desc = replace(b.finish(), scalars=(*factors, count))
    return TensorIntrin(f"arm_v6m.{desc.name}", desc, lambda ops: _emit_add(ops, tail), requires="v6m", ordered=True)


def _emit_add(operands: Mapping[str, COperand], tail: Tail) -> BlockText:
    sums = ["ldrsb %[p], [%[x], %[i]]", "ldrsb %[q], [%[y], %[i]]", "muls %[p], %[fa], %[p]", "muls %[q], %[fb], %[q]"]
    value = {n: operands[n].value for n in ("a", "b")}
    return _block(
        operands,
        tail.loop([*sums, "adds %[p], %[p], %[q]", "add %[p], %[bias]"]),
        low={"fa": value["a"], "fb": value["b"]},
        high={"bias": _moved(operands["bias"].value, tail)},
    )


@dataclass(frozen=True, slots=True)
class Product:
    """What the code of MUL depends on.

    `low`: the factor has a lower part; `signed`: negative products have a bias of their own; `centred`: the zero points of x and
    y that are other than 0.
    """

    tail: Tail
    second: Second
    low: bool
    signed: bool
    centred: tuple[bool, bool]

    @property
    def instructions(self) -> float:
        """Of an element, the loop's included."""
        loads = 2 if self.second == "bytes" else 1
        return loads + sum(self.centred) + 2 + 4 * self.low + 1.5 * self.signed + 8 + 1 / self.tail.unroll

    @property
    def name(self) -> str:
        flags = f"{'_low' * self.low}{'_signed' * self.signed}{'_x' * self.centred[0]}{'_y' * self.centred[1]}"
        return f"multiply_bytes_{self.second}{flags}_{self.tail.name}"


@cache
def multiply_bytes(form: Product) -> TensorIntrin:
    """out[i] = clamp((p * high + (p * low >> 15) + bias + (p < 0 ? below : 0)) >> shift, lo, hi), p = (x[i] - zx) * (y[i] - zy).

    Operands: x, y (bytes, or y - zy of all elements), out (which may be x or y), high, low, bias, below, zx, zy, and count, a
    multiple of tail.unroll; low, below, zx and zy only where the form has them.
    """
    has = {"low": form.low, "below": form.signed, "zx": form.centred[0], "zy": form.centred[1]}
    numbers = {n: Var(n) for n in ("high", "low", "bias", "below", "zx", "zy", "count") if has.get(n, True)}
    tail = form.tail
    b = IRBuilder(form.name)
    x = b.input("x", (UNKNOWN_EXTENT,), "int8")
    y = b.input("y", (UNKNOWN_EXTENT,), "int8") if form.second == "bytes" else None
    one = Var("y")
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    with b.for_("i", numbers["count"]) as i:
        first, other = cast("int32", x[i]), one if y is None else cast("int32", y[i])
        p = b.let("p", _less(first, numbers.get("zx")) * _less(other, numbers.get("zy")))
        total = p * numbers["high"]
        if form.low:
            total = total + ((p * numbers["low"]) >> SPLIT)
        if form.signed:
            total = total + ((p >> 31) & numbers["below"])
        b.store(out, i, cast("int8", clamp((total + numbers["bias"]) >> tail.shift, tail.lo, tail.hi)))
    desc = replace(b.finish(), scalars=(*((one,) if y is None else ()), *numbers.values()))
    return TensorIntrin(f"arm_v6m.{desc.name}", desc, lambda ops: _emit_multiply(ops, form), requires="v6m", ordered=True)


def _less(value: Expr, zp: Expr | None) -> Expr:
    return value if zp is None else value - zp


def _emit_multiply(operands: Mapping[str, COperand], form: Product) -> BlockText:
    value = {n: o.value for n, o in operands.items()}
    sums = ["ldrsb %[p], [%[x], %[i]]"]
    if form.second == "bytes":
        sums += ["ldrsb %[q], [%[y], %[i]]"]
    sums += [f"add %[{to}], %[{zp}]" for to, zp, has in zip("pq", ("zx", "zy"), form.centred, strict=True) if has]
    sums += [f"muls %[p], %[{'q' if form.second == 'bytes' else 'one'}], %[p]"]
    if form.low:
        sums += ["movs %[q], %[p]", "muls %[q], %[fl], %[q]", f"asrs %[q], %[q], #{SPLIT}"]
    sums += ["muls %[p], %[fh], %[p]", *(["adds %[p], %[p], %[q]"] if form.low else [])]
    bias = _moved(value["bias"], form.tail)
    low = {"fh": value["high"], **({"fl": value["low"]} if form.low else {})}
    high = {"bias": bias, **{n: f"-({value[n]})" for n, has in zip(("zx", "zy"), form.centred, strict=True) if has}}
    negative: list[str] = []
    if form.signed:
        sums += ["bmi 4@f"]
        negative = ["4@:", "add %[p], %[below]", "b 5@b"]
        high["below"] = f"({bias}) + {value['below']}"
    sums += ["add %[p], %[bias]", *(["5@:"] if form.signed else [])]
    if form.second == "one":
        low["one"] = value["y"]
    return _block(operands, form.tail.loop(sums, negative), low=low, high=high)


def _moved(bias: str, tail: Tail) -> str:
    """A bias less the lower limit, for tails with limits of their own."""
    return f"{bias}{f' - {tail.lo} * {1 << tail.shift}' if tail.clamped else ''}"


def _block(
    operands: Mapping[str, COperand], loop: Sequence[str], *, low: Mapping[str, str], high: Mapping[str, str]
) -> BlockText:
    """A loop over `i` from -count to 0 on pointers to the ends."""
    pointers = [n for n in ("x", "y", "out") if operands.get(n) is not None and operands[n].pointer]
    count = operands["count"].value
    kinds = {n: f"{'' if n == 'out' else 'const '}uint8_t *" for n in pointers}
    block = AsmBlock(
        [
            *(f"{kind}const aot_{n} = ({kind}){operands[n].pointer} + {count};" for n, kind in kinds.items()),
            f"int32_t aot_i = -({count});",
            "int32_t aot_p, aot_q;",
        ],
        list(loop),
        outs=['[i] "+&l"(aot_i)', '[p] "=&l"(aot_p)', '[q] "=&l"(aot_q)'],
        ins=[
            *(f'[{n}] "l"(aot_{n})' for n in pointers),
            *(f'[{n}] "l"({v})' for n, v in low.items()),
            *(f'[{n}] "h"({v})' for n, v in high.items()),
        ],
    )
    return replace(block.emit(), registers=ALL)
