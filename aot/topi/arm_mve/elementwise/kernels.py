"""Kernels of element-wise operators: ADD and MUL of bytes, DEQUANTIZE."""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array
from aot.op.qnn.add import AddAttrs
from aot.op.qnn.dequantize import DequantizeAttrs
from aot.op.qnn.requantize import RequantizeAttrs
from aot.relay.expr import Constant, Var, tensor_type
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.tail import factors_of
from aot.topi.arm_mve.elementwise.intrin_add import add, add_instructions
from aot.topi.arm_mve.elementwise.intrin_dequantize import LEAST_SCALE, dequantize, dequantize_instructions
from aot.topi.arm_mve.elementwise.intrin_multiply import Product, code_bytes, multiply, multiply_instructions
from aot.topi.arm_mve.requant import plan_vectors
from aot.topi.layer.runs import Runs, match_runs
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl, register_planned

LEAST = 16
"""Bytes of a run from which on vectors pay."""


class _Operands:
    """The buffers of two operands and a result as rows of bytes."""

    def __init__(self, b: IRBuilder, group: Group, runs: Runs) -> None:
        self._b, self._runs = b, runs
        self.constants: dict[str, Array] = {}
        shapes = {id(a): (prod(tensor_type(a).shape),) for a in group.anchor.args}
        data: dict[int, Buffer] = {id(v): b.input("data", shapes[id(v)], "int8") for v in group.params}
        self._out = b.output("out", (runs.rows * runs.length,), "int8")
        for a in group.anchor.args:
            if isinstance(a, Constant):
                data[id(a)] = b.const("table", shapes[id(a)], "int8", align=4)
                self.constants[data[id(a)].name] = a.data.reshape(-1)
        self._pair = [data[id(a)] for a in group.anchor.args]

    def row(self, number: Expr) -> tuple[Region, Region, Region]:
        """Both operands and the result from a run's first element on."""
        at = number * self._runs.length
        x, y = (region(v, at if kind == "whole" else 0) for v, kind in zip(self._pair, self._runs.kinds, strict=True))
        return x, y, region(self._out, at)


def _runs(group: Group, target: Target) -> Runs | None:
    """Those of which a vector of one operand goes with a vector of the other."""
    runs = match_runs(group, least=LEAST) if target.has("mve") else None
    return None if runs is None or "outer" in runs.kinds else runs


def _plan_add(group: Group, target: Target) -> Runs | None:
    runs = _runs(group, target)
    attrs = group.anchor.attrs
    factors = factors_of(attrs) if runs is not None and isinstance(attrs, AddAttrs) else None
    return None if factors is None else runs


def _lower_add(group: Group, _target: Target, name: str, runs: Runs) -> Lowered:
    f = factors_of(group.anchor.attrs)
    assert f is not None
    b = IRBuilder(name)
    operands = _Operands(b, group, runs)
    with b.for_("r", runs.rows) as r:
        x, y, out = operands.row(r)
        b.block(add(f.shift, f.lo, f.hi), x, y, out, imm(f.a), imm(f.b), imm(f.bias), imm(runs.length))
    func = b.finish(FuncAttrs(kernel="arm_mve.add", span=group.anchor.span))
    instructions = runs.rows * (add_instructions(runs.length, f.lo, f.hi) + 4 * (runs.rows > 1)) + 10
    return Lowered(func, operands.constants, instructions, 110)


def _product(group: Group, target: Target) -> tuple[Runs, Product] | None:
    runs = _runs(group, target)
    if runs is None:
        return None
    attrs = group.anchor.attrs
    factors = [[abs(end - zp) for end in (-128, 127)] for zp in attrs.input_zp]
    largest = np.array([max(factors[0]) * max(factors[1])])
    wanted = RequantizeAttrs((attrs.multiplier,), (attrs.shift,), attrs.zero_point, attrs.lo, attrs.hi, "double")
    requant = plan_vectors(wanted, -largest, largest)
    if requant is None or requant.form.left:
        return None
    return runs, Product(tuple(attrs.input_zp), attrs.multiplier, int(requant.right[0]), requant.form)


def _lower_multiply(group: Group, _target: Target, name: str, plan: tuple[Runs, Product]) -> Lowered:
    runs, product = plan
    b = IRBuilder(name)
    operands = _Operands(b, group, runs)
    with b.for_("r", runs.rows) as r:
        b.block(multiply(product), *operands.row(r), imm(runs.length))
    func = b.finish(FuncAttrs(kernel="arm_mve.multiply", span=group.anchor.span))
    instructions = runs.rows * (multiply_instructions(product, runs.length) + 4 * (runs.rows > 1)) + 10
    return Lowered(func, operands.constants, instructions, code_bytes(product) + 60)


def _accepts_dequantize(group: Group, target: Target) -> bool:
    """One call on a tensor of bytes."""
    anchor = group.anchor
    if group.followers or not target.has("mve") or anchor is not group.result or not isinstance(anchor.args[0], Var):
        return False
    data, attrs = tensor_type(anchor.args[0]), anchor.attrs
    known = isinstance(attrs, DequantizeAttrs) and data.dtype in ("int8", "uint8") and prod(data.shape) >= LEAST
    return known and attrs.scale >= LEAST_SCALE


def _lower_dequantize(group: Group, _target: Target, name: str) -> Lowered:
    anchor = group.anchor
    data, attrs = tensor_type(anchor.args[0]), anchor.attrs
    size = prod(data.shape)
    b = IRBuilder(name)
    x = b.input("data", (size,), data.dtype)
    out = b.output("out", (size,), "float32", align=4)
    b.block(dequantize(data.dtype, attrs.zero_point), x, out, imm(attrs.scale, "float32"), imm(size))
    func = b.finish(FuncAttrs(kernel="arm_mve.dequantize", span=anchor.span))
    return Lowered(func, {}, dequantize_instructions(size), 60)


register_planned("arm_mve.add", "qnn.add", _plan_add, _lower_add, plevel=40)
register_planned("arm_mve.multiply", "qnn.multiply", _product, _lower_multiply, plevel=40)
register_impl(OpImplementation("arm_mve.dequantize", "qnn.dequantize", _accepts_dequantize, _lower_dequantize, plevel=40))
