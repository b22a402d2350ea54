"""AOTLowerMain: the main function as TIR, calls of kernels over one workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aot.errors import internal
from aot.executor.codegen.layer import Layer
from aot.executor.plan.layout import Layout, Place
from aot.executor.schedule import Schedule
from aot.support.dtype import itemsize
from aot.target.source_module import ConstArray
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, Imm, Load, Var
from aot.tir.function import FuncAttrs, PrimFunc
from aot.tir.stmt import CallPrim, For, Region, Stmt, Store


@dataclass(frozen=True, slots=True)
class _MainBuffers:
    """The buffers of the main function."""

    workspace: Buffer
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    arrays: tuple[Buffer, ...]


def make_main(schedule: Schedule, *, layout: Layout, layers: Sequence[Layer], arrays: Sequence[ConstArray]) -> PrimFunc:
    """The main function as TIR: copies of the inputs into the workspace, a CallPrim for each layer, copies of the results out."""
    buffers = _MainBuffers(
        Buffer("workspace", (layout.plan.size,), "uint8", "arena", 16),
        tuple(Buffer(f"input_{i}", t.type.shape, t.type.dtype) for i, t in enumerate(schedule.inputs)),
        tuple(Buffer(f"output_{i}", t.type.shape, t.type.dtype) for i, t in enumerate(schedule.outputs)),
        tuple(Buffer(a.name, (a.data.size,), a.dtype, "const", a.align) for a in arrays),
    )
    body: list[Stmt] = []
    if layout.io == "arena":
        for i, tensor in enumerate(schedule.inputs):
            body += _copy(buffers, layout, Place("input", index=i), layout.places[tensor], size=tensor.type.nbytes)
    body += [_call(buffers, layout, layer, i) for i, layer in enumerate(layers)]
    for place, k in layout.copies:
        body += _copy(buffers, layout, place, layout.output_slots[k], size=schedule.outputs[k].type.nbytes)
    if layout.io == "arena":
        for k, slot in enumerate(layout.output_slots):
            body += _copy(buffers, layout, slot, Place("output", index=k), size=schedule.outputs[k].type.nbytes)
    return PrimFunc(
        f"{schedule.name}_run", buffers.inputs, buffers.outputs, tuple(body), buffers.arrays, (buffers.workspace,), (),
        FuncAttrs("main", macs=sum(layer.call.func.attrs.macs for layer in layers)),
    )  # fmt: skip


def _base(buffers: _MainBuffers, layout: Layout, place: Place) -> tuple[Buffer, int]:
    """Buffer and byte offset of a place."""
    match place.where:
        case "workspace":
            return buffers.workspace, layout.offset(place)
        case "input":
            return buffers.inputs[place.index], place.offset
        case "output":
            return buffers.outputs[place.index], place.offset
        case "const":
            return buffers.arrays[place.index], place.offset


def _copy(buffers: _MainBuffers, layout: Layout, source: Place, target: Place, *, size: int) -> list[Stmt]:
    if source == target or size == 0:
        return []
    (a, from_offset), (b, to_offset) = _base(buffers, layout, source), _base(buffers, layout, target)
    i = Var("i")
    value = Load(a, (i + from_offset,), "uint8")
    return [For(i, Imm(0), Imm(size), (Store(b, (i + to_offset,), value, "uint8"),))]


def _call(buffers: _MainBuffers, layout: Layout, layer: Layer, index: int) -> CallPrim:
    func = layer.call.func
    places = [*layer.inputs, *layer.outputs]
    places += [Place("const", index=k) for k in layer.constants]
    places += [Place("workspace", key) for key in layer.scratch]
    operands: list[Region | Expr] = []
    for buffer, place in zip(func.buffers, places, strict=True):
        base, offset = _base(buffers, layout, place)
        if offset % itemsize(buffer.dtype):
            raise internal(f"offset {offset} does not suit {buffer.dtype}", where=func.name)
        operands.append(Region(base, Imm(offset // itemsize(buffer.dtype)), buffer.dtype))
    operands += [Imm(v, var.dtype) for v, var in zip(layer.call.scalars, layer.call.emitted.scalars, strict=True)]
    return CallPrim(layer.function, tuple(operands), index)
