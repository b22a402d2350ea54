"""Hand-made modules: small kernels in TIR over named tensors."""

from __future__ import annotations

import numpy as np

from aot.executor.lowered import KernelCall, LoweredModule, TensorRef
from aot.ir.span import Span
from aot.ir.type import TensorType, per_tensor
from aot.tir.builder import IRBuilder
from aot.tir.expr import cast, clamp
from aot.tir.function import FuncAttrs, PrimFunc


def dense(n_in: int, n_out: int) -> PrimFunc:
    """Matrix times vector by way of a scratch copy; parameters are one packed stream: int32 biases, then int8 weights."""
    b = IRBuilder("dense")
    x, y = b.input("x", (n_in,), "int8"), b.output("y", (n_out,), "int8")
    p = b.const("params", (n_out * (4 + n_in),), "uint8")
    wide = b.scratch("wide", (n_in,), "int16")
    with b.for_("k", n_in) as k:
        b.store(wide, k, x[k])
    with b.for_("o", n_out) as o:
        acc = b.local("acc", (1,), "int32", init=p.load("int32", o))
        with b.for_("k", n_in) as k:
            b.store(acc, 0, acc[0] + cast("int32", wide[k]) * cast("int32", p.load("int8", o * n_in + k + 4 * n_out)))
        b.store(y, o, clamp(acc[0] >> 5, -128, 127))
    return b.finish(FuncAttrs(f"generic.dense(outputs={n_out})", Span(0, "FULLY_CONNECTED", "dense", 3), n_in * n_out))


def dense_params(n_in: int, n_out: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    bias = rng.integers(-1000, 1000, n_out).astype(np.int32)
    return np.frombuffer(bias.tobytes() + rng.integers(-128, 128, (n_out, n_in)).astype(np.int8).tobytes(), np.uint8)


def dense_reference(x: np.ndarray, params: np.ndarray, n_out: int) -> np.ndarray:
    bias, weight = params[: 4 * n_out].view(np.int32), params[4 * n_out :].view(np.int8).reshape(n_out, -1)
    acc = bias + weight.astype(np.int32) @ x.reshape(-1).astype(np.int32)
    return np.clip(acc >> 5, -128, 127).astype(np.int8)


def add(n: int) -> PrimFunc:
    b = IRBuilder("add")
    x, z, y = b.input("x", (n,), "int8"), b.input("z", (n,), "int8"), b.output("y", (n,), "int8")
    with b.for_("i", n) as i:
        b.store(y, i, clamp(cast("int32", x[i]) + cast("int32", z[i]), -128, 127))
    return b.finish(FuncAttrs("generic.add", Span(1, "ADD", "sum", 4)))


def tensor(name: str, *shape: int, dtype: str = "int8", index: int = -1) -> TensorRef:
    return TensorRef(name, TensorType(shape, dtype, per_tensor(0.1, -3) if dtype == "int8" else None), index)


def small_net() -> LoweredModule:
    """x -> dense -> reshape -> dense -> (+ reshape) with equal functions, equal and different constants."""
    x, a, v = tensor("input/x", 1, 16), tensor("a", 1, 16), tensor("view", 4, 4)
    c, y = tensor("c", 16), tensor("StatefulCall:0", 4, 4)
    first, second = dense_params(16, 16, 1), dense_params(16, 16, 2)
    span = Span(2, "FULLY_CONNECTED", "second/*", 5)
    calls = (
        KernelCall("dense_1", (x,), (a,), span=Span(0, "FULLY_CONNECTED", "first", 3), operators={0: "FULLY_CONNECTED"}),
        KernelCall("dense_2", (v,), (c,), span=span, operators={2: "FULLY_CONNECTED"}),
        KernelCall("add", (c, v), (y,), span=Span(3, "ADD", "sum", 7), operators={3: "ADD", 4: "RESHAPE"}),
    )
    functions = {"dense_1": dense(16, 16), "dense_2": dense(16, 16), "add": add(16)}
    constants = {"dense_1": {"params": first}, "dense_2": {"params": second}}
    return LoweredModule(functions, "small", constants, inputs=(x,), outputs=(y,), calls=calls, views={v: a})


def small_reference(x: np.ndarray) -> np.ndarray:
    a = dense_reference(x, dense_params(16, 16, 1), 16)
    c = dense_reference(a, dense_params(16, 16, 2), 16)
    return np.clip(a.astype(int) + c, -128, 127).astype(np.int8).reshape(4, 4)


def odd_outputs() -> LoweredModule:
    """Outputs that are an input, a constant, one tensor twice, a view of it, and a tensor that is read on."""
    x, k, a, y = tensor("x", 8), tensor("k", 8, dtype="int16"), tensor("a", 8), tensor("y", 8)
    v, w = tensor("v", 2, 4), tensor("w", 8)
    constant = np.arange(8, dtype=np.int16) * 1000
    other = tensor("other", 8)
    weights = np.arange(-4, 4, dtype=np.int8)
    calls = (
        KernelCall("add", (x, other), (a,), operators={0: "ADD"}),
        KernelCall("add", (a, a), (y,), operators={1: "ADD"}),
    )
    return LoweredModule(
        {"add": add(8)}, "odd", inputs=(x, w), outputs=(a, a, v, x, k, y), calls=calls, views={v: a},
        values={k: constant, other: weights},
    )  # fmt: skip


def odd_reference(x: np.ndarray) -> list[np.ndarray]:
    a = np.clip(x.astype(int) + np.arange(-4, 4), -128, 127).astype(np.int8)
    y = np.clip(a.astype(int) * 2, -128, 127).astype(np.int8)
    return [a, a, a.reshape(2, 4), x, np.arange(8, dtype=np.int16) * 1000, y]
