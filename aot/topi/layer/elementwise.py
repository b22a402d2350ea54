"""Element-wise operators on any core: views of operands, meanings of loops, their C, and all of ADD but its instructions.

A kernel of two operands sees them as runs of bytes, of which one operand may be repeated; a kernel of one operand sees its
elements in one run.  An instruction set adds the text of a loop: `element_block` makes the block of it, `stream` its C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from math import prod
from typing import Any, Literal

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.qnn.arithmetic import AddAttrs, linear_form
from aot.relay.expr import Constant, Var, tensor_type
from aot.relay.expr import Expr as RelayExpr
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, IntoExpr, cast, clamp, imm
from aot.tir.expr import Var as TirVar
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.intrin.asm_text import AsmBlock, Repeat
from aot.topi.strategy import Group, Lowered, register_planned

CODES = 256
"""Values of a byte."""

# ---- operands ----

Kind = Literal["whole", "inner", "outer"]
"""An operand as large as the result; one whose elements are those of a run, the same for all runs; one element for each run."""


@dataclass(frozen=True, slots=True)
class Runs:
    """`rows` runs of `length`, and what each operand is to them."""

    rows: int
    length: int
    kinds: tuple[Kind, Kind]


def match_runs(group: Group, *, least: int, outer: bool = False) -> Runs | None:
    """The view of one operator on two int8 operands, tensors or constants, with runs of at least `least` bytes; None for other
    kinds and shapes.  `outer`: an operand may have one element for each run.
    """
    anchor = group.anchor
    if not is_alone(group) or len(anchor.args) != 2:
        return None
    out = tensor_type(anchor)
    if out.dtype != "int8" or not all(isinstance(a, (Var, Constant)) and a.type.dtype == "int8" for a in anchor.args):
        return None
    found = [view_of(a, out.shape) for a in anchor.args]
    kinds = tuple(view[0] for view in found if view is not None)
    if len(kinds) < len(found) or "whole" not in kinds or ("outer" in kinds and not outer):
        return None
    length = min(view[1] for view in found if view is not None)
    return Runs(out.size // length, length, kinds) if length >= least else None  # type: ignore[arg-type]


def view_of(operand: RelayExpr, shape: tuple[int, ...]) -> tuple[Kind, int] | None:
    """An operand's kind, and the length of the runs that it allows; None if it is repeated otherwise."""
    own, size = tensor_type(operand).shape, prod(shape)
    if prod(own) == size:
        return "whole", size
    own = (1,) * (len(shape) - len(own)) + own
    inner = next((i for i, n in enumerate(own) if n > 1), len(own))
    if own[inner:] == shape[inner:] and inner < len(own):
        return "inner", prod(own)
    outer = next((i for i in range(len(own), 0, -1) if own[i - 1] > 1), 0)
    return ("outer", size // prod(own)) if own[:outer] == shape[:outer] else None


class Rows:
    """The flat buffers of two operands, in the order of the call, and of the result; `constants`: what those in flash hold."""

    def __init__(self, b: IRBuilder, group: Group, runs: Runs) -> None:
        self._b, self.runs = b, runs
        self.constants: dict[str, Array] = {}
        data = {id(v): b.input("data", (prod(v.type.shape),), "int8") for v in group.params}
        for a in group.anchor.args:
            if isinstance(a, Constant) and id(a) not in data:
                data[id(a)] = b.const("table", (prod(tensor_type(a).shape),), "int8", align=4)
                self.constants[data[id(a)].name] = a.data.reshape(-1)
        self.pair = tuple(data[id(a)] for a in group.anchor.args)
        self.out = b.output("out", (runs.rows * runs.length,), "int8")

    @contextmanager
    def each(self, joined: int = 1, *, name: str = "at") -> Iterator[tuple[Expr, Expr]]:
        """A loop over runs, or over so many runs at a time: its number and the first element, which may have a name in C."""
        with self._b.for_("r", self.runs.rows // joined) as r:
            at = r * (self.runs.length * joined) if self.runs.rows > joined else imm(0)
            yield r, self._b.let(name, at) if name and self.runs.rows > joined else at

    def operand(self, number: int, at: Expr) -> Region:
        """An operand, not of kind `outer`, from the run on that begins at `at`."""
        return region(self.pair[number], at if self.runs.kinds[number] == "whole" else 0)


def is_alone(group: Group) -> bool:
    """Whether the group is one operator."""
    return not group.followers and group.anchor is group.result


@dataclass(frozen=True, slots=True)
class Flat:
    """A kernel of one operator on a tensor, by a block whose operands are x, perhaps a table, out, numbers and the count.

    `cost`: instructions and bytes of code.  The block takes multiples of `turn` elements.  Those that are left follow the
    operator's own rule, one by one, or `rest` in a loop.  `align`: of both tensors, floats at least 4.
    """

    block: TensorIntrin
    cost: tuple[int, int]
    numbers: tuple[Expr, ...] = ()
    table: Array | None = None
    turn: int = 1
    align: int = 1
    rest: Callable[[IRBuilder, Expr, Buffer], Expr] | None = None


PlanFlat = Callable[[TensorType, TensorType, Any], Flat | None]
"""(types of data and result, attrs) -> the kernel, None if there is none."""


def register_flat(kernel: str, op: str, plan: PlanFlat, *, needs: Sequence[str], least: int, plevel: int) -> None:
    """Enter a kernel of one operator on a tensor, for results of at least so many elements, for cores with all of `needs`."""

    def planned(group: Group, target: Target) -> Flat | None:
        anchor = group.anchor
        if not is_alone(group) or not isinstance(anchor.args[0], Var) or not all(map(target.has, needs)):
            return None
        result = tensor_type(anchor)
        return plan(tensor_type(anchor.args[0]), result, anchor.attrs) if result.size >= least else None

    register_planned(kernel, op, planned, partial(_lower_flat, kernel=kernel), plevel=plevel)


def _lower_flat(group: Group, _target: Target, name: str, flat: Flat, *, kernel: str) -> Lowered:
    anchor = group.anchor
    data, result = tensor_type(anchor.args[0]), tensor_type(anchor)
    b, size = IRBuilder(name), result.size
    constants: dict[str, Array] = {}
    x = b.input("data", (size,), data.dtype, align=4 if data.dtype == "float32" else flat.align)
    out = b.output("out", (size,), result.dtype, align=4 if result.dtype == "float32" else flat.align)
    tables = []
    if flat.table is not None:
        tables = [b.const("table", (CODES,), result.dtype)]
        constants[tables[0].name] = flat.table
    whole = size - size % flat.turn
    b.block(flat.block, x, *tables, out, *flat.numbers, imm(whole))
    if whole < size and flat.rest is not None:
        with b.for_("i", size, start=whole) as at:
            b.store(out, at, flat.rest(b, x[at], *tables))
    elif whole < size:
        rule = _rule(b, group, [x], size)
        for i in range(whole, size):
            b.store(out, i, rule.at(b, (imm(i),)))
    return Lowered(b.finish(FuncAttrs(kernel=kernel, span=anchor.span)), constants, *flat.cost)


def _rule(b: IRBuilder, group: Group, operands: Sequence[Buffer], size: int) -> TensorFn:
    """The operator's own rule on flat tensors."""
    result = tensor_type(group.anchor)
    flat = TensorType((size,), result.dtype, result.quant)
    return F_TE.get(str(group.anchor.op))(TeContext(b), list(map(elements_of, operands)), group.anchor.attrs, flat)


@dataclass(frozen=True, slots=True)
class RowPlan:
    """A kernel of one operator on two operands, by a block for each run.

    Operands of the block: x, which is operand number `first`, y, out, numbers and the count; behind out instead of y, if y has
    one element for each run, that less its zero point `zp`.  The block takes multiples of `turn` elements; those that are left
    follow the operator's own rule.  `cost`: instructions and bytes of code; `at`: as `name` of `Rows.each`.
    """

    runs: Runs
    block: TensorIntrin
    numbers: tuple[Expr, ...]
    cost: tuple[int, int]
    turn: int = 1
    first: int = 0
    zp: int = 0
    at: str = "at"


def register_rows(kernel: str, op: str, plan: Callable[[Group, Target], RowPlan | None], *, plevel: int) -> None:
    """Enter a kernel of one operator on two operands."""
    register_planned(kernel, op, plan, partial(_lower_rows, kernel=kernel), plevel=plevel)


def _lower_rows(group: Group, _target: Target, name: str, plan: RowPlan, *, kernel: str) -> Lowered:
    b, runs = IRBuilder(name), plan.runs
    rows = Rows(b, group, runs)
    whole = runs.length - runs.length % plan.turn
    with rows.each(name=plan.at) as (r, at):
        tensors: list[Region | Expr] = [rows.operand(plan.first, at), region(rows.out, at)]
        if runs.kinds[1 - plan.first] == "outer":
            tensors.append(b.let("factor", cast("int32", rows.pair[1 - plan.first][r]) - plan.zp))
        else:
            tensors.insert(1, rows.operand(1 - plan.first, at))
        b.block(plan.block, *tensors, *plan.numbers, imm(whole))
        if whole < runs.length:
            rest = _rule(b, group, rows.pair, runs.length)
            for i in range(whole, runs.length):
                b.store(rows.out, at + i, rest.at(b, (at + i,)))
    return Lowered(b.finish(FuncAttrs(kernel=kernel, span=group.anchor.span)), rows.constants, *plan.cost)


# ---- blocks ----

Operands = Mapping[str, COperand]
Emit = Callable[[Operands], BlockText]


def element_block(
    name: str, ins: Mapping[str, str], out: str, element: Callable[..., IntoExpr], emit: Emit, *, requires: str,
    numbers: Sequence[TirVar] = (), table: str = "", ordered: bool = True, suffix: str = "",
    align: tuple[int, int] = (1, 1),
) -> TensorIntrin:  # fmt: skip
    """out[i] = element(b, x[i], ..) of `count` elements, each input of its dtype in `ins`; `align`: of the first one and of out.

    Operands: inputs, out, numbers, count; with the dtype of a `table` also that, between inputs and out and behind the elements.
    `suffix`: of the block's name, which begins with the instruction set, but not of its meaning's.  `ordered` blocks read
    elements before they write the results that belong to them.
    """
    count = TirVar("count")
    b = IRBuilder(name.partition(".")[2])
    data = [b.input(n, (UNKNOWN_EXTENT,), dtype, align=1 if k else align[0]) for k, (n, dtype) in enumerate(ins.items())]
    tables: list[Buffer] = [b.input("table", (CODES,), table)] if table else []
    result = b.output("out", (UNKNOWN_EXTENT,), out, align=align[1])
    with b.for_("i", count) as i:
        b.store(result, i, element(b, *(x[i] for x in data), *tables))
    desc = replace(b.finish(), scalars=(*numbers, count))
    return TensorIntrin(f"{name}{suffix}", desc, emit, requires=requires, ordered=ordered)


def code_of_table(_b: IRBuilder, x: Expr, table: Buffer) -> Expr:
    """The element of a table in the order of the bits of bytes."""
    return table[cast("int32", cast("uint8", x))]


def stream(
    operands: Operands, text: Sequence[str | Repeat], pointers: str, ins: Mapping[str, str], *, counter: str = "",
    temporaries: str = "", clobbers: Sequence[str] = (), low: str = "", kind: str = "+&", before: Sequence[str] = (),
    after: Sequence[str] = (),
) -> BlockText:  # fmt: skip
    """A loop as one statement of assembly.

    `pointers`: operands that the loop moves along, those of `low` in low registers, as loads that widen take; a table stays.  One
    that is called otherwise in the text is `name=operand`.  `counter`: the name of the count, where the loop changes it.
    `ins`: numbers by name, or by `name:constraint`.  `before` and `after` counter and temporaries are further declarations.
    """
    named = [(n, o or n) for n, _, o in (p.partition("=") for p in pointers.split())]
    fixed = [n for n, o in named if o == "table"]
    declared = [
        f"const void *const aot_{n} = {operands[o].pointer};"
        if n in fixed
        else f"{'' if o == 'out' else 'const '}void *aot_{n} = {operands[o].pointer};"
        for n, o in named
    ]
    declared += [*before, *([f"int32_t aot_{counter} = {operands['count'].value};"] if counter else [])]
    declared += [f"uint32_t {', '.join(f'aot_{t}' for t in temporaries)};"] if temporaries else []
    moved = [n for n, _ in named if n not in fixed] + ([counter] if counter else [])
    outs = [f'[{n}] "{kind}{"l" if n in low.split() else "r"}"(aot_{n})' for n in moved]
    given = {n: f"aot_{n}" for n in fixed} | dict(ins)
    pairs = [(*key.partition(":"), value) for key, value in given.items()]
    return AsmBlock(
        [*declared, *after],
        text,
        outs=outs + [f'[{t}] "=&r"(aot_{t})' for t in temporaries],
        ins=[f'[{n}] "{constraint or "r"}"({value})' for n, _, constraint, value in pairs],
        clobbers=clobbers,
    ).emit()


# ---- ADD ----

FACTOR_LIMIT = 1 << 23
"""Factors are below this in magnitude, as 256 times them are words."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What becomes of a sum: clamp(sum >> shift, lo, hi); the loop takes `turn` elements at a time."""

    shift: int
    lo: int
    hi: int
    turn: int

    @property
    def clamped(self) -> bool:
        """Whether the limits are other ones than those of bytes."""
        return (self.lo, self.hi) != int_range("int8")

    @property
    def name(self) -> str:
        return f"asr{self.shift}" + f"_{self.lo & 255:02x}_{self.hi & 255:02x}" * self.clamped

    def moved(self, bias: str) -> str:
        """In C the bias of a sum, less the lower limit where limits are other ones than those of bytes."""
        return f"{bias}{f' - {self.lo} * {1 << self.shift}' if self.clamped else ''}"


@dataclass(frozen=True, slots=True)
class Factors:
    """ADD as clamp((x * a + y * b + bias) >> shift, lo, hi)."""

    a: int
    b: int
    bias: int
    shift: int
    lo: int = -128
    hi: int = 127

    @property
    def clamped(self) -> bool:
        """Whether the limits are other ones than those of bytes."""
        return (self.lo, self.hi) != int_range("int8")

    @property
    def numbers(self) -> tuple[Expr, Expr, Expr]:
        """The operands a, b and bias of a block."""
        return imm(self.a), imm(self.b), imm(self.bias)


def factors_of(attrs: AddAttrs) -> Factors | None:
    """The numbers of ADD, or None if it has no such form; with limits of its own bias - (lo << shift) fits the sum too."""
    form = linear_form(attrs)
    if form is None or max(abs(form.a_factor), abs(form.b_factor)) >= FACTOR_LIMIT:
        return None
    found = Factors(form.a_factor, form.b_factor, form.bias, form.shift, attrs.lo, attrs.hi)
    moved = form.bias - (attrs.lo << form.shift)
    fits = 128 * (abs(form.a_factor) + abs(form.b_factor)) + abs(moved) < 1 << 31
    return found if fits or not found.clamped else None


@dataclass(frozen=True, slots=True)
class AddKernel:
    """ADD of an instruction set.

    `least`: elements of a run from which on the loop pays; `turn`: how many a turn of the loop takes, by the length of runs;
    `cost`: instructions and bytes of code; `repeated`: whether an operand may be repeated along the outer axes; `at`: as of
    RowPlan.
    """

    needs: str
    least: int
    name: Callable[[Limits], str]
    emit: Callable[[Operands, Limits], BlockText]
    cost: Callable[[Runs, Limits], tuple[int, int]]
    turn: Callable[[int], int]
    repeated: bool = True
    at: str = "at"

    def block(self, factors: Factors, length: int) -> TensorIntrin:
        """out[i] = clamp((x[i] * a + y[i] * b + bias) >> shift, lo, hi) of `count` elements of a run of `length`.

        Operands: x, y, out at any address (out may be x or y), a, b, bias, count (a multiple of the turn).
        """
        return _add_block(self, self.limits(factors, length))

    def limits(self, factors: Factors, length: int) -> Limits:
        """What the code of a run depends on."""
        return Limits(factors.shift, factors.lo, factors.hi, self.turn(length))

    def plan(self, group: Group, target: Target) -> RowPlan | None:
        """None for other cores and operands, and for numbers without the short form."""
        runs = match_runs(group, least=self.least) if target.has(self.needs) else None
        if runs is None or not isinstance(group.anchor.attrs, AddAttrs) or ("inner" in runs.kinds and not self.repeated):
            return None
        factors = factors_of(group.anchor.attrs)
        if factors is None:
            return None
        limits = self.limits(factors, runs.length)
        block, cost = self.block(factors, runs.length), self.cost(runs, limits)
        return RowPlan(runs, block, factors.numbers, cost, turn=limits.turn, at=self.at)


@cache
def _add_block(kernel: AddKernel, limits: Limits) -> TensorIntrin:
    numbers = (TirVar("a"), TirVar("b"), TirVar("bias"))

    def element(_b: IRBuilder, x: Expr, y: Expr) -> Expr:
        total = cast("int32", x) * numbers[0] + numbers[2] + cast("int32", y) * numbers[1]
        return cast("int8", clamp(total >> limits.shift, limits.lo, limits.hi))

    def emit(operands: Operands) -> BlockText:
        return kernel.emit(operands, limits)

    ins = {"x": "int8", "y": "int8"}
    return element_block(kernel.name(limits), ins, "int8", element, emit, requires=kernel.needs, numbers=numbers)
