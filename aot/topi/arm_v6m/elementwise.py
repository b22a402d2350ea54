"""ADD and MUL of int8 tensors for Armv6-M, which has 32-bit products only: one element at a time, all numbers in registers.

Saturation is rare, so the loop only tests for it; a value beyond the limits branches to code outside of the loop that clamps it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from aot.numerics.linear import SPLIT, Rescaling, rescaling_of_products
from aot.op.qnn.arithmetic import MultiplyAttrs
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast, clamp, imm
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.arm_v6m.lanes import UNIFIED
from aot.topi.intrin.asm_text import AsmBlock, Operands
from aot.topi.layer.elementwise import AddKernel, Limits, RowPlan, Runs, element_block, match_runs, register_rows
from aot.topi.strategy import Group

LEAST = 8
"""Shortest run for which the loop pays off."""

MOST_UNROLLED = 4

ALL = 14
"""Core registers declared for these blocks: they use all eight low registers, which clang and unoptimised GCC cannot spare."""


def unroll_of(length: int) -> int:
    """Elements per iteration; divides the length, so that there is no remainder."""
    return max(u for u in range(1, MOST_UNROLLED + 1) if length % u == 0)


# ---- loops ----


def _loop(
    operands: Operands, limits: Limits, sums: Sequence[str], negative: Sequence[str] = (), *,
    low: Mapping[str, str], high: Mapping[str, str],
) -> BlockText:  # fmt: skip
    """A loop with `i` from -count to 0, indexing from the ends of the tensors.

    `sums` computes the sum of one element; `negative` is its out-of-line branch, from label 4 back to label 5.  Numbers are kept
    in `low` and `high` registers.
    """
    # from the sum in p to the stored result; beside the loop, values beyond the limits are replaced by the nearer limit
    lo, most = limits.lo, limits.hi - limits.lo
    test, mend = ["sxtb %[q], %[p]", "cmp %[q], %[p]", "bne 2@f"], ["movs %[p], #127", "eors %[p], %[q]"]
    if limits.clamped:
        test, mend = [f"cmp %[p], #{most}", "bhi 2@f"], [f"movs %[p], #{most}", "bics %[p], %[q]"]
    back = [f"{'adds' if lo > 0 else 'subs'} %[p], #{abs(lo)}"] if limits.clamped and lo else []
    store = [f"asrs %[p], %[p], #{limits.shift}", *test, "3@:", *back, "strb %[p], [%[out], %[i]]", "adds %[i], #1"]
    other = [*negative, "2@:", "asrs %[q], %[p], #31", *mend, "b 3@b"]
    body, aside = (
        [line.replace("@", f"{k}") for k in range(limits.per_iteration) for line in lines] for lines in ((*sums, *store), other)
    )
    pointers = [n for n in ("x", "y", "out") if operands.get(n) is not None and operands[n].pointer]
    count = operands["count"].value
    kinds = {n: f"{'' if n == 'out' else 'const '}uint8_t *" for n in pointers}
    block = AsmBlock(
        [
            *(f"{kind}const aot_{n} = ({kind}){operands[n].pointer} + {count};" for n, kind in kinds.items()),
            f"int32_t aot_i = -({count});",
            "int32_t aot_p, aot_q;",
        ],
        [UNIFIED, "1:", *body, "bmi 1b", "b 9f", *aside, "9:"],
        outs=['[i] "+&l"(aot_i)', '[p] "=&l"(aot_p)', '[q] "=&l"(aot_q)'],
        ins=[
            *(f'[{n}] "l"(aot_{n})' for n in pointers),
            *(f'[{n}] "l"({v})' for n, v in low.items()),
            *(f'[{n}] "h"({v})' for n, v in high.items()),
        ],
    )
    return replace(block.emit(), registers=ALL)


# ---- ADD ----


def _emit_add(operands: Operands, limits: Limits) -> BlockText:
    """The loop of ADD: 12 instructions per element and one per iteration; four more for a value beyond the limits."""
    sums = ["ldrsb %[p], [%[x], %[i]]", "ldrsb %[q], [%[y], %[i]]", "muls %[p], %[fa], %[p]", "muls %[q], %[fb], %[q]"]
    factors = {"fa": operands["a"].value, "fb": operands["b"].value}
    sums += ["adds %[p], %[p], %[q]", "add %[p], %[bias]"]
    return _loop(operands, limits, sums, low=factors, high={"bias": limits.moved(operands["bias"].value)})


def _add_cost(runs: Runs, limits: Limits) -> tuple[int, int]:
    return runs.rows * (runs.length * 13 + runs.length // limits.per_iteration + 16) + 24, 110 + 34 * limits.per_iteration


def _add_name(limits: Limits) -> str:
    return f"arm_v6m.add_bytes_{limits.name}_{limits.per_iteration}"


ADD = AddKernel("v6m", LEAST, _add_name, _emit_add, _add_cost, unroll_of)
register_rows("arm_v6m.add", "qnn.add", ADD.plan, plevel=25)

# ---- MUL ----


@dataclass(frozen=True, slots=True)
class Product:
    """What the code of MUL depends on.

    `one`: the second factors are one number for all elements; `low`: the multiplier has a low half; `signed`: negative products
    have a bias of their own; `centred`: whether the zero points of x and y are non-zero.
    """

    limits: Limits
    one: bool
    low: bool
    signed: bool
    centred: tuple[bool, bool]

    @property
    def instructions(self) -> float:
        """Instructions per element, including its share of the loop."""
        loads = 1 if self.one else 2
        return loads + sum(self.centred) + 2 + 4 * self.low + 1.5 * self.signed + 8 + 1 / self.limits.per_iteration

    @property
    def name(self) -> str:
        flags = f"{'_low' * self.low}{'_signed' * self.signed}{'_x' * self.centred[0]}{'_y' * self.centred[1]}"
        return f"arm_v6m.multiply_bytes_{'one' if self.one else 'bytes'}{flags}_{self.limits.name}_{self.limits.per_iteration}"


@cache
def multiply_bytes(form: Product) -> TensorIntrin:
    """out[i] = clamp((p * high + (p * low >> 15) + bias + (p < 0 ? below : 0)) >> shift, lo, hi), p = (x[i] - zx) * (y[i] - zy).

    Operands: x; y (bytes, or one y - zy for all elements); out (may be x or y); high, low, bias, below, zx, zy; count, a multiple
    of the elements per iteration.  low, below, zx and zy are present only if the form has them.
    """
    has = {"low": form.low, "below": form.signed, "zx": form.centred[0], "zy": form.centred[1]}
    numbers = {n: Var(n) for n in ("high", "low", "bias", "below", "zx", "zy") if has.get(n, True)}
    limits, one = form.limits, Var("y")

    def less(value: Expr, zp: str) -> Expr:
        return value - numbers[zp] if zp in numbers else value

    def element(b: IRBuilder, x: Expr, y: Expr | None = None) -> Expr:
        other = one if y is None else cast("int32", y)
        p = b.let("p", less(cast("int32", x), "zx") * less(other, "zy"))
        total = p * numbers["high"]
        if form.low:
            total = total + ((p * numbers["low"]) >> SPLIT)
        if form.signed:
            total = total + ((p >> 31) & numbers["below"])
        return cast("int8", clamp((total + numbers["bias"]) >> limits.shift, limits.lo, limits.hi))

    whole = not form.one
    ins = {"x": "int8", "y": "int8"} if whole else {"x": "int8"}
    scalars = (*(() if whole else (one,)), *numbers.values())
    return element_block(form.name, ins, "int8", element, lambda ops: _emit_multiply(ops, form), requires="v6m", numbers=scalars)


def _emit_multiply(operands: Operands, form: Product) -> BlockText:
    value = {n: o.value for n, o in operands.items()}
    sums = ["ldrsb %[p], [%[x], %[i]]"]
    if not form.one:
        sums += ["ldrsb %[q], [%[y], %[i]]"]
    sums += [f"add %[{to}], %[{zp}]" for to, zp, has in zip("pq", ("zx", "zy"), form.centred, strict=True) if has]
    sums += [f"muls %[p], %[{'one' if form.one else 'q'}], %[p]"]
    if form.low:
        sums += ["movs %[q], %[p]", "muls %[q], %[fl], %[q]", f"asrs %[q], %[q], #{SPLIT}"]
    sums += ["muls %[p], %[fh], %[p]", *(["adds %[p], %[p], %[q]"] if form.low else [])]
    bias = form.limits.moved(value["bias"])
    low = {"fh": value["high"], **({"fl": value["low"]} if form.low else {})}
    high = {"bias": bias, **{n: f"-({value[n]})" for n, has in zip(("zx", "zy"), form.centred, strict=True) if has}}
    negative: list[str] = []
    if form.signed:
        sums += ["bmi 4@f"]
        negative = ["4@:", "add %[p], %[below]", "b 5@b"]
        high["below"] = f"({bias}) + {value['below']}"
    sums += ["add %[p], %[bias]", *(["5@:"] if form.signed else [])]
    if form.one:
        low["one"] = value["y"]
    return _loop(operands, form.limits, sums, negative, low=low, high=high)


def plan(group: Group, target: Target) -> RowPlan | None:
    """The plan of a group; None for other cores and operands, and for numbers without a 32-bit form."""
    runs = match_runs(group, least=LEAST, outer=True) if target.has("v6m") else None
    if runs is None:
        return None
    attrs: MultiplyAttrs = group.anchor.attrs
    numbers = Rescaling(attrs.multiplier, attrs.shift, attrs.zero_point, attrs.lo, attrs.hi)
    form = rescaling_of_products(attrs.input_zp, numbers)
    if form is None:
        return None
    first = runs.kinds.index("whole")  # the operand that is not broadcast
    one = runs.kinds[1 - first] == "outer"
    limits = Limits(form.shift, form.lo, form.hi, unroll_of(runs.length))
    # a sum minus lo << shift must fit 32 bits
    if limits.clamped and form.most + (abs(form.lo) << form.shift) >= 1 << 31:
        return None
    zps = attrs.input_zp[first], attrs.input_zp[1 - first]
    code = Product(limits, one, bool(form.low), bool(form.below), (zps[0] != 0, zps[1] != 0 and not one))
    values = [form.high, *([form.low] if code.low else []), form.bias, *([form.below] if code.signed else [])]
    values += [zp for zp, has in zip(zps, code.centred, strict=True) if has]
    cost = round(runs.rows * (runs.length * code.instructions + 20)) + 24, 120 + 50 * limits.per_iteration
    return RowPlan(runs, multiply_bytes(code), tuple(map(imm, values)), cost, first=first, zp=zps[1])


register_rows("arm_v6m.multiply", "qnn.multiply", plan, plevel=25)
