"""Fused groups of any operators for kernel tests: every kernel that accepts a group against the group's meaning."""

from __future__ import annotations

from typing import Any

import numpy as np

from aot import op as operators
from aot import topi
from aot.executor.candidates import group_of
from aot.ir.op import Array
from aot.relay.expr import Expr, Function, Var
from aot.relay.interpreter import evaluate
from aot.support.dtype import numpy_dtype
from aot.target.target import Target, find_target
from aot.tir.interpreter import run
from aot.topi.strategy import Lowered, implementations

operators.load_all()
topi.load_all()


def data_of(var: Var, seed: int) -> Array:
    """Random codes of a variable's type, the ends of the range among them."""
    rng = np.random.default_rng(seed)
    if var.type.dtype == "float32":
        return rng.standard_normal(var.type.shape).astype(np.float32)
    info = np.iinfo(var.type.dtype)
    values = rng.integers(info.min, info.max, var.type.shape, endpoint=True).astype(var.type.dtype)
    if values.size > 1:
        values.reshape(-1)[:2] = info.min, info.max
    return values


def lowered(kernel: str, params: tuple[Var, ...], body: Expr, *, cpu: str | Target = "cortex-m4") -> Lowered | None:
    """The kernel of that name for the group, None where it does not take it."""
    group = group_of(Function(params, body, {"Primitive": 1}))
    target = cpu if isinstance(cpu, Target) else find_target(cpu)
    impls = [i for i in implementations(str(group.anchor.op)) if i.name == kernel]
    assert impls, f"{kernel} is not registered for {group.anchor.op}"
    return impls[0].lower(group, target, "kernel") if impls[0].accepts(group, target) else None


def run_lowered(low: Lowered, inputs: list[Array], out_type: Any) -> Array:
    """The kernel's one result, from the TIR interpreter."""
    (out,) = run_all(low, inputs)
    return out.view(numpy_dtype(out_type.dtype)).reshape(out_type.shape)


def run_all(low: Lowered, inputs: list[Array]) -> list[Array]:
    """All results of the kernel in the TIR interpreter, of the shapes that its buffers have."""
    buffers: dict[str, Array] = dict(low.constants)
    for buffer, value in zip(low.func.inputs, inputs, strict=True):
        buffers[buffer.name] = value.reshape(buffer.shape)
    outs = [np.full(b.nbytes, 0x55, np.uint8).view(numpy_dtype(b.dtype)).reshape(b.shape) for b in low.func.outputs]
    run(low.func, buffers | {b.name: out for b, out in zip(low.func.outputs, outs, strict=True)})
    return outs


def check_group(kernel: str, params: tuple[Var, ...], body: Expr, *, cpu: str = "cortex-m4", seed: int = 0) -> Lowered:
    """Assert that the kernel takes the group and computes what the operators mean."""
    low = lowered(kernel, params, body, cpu=cpu)
    assert low is not None, f"{kernel} does not take {body}"
    inputs = [data_of(v, seed + i) for i, v in enumerate(params)]
    (expected,) = evaluate(Function(params, body), inputs)
    np.testing.assert_array_equal(run_lowered(low, inputs, body.type), expected)
    assert low.instructions > 0
    return low
