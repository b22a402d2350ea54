"""AOTLowerMain: the main function as TIR, calls of kernels over one workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aot.errors import internal
from aot.executor.codegen.layer import Layer
from aot.executor.lowered import LoweredModule, structured
from aot.executor.plan.state_plan import STATE_ALIGN
from aot.executor.plan.storage_info import StorageInfo
from aot.executor.plan.storage_map import StorageMap
from aot.memory.rings import COUNTER
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize, stored
from aot.target.source_module import Param
from aot.tir.buffer import Buffer
from aot.tir.builtin import COPY, MOVE
from aot.tir.expr import Expr, Imm, Load, Var, binop
from aot.tir.function import FuncAttrs, PrimFunc
from aot.tir.functor import walk
from aot.tir.stmt import CallPrim, If, Let, Region, Stmt, Store

TURN = Var("turn", COUNTER)
"""How often the windows of the state have moved on since they were at their start."""


@dataclass(frozen=True, slots=True)
class MainBuffers:
    """The buffers of the main function; `row` is one row of a fed input."""

    workspace: Buffer
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    arrays: tuple[Buffer, ...]
    state: Buffer | None = None
    row: Buffer | None = None


@dataclass(frozen=True, slots=True)
class Feeding:
    """The main function in two halves, for an input that comes row by row.

    `take` does what one row makes possible; its scalar is the row's number, from `first` to `last`, where rows outside of 0 to
    `rows` are not read.  `end` is what is left then: the layers after the first, and the results.
    """

    take: PrimFunc
    end: PrimFunc
    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class Main:
    """A model as calls of kernels: `run` in one function, and the halves where the input is fed."""

    buffers: MainBuffers
    run: PrimFunc
    feeding: Feeding | None = None


def main_functions(
    lowered: LoweredModule,
    *,
    layout: StorageMap,
    layers: Sequence[Layer],
    arrays: Sequence[Param],
    functions: Mapping[str, PrimFunc],
) -> Main:
    """The main function as TIR: copies of the inputs into the workspace, a CallPrim for each layer, copies of the results out.

    `functions`: the kernels by their C names.
    """
    buffers = MainBuffers(
        Buffer("workspace", (layout.plan.size,), "uint8", "arena", 16),
        tuple(Buffer(f"input_{i}", *stored(t.type.shape, t.type.dtype)) for i, t in enumerate(lowered.inputs)),
        tuple(Buffer(f"output_{i}", *stored(t.type.shape, t.type.dtype)) for i, t in enumerate(lowered.outputs)),
        tuple(Buffer(a.name, (a.data.size,), a.dtype, "const", a.align) for a in arrays),
        Buffer("state", (layout.state_size,), "uint8", "state", STATE_ALIGN) if lowered.states else None,
    )
    state = () if buffers.state is None else (buffers.state,)
    body: list[Stmt] = _turn(buffers, layout)
    if layout.io == "arena":
        for i, tensor in enumerate(lowered.inputs):
            body += _copy(buffers, layout, StorageInfo("input", index=i), layout.places[tensor], size=tensor.type.nbytes)
    calls = [_call(buffers, layout, layer, i, functions[layer.function]) for i, layer in enumerate(layers)]
    body += structured(lowered, calls, _conditions(buffers, layout))
    for place, k in layout.copies:
        body += _copy(buffers, layout, place, layout.output_slots[k], size=lowered.outputs[k].type.nbytes, name=MOVE)
    if layout.io == "arena":
        for k, slot in enumerate(layout.output_slots):
            body += _copy(buffers, layout, slot, StorageInfo("output", index=k), size=lowered.outputs[k].type.nbytes)
    for back in layout.write_backs:
        body += _copy(buffers, layout, back.source, back.target, size=back.size, name=MOVE)
    body += _moved_on(buffers, layout)
    run = PrimFunc(
        f"{lowered.name}_run", buffers.inputs, buffers.outputs, tuple(body), buffers.arrays, (buffers.workspace,), (),
        FuncAttrs("main", macs=sum(layer.func.attrs.macs for layer in layers)), state,
    )  # fmt: skip
    return _with_feeding(Main(buffers, run), layers, functions)


def _with_feeding(main: Main, layers: Sequence[Layer], functions: Mapping[str, PrimFunc]) -> Main:
    """`main` with its halves, where the first layer is a cascade that is fed."""
    feed = layers[0].call.feed if layers else None
    if feed is None:
        return main
    (name,) = {s.func for s in walk(functions[layers[0].function].body) if isinstance(s, CallPrim)}
    whole = main.run.body[0]
    assert isinstance(whole, CallPrim)
    type_ = layers[0].call.inputs[0].type
    row = Buffer("row", (type_.size // type_.shape[1],), type_.dtype, align=functions[name].inputs[0].align)
    number = Var("next_row")
    operands: tuple[Region | Expr, ...] = (
        Region(row, Imm(0), row.dtype),
        *(o for o in whole.operands[1:] if isinstance(o, Region)),
        number,
    )
    take = PrimFunc(
        "take", (row,), (), (CallPrim(name, operands),), main.buffers.arrays, (main.buffers.workspace,), (number,),
        state=main.run.state,
    )  # fmt: skip
    end = replace(main.run, name="end", inputs=(), body=main.run.body[1:])
    return Main(replace(main.buffers, row=row), main.run, Feeding(take, end, feed[1], feed[2], type_.shape[1]))


def _turn(buffers: MainBuffers, layout: StorageMap) -> list[Stmt]:
    """How often the windows of the state have moved on."""
    if layout.rings is None:
        return []
    assert buffers.state is not None
    return [Let(TURN, Load(buffers.state, (Imm(layout.rings.counter // itemsize(COUNTER)),), COUNTER))]


def _moved_on(buffers: MainBuffers, layout: StorageMap) -> list[Stmt]:
    """The windows of the state move on, or are moved back to where they began."""
    rings, state = layout.rings, buffers.state
    if rings is None:
        return []
    assert state is not None
    at = (Imm(rings.counter // itemsize(COUNTER)),)
    back: list[Stmt] = []
    for w in rings.windows:
        source, target = StorageInfo("state", offset=w.start + rings.turns * w.hop), StorageInfo("state", offset=w.start)
        back += _copy(buffers, layout, source, target, size=w.kept, name=MOVE)
    on = Store(state, at, binop("+", TURN, Imm(1, COUNTER)), COUNTER)
    cond = binop("<", TURN, Imm(rings.turns - 1, COUNTER))
    return [If(cond, (on,), (*back, Store(state, at, Imm(0, COUNTER), COUNTER)))]


def _region(buffers: MainBuffers, layout: StorageMap, place: StorageInfo, dtype: str) -> Region:
    """The memory of a place, as elements of `dtype`."""
    offset = layout.offset(place) if place.where == "workspace" else place.offset
    match place.where:
        case "workspace":
            base = buffers.workspace
        case "input":
            base = buffers.inputs[place.index]
        case "output":
            base = buffers.outputs[place.index]
        case "state":
            assert buffers.state is not None
            base = buffers.state
        case "const":
            base = buffers.arrays[place.index]
    size = itemsize(dtype)
    if offset % size or place.hop % size:
        raise internal(f"offset {offset} is not aligned for {dtype}", where=base.name)
    index: Expr = Imm(offset // size)
    if place.hop:
        index = binop("+", index, TURN if place.hop == size else binop("*", TURN, Imm(place.hop // size)))
    return Region(base, index, dtype)


def _copy(
    buffers: MainBuffers, layout: StorageMap, source: StorageInfo, target: StorageInfo, *, size: int, name: str = COPY
) -> list[Stmt]:  # fmt: skip
    """A call that copies `size` bytes; none where they are there already."""
    if source == target:
        return []
    regions = [_region(buffers, layout, place, "uint8") for place in (source, target)]
    return [CallPrim(name, (*regions, Imm(size, "uint32")))]


def _conditions(buffers: MainBuffers, layout: StorageMap) -> list[Expr]:
    """What decides each branch and loop: the bool at its place."""
    found: list[Expr] = []
    for place in layout.conditions:
        region = _region(buffers, layout, place, "bool")
        found.append(Load(region.buffer, (region.index,), "bool"))
    return found


def _call(buffers: MainBuffers, layout: StorageMap, layer: Layer, index: int, called: PrimFunc) -> CallPrim:
    func = layer.func
    places = [*layer.inputs, *layer.outputs]
    places += [StorageInfo("const", index=k) for k in layer.constants]
    places += [StorageInfo("workspace", key) for key in layer.scratch]
    operands: list[Region | Expr] = []
    operands += [_region(buffers, layout, place, buffer.dtype) for buffer, place in zip(func.buffers, places, strict=True)]
    operands += [Imm(v, var.dtype) for v, var in zip(layer.call.scalars, called.scalars, strict=True)]
    return CallPrim(layer.function, tuple(operands), index)
