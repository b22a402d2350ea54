"""Register an operator, use it in a network written in Python, and compile that.

python examples/python/registered_operator.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import aot
from aot import relay
from aot.ir import IRModule
from aot.ir.op import Array, Op, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.te_rule import F_TE, TeContext
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast


@dataclass(frozen=True, slots=True)
class ShiftAttrs:
    """How far values are shifted to the right."""

    bits: int


def infer_type(types: Sequence[Type], attrs: ShiftAttrs) -> Type:
    """int8 -> int8 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8" or not 0 <= attrs.bits < 8:
        raise TypeRuleError(f"demo.shift takes an int8 tensor and 0 to 7 bits, not {data} and {attrs.bits}")
    return data


def evaluate(data: Array, *, attrs: ShiftAttrs, out_type: TensorType) -> Array:
    """The meaning, in numpy."""
    return (data >> attrs.bits).astype(out_type.dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: ShiftAttrs, out_type: TensorType) -> TensorFn:
    """One element, from which kernels are made."""

    def rule(_b: IRBuilder, *i: Expr) -> Expr:
        return cast("int8", cast("int32", args[0].at(_b, i)) >> attrs.bits)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def main() -> None:
    """Register, build, evaluate, compile."""
    register_op(
        "demo.shift",
        1,
        arguments=[("data", "int8", "what is shifted")],
        attrs_type=ShiftAttrs,
        pattern=OpPattern.ELEMWISE,
        infer_type=infer_type,
        evaluate=evaluate,
        doc="an arithmetic shift to the right",
    )
    F_TE.set("demo.shift", te_rule)
    print(Op.get("demo.shift").arguments)

    x = relay.var("x", shape=(1, 8), dtype="int8")
    module = IRModule.from_expr(relay.clip(relay.construct.constructor("demo.shift")(x, bits=2), -20, 20), name="shift")
    print(module)
    data = np.arange(-128, 128, 32, dtype="int8").reshape(1, 8)
    print(relay.evaluate(module["main"], [data])[0])
    print(sorted(aot.build(module, target="cortex-m0", name="shift").files))


if __name__ == "__main__":
    main()
