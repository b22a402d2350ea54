"""qnn.steps: float32 to int8 by comparisons: what a chain of functions that ends in QUANTIZE makes of a float.

`relay/transform/fold_to_steps.py` finds the steps, so that the result is that of the chain for every float.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm, select

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StepsAttrs:
    """codes[i + 1] from starts[i] on, which rise; codes[0] before; `nan` for what is no number; the result's parameters."""

    starts: tuple[float, ...]
    codes: tuple[int, ...]
    nan: int
    quant: QuantParams | None = None


@dataclass(frozen=True, slots=True)
class Cells:
    """Equal parts of the range from the first step to the last; before[c] steps lie before cell c, 2^levels - 1 or less in it."""

    origin: np.float32
    factor: np.float32
    before: npt.NDArray[np.int16]
    levels: int


def infer_type(types: Sequence[Type], attrs: StepsAttrs) -> Type:
    """float32 -> int8 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "float32":
        raise TypeRuleError(f"steps takes a float32 tensor, not {data}")
    if len(attrs.codes) != len(attrs.starts) + 1 or list(attrs.starts) != sorted(set(attrs.starts)):
        raise TypeRuleError("steps needs floats that rise, and a code more than these")
    if not -128 <= min(attrs.nan, *attrs.codes) <= max(attrs.nan, *attrs.codes) <= 127:
        raise TypeRuleError("steps needs int8 codes")
    return data.with_dtype("int8", attrs.quant)


def evaluate(data: Array, *, attrs: StepsAttrs, out_type: TensorType) -> Array:
    starts = np.asarray(attrs.starts, np.float32)
    codes = np.asarray(attrs.codes, np.int8)[np.searchsorted(starts, data, side="right") * ~np.isnan(data)]
    return np.asarray(np.where(np.isnan(data), np.int8(attrs.nan), codes))


def cell_of(x: Floats, origin: np.float32, factor: np.float32) -> npt.NDArray[np.int64]:
    """In float32 steps, as the code computes it; rises with x."""
    return np.asarray(((x - origin) * factor).astype(np.int64))


def cells_of(starts: Floats) -> Cells:
    """As few comparisons as some number of cells allows; twice the cells have to save more than half a one."""
    found = []
    origin, last = starts[0], starts[-1]
    for count in (64, 128, 256, 512, 1024):
        with np.errstate(all="ignore"):
            factor = np.float32(count) / (last - origin)
        if not 0 < factor < np.inf:
            return Cells(np.float32(0), np.float32(0), np.zeros(1, np.int16), len(starts).bit_length())
        per_cell = np.bincount(cell_of(starts, origin, factor))
        before = np.concatenate(([0], np.cumsum(per_cell)[:-1])).astype(np.int16)
        levels = int(per_cell.max()).bit_length()
        found.append((levels + (count > 256) / 2 + (count > 512), count, Cells(origin, factor, before, levels)))
    return min(found, key=lambda f: f[:2])[2]


def te_rule(ctx: TeContext, args: Sequence[TensorFn], attrs: StepsAttrs, out_type: TensorType) -> TensorFn:
    if not attrs.starts:
        return tensor_fn(out_type.shape, "int8", lambda b, *i: _or_nan(b.let("x", args[0].at(b, i)), attrs, imm(attrs.codes[0])))
    cells = cells_of(np.asarray(attrs.starts, np.float32))
    spare = (1 << cells.levels) - 1
    starts = ctx.constant("starts", np.asarray([*attrs.starts, *[attrs.starts[-1]] * spare], np.float32))
    codes = ctx.constant("codes", np.asarray([*attrs.codes, *[attrs.codes[-1]] * spare], np.int8))
    before = ctx.constant("before", cells.before)
    origin, last, factor = (imm(float(v), "float32") for v in (cells.origin, np.float32(attrs.starts[-1]), cells.factor))

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        x = b.let("x", args[0].at(b, i))
        above = b.let("above", select(x > origin, x, origin))
        inside = b.let("inside", select(above < last, above, last))
        cell = b.let("cell", cast("int32", (inside - origin) * factor))
        step: Expr = b.let("step", cast("int32", before.at(b, (cell,))))
        for level in reversed(range(cells.levels)):
            far = binop(">=", x, starts.at(b, (step + ((1 << level) - 1),)))
            step = b.let("step", step + select(far, imm(1 << level), imm(0)))
        return _or_nan(x, attrs, codes.at(b, (step,)))

    return tensor_fn(out_type.shape, "int8", rule)


def _or_nan(x: Expr, attrs: StepsAttrs, code: Expr) -> Expr:
    """The code, and that of what is no number, where it isn't the first one."""
    if attrs.nan == attrs.codes[0]:
        return cast("int8", code)
    return cast("int8", select(binop("==", x, x), cast("int32", code), imm(attrs.nan)))


register_op(
    "qnn.steps",
    1,
    arguments=[("data", "float32", "the operand")],
    attrs_type=StepsAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="functions of one float32 value that end in QUANTIZE, such as MISH: EXP, LOG, TANH, LOGISTIC between two tensors",
)
F_TE.set("qnn.steps", te_rule)
