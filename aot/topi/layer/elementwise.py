"""Element-wise operators for every core: how operands line up, what loops mean, their C, and all of ADD but its instructions.

A kernel with two operands sees them as runs of consecutive bytes; one operand may be repeated.  A kernel with one operand sees
its elements as one run.  An instruction set contributes only the assembly text of a loop: `element_block` builds a block from
it, `asm_text.asm` its C.
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
from aot.relay.expr import Call, Constant, Var, tensor_type
from aot.relay.expr import Expr as RelayExpr
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, itemsize
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, IntoExpr, cast, clamp, imm
from aot.tir.expr import Var as TirVar
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.intrin.asm_text import Emit, Operands
from aot.topi.strategy import Group, Lowered, register_planned

CODES = 256
"""Number of values of a byte."""

# ---- operands ----

Kind = Literal["whole", "inner", "outer"]
"""whole: an operand of the result's size; inner: one run of elements, repeated for every run; outer: one element per run."""


@dataclass(frozen=True, slots=True)
class Runs:
    """`rows` runs of `length` elements, and how each operand relates to them."""

    rows: int
    length: int
    kinds: tuple[Kind, ...]


def match_runs(group: Group, *, least: int, outer: bool = False) -> Runs | None:
    """The view of one operator on two int8 operands (tensors or constants); None for other types and shapes."""
    alone = is_alone(group) and len(group.anchor.args) == 2
    return runs_of(group.anchor, "int8", least=least, outer=outer) if alone else None


def runs_of(call: Call, dtype: str, *, least: int, outer: bool = False) -> Runs | None:
    """The view of an operator whose operands and result are of `dtype`; runs have at least `least` elements.

    `outer`: an operand may have one element per run.
    """
    out = tensor_type(call)
    if out.dtype != dtype or not all(isinstance(a, (Var, Constant)) and a.type.dtype == dtype for a in call.args):
        return None
    views = [view for a in call.args if (view := view_of(a, out.shape)) is not None]
    kinds = tuple(kind for kind, _ in views)
    if len(kinds) < len(call.args) or "whole" not in kinds or ("outer" in kinds and not outer):
        return None
    length = min(length for _, length in views)
    return Runs(out.size // length, length, kinds) if length >= least else None


def view_of(operand: RelayExpr, shape: tuple[int, ...]) -> tuple[Kind, int] | None:
    """An operand's kind and the run length that it allows; None if it is broadcast in another way."""
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
    """The flat buffers of the operands, in call order, and of the result; `constants`: contents of operands in flash."""

    def __init__(self, b: IRBuilder, group: Group, runs: Runs, dtype: str = "int8") -> None:
        self._b, self.runs = b, runs
        self.constants: dict[str, Array] = {}
        align = itemsize(dtype)
        data = {id(v): b.input("data", (prod(v.type.shape),), dtype, align=align) for v in group.params}
        for a in group.anchor.args:
            if isinstance(a, Constant) and id(a) not in data:
                data[id(a)] = b.const("table", (prod(tensor_type(a).shape),), dtype, align=4)
                self.constants[data[id(a)].name] = a.data.reshape(-1)
        self.operands = [data[id(a)] for a in group.anchor.args]
        self.out = b.output("out", (runs.rows * runs.length,), dtype, align=align)

    @contextmanager
    def each(self, joined: int = 1, *, name: str = "at") -> Iterator[tuple[Expr, Expr]]:
        """Loop over runs (or over groups of `joined` runs): yield the run's number and its first element, named `name` in C."""
        with self._b.for_("r", self.runs.rows // joined) as r:
            at = r * (self.runs.length * joined) if self.runs.rows > joined else imm(0)
            yield r, self._b.let(name, at) if name and self.runs.rows > joined else at

    def operand(self, number: int, at: Expr) -> Region:
        """The operand (not of kind `outer`) for the run that begins at `at`."""
        return region(self.operands[number], at if self.runs.kinds[number] == "whole" else 0)


def is_alone(group: Group) -> bool:
    """Whether the group is a single operator."""
    return not group.followers and group.anchor is group.result


@dataclass(frozen=True, slots=True)
class Flat:
    """A kernel of one operator on a tensor: a block with the operands x, perhaps a table, out, numbers and the count.

    The block processes multiples of `per_iteration` elements.  The remainder is computed one by one with the operator's own rule,
    or with `remainder` in a loop.  `cost`: instructions and bytes of code.  `align`: alignment of both tensors (at least 4 for
    floats).
    """

    block: TensorIntrin
    cost: tuple[int, int]
    numbers: tuple[Expr, ...] = ()
    table: Array | None = None
    per_iteration: int = 1
    align: int = 1
    remainder: Callable[[IRBuilder, Expr, Buffer], Expr] | None = None


PlanFlat = Callable[[TensorType, TensorType, Any], Flat | None]
"""(types of data and result, attrs) -> the kernel; None if it does not accept them."""


def register_flat(kernel: str, op: str, plan: PlanFlat, *, needs: Sequence[str], least: int, plevel: int) -> None:
    """Register a kernel of one operator on a tensor: results of at least `least` elements, cores that have all of `needs`."""

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
    whole = size - size % flat.per_iteration
    b.block(flat.block, x, *tables, out, *flat.numbers, imm(whole))
    if whole < size and flat.remainder is not None:
        with b.for_("i", size, start=whole) as at:
            b.store(out, at, flat.remainder(b, x[at], *tables))
    elif whole < size:
        rule = te_of(TeContext(b), anchor, [elements_of(x)], (size,))
        for i in range(whole, size):
            b.store(out, i, rule.at(b, (imm(i),)))
    return Lowered(b.finish(FuncAttrs(kernel=kernel, span=anchor.span)), constants, *flat.cost)


def te_of(ctx: TeContext, call: Call, args: Sequence[TensorFn], shape: tuple[int, ...] | None = None) -> TensorFn:
    """The te rule of an operator on tensors of the result's shape, or of another one."""
    type_ = tensor_type(call)
    out = type_ if shape is None else TensorType(shape, type_.dtype, type_.quant)
    return F_TE.get(call.name)(ctx, args, call.attrs, out)


@dataclass(frozen=True, slots=True)
class RowPlan:
    """A kernel of one operator on two operands, run by run.

    Operands of the block: x (operand number `first`), y, out, numbers and the count.  If y has one element per run, there is no
    y; that element minus its zero point `zp` follows out instead.  The block processes multiples of `per_iteration` elements; the
    remainder is computed with the operator's own rule.  `cost`: instructions and bytes of code.  `at`: `name` of `Rows.each`.
    """

    runs: Runs
    block: TensorIntrin
    numbers: tuple[Expr, ...]
    cost: tuple[int, int]
    per_iteration: int = 1
    first: int = 0
    zp: int = 0
    at: str = "at"


def register_rows(kernel: str, op: str, plan: Callable[[Group, Target], RowPlan | None], *, plevel: int) -> None:
    """Register a kernel of one operator on two operands."""
    register_planned(kernel, op, plan, partial(_lower_rows, kernel=kernel), plevel=plevel)


def _lower_rows(group: Group, _target: Target, name: str, plan: RowPlan, *, kernel: str) -> Lowered:
    b, runs = IRBuilder(name), plan.runs
    rows = Rows(b, group, runs)
    whole = runs.length - runs.length % plan.per_iteration
    with rows.each(name=plan.at) as (r, at):
        tensors: list[Region | Expr] = [rows.operand(plan.first, at), region(rows.out, at)]
        if runs.kinds[1 - plan.first] == "outer":
            tensors.append(b.let("factor", cast("int32", rows.operands[1 - plan.first][r]) - plan.zp))
        else:
            tensors.insert(1, rows.operand(1 - plan.first, at))
        b.block(plan.block, *tensors, *plan.numbers, imm(whole))
        if whole < runs.length:
            rule = te_of(TeContext(b), group.anchor, list(map(elements_of, rows.operands)), (runs.length,))
            for i in range(whole, runs.length):
                b.store(rows.out, at + i, rule.at(b, (at + i,)))
    return Lowered(b.finish(FuncAttrs(kernel=kernel, span=group.anchor.span)), rows.constants, *plan.cost)


# ---- blocks ----


def element_block(
    name: str, ins: Mapping[str, str], out: str, element: Callable[..., IntoExpr], emit: Emit, *, requires: str,
    numbers: Sequence[TirVar] = (), table: str = "", ordered: bool = True, suffix: str = "",
    align: tuple[int, int] = (1, 1),
) -> TensorIntrin:  # fmt: skip
    """A block that computes out[i] = element(b, x[i], ..) for `count` elements; `ins`: the dtype of each input by name.

    Operands: inputs, out, numbers, count.  With the dtype of a `table`, the table is an operand between inputs and out, and the
    last argument of `element`.  `align`: alignment of the first input and of out.  `suffix`: end of the block's name, but not of
    the name of its meaning.  `ordered` blocks read an element before they write the result that belongs to it.
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
    """table[x] for a table indexed by the unsigned byte."""
    return table[cast("int32", cast("uint8", x))]


# ---- ADD ----


@dataclass(frozen=True, slots=True)
class Limits:
    """How a sum becomes a result: clamp(sum >> shift, lo, hi); `per_iteration`: elements per iteration of the loop."""

    shift: int
    lo: int
    hi: int
    per_iteration: int

    @property
    def clamped(self) -> bool:
        """Whether the limits are narrower than int8."""
        return (self.lo, self.hi) != int_range("int8")

    @property
    def name(self) -> str:
        return f"asr{self.shift}" + f"_{self.lo & 255:02x}_{self.hi & 255:02x}" * self.clamped

    def moved(self, bias: str) -> str:
        """The bias of a sum in C, minus the lower limit if the limits are narrower than int8."""
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
        """Whether the limits are narrower than int8."""
        return (self.lo, self.hi) != int_range("int8")

    @property
    def numbers(self) -> tuple[Expr, Expr, Expr]:
        """The operands a, b and bias of a block."""
        return imm(self.a), imm(self.b), imm(self.bias)


FACTOR_LIMIT = 1 << 23
"""Bound of the magnitude of factors, so that 256 times a factor fits a word."""


def factors_of(attrs: AddAttrs) -> Factors | None:
    """The numbers of ADD, or None if it has no such form; with narrower limits, bias - (lo << shift) must fit the sum too."""
    form = linear_form(attrs)
    if form is None or max(abs(form.a_factor), abs(form.b_factor)) >= FACTOR_LIMIT:
        return None
    factors = Factors(form.a_factor, form.b_factor, form.bias, form.shift, attrs.lo, attrs.hi)
    moved = form.bias - (attrs.lo << form.shift)
    fits = 128 * (abs(form.a_factor) + abs(form.b_factor)) + abs(moved) < 1 << 31
    return factors if fits or not factors.clamped else None


@dataclass(frozen=True, slots=True)
class AddKernel:
    """ADD of an instruction set.

    `least`: shortest run for which the loop pays off.  `per_iteration`: elements per iteration, given the length of runs.
    `cost`: instructions and bytes of code.  `repeated`: whether an operand may be repeated along the outer axes.  `at`: as in
    RowPlan.
    """

    needs: str
    least: int
    name: Callable[[Limits], str]
    emit: Callable[[Operands, Limits], BlockText]
    cost: Callable[[Runs, Limits], tuple[int, int]]
    per_iteration: Callable[[int], int]
    repeated: bool = True
    at: str = "at"

    def block(self, factors: Factors, length: int) -> TensorIntrin:
        """A block that computes out[i] = clamp((x[i] * a + y[i] * b + bias) >> shift, lo, hi) for `count` elements.

        Operands: x, y, out at any address (out may be x or y), a, b, bias, count (a multiple of the elements per iteration).
        """
        return _add_block(self, self.limits(factors, length))

    def limits(self, factors: Factors, length: int) -> Limits:
        """Everything that the code of a run depends on."""
        return Limits(factors.shift, factors.lo, factors.hi, self.per_iteration(length))

    def plan(self, group: Group, target: Target) -> RowPlan | None:
        """The plan of a group; None for other cores and operands, and for numbers without the short form."""
        runs = match_runs(group, least=self.least) if target.has(self.needs) else None
        if runs is None or not isinstance(group.anchor.attrs, AddAttrs) or ("inner" in runs.kinds and not self.repeated):
            return None
        factors = factors_of(group.anchor.attrs)
        if factors is None:
            return None
        limits = self.limits(factors, runs.length)
        block, cost = self.block(factors, runs.length), self.cost(runs, limits)
        return RowPlan(runs, block, factors.numbers, cost, per_iteration=limits.per_iteration, at=self.at)


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
