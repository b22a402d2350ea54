"""Fully connected layers, and pointwise convolutions of few pixels, one row of bytes by eight channels: see intrin_dense.py.

No scratch memory; weights take one byte each.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.w8.window import is_rows
from aot.topi.arm_mve.intrin_dense import CHANNELS, ORDER, Row, code_bytes, dense, instructions
from aot.topi.arm_mve.requant import VectorRequant, plan_vectors
from aot.topi.arm_mve.stream import pack
from aot.topi.arm_mve.tail import Results
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts
from aot.topi.layer.io import open_io
from aot.topi.strategy import Group, Lowered, register_planned

MAX_ROWS = 2
"""Pointwise convolutions of more pixels belong to conv2d."""


@dataclass(frozen=True, slots=True)
class _Plan:
    layer: FusedLayer
    requant: VectorRequant
    row: Row
    target: Target


def _plan(group: Group, target: Target) -> _Plan | None:
    layer = match_layer(group)
    if layer is None or not target.has("mve") or not tail_accepts(layer) or not is_rows(layer):
        return None
    if layer.weight.ndim > 2 and prod(layer.out_type.shape[:-1]) > MAX_ROWS:
        return None
    requant = plan_vectors(layer.requant, layer.acc_low, layer.acc_high)
    if requant is None:
        return None
    numbers = {(int(m), int(s)) for m, s in zip(requant.multiplier, requant.right, strict=True)}
    uniform = min(numbers) if len(numbers) == 1 and not requant.form.left else None
    return _Plan(layer, requant, Row(layer.weight[0].size, layer.channels, requant.form, uniform), target)


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer, row = plan.layer, plan.row
    rows = prod(layer.out_type.shape[:-1])
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * row.depth,), out_shape=(rows * layer.channels,))
    weights = layer.weight.reshape(layer.channels, -1)
    stream = pack(weights, row.window, lambda first: _numbers(plan, first), channels=CHANNELS)
    params = region(io.constant("params", stream, "int8", align=8))
    results = Results(b, io, layer, target=plan.target, size=layer.channels)
    with b.for_("m", rows) as m:
        number = imm(0) if rows == 1 else rows - 1 - m if layer.out_type.dtype != "int8" else m
        at = b.let("at", number * layer.channels)
        b.block(dense(row), params, region(io.data, number * row.depth), results.place(at))
        results.finish(at)
    results.end()
    func = b.finish(FuncAttrs(kernel=describe("arm_mve.dense"), span=layer.span, macs=layer.macs))
    total = rows * (instructions(row) + 8 + results.instructions) + results.instructions_at_end + 14
    return Lowered(func, io.constants, instructions=total, code=code_bytes(row) + 60 + results.code)


def _numbers(plan: _Plan, first: int) -> Array:
    """Those of a block of channels."""
    channels = [first + c for c in ORDER]
    if plan.row.uniform:
        known = [int(plan.layer.bias[c]) if c < plan.layer.channels else 0 for c in channels]
        return np.array(known, np.int64).astype("<i4").view(np.int8)
    half = CHANNELS // 2
    return np.concatenate([plan.requant.pack(plan.layer.bias, channels[i : i + half]) for i in (0, half)])


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_mve.dense", _anchor, _plan, _lower, plevel=43)
