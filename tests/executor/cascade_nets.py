"""Random chains of row-local layers, and running a cascade of them in the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aot import op as operators
from aot import topi
from aot.executor.candidates import candidates
from aot.executor.cascade_nest import Nest, Part, StripeConfig, make_stripe, row_form, row_variant
from aot.executor.cascade_search import emit, fits_alignment
from aot.executor.config import SelectionConfig
from aot.executor.lower_te import execution_order
from aot.executor.lowered import TensorRef
from aot.ir.module import IRModule
from aot.ir.type import TensorType
from aot.op.common.layer import PoolAttrs
from aot.op.nn.conv import Conv2DAttrs, DepthwiseConv2DAttrs
from aot.op.qnn.arithmetic import AddAttrs
from aot.op.qnn.quantize import ClipAttrs, RequantizeAttrs
from aot.op.tensor import PadAttrs
from aot.op.vision import ResizeNearestAttrs
from aot.relay.expr import Call, Expr, Function, Var, call, const, tensor_type
from aot.relay.transform.partition import fuse_ops
from aot.target.target import find_target
from aot.tir.function import PrimFunc
from aot.tir.interpreter import run_module
from aot.tir.transform import optimize
from aot.topi.strategy import Lowered

ADD = AddAttrs((3, -4), (1 << 30, 1 << 30), (0, -1), 1 << 30, -18, 1, -128, 127)
operators.load_all()
topi.load_all()
KINDS = ("conv", "conv", "depthwise", "depthwise", "max_pool", "avg_pool", "clip", "pad", "resize", "residual", "residual")


class Builder:
    """Draws layers; weights come from a generator of the drawn seed."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))

    def layer(self, x: Expr) -> Expr:
        kind = self.draw(st.sampled_from(KINDS))
        match kind:
            case "conv" | "depthwise":
                return self.window(x, kind)
            case "max_pool" | "avg_pool":
                return self.pool(x, kind)
            case "clip":
                return call("clip", [x], ClipAttrs(-100, 90))
            case "pad":
                top, bottom, left = (self.draw(st.integers(0, 2)) for _ in range(3))
                return call("nn.pad", [x], PadAttrs(((0, 0), (top, bottom), (left, 0), (0, 0)), 5))
            case "resize":
                _, height, width, _ = tensor_type(x).shape
                rows, columns = (tuple(i // 2 for i in range(2 * n)) for n in (height, width))
                return call("image.resize_nearest", [x], ResizeNearestAttrs(rows, columns))
        same = self.window(x, "conv", same=True)
        if self.draw(st.booleans()):
            same = self.window(same, "depthwise", same=True)
        return call("qnn.add", [same, x], ADD)

    def window(self, x: Expr, kind: str, *, same: bool = False) -> Expr:
        shape = tensor_type(x).shape
        kernel, dilation, strides, padding = self.geometry(shape, same=same)
        zp = self.draw(st.sampled_from((-128, 0, 7)))
        if kind == "conv":
            weights = (shape[3] if same else self.draw(st.integers(1, 6)), *kernel, shape[3])
            acc = call("nn.conv2d", [x, self.weights(*weights)], Conv2DAttrs(strides, padding, dilation, zp, zp))
        else:
            attrs = DepthwiseConv2DAttrs(strides, padding, dilation, zp, zp, 1)
            acc = call("nn.depthwise_conv2d", [x, self.weights(1, *kernel, shape[3])], attrs)
        count = tensor_type(acc).shape[3]
        acc = call("nn.bias_add", [acc, const(self.rng.integers(-5000, 5000, count).astype(np.int32))])
        return call("qnn.requantize", [acc], RequantizeAttrs((1518500250,) * count, (-7,) * count, -3, -128, 127, "double"))

    def geometry(self, shape: Sequence[int], *, same: bool) -> tuple[Any, Any, Any, Any]:
        """(kernel, dilation, strides, padding) that fit the image; `same` keeps its size."""
        if same:
            k = self.draw(st.sampled_from((1, 3, 5)))
            return (k, k), (1, 1), (1, 1), (k // 2,) * 4
        axes = []
        for size in shape[1:3]:
            k, stride = self.draw(st.integers(1, 5)), self.draw(st.integers(1, 3))
            dilation = self.draw(st.sampled_from((1, 1, 2)))
            reach = (k - 1) * dilation + 1
            before, after = (self.draw(st.integers(0, reach - 1)) for _ in range(2))
            if size + before + after < reach:
                k, dilation, before, after = 1, 1, 0, 0
            axes.append((k, dilation, stride, before, after))
        kernel, dilations, strides, befores, afters = zip(*axes, strict=True)
        return kernel, dilations, strides, (*befores, *afters)

    def pool(self, x: Expr, kind: str) -> Expr:
        _, height, width, _ = tensor_type(x).shape
        k = self.draw(st.integers(1, min(3, height, width)))
        before = self.draw(st.integers(0, k - 1)) if kind == "max_pool" else 0
        side = self.draw(st.integers(0, k - 1))
        strides = (self.draw(st.integers(1, 2)), 1)
        return call(f"nn.{kind}2d", [x], PoolAttrs((k, k), strides, (before, side, 0, 0), -128, 127))

    def weights(self, *shape: int) -> Expr:
        return const(self.rng.integers(-127, 128, shape).astype(np.int8))


@st.composite
def chains(draw: Any, longest: int = 5) -> Function:
    """A fused network of row-local layers over one image."""
    b = Builder(draw)
    shape = (1, draw(st.integers(5, 12)), draw(st.integers(3, 8)), draw(st.integers(1, 6)))
    x = Var("x", TensorType(shape, "int8"))
    expr: Expr = x
    for _ in range(draw(st.integers(1, longest))):
        expr = b.layer(expr)
    main = fuse_ops(IRModule({"main": Function((x,), expr)}))["main"]
    assert isinstance(main, Function)
    return main


def parts_of(main: Function) -> list[Part]:
    """The fused groups in order of execution."""
    refs = {id(v): TensorRef(v.name, v.type) for v in main.params}
    parts = []
    for e in execution_order(main):
        if isinstance(e, Call) and isinstance(e.op, Function):
            refs[id(e)] = TensorRef(f"t{len(parts)}", tensor_type(e))
            parts.append(Part(e.op, tuple(refs[id(a)] for a in e.args), (refs[id(e)],), row_form(e.op)))
    return parts


@dataclass(frozen=True, slots=True)
class Built:
    """A cascade as it goes to the code generator."""

    chain: Nest
    cascade: Lowered
    func: PrimFunc
    callees: Mapping[str, PrimFunc]


def build_chain(parts: Sequence[Part], styles: Sequence[StripeConfig], *, target: str, fed: bool = False) -> Built | None:
    """The cascade of all parts with the first kernels that fit; None where there is none."""
    chain = make_stripe(parts, styles, parts[0].inputs[0] if fed else None)
    if chain is None or (fed and not chain.is_fed):
        return None
    kernels: list[Lowered | None] = []
    for n, node in enumerate(chain.nodes):
        k = node.maker
        if k is None:
            kernels.append(None)
            continue
        form = parts[k].form
        assert form is not None
        variant = row_variant(parts[k].func, form, node.rows, [link.wide for link in node.links])
        found = candidates(variant, find_target(target), f"rows_{k}", SelectionConfig(), keyed=False)
        fitting = [c for c in found if fits_alignment(chain, n, c.lowered.func)]
        if not fitting:
            return None
        kernels.append(fitting[0].lowered)
    cascade, called = emit(chain, kernels, name="cascade", fed=fed)
    callees = {name: optimize(f) for name, f in called.items()}
    return Built(chain, cascade, optimize(cascade.func), callees)


def run_chain(built: Built, x: np.ndarray, starts: Mapping[str, int], size: int) -> np.ndarray:
    """Run in the interpreter with external tensor 0, result and windows at these bytes of one memory."""
    func = built.func
    memory = np.full(size, 0x5A, np.uint8)
    buffers: dict[str, np.ndarray] = dict(built.cascade.constants)
    for b in (*func.inputs, *func.outputs, *func.scratch):
        if b.name in starts:
            buffers[b.name] = memory[starts[b.name] : starts[b.name] + b.nbytes]
    buffers["external_0"][:] = x.view(np.uint8).reshape(-1)
    run_module(func, built.callees, buffers)
    out = func.outputs[0]
    return buffers[out.name].view(out.dtype).reshape(out.shape).copy()
