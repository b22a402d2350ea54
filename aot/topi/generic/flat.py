"""A kernel under construction for an operator that is not fused with others: flat buffers for its operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from math import prod
from typing import Any

from aot.ir.op import T_OP_PATTERN, Array, OpPattern
from aot.ir.type import TensorType, TupleType
from aot.op.common.te_rule import F_TE, TeContext
from aot.relay.expr import Call, Constant, Var, post_order, tensor_type
from aot.relay.expr import Expr as Expression
from aot.relay.stored import flattened
from aot.support.dataclass import dataclass
from aot.support.dtype import numpy_dtype, stored
from aot.target.target import Target
from aot.te.tensor import TensorFn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, IntoExpr, imm, logical_and
from aot.tir.function import FuncAttrs, Shift
from aot.topi.layer.elementwise import te_of
from aot.topi.strategy import Accepts, Group, Lowered, OpImplementation, register_impl


@dataclass(frozen=True, slots=True)
class FlatKernel:
    """One flat buffer per operand of the anchor (constants in flash) and per result."""

    b: IRBuilder
    args: tuple[Buffer, ...]
    outs: tuple[Buffer, ...]
    constants: dict[str, Array]
    group: Group
    target: Target | None = None

    @property
    def out(self) -> Buffer:
        """The first result; most kernels have only one."""
        return self.outs[0]

    @property
    def anchor(self) -> Call:
        return self.group.anchor

    @property
    def attrs(self) -> Any:
        return self.group.anchor.attrs

    def on(self, feature: str) -> bool:
        """Whether the core has a feature."""
        return self.target is not None and self.target.has(feature)

    def shape(self, number: int) -> tuple[int, ...]:
        """Shape of an operand."""
        return tensor_type(self.group.anchor.args[number]).shape

    def table(self, name: str, data: Array) -> Buffer:
        """Declare a further constant."""
        buffer = self.b.const(name, (data.size,), str(data.dtype), align=max(4, data.dtype.itemsize))
        self.constants[buffer.name] = data
        return buffer

    def finish(self, kernel: str, cost: Cost | None = None) -> Lowered:
        """The finished kernel, with its name."""
        cost = cost or Cost()
        attrs = FuncAttrs(kernel=f"generic.{kernel}", span=self.group.anchor.span, macs=cost.macs, shift=cost.shift)
        return Lowered(self.b.finish(attrs), dict(self.constants), cost.instructions, cost.code)


@dataclass(frozen=True, slots=True)
class Cost:
    """What is known of a kernel: multiply-accumulates; instructions and bytes of code as in Lowered; a state that it moves."""

    macs: int = 0
    instructions: int = 0
    code: int = 0
    shift: Shift | None = None


def flat_kernel(
    group: Group, name: str, *, constant: str = "table", target: Target | None = None, without: slice = slice(0)
) -> FlatKernel:
    """Declare the buffers of a group that is one call; `constant`: the name of constants' buffers.

    `without`: operands whose constants the kernel keeps in a form of its own, so that they are missing in `args`.
    """
    b = IRBuilder(name)
    buffers = {id(v): b.input("data", *_flat(v.type)) for v in group.params}
    type_ = group.anchor.type
    results = type_.fields if isinstance(type_, TupleType) else (tensor_type(group.anchor),)
    outs = tuple(b.output("out", *_flat(t)) for t in results)
    constants: dict[str, Array] = {}
    for arg in group.anchor.args:
        if isinstance(arg, Constant) and id(arg) not in buffers and arg not in group.anchor.args[without]:
            buffer = buffers[id(arg)] = b.const(constant, *_flat(arg.type))
            constants[buffer.name] = arg.data.reshape(-1).view(numpy_dtype(buffer.dtype))
    args = tuple(buffers[id(a)] for a in group.anchor.args if id(a) in buffers)
    return FlatKernel(b, args, outs, constants, group, target)


def _flat(type_: TensorType) -> tuple[tuple[int], str]:
    """Numbers in a tensor (a complex element has two), and their type."""
    shape, dtype = stored(type_.shape, type_.dtype)
    return (prod(shape),), dtype


def accepts_alone(group: Group, _target: Target) -> bool:
    """Whether the group is one call with one result."""
    return not group.followers and isinstance(group.result.type, TensorType)


def accepts_tensor(group: Group, _target: Target) -> bool:
    """Whether the group is one call on one tensor."""
    return not group.followers and isinstance(group.anchor.args[0], Var) and len(group.params) == 1


def accepts_weights(*places: slice) -> Accepts:
    """Whether the group is a single call whose operands at some places are constants."""

    def accepts(group: Group, _target: Target) -> bool:
        weights = (a for place in places for a in group.anchor.args[place])
        return not group.followers and all(isinstance(a, Constant) for a in weights)

    return accepts


Body = Callable[[FlatKernel], Cost | None]


def register_flat(
    *operators: str, name: str = "", accepts: Accepts = accepts_alone, plevel: int = 10, constant: str = "table"
) -> Callable[[Body], Body]:
    """Register a function that emits a flat kernel, under the operator's name unless it has its own; `constant` as above."""

    def register(body: Body) -> Body:
        for operator in operators:
            title = name or operator.rpartition(".")[2]

            def lower(group: Group, target: Target, func: str, title: str = title) -> Lowered:
                kernel = flat_kernel(group, func, constant=constant, target=target)
                return kernel.finish(title, body(kernel))

            register_impl(OpImplementation(f"generic.{title}", operator, accepts, lower, plevel, source=body.__module__))
        return body

    return register


# Loops that many kernels have.


def fill(b: IRBuilder, target: Buffer, value: Callable[[Expr], IntoExpr] | IntoExpr, *, loop: str = "i") -> None:
    """Store a value, or the value at each index, into all elements."""
    with b.for_(loop, target.size) as i:
        b.store(target, i, value(i) if callable(value) else value)


def summed(
    b: IRBuilder, loop: str, count: IntoExpr, term: Callable[[Expr], Expr], *, name: str = "total", dtype: str, init: IntoExpr = 0
) -> Expr:
    """The sum of a loop's terms, in a register."""
    total = b.local(name, (1,), dtype, init=init)
    with b.for_(loop, count) as i:
        b.store(total, 0, total[0] + term(i))
    return total[0]


def flat_place(numbers: Iterable[Expr], shape: Iterable[int]) -> Expr:
    """The number of an element from its indices."""
    place: Expr = imm(0)
    for number, extent in zip(numbers, shape, strict=False):
        place = place * extent + number
    return place


def inside(numbers: Iterable[Expr], shape: Iterable[int], *conditions: Expr) -> Expr:
    """Whether indices are within their extents, after other conditions."""
    tests = (logical_and(n >= 0, n < extent) for n, extent in zip(numbers, shape, strict=False))
    return reduce(logical_and, (*conditions, *tests))


# Expressions of several operators, by their te rules.


def is_elementwise(call: Call) -> bool:
    """Whether an element of the result needs only the same element of each operand (given equal shapes)."""
    return call.name in F_TE and T_OP_PATTERN.get(call.name) <= OpPattern.BROADCAST


def compose(ctx: TeContext, result: Expression, tensors: dict[int, TensorFn], size: int | None = None) -> TensorFn:
    """The te rules of an expression; `tensors`: its variables (and others that are known) by id; `size`: all tensors are flat."""
    for expr in post_order(result):
        if isinstance(expr, Constant) and id(expr) not in tensors:
            tensors[id(expr)] = ctx.value("table", expr if size is None else flattened(expr))
        elif isinstance(expr, Call):
            args = [tensors[id(a)] for a in expr.args]
            tensors[id(expr)] = te_of(ctx, expr, args, None if size is None else (size,))
    return tensors[id(result)]
