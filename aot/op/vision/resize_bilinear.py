"""image.resize_bilinear: RESIZE_BILINEAR of TFLite.

out = sum of the four neighbours, each times the weight of its row and of its column.  int8 and int16 compute in units of 2^-10
(`reference_ops::ResizeBilinearInteger`), float32 and uint8 in floats (`reference_ops::ResizeBilinear`; uint8 rounds half up).
Positions and weights are computed here, as the reference computes them; a position that its rounding puts after the last row or
column counts as the last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.fixed_point import named
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, select

FIXED_POINT = ("int8", "int16")
DTYPES = (*FIXED_POINT, "uint8", "float32")
ONE = 1 << 10
"""The weight 1 in fixed point."""


@dataclass(frozen=True, slots=True)
class Line:
    """For each output position of an axis the two source positions and their weights (integers, or float32 values)."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    lower_weight: tuple[float, ...]
    upper_weight: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ResizeBilinearAttrs:
    """Rows and columns of the result."""

    rows: Line
    columns: Line


def infer_type(types: Sequence[Type], attrs: ResizeBilinearAttrs) -> Type:
    """[N, H, W, C] -> [N, rows, columns, C]."""
    (data,) = tensors_of(types, 1)
    if len(data.shape) != 4 or data.dtype not in DTYPES:
        raise TypeRuleError(f"resize_bilinear of {data}")
    for line, size in ((attrs.rows, data.shape[1]), (attrs.columns, data.shape[2])):
        positions = (*line.lower, *line.upper)
        if not positions or not 0 <= min(positions) <= max(positions) < size:
            raise TypeRuleError(f"resize_bilinear takes positions {positions} of {size}")
    shape = (data.shape[0], len(attrs.rows.lower), len(attrs.columns.lower), data.shape[3])
    return TensorType(shape, data.dtype, data.quant)


def evaluate(data: Array, *, attrs: ResizeBilinearAttrs, out_type: TensorType) -> Array:
    fixed = out_type.dtype in FIXED_POINT
    wide = np.int64 if fixed else np.float32
    rows, columns = attrs.rows, attrs.columns
    total: Array = np.zeros((), wide)
    for x, x_weight in ((columns.lower, columns.lower_weight), (columns.upper, columns.upper_weight)):
        for y, y_weight in ((rows.lower, rows.lower_weight), (rows.upper, rows.upper_weight)):
            part: Array = data[:, list(y)][:, :, list(x)].astype(wide)
            for weights in (np.array(y_weight, wide)[:, None, None], np.array(x_weight, wide)[:, None]):
                part = np.multiply(part, weights)
            total = part if total.ndim == 0 else total + part
    if fixed:
        rounded = np.abs(total) + (ONE * ONE // 2) >> 20
        return np.asarray(np.sign(total) * rounded, out_type.dtype)
    total = total + np.float32(0.5 if out_type.dtype == "uint8" else 0.0)  # which makes 0 of -0
    return total.astype(out_type.dtype)


def _fits_int32(attrs: ResizeBilinearAttrs, largest: int) -> bool:
    """Whether no sum of products leaves 32 bits."""
    sums = [
        max(abs(a) + abs(b) for a, b in zip(line.lower_weight, line.upper_weight, strict=True))
        for line in (attrs.rows, attrs.columns)
    ]
    return largest * sums[0] * sums[1] + ONE * ONE < 1 << 31


def te_rule(ctx: TeContext, args: Sequence[TensorFn], attrs: ResizeBilinearAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    fixed = out_type.dtype in FIXED_POINT
    largest = 1 << (7 if out_type.dtype == "int8" else 15)
    wide = "float32" if not fixed else "int32" if _fits_int32(attrs, largest) else "int64"
    tables = [_tables(ctx, line, name, fixed=fixed) for line, name in ((attrs.rows, "row"), (attrs.columns, "column"))]

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        (y_positions, y_weights), (x_positions, x_weights) = (
            (
                [b.let("at", cast("int32", t.at(b, (i,)))) for t in table[:2]],
                [b.let("weight", cast(wide, t.at(b, (i,)))) for t in table[2:]],
            )
            for table, i in zip(tables, (y, x), strict=True)
        )
        total: Expr | None = None
        for x_position, x_weight in zip(x_positions, x_weights, strict=True):
            for y_position, y_weight in zip(y_positions, y_weights, strict=True):
                part = cast(wide, data.at(b, (n, y_position, x_position, c))) * y_weight * x_weight
                total = part if total is None else total + part
        assert total is not None
        if not fixed:
            return cast(out_type.dtype, total + imm(0.5 if out_type.dtype == "uint8" else 0.0, wide))
        total = named(b, "total", total)
        half = ONE * ONE // 2
        return cast(out_type.dtype, (total + select(total > 0, imm(half, wide), imm(-half, wide))) / (ONE * ONE))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def _tables(ctx: TeContext, line: Line, name: str, *, fixed: bool) -> list[TensorFn]:
    """Positions and weights of an axis, in flash."""
    weight_type = np.int16 if fixed else np.float32
    columns = ((line.lower, np.int16), (line.upper, np.int16), (line.lower_weight, weight_type), (line.upper_weight, weight_type))
    return [ctx.constant(name, np.array(values, dtype)) for values, dtype in columns]


# an anchor: each element is read up to four times, so nothing that computes may be fused in front
register_op(
    "image.resize_bilinear",
    1,
    arguments=[("data", "int8, int16, float32 [N, H, W, C]", "the image")],
    attrs_type=ResizeBilinearAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="RESIZE_BILINEAR; int8, int16, uint8, float32",
)
F_TE.set("image.resize_bilinear", te_rule)
