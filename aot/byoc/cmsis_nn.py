"""CMSIS-NN as an external code generator: its int8 functions, with context buffers placed by our planner.

A kernel is one block that calls the library; its meaning is the fused function's loop nest by te rules, which the interpreter
runs and every analysis sees, except that the library's internal buffers are unknown.  The library itself
(arm_nnfunctions.h and its sources) is the user's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from aot.byoc.cmsis_nn_patterns import COMPILER, split
from aot.ir.op import Array
from aot.relay.expr import Call, Constant, Function, call, const, tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.function import FuncAttrs, PrimFunc
from aot.tir.intrin import EXTERNAL, BlockText, COperand, TensorIntrin
from aot.topi.generic import softmax, te_group
from aot.topi.strategy import Group, Lowered, register_external_codegen

HEADER = "arm_nnfunctions.h"
CHANNELS_MVE = 124
"""CH_IN_BLOCK_MVE: channels per step of the library's depthwise convolution for MVE."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the library.

    `func` has the same meaning; `tables` are constants that only the call reads, `context` the bytes of its buffer, `text` gives
    the statements from the C names of the operands: `in0`, `in1`, `out`, `c0`, `c1` … (constants in the order of the meaning's),
    the tables' own names, `ctx`."""

    func: Function
    text: Callable[[Mapping[str, str]], str]
    tables: Mapping[str, Array]
    context: int = 0
    meaning: Callable[[Group, str], PrimFunc] | None = None
    """Used instead of the te rules of `func`."""


def lower(group: Group, target: Target, name: str) -> Lowered:
    """The kernel of one composite function."""
    root = group.result
    assert isinstance(root, Call)
    library_call = _MAKERS[str(root.op)](group, root, target)
    if library_call.meaning is None:
        meaning = te_group.lower(Group(library_call.func, group.anchor, group.followers), target, f"{name}_meaning")
    else:
        meaning = Lowered(library_call.meaning(group, f"{name}_meaning"), {})
    desc = meaning.func
    b = IRBuilder(name)
    inputs = [b.input(x.name, (x.size,), x.dtype) for x in desc.inputs]
    (out,) = (b.output(x.name, (x.size,), x.dtype) for x in desc.outputs)
    constants = {b.const(x.name, (x.size,), x.dtype): meaning.constants[x.name] for x in desc.consts}
    tables = {b.const(key, (data.size,), str(data.dtype)): data for key, data in library_call.tables.items()}
    scratch = [b.scratch("ctx", (library_call.context,), "int8", align=8)] if library_call.context else []
    operands = [*inputs, out, *constants, *tables, *scratch]
    names = [*(f"in{i}" for i in range(len(inputs))), "out", *(f"c{i}" for i in range(len(constants))), *library_call.tables]
    names += ["ctx"] if scratch else []
    extra = tuple(Buffer(x.name, x.shape, x.dtype, "const", 4) for x in tables)
    desc = replace(
        desc, consts=(*desc.consts, *extra), scratch=tuple(Buffer("ctx", x.shape, x.dtype, "arena", 8) for x in scratch)
    )
    b.block(_intrin(desc, names, library_call.text), *operands)
    attrs = FuncAttrs(str(group.func.attrs["Composite"]), group.anchor.span, desc.attrs.macs, distances={})
    data = {x.name: d.reshape(-1) for x, d in {**constants, **tables}.items()}
    return Lowered(b.finish(attrs), data, instructions=2 * desc.attrs.macs + prod(desc.outputs[0].shape), code=64)


def _intrin(desc: PrimFunc, names: Sequence[str], text: Callable[[Mapping[str, str]], str]) -> TensorIntrin:
    digest = hashlib.sha256(text({n: n for n in names}).encode()).hexdigest()[:12]  # the name tells different calls apart

    def emit(operands: Mapping[str, COperand]) -> BlockText:
        pointers = {n: operands[p.name].pointer for n, p in zip(names, desc.params, strict=True)}
        return BlockText(text(pointers))

    return TensorIntrin(f"{COMPILER}.{digest}", desc, emit, requires=EXTERNAL, header=HEADER)


def _layer(group: Group, root: Call, target: Target) -> _Call:
    layer, bias, requantize = split(root)
    weight = layer.args[1]
    assert isinstance(weight, Constant)
    axes = (0, 1, 2) if str(layer.op) == "nn.depthwise_conv2d" else tuple(range(1, weight.data.ndim))
    channels = tensor_type(root).shape[-1]
    start = np.zeros(channels, np.int64) if bias is None else bias.data.reshape(-1).astype(np.int64)
    attrs = layer.attrs
    if str(layer.op) != "nn.dense" and attrs.input_zp == 0 and any(attrs.padding):
        # the library pads with the data's zero point: the padding value becomes the zero point, and the bias compensates
        attrs = replace(attrs, input_zp=attrs.pad_value)
        start = start + attrs.pad_value * weight.data.astype(np.int64).sum(axis=axes)
    new = call(str(layer.op), [layer.args[0], weight], attrs)
    summed = call("nn.bias_add", [new, const(start.astype(np.int32))])
    func = Function(group.func.params, call("qnn.requantize", [summed], requantize.attrs), group.func.attrs)
    if str(layer.op) == "nn.dense":
        return _Call(func, lambda p: _dense_text(new, root, p), {})
    count = 1 if requantize.attrs.per_channel else channels
    tables = {
        "multipliers": np.asarray(requantize.attrs.multiplier * count, np.int32),
        "shifts": np.asarray(requantize.attrs.shift * count, np.int32),
    }
    tables = {} if requantize.attrs.per_channel else tables  # otherwise they are the meaning's: c2, c3
    return _Call(func, lambda p: _conv_text(new, root, p, target), tables, _context(new, target))


def _context(layer: Call, target: Target) -> int:
    """Bytes of the context buffer: an upper bound of the library's `…_get_buffer_size` for the core."""
    height, width = tensor_type(layer.args[1]).shape[1:3]
    channels, outputs = tensor_type(layer.args[0]).shape[3], tensor_type(layer).shape[3]
    columns = height * width * channels
    attrs = layer.attrs
    if str(layer.op) == "nn.depthwise_conv2d":
        if target.has("mve"):
            converted = 64 * (-(-columns // 16)) + height * width * outputs if channels == 1 else 0
            return max(4 * CHANNELS_MVE * height * width, converted)
        if channels != outputs or attrs.dilation != (1, 1) or tensor_type(layer.args[0]).shape[0] != 1:
            return 0
        return 0 if (height, width) == (3, 3) and max(attrs.padding[:2]) <= 1 else 2 * columns
    if (height, width) == (1, 1) and not any(attrs.padding) and attrs.dilation == (1, 1):
        return 0
    return 64 * (-(-columns // 16)) if target.has("mve") else 4 * (-(-columns // 4) * 4)


def _statements(
    function: str, context: int, params: str, p: Mapping[str, str], dims: Mapping[str, tuple[Sequence[int], str]], quant: str = ""
) -> str:
    """A call of the library: `params` and `quant` declare what they say, `dims` gives the shape and operand of each tensor."""
    declared = [f"const cmsis_nn_context context = {{{p.get('ctx', '0')}, {context}}};", params, *([quant] if quant else [])]
    declared += [f"const cmsis_nn_dims {name}_dims = {{{', '.join(map(str, shape))}}};" for name, (shape, _) in dims.items()]
    operands = ["&context", "&params", *(["&quant"] if quant else [])]
    for name, (_, operand) in dims.items():
        operands += [f"&{name}_dims", *([p[operand]] if operand else [])]
    return "\n".join(["{", *declared, f"(void){function}({', '.join(operands)});", "}"])


def _conv_text(layer: Call, root: Call, p: Mapping[str, str], target: Target) -> str:
    a, q = layer.attrs, root.attrs
    depthwise = str(layer.op) == "nn.depthwise_conv2d"
    data, weight, out = (tensor_type(e).shape for e in (*layer.args, root))
    kind, function = ("dw_conv", "arm_depthwise_conv_wrapper_s8") if depthwise else ("conv", "arm_convolve_wrapper_s8")
    multiplier, shift = (p["c2"], p["c3"]) if q.per_channel else (p["multipliers"], p["shifts"])
    more = f"{a.multiplier}, " if depthwise else ""
    tiles = ", ".join(f"{{{w}, {h}}}" for h, w in (a.strides, a.padding[:2], a.dilation))
    params = f"const cmsis_nn_{kind}_params params = {{{-a.input_zp}, {q.zero_point}, {more}{tiles}, {{{q.lo}, {q.hi}}}}};"
    numbers = f"{{(int32_t *)(uintptr_t){multiplier}, (int32_t *)(uintptr_t){shift}}}"
    quant = f"const cmsis_nn_per_channel_quant_params quant = {numbers};"
    dims = {"data": (data, "in0"), "weight": (weight, "c0"), "bias": ((1, 1, 1, out[3]), "c1"), "out": (out, "out")}
    return _statements(function, _context(layer, target), params, p, dims, quant)


def _dense_text(layer: Call, root: Call, p: Mapping[str, str]) -> str:
    q, (rows, depth), channels = root.attrs, tensor_type(layer.args[0]).shape, tensor_type(root).shape[1]
    params = f"const cmsis_nn_fc_params params = {{{-layer.attrs.input_zp}, 0, {q.zero_point}, {{{q.lo}, {q.hi}}}}};"
    quant = f"const cmsis_nn_per_tensor_quant_params quant = {{{q.multiplier[0]}, {q.shift[0]}}};"
    data, weight, bias, out = (rows, 1, 1, depth), (depth, 1, 1, channels), (1, 1, 1, channels), (rows, 1, 1, channels)
    dims = {"data": (data, "in0"), "weight": (weight, "c0"), "bias": (bias, "c1"), "out": (out, "out")}
    return _statements("arm_fully_connected_s8", 0, params, p, dims, quant)


def _pool(group: Group, root: Call, target: Target) -> _Call:
    a, shape = root.attrs, tensor_type(root.args[0]).shape
    average = str(root.op) == "nn.avg_pool2d"
    context = 4 * shape[3] if average and target.has("dsp") and not target.has("mve") else 0
    tiles = ", ".join(f"{{{w}, {h}}}" for h, w in (a.strides, a.padding[:2]))
    params = f"const cmsis_nn_pool_params params = {{{tiles}, {{{a.lo}, {a.hi}}}}};"
    dims = {"data": (shape, "in0"), "window": ((1, *a.pool_size, 1), ""), "out": (tensor_type(root).shape, "out")}
    function = "arm_avgpool_s8" if average else "arm_max_pool_s8"
    return _Call(group.func, lambda p: _statements(function, context, params, p, dims), {}, context)


def _add(group: Group, root: Call, _target: Target) -> _Call:
    a, size = root.attrs, tensor_type(root).size

    def text(p: Mapping[str, str]) -> str:
        sides = ", ".join(f"{-a.input_zp[i]}, {a.multiplier[i]}, {a.shift[i]}" for i in range(2))
        result = f"{a.zero_point}, {a.output_multiplier}, {a.output_shift}, {a.lo}, {a.hi}, {size}"
        return f"(void)arm_elementwise_add_s8({p['in0']}, {p['in1']}, {sides}, {a.left_shift}, {p['out']}, {result});"

    return _Call(group.func, text, {})


def _softmax(group: Group, root: Call, _target: Target) -> _Call:
    a, type_ = root.attrs, tensor_type(root)
    depth = type_.shape[-1]
    function = "arm_softmax_s8" if type_.dtype == "int8" else "arm_softmax_s8_s16"
    numbers = f"{type_.size // depth}, {depth}, {a.multiplier}, {a.left_shift}, {a.diff_min}"
    return _Call(group.func, lambda p: f"{function}({p['in0']}, {numbers}, {p['out']});", {}, meaning=softmax.without_table)


_MAKERS: dict[str, Callable[[Group, Call, Target], _Call]] = {
    "qnn.requantize": _layer,
    "nn.avg_pool2d": _pool,
    "nn.max_pool2d": _pool,
    "qnn.add": _add,
    "qnn.softmax": _softmax,
}

register_external_codegen(COMPILER, lower)
