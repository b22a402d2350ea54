"""The ahead-of-time executor: a schedule becomes kernels, constants and one main function, as TIR and as C files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aot.errors import internal
from aot.executor.artifact import Artifact
from aot.executor.codegen.c_files import Program, interface_files
from aot.executor.codegen.c_names import Names
from aot.executor.codegen.metadata import BuildInfo, make_metadata
from aot.executor.plan.accesses import place_constants
from aot.executor.plan.aliases import with_aliases
from aot.executor.plan.layout import Io, Layout, Place, alignments, make_layout
from aot.executor.schedule import Callee, LayerCall, Schedule, TensorRef, check_schedule
from aot.ir.op import Array
from aot.memory.bounds import liveness_bound
from aot.support.dtype import itemsize, numpy_dtype
from aot.support.names import NameSupply, c_identifier
from aot.target.codegen_c import canonical
from aot.target.source_module import ConstArray, NamedFunc, as_stream
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, Imm, Load, Var
from aot.tir.function import FuncAttrs, PrimFunc
from aot.tir.functor import has_calls
from aot.tir.interpreter import OnCall, run_module
from aot.tir.stmt import CallPrim, For, If, Region, Stmt, Store


@dataclass(frozen=True, slots=True)
class Layer:
    """A call with what was decided for it: the function's C name, its constants by array index, and where its operands are."""

    call: LayerCall
    function: str
    constants: tuple[int, ...]
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    scratch: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Executable:
    """All that the executor knows of a compiled model; `artifact` is what users get, `main` and `functions` the same as TIR."""

    schedule: Schedule
    layout: Layout
    layers: tuple[Layer, ...]
    functions: tuple[NamedFunc, ...]
    arrays: tuple[ConstArray, ...]
    main: PrimFunc
    artifact: Artifact

    def interpret(self, inputs: Sequence[Array], *, on_call: OnCall | None = None) -> list[Array]:
        """Run the main function in the TIR interpreter on one array an input, of its shape and dtype."""
        buffers: dict[str, Array] = {a.name: a.data for a in self.arrays}
        for buffer, array in zip(self.main.inputs, inputs, strict=True):
            buffers[buffer.name] = np.ascontiguousarray(array)
        outputs = [np.empty(b.shape, numpy_dtype(b.dtype)) for b in self.main.outputs]
        buffers |= {b.name: o for b, o in zip(self.main.outputs, outputs, strict=True)}
        run_module(self.main, function_table(self.functions), buffers, on_call=on_call)
        return outputs


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule with the memory plan that was made for it."""

    schedule: Schedule
    layout: Layout

    @property
    def size(self) -> int:
        """Bytes of the workspace."""
        return self.layout.plan.size

    @property
    def estimate(self) -> int:
        """Instructions of one run, as far as the kernels state them."""
        return self.schedule.estimate


def compile_schedule(schedule: Schedule, *, target: Target, io: Io = "arena", info: BuildInfo | None = None) -> Executable:
    """Plan memory and emit the model.

    Raises E9001 for a schedule that contradicts itself and E9005 for a plan that the verifier refuses.
    """
    return emit(plan_schedule(schedule, io), target=target, info=info or BuildInfo())


def emit(planned: Planned, *, target: Target, info: BuildInfo) -> Executable:
    """Merge equal functions and constants, and write the C files and the metadata."""
    schedule, layout = planned.schedule, planned.layout
    functions, names = _merge_functions(schedule, target)
    arrays, constants, tensors = _merge_constants(schedule)
    arrays = place_constants(arrays, schedule, constants, schedule.pooling)
    layers = tuple(
        Layer(
            call,
            names[i],
            constants[i],
            tuple(_place(schedule, layout, t, tensors) for t in call.inputs),
            tuple(_place(schedule, layout, t, tensors) for t in call.outputs),
            layout.scratch[i],
        )
        for i, call in enumerate(schedule.calls)
    )
    layout = replace(layout, copies=tuple((_array_place(p, tensors), k) for p, k in layout.copies))
    main = make_main(schedule, layout=layout, layers=layers, arrays=arrays)
    c_names = Names.of(schedule)
    metadata = make_metadata(schedule, layout=layout, layers=layers, arrays=arrays, names=c_names, target=target, info=info)
    program = Program(schedule, layout, layers, functions, arrays, c_names)
    files = interface_files(program, target=target, metadata=metadata)
    artifact = Artifact(schedule.name, files, metadata)
    return Executable(schedule, layout, layers, functions, arrays, main, artifact)


def plan_schedule(schedule: Schedule, io: Io, *, tight: bool = False) -> Planned:
    """Views for copies, within the memory of whole tensors side by side; with `tight` within that of the plan with the copies.

    A tensor that is made part by part has to be there earlier.
    """
    check_schedule(schedule)
    best, layout = schedule, make_layout(schedule, io)
    limit = layout.plan.size if tight else max(layout.plan.size, liveness_bound(layout.buffers))
    for kind in ({"slices": True, "parts": True}, {"slices": True, "parts": False}, {"slices": False, "parts": True}):
        trial = with_aliases(schedule, **kind)
        if len(trial.calls) >= len(best.calls):
            continue
        check_schedule(trial)
        planned = make_layout(trial, io)
        if planned.plan.size <= limit:
            best, layout = trial, planned
    return Planned(best, layout)


def _place(schedule: Schedule, layout: Layout, tensor: TensorRef, tensors: Sequence[int]) -> Place:
    root, offset = schedule.place_in_root(tensor)
    return replace(_array_place(layout.places[root], tensors), offset=offset)


def _array_place(place: Place, tensors: Sequence[int]) -> Place:
    """A constant tensor's place, with the number of its array for the number of the tensor."""
    return replace(place, index=tensors[place.index]) if place.where == "const" else place


# ---- functions and constants


def _merge_functions(schedule: Schedule, target: Target) -> tuple[tuple[NamedFunc, ...], list[str]]:
    """Each different function once, and the name for each call: `<model>_<kernel>_<first layer>`."""
    supply = NameSupply()
    by_text: dict[tuple[str, str], str] = {}
    by_identity: dict[int, str] = {}
    functions: list[NamedFunc] = []
    users: dict[str, list[int]] = {}
    linked: list[PrimFunc] = []  # held, as functions are told apart by identity

    def enter(func: PrimFunc, i: int) -> str:
        name = by_identity.get(id(func))
        if name is None:
            key = (func.attrs.opt, canonical(func, target))
            name = by_text.get(key)
            if name is None:
                name = by_text[key] = supply.fresh(f"{schedule.name}_{kernel_word(func)}_{i}")
                functions.append(NamedFunc(name, func))
            by_identity[id(func)] = name
        users.setdefault(name, []).append(i)
        return name

    names = []
    for i, call in enumerate(schedule.calls):
        func = call.emitted
        if call.callees:
            table: dict[str, tuple[str, Callee]] = {}
            for key, callee in call.callees.items():  # those that are called come before their callers
                inner = callee.emitted
                if has_calls(inner):
                    inner = link(inner, table)
                    linked.append(inner)
                table[key] = enter(inner, i), callee
            func = link(func, table)
            linked.append(func)
        names.append(enter(func, i))
    return tuple(replace(f, note=_users(users[f.name])) for f in functions), names


def link(func: PrimFunc, table: Mapping[str, tuple[str, Callee]]) -> PrimFunc:
    """`func` with its calls by the callees' C names, each with the scalars that the callee wants."""

    def stmt(s: Stmt) -> Stmt:
        match s:
            case CallPrim(func=key, operands=operands):
                name, callee = table[key]
                added = callee.emitted.scalars[len(callee.func.scalars) :]  # its own are operands already
                scalars = zip(callee.scalars, added, strict=True)
                return replace(s, func=name, operands=(*operands, *(Imm(v, var.dtype) for v, var in scalars)))
            case For(body=body):
                return replace(s, body=tuple(map(stmt, body)))
            case If(then=then, orelse=orelse):
                return replace(s, then=tuple(map(stmt, then)), orelse=tuple(map(stmt, orelse)))
            case _:
                return s

    return func.with_body(tuple(map(stmt, func.body)))


def _users(calls: Sequence[int]) -> str:
    """Which layers call a function, where there are several."""
    layers = [str(i) for i in sorted(set(calls))]
    return f"shared by layers {', '.join(layers)}; the facts above are the first's" if len(layers) > 1 else ""


def kernel_word(func: PrimFunc) -> str:
    """`generic.conv2d(pixels=1)` -> `conv2d`."""
    word = func.attrs.kernel.partition("(")[0].rpartition(".")[2] or func.name
    return c_identifier(word)


def _merge_constants(schedule: Schedule) -> tuple[tuple[ConstArray, ...], list[tuple[int, ...]], list[int]]:
    """Each different constant once; the array numbers of each call's consts, and those of the constant tensors."""
    supply = NameSupply()
    arrays: list[ConstArray] = []
    known: dict[tuple[str, bytes], int] = {}

    def enter(name: str, data: Array, dtype: str, *, align: int, note: str) -> int:
        stream = as_stream(data, dtype)
        key = (dtype, stream.tobytes())
        index = known.setdefault(key, len(arrays))
        if index == len(arrays):
            arrays.append(ConstArray(supply.fresh(f"{schedule.name}_{c_identifier(name)}"), dtype, stream, align, note))
        elif align > arrays[index].align:
            arrays[index] = replace(arrays[index], align=align)
        return index

    calls = []
    for i, call in enumerate(schedule.calls):
        calls.append(
            tuple(
                enter(
                    f"{b.name}_{i}",
                    call.constants[b.name],
                    b.dtype,
                    align=max(b.align, itemsize(b.dtype)),
                    note=f"layer {i} {call.span}",
                )
                for b in call.func.consts
            )
        )
    aligns = alignments(schedule)
    tensors = [
        enter(f"tensor_{k}", data, t.type.dtype, align=aligns[t], note=f"tensor {t.name}")
        for k, (t, data) in enumerate(schedule.constants.items())
    ]
    return tuple(arrays), calls, tensors


# ---- main function


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


def function_table(functions: Sequence[NamedFunc]) -> Mapping[str, PrimFunc]:
    """Kernels by their C names, as `run_module` wants them."""
    return {f.name: f.func for f in functions}
