"""Random and awkward layers for every kernel of convolutions, depthwise convolutions and fully connected layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from aot import op as operators
from aot import topi
from aot.executor.candidates import group_of
from aot.ir.op import Array
from aot.ir.type import per_tensor
from aot.op.qnn.arithmetic import AddAttrs
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import DequantizeAttrs
from aot.relay.expr import Function, Var, call, tensor_type
from aot.relay.interpreter import evaluate
from aot.target.target import Target, find_target
from aot.topi.arm_dsp.few_channels import DEPTHS
from aot.topi.strategy import Lowered, OpImplementation, implementations
from tests.topi.layers import Layer, build

operators.load_all()
topi.load_all()

KERNELS = {
    f"{kind} {impl.name}": (kind, impl)
    for kind, anchor in (("conv", "nn.conv2d"), ("dw", "nn.depthwise_conv2d"), ("dense", "nn.dense"))
    for impl in implementations(anchor)
    if impl.anchor != "*" and not impl.name.startswith("arm_fpu.") and "16x8" not in impl.name and "hybrid" not in impl.name
}
"""Every kernel of bytes of the three operators: "kind name" -> (kind of layer, kernel); others have files of their own."""

WIDE = 1200
"""Inputs with which sums of random bytes leave 2^23."""

TAILS = ("", "", "", "", "", "", "", "", "add", "relu", "dequantize", "table")


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel's code for one layer, what goes in and what has to come out: an array for each result."""

    text: str
    lowered: Lowered
    inputs: list[Array]
    expected: list[Array]


SMLAL_ONLY = (
    "arm_dsp.depthwise_chain",
    "arm_dsp.depthwise_lanes",
    "arm_dsp.depthwise_line",
    "arm_dsp.dense_chain",
    "arm_dsp.conv2d_winograd_f4_mla",
)
"""Kernels for cores without DSP instructions."""


BOARDS = {"cortex-m0plus": "mps2-an385-v6m", "cortex-m3": "mps2-an385", "cortex-m4": "mps2-an386", "cortex-m55": "mps3-an547"}
"""The board on which the kernels of a core run."""


def target_of(impl: OpImplementation) -> Target:
    """The core that the kernel is for: M55 for vectors, M0+ for Armv6-M, M3 for what SMLAL alone makes, else an M4."""
    if impl.name.startswith("arm_v6m."):
        return find_target("cortex-m0plus")
    if impl.name.startswith("arm_mve."):
        return find_target("cortex-m55")
    return find_target("cortex-m3" if impl.name in SMLAL_ONLY else "cortex-m4")


def make_case(impl: OpImplementation, layer: Layer, *, tail: str = "", core: Target | None = None) -> Case | None:
    """None where the kernel does not take the layer; `tail` as of `with_tail`; `core`: not that of `target_of`."""
    func = with_tail(build(layer), layer, tail)
    group, target = group_of(func), core or target_of(impl)
    if not impl.accepts(group, target):
        return None
    rng = np.random.default_rng(layer.seed + 1)
    inputs = [rng.integers(-128, 128, v.type.shape).astype(np.int8) for v in func.params]
    if layer.ends:
        inputs[0] = np.where(inputs[0] < 0, -128, 127).astype(np.int8)
    return Case(f"{impl.name} {tail}: {layer}", impl.lower(group, target, "kernel"), inputs, evaluate(func, inputs))


def with_tail(func: Function, layer: Layer, tail: str) -> Function:
    """The layer with a tail: add, relu (an ADD with limits), dequantize, table, or some of them, with spaces between."""
    for kind in tail.split():
        if kind in ("add", "relu"):
            func = with_residual(func, layer, limits=(layer.seed % 90 - 60, 100) if kind == "relu" else (-128, 127))
        elif kind == "dequantize":
            body = call("qnn.dequantize", [func.body], DequantizeAttrs(0.0625, layer.out_zp))
            func = Function(func.params, body, {"Primitive": 1})
        else:
            codes = np.random.default_rng(layer.seed + 3).integers(-128, 128, 256)
            func = Function(func.params, call("qnn.lut", [func.body], LutAttrs(tuple(map(int, codes)))), {"Primitive": 1})
    return func


def with_residual(func: Function, layer: Layer, *, limits: tuple[int, int] = (-128, 127)) -> Function:
    """The layer with an ADD of another tensor behind it, or in front of it in the ADD where that has limits."""
    rng = np.random.default_rng(layer.seed + 2)
    other = Var("y", tensor_type(func.body).with_dtype("int8", per_tensor(0.5, 4)))
    second = int(rng.integers(1 << 30, 1 << 31))
    attrs = AddAttrs((layer.out_zp, 4), (1 << 30, second), (-1, 0), 1340000000, -19, int(rng.integers(-128, 128)), *limits)
    if attrs.lo > -128:
        attrs, pair = replace(attrs, input_zp=attrs.input_zp[::-1], multiplier=attrs.multiplier[::-1]), [other, func.body]
    else:
        pair = [func.body, other]
    return Function((*func.params, other), call("qnn.add", pair, attrs), {"Primitive": 1})


def random_cases(name: str, seed: int, *, core: Target | None = None) -> Iterator[Case]:
    """Endless random layers of a kernel."""
    _, impl = KERNELS[name]
    rng = np.random.default_rng(seed)
    for n in range(1 << 30):
        tail = TAILS[int(rng.integers(len(TAILS)))]
        case = make_case(impl, random_layer(rng, name, seed=(seed << 20) + n), tail=tail, core=core)
        if case is not None:
            yield case


def stored_by(name: str) -> str:
    """The type of the weights of a kernel's layers."""
    return "int4" if "_w4" in name else "int8"


def pick(rng: np.random.Generator, *values: int) -> int:
    return values[int(rng.integers(len(values)))]


def random_layer(rng: np.random.Generator, name: str, *, seed: int) -> Layer:
    """A layer of a form that the kernel may take, with awkward numbers."""
    kind, impl = KERNELS[name]
    out_zp = pick(rng, -128, -128, 127, 0, -7)
    clip = (-128, 127) if rng.random() < 0.7 else (min(out_zp, -100), max(out_zp, 90))
    layer = Layer(
        kind, (), (), pad_value=pick(rng, -128, 127, 0, int(rng.integers(-128, 128))), out_zp=out_zp, clip=clip,
        rounding=("double", "single")[pick(rng, 0, 1)], per_channel=bool(rng.random() < 0.7), seed=seed,
        ends=bool(rng.random() < 0.1), spread=(20.0, 200.0, 200.0, 2000.0, 1e5)[int(rng.integers(5))], stored=stored_by(name),
    )  # fmt: skip
    if layer.stored == "int8" and rng.random() < 0.15:
        layer = replace(layer, weight_zp=int(rng.integers(-128, 128)))
    depth, channels = pick(rng, 1, 2, 3, 4, 5, 7, 8, 12, 17, 33), pick(rng, 1, 2, 3, 4, 5, 7, 9, 17)
    if impl.name.startswith("arm_mve.") and rng.random() < 0.5:  # around vectors of 16 bytes, and far strides
        depth, channels = pick(rng, 15, 16, 16, 24, 31, 32, 48, 64), pick(rng, 4, 8, 12, 16, 31, 128, 133)
    if impl.name == "arm_mve.conv2d_one":
        depth = 1
    if impl.name == "arm_dsp.conv2d_few":
        channels = pick(rng, 1, 1, 2)
    if impl.name == "arm_dsp.dense_w8_segments":
        depth, channels = depth + WIDE, pick(rng, 1, 3, 4, 5)
    elif kind == "dense":
        depth *= pick(rng, 1, 4)
    if kind == "dense":
        return replace(layer, data=(pick(rng, 1, 1, 2, 3), depth), weight=(channels, depth))
    if impl.name == "arm_dsp.depthwise_window":
        size = (pick(rng, 1, 2, 3, 5), pick(rng, 1, 1, 3, 6), 4 * channels)
        return replace(layer, data=(1, *size), weight=(1, *size))
    if kind == "dw":
        layer = _depthwise(rng, layer)
        return _in_line(layer, upright=bool(rng.random() < 0.5)) if impl.name == "arm_dsp.depthwise_line" else layer
    if "winograd" in name:
        return _winograd(rng, layer, size=4 if name.endswith("f2") else 6)
    if impl.name in ("arm_dsp.conv2d_smlad", "generic.pointwise") or ".dense" in impl.name:
        pixels = (1, pick(rng, 1, 2)) if "dense" in name else (pick(rng, 1, 2, 5), pick(rng, 1, 2, 3, 5))
        if name.endswith("smlad"):
            depth = int(rng.integers(min(DEPTHS), max(DEPTHS) + 1))
        return replace(layer, data=(1, *pixels, depth), weight=(channels, 1, 1, depth))
    layer = _convolution(rng, replace(layer, data=(pick(rng, 1, 1, 1, 2), 0, 0, depth), weight=(channels, 0, 0, depth)))
    return _in_quads(layer) if impl.name == "arm_dsp.conv2d_pairs" else layer


def _in_quads(layer: Layer) -> Layer:
    """Without padding, on an image with room for two windows, and with whole quads of channels."""
    (count, height, width, depth), (channels, kh, kw, _) = layer.data, layer.weight
    (dy, dx), kh = layer.dilation, kh if kh * kw > 1 else 2
    size = (max(height, (kh - 1) * dy + 1), max(width, (kw - 1) * dx + 1 + layer.strides[1]))
    quads = -(-depth // 4) * 4
    return replace(layer, data=(count, *size, quads), weight=(channels, kh, kw, quads), padding=(0, 0, 0, 0))


def _convolution(rng: np.random.Generator, layer: Layer) -> Layer:
    """Windows of up to three by five, strides, dilation and one-sided padding."""
    kernel, dilation = (pick(rng, 1, 2, 3), pick(rng, 1, 2, 3, 5)), (pick(rng, 1, 1, 2), pick(rng, 1, 1, 2))
    size, pads = _sizes(rng, kernel, dilation)
    data, weight = (layer.data[0], *size, layer.data[3]), (layer.weight[0], *kernel, layer.weight[3])
    strides = (pick(rng, 1, 1, 2, 3), pick(rng, 1, 1, 2, 3))
    return replace(layer, data=data, weight=weight, strides=strides, dilation=dilation, padding=pads)


def _in_line(layer: Layer, *, upright: bool) -> Layer:
    """A window of one row or column that fits the image, stride 1 along it."""
    (count, height, width, depth), (_, kh, kw, channels) = layer.data, layer.weight
    taps, across = kh + kw - 1, layer.strides[1]
    room = max(height, width) + taps
    data, weight = (
        ((count, room, width, depth), (1, taps, 1, channels))
        if upright
        else ((count, height, room, depth), (1, 1, taps, channels))
    )
    strides = (1, across) if upright else (across, 1)
    return replace(layer, data=data, weight=weight, strides=strides, padding=(0, 0, 0, 0), dilation=(1, 1))


def _sizes(
    rng: np.random.Generator, kernel: tuple[int, int], dilation: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
    """Height and width, and pads that make them at least as large as the window."""
    size, before, after = [pick(rng, 1, 2, 5, 6), pick(rng, 1, 2, 5, 7)], [0, 0], [0, 0]
    for axis in (0, 1):
        need = max(0, (kernel[axis] - 1) * dilation[axis] + 1 - size[axis])
        if rng.random() < 0.4:
            size[axis] += need
        else:
            before[axis] = int(rng.integers(0, need + kernel[axis]))
            after[axis] = max(0, need - before[axis]) + pick(rng, 0, 0, 1)
    return (size[0], size[1]), (before[0], before[1], after[0], after[1])


def _depthwise(rng: np.random.Generator, layer: Layer) -> Layer:
    kernel = (3, 3) if rng.random() < 0.4 else (int(rng.integers(1, 8)), int(rng.integers(1, 8)))
    if rng.random() < 0.1:
        kernel = (int(rng.integers(1, 24)), 1)
    dilation = (pick(rng, 1, 2, 3), pick(rng, 1, 2)) if rng.random() < 0.2 else (1, 1)
    size, pads = _sizes(rng, kernel, dilation)
    if rng.random() < 0.1:
        size = (size[0], size[1] + 30)
    channels, multiplier = pick(rng, 1, 2, 3, 5, 7, 17, 33), pick(rng, 1, 1, 1, 2, 3)
    strides = (pick(rng, 1, 1, 2, 3), pick(rng, 1, 1, 2, 3))
    data, weight = (pick(rng, 1, 1, 1, 2), *size, channels), (1, *kernel, channels * multiplier)
    return replace(layer, data=data, weight=weight, strides=strides, dilation=dilation, padding=pads, multiplier=multiplier)


def _winograd(rng: np.random.Generator, layer: Layer, *, size: int) -> Layer:
    """Images of one or two tiles; a tile reads `size` rows, a pair of tiles twice that less two columns."""
    padding = (pick(rng, 0, 1, 1, 2, 3), pick(rng, 0, 1, 1, 2, 3), pick(rng, 0, 1, 1, 2), pick(rng, 0, 1, 1, 3))
    height = max(1, size - padding[0] - padding[2]) + int(rng.integers(0, 5))
    width = max(1, 2 * size - 2 - padding[1] - padding[3]) + int(rng.integers(0, 5))
    depth, channels = int(rng.integers(8, 15)), int(rng.integers(1, 8))
    return replace(layer, data=(1, height, width, depth), weight=(channels, 3, 3, depth), padding=padding)


def awkward_layers(name: str) -> Iterator[Layer]:
    """The matrix of channels 1 3 5 7 17 33, sizes 1 2 5, strides 1 to 3 and dilation 1 2.

    The other choices (window, padding of one side, of both, none; zero points; numbers at the ends of their ranges) go round.
    """
    kind, impl = KERNELS[name]
    for n, (depth, size, stride, dilation) in enumerate(product((1, 3, 5, 7, 17, 33), (1, 2, 5), (1, 2, 3), (1, 2))):
        k = (3, 3, 1, 2)[n % 4]
        reach = (k - 1) * dilation
        pads = [(0, 0, 0, 0), (reach, 0, 0, reach), (reach // 2,) * 2 + (reach - reach // 2,) * 2, (0, reach, reach, 0)][
            n // 2 % 4
        ]
        if size + min(pads[0] + pads[2], pads[1] + pads[3]) <= reach:
            pads = (reach, reach, reach, reach)
        zp, out_zp = ((-128, -128), (127, -128), (-128, 127), (127, 127))[n % 4 if n % 8 < 4 else 3 - n % 4]
        channels = (33, 1, 7, 3, 17, 5)[n % 6]
        if impl.name == "arm_mve.conv2d_one":
            depth = 1
        if impl.name == "arm_dsp.conv2d_few":
            channels = 1 + n % 4 // 3
        if impl.name == "arm_mve.conv2d_direct" and n % 4 < 2:
            depth = 16 * (1 + n % 3)  # rows of whole vectors
        if impl.name == "arm_dsp.dense_w8_segments":
            depth += WIDE
        weight = (1, k, k, depth) if kind == "dw" else (channels, k, k, depth)
        layer = Layer(
            kind, (1, size, size, depth), weight, (stride, stride), pads, (dilation, dilation), zp, out_zp,
            rounding=("double", "single")[n // 3 % 2], per_channel=n % 5 > 0, ends=n % 3 == 0, seed=n,
            spread=(200.0, 2000.0, 20.0)[n % 3], stored=stored_by(name),
        )  # fmt: skip
        if kind == "dense":
            layer = replace(layer, data=(1 if "pairs" in impl.name else size, depth), weight=(channels, depth))
        elif "winograd" in name:
            layer = _for_winograd(layer)
        elif impl.name == "arm_dsp.conv2d_pairs":
            layer = _in_quads(layer)
        elif impl.name == "arm_dsp.depthwise_line":
            layer = _in_line(layer, upright=n % 2 > 0)
        elif impl.name == "arm_dsp.depthwise_window":
            window = (1, k, size, 4 * depth)
            layer = replace(layer, data=window, weight=window, strides=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1))
        elif impl.name in ("arm_dsp.conv2d_smlad", "generic.pointwise") or "dense" in impl.name:
            pixels = (size, size) if "dense" not in impl.name else (1, 1 if "pairs" in impl.name else min(size, 2))
            layer = replace(layer, data=(1, *pixels, depth), weight=(channels, 1, 1, depth), strides=(1, 1), padding=(0, 0, 0, 0))
        yield layer


def _for_winograd(layer: Layer) -> Layer:
    """Windows of 3x3 at stride 1, the size and the channels on top of the least that the kernels take."""
    height, width, depth = (n + v for n, v in zip((5, 9, 7), layer.data[1:], strict=True))
    weight = (layer.weight[0], 3, 3, depth)
    return replace(layer, data=(1, height, width, depth), weight=weight, strides=(1, 1), dilation=(1, 1))
