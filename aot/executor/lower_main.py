"""AOTLowerMain: the main function in TIR, which calls kernels on one workspace; equal functions and constants are merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import prod

import numpy as np

from aot.errors import internal
from aot.executor.lowered import KernelCall, LoweredModule, TensorRef, structured
from aot.executor.storage_map import STATE_ALIGN, Planned, StorageInfo, StorageMap, alignments, place_constants
from aot.ir.module import IRModule
from aot.ir.op import Array
from aot.ir.transform import PassContext, module_pass
from aot.memory.circular_state import COUNTER
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize, stored
from aot.support.names import SIGNIFICANT, NameSupply, c_identifier, shortened
from aot.support.text import printable
from aot.target.codegen_c import canonical
from aot.target.source_module import NamedFunc, Param, as_stream
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.expr import Expr, Imm, Load, Var, binop
from aot.tir.function import FuncAttrs, PrimFunc
from aot.tir.functor import Callees, Cloner, has_calls, walk, with_callees
from aot.tir.intrin import COPY, MOVE
from aot.tir.stmt import CallPrim, If, Let, Region, Stmt, Store
from aot.topi.prose import comment_of


@dataclass(frozen=True, slots=True)
class Layer:
    """A call with everything decided for it: the function's C name, array numbers of its constants, places of its operands.

    `func` is the layer's own function. It says what the layer is, even if a shared function is called instead.
    """

    call: KernelCall
    func: PrimFunc
    function: str
    constants: tuple[int, ...]
    inputs: tuple[StorageInfo, ...]
    outputs: tuple[StorageInfo, ...]
    scratch: tuple[str, ...]


# ---- functions: each distinct function once, called by its C name


def named_functions(lowered: LoweredModule, target: Target) -> tuple[tuple[NamedFunc, ...], list[str]]:
    """Each distinct function once, and for each call the name of its function: `<model>_<kernel>_<first layer>`."""
    supply = NameSupply()
    by_text: dict[tuple[str, str], str] = {}
    by_identity: dict[int, str] = {}
    functions: list[NamedFunc] = []
    users: dict[str, list[int]] = {}
    same: dict[str, list[PrimFunc]] = {}
    linked: list[PrimFunc] = []  # kept alive: functions are identified by id()

    def enter(func: PrimFunc, i: int) -> str:
        name = by_identity.get(id(func))
        if name is None:
            key = (func.attrs.opt, canonical(func, target))
            name = by_text.get(key)
            if name is None:
                name = by_text[key] = supply.first(_c_names(lowered.name, kernel_word(func), i))
                functions.append(NamedFunc(name, func))
            by_identity[id(func)] = name
            same.setdefault(name, []).append(func)
        users.setdefault(name, []).append(i)
        return name

    names = []
    c_names: Callees = {}
    for i, call in enumerate(lowered.calls):
        for name in (*call.callees, call.emitted):
            func = lowered.prim_func(name)
            if has_calls(func):
                func = with_callees(func, c_names)
                linked.append(func)
            c_names[name] = enter(func, i), ()
        names.append(c_names[call.emitted][0])
    kernels = ((f.name, without_extents(same[f.name])) for f in functions)
    return tuple(NamedFunc(name, kernel, _note_of(kernel, users[name])) for name, kernel in kernels), names


def _c_names(model: str, word: str, layer: int) -> Iterator[str]:
    """`<model>_<word>_<layer>`, then the same with a number appended; the word is shortened to make the name fit, if possible."""
    for n in count():
        end = f"_{layer}_{n}" if n else f"_{layer}"
        yield f"{model}_{shortened(word, SIGNIFICANT - len(model) - 1 - len(end))}{end}"


def without_extents(funcs: Sequence[PrimFunc]) -> PrimFunc:
    """The first of several functions with the same C text; buffers whose sizes differ between them lose their sizes.

    The same code may slice 3 numbers from 9 or from 12. With the first function's 12, the bounds would exceed the memory of the
    second. The same holds for the constants and scratch memory of a kernel that reads its geometry from its constants.
    """
    first = funcs[0]
    open_ = {
        b: replace(b, shape=(UNKNOWN_EXTENT,))
        for i, b in enumerate(first.buffers)
        if b.scope in ("param", "const", "arena") and len({f.buffers[i].nbytes for f in funcs}) > 1
    }
    if not open_:
        return first
    parts = (first.inputs, first.outputs, first.consts, first.scratch)
    inputs, outputs, consts, scratch = (tuple(open_.get(b, b) for b in part) for part in parts)
    return replace(
        first, inputs=inputs, outputs=outputs, consts=consts, scratch=scratch, body=Cloner(buffers=open_).body(first.body)
    )


def _note_of(kernel: PrimFunc, calls: Sequence[int]) -> str:
    """Lines for the comment above a function: the kernel's idea, and the layers that call it if there are several."""
    layers = [str(i) for i in sorted(set(calls))]
    shared = f"shared by layers {', '.join(layers)}; the facts above are the first's" if len(layers) > 1 else ""
    return "\n".join(filter(None, (comment_of(kernel.attrs.kernel), shared)))


def kernel_word(func: PrimFunc) -> str:
    """`generic.conv2d(pixels=1)` -> `conv2d`."""
    word = func.attrs.kernel.partition("(")[0].rpartition(".")[2] or func.name
    return c_identifier(word)


# ---- constants: each distinct constant once


def merge_constants(lowered: LoweredModule) -> tuple[tuple[Param, ...], list[tuple[int, ...]], list[int]]:
    """Each distinct constant once; the array numbers of each call's constants; the array numbers of the constant tensors."""
    supply = NameSupply()
    arrays: list[Param] = []
    known: dict[tuple[str, bytes], int] = {}

    def enter(name: str, data: Array, dtype: str, *, align: int, note: str) -> int:
        stream = as_stream(data, dtype)
        key = (dtype, stream.tobytes())
        index = known.setdefault(key, len(arrays))
        if index == len(arrays):
            arrays.append(Param(supply.fresh(f"{lowered.name}_{c_identifier(name)}"), dtype, stream, align, note))
        elif align > arrays[index].align:
            arrays[index] = replace(arrays[index], align=align)
        return index

    calls = []
    for i, call in enumerate(lowered.calls):
        data = lowered.constants.get(call.func, {})
        note = _note(i, call)
        calls.append(
            tuple(
                enter(f"{b.name}_{i}", data[b.name], b.dtype, align=max(b.align, itemsize(b.dtype)), note=note)
                for b in lowered.kernel(call).consts
            )
        )
    aligns = alignments(lowered)
    tensors = [
        enter(f"tensor_{k}", value, t.type.dtype, align=aligns[t], note=f"tensor {t.name}")
        for k, (t, value) in enumerate(lowered.values.items())
    ]
    return tuple(arrays), calls, tensors


def _note(index: int, call: KernelCall) -> str:
    """The layer that uses these constants: `layer 3 op 5 CONV_2D "name"`, `layer 3 ops 5, 6 CONV_2D + ADD "name"`."""
    ops = ", ".join(map(str, call.operators))
    where = f'op{"s" * (len(call.operators) > 1)} {ops} {call.does} "{printable(call.span.name)}"' if ops else str(call.span)
    return f"layer {index} {where}"


# ---- initial values of the state: runs of one byte are filled; the rest is copied from flash, where equal rows are stored once


@dataclass(frozen=True, slots=True)
class InitStep:
    """`times * size` bytes of the state from `offset` on: filled with `fill`, or `times` copies of the constant `array`."""

    offset: int
    size: int
    fill: int = 0
    array: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class StateInit:
    """The steps of a reset, the constants that they copy, and the resulting bytes."""

    steps: tuple[InitStep, ...]
    arrays: tuple[Param, ...]
    image: Array

    @property
    def is_zero(self) -> bool:
        """Whether the initial state is all zeros, so memory cleared by the start-up code needs no reset."""
        return not self.image.any()


def state_init(lowered: Planned) -> StateInit:
    """How the array of persistent tensors gets its initial values; a gap between tensors belongs to the fill before it."""
    layout = lowered.layout
    image = np.zeros(layout.state_size, np.uint8)
    steps: list[InitStep] = []
    arrays: list[Param] = []
    order = sorted((offset, k) for k, offset in enumerate(layout.states))
    if layout.rings is not None:
        order = sorted([*order, (layout.rings.counter, -1)])
    for offset, k in order:
        if k < 0:
            steps = _filled(steps, InitStep(offset, itemsize(COUNTER)))
            continue
        data = np.ascontiguousarray(lowered.states[k].initial).reshape(-1)
        raw = data.view(np.uint8)
        image[offset : offset + raw.size] = raw
        if not raw.size:
            continue
        if (raw == raw[0]).all():
            steps = _filled(steps, InitStep(offset, raw.size, int(raw[0])))
            continue
        times = raw.size // period(lowered.states[k].initial)
        name = f"{lowered.name}_state_{k}"
        note = f"initial value of the state {lowered.states[k].name}"
        one = data[: data.size // times]
        arrays.append(Param(name, lowered.states[k].old.type.dtype, one, max(4, data.itemsize), note))
        steps.append(InitStep(offset, raw.size // times, array=name, times=times))
    return StateInit(tuple(steps), tuple(arrays), image)


def period(initial: Array) -> int:
    """Bytes of the smallest slice over the leading axes that `initial` repeats throughout, such as a row of a window of zeros."""
    raw = np.ascontiguousarray(initial).reshape(-1).view(np.uint8)
    for axis in range(initial.ndim - 1, 0, -1):
        size = prod(initial.shape[axis:]) * initial.itemsize
        if (raw.reshape(-1, size) == raw[:size]).all():
            return int(size)
    return raw.size


def _filled(steps: list[InitStep], new: InitStep) -> list[InitStep]:
    """The steps with one more fill, merged with the previous fill if both write the same byte."""
    last = steps[-1] if steps else None
    if last is None or last.array or last.fill != new.fill:
        return [*steps, new]
    return [*steps[:-1], InitStep(last.offset, new.offset + new.size - last.offset, last.fill)]


# ---- the main function


TURN = Var("turn", COUNTER)
"""How many times the windows of the state have advanced since they were last at their start."""


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
    """The main function in two halves, for an input that arrives row by row.

    `take` computes everything that a new row makes possible; its scalar is the row's number, from `first` to `last`. Rows outside
    0 to `rows` are not read.  `end` does the rest: the layers after the first, and the results.
    """

    take: PrimFunc
    end: PrimFunc
    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class Main:
    """A model as calls of kernels: `run` as one function, and the two halves if the input is fed."""

    buffers: MainBuffers
    run: PrimFunc
    feeding: Feeding | None = None


def main_functions(
    lowered: Planned, *, layers: Sequence[Layer], arrays: Sequence[Param], functions: Mapping[str, PrimFunc]
) -> Main:  # fmt: skip
    """The main function in TIR: copies of the inputs into the workspace, a CallPrim per layer, copies of the results out.

    `functions`: the kernels by their C names.
    """
    layout = lowered.layout
    buffers = MainBuffers(
        Buffer("workspace", (layout.plan.size,), "uint8", "arena", 16),
        tuple(Buffer(f"input_{i}", *stored(t.type.shape, t.type.dtype)) for i, t in enumerate(lowered.inputs)),
        tuple(Buffer(f"output_{i}", *stored(t.type.shape, t.type.dtype)) for i, t in enumerate(lowered.outputs)),
        tuple(Buffer(a.name, (a.data.size,), a.dtype, "const", a.align) for a in arrays),
        Buffer("state", (layout.state_size,), "uint8", "state", STATE_ALIGN) if lowered.states else None,
    )
    state = () if buffers.state is None else (buffers.state,)
    write, in_slots = _Statements(buffers, layout), layout.io == "arena"
    body: list[Stmt] = []
    if layout.rings is not None:
        at = write.region(StorageInfo("state", offset=layout.rings.counter), COUNTER)
        body.append(Let(TURN, Load(at.buffer, (at.index,), COUNTER)))
    for i, tensor in enumerate(lowered.inputs if in_slots else ()):
        body += write.copy(StorageInfo("input", index=i), layout.places[tensor], tensor.type.nbytes)
    calls = [write.call(layer, i, functions[layer.function]) for i, layer in enumerate(layers)]
    decided = [write.region(place, "bool") for place in layout.conditions]
    body += structured(lowered, calls, [Load(r.buffer, (r.index,), "bool") for r in decided])
    sizes = [t.type.nbytes for t in lowered.outputs]
    for place, k in layout.copies:
        body += write.copy(place, layout.output_slots[k], sizes[k], MOVE)
    for k, slot in enumerate(layout.output_slots if in_slots else ()):
        body += write.copy(slot, StorageInfo("output", index=k), sizes[k])
    for back in layout.write_backs:
        body += write.copy(back.source, back.target, back.size, MOVE)
    body += write.moved_on()
    run = PrimFunc(
        f"{lowered.name}_run", buffers.inputs, buffers.outputs, tuple(body), buffers.arrays, (buffers.workspace,), (),
        FuncAttrs("main", macs=sum(layer.func.attrs.macs for layer in layers)), state,
    )  # fmt: skip
    return _with_feeding(Main(buffers, run), layers, functions)


def _with_feeding(main: Main, layers: Sequence[Layer], functions: Mapping[str, PrimFunc]) -> Main:
    """`main` with its halves if the first layer is a cascade with a fed input, else `main`."""
    feed = layers[0].call.feed if layers else None
    if feed is None:
        return main
    (name,) = {s.func for s in walk(functions[layers[0].function].body) if isinstance(s, CallPrim)}
    whole = main.run.body[0]
    assert isinstance(whole, CallPrim)
    type_, number = layers[0].call.inputs[0].type, Var("next_row")
    row = Buffer("row", (type_.size // type_.shape[1],), type_.dtype, align=functions[name].inputs[0].align)
    others = (o for o in whole.operands[1:] if isinstance(o, Region))
    operands: tuple[Region | Expr, ...] = (Region(row, Imm(0), row.dtype), *others, number)
    take = PrimFunc(
        "take", (row,), (), (CallPrim(name, operands),), main.buffers.arrays, (main.buffers.workspace,), (number,),
        state=main.run.state,
    )  # fmt: skip
    end = replace(main.run, name="end", inputs=(), body=main.run.body[1:])
    return Main(replace(main.buffers, row=row), main.run, Feeding(take, end, feed[1], feed[2], type_.shape[1]))


@dataclass(frozen=True, slots=True)
class _Statements:
    """What the main function consists of, on its buffers and by its layout."""

    buffers: MainBuffers
    layout: StorageMap

    def region(self, place: StorageInfo, dtype: str) -> Region:
        """The memory of a place, as elements of `dtype`."""
        buffers = self.buffers
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
        size, offset = itemsize(dtype), self.layout.offset(place)
        if offset % size or place.hop % size:
            raise internal(f"offset {offset} is not aligned for {dtype}", where=base.name)
        index: Expr = Imm(offset // size)
        if place.hop:
            index = binop("+", index, TURN if place.hop == size else binop("*", TURN, Imm(place.hop // size)))
        return Region(base, index, dtype)

    def copy(self, source: StorageInfo, target: StorageInfo, size: int, name: str = COPY) -> list[Stmt]:
        """A call that copies `size` bytes; empty if they are already in place."""
        regions = (self.region(source, "uint8"), self.region(target, "uint8"))
        return [] if source == target else [CallPrim(name, (*regions, Imm(size, "uint32")))]

    def call(self, layer: Layer, index: int, called: PrimFunc) -> CallPrim:
        places = [*layer.inputs, *layer.outputs, *(StorageInfo("const", index=k) for k in layer.constants)]
        places += [StorageInfo("workspace", key) for key in layer.scratch]
        regions = [self.region(place, buffer.dtype) for buffer, place in zip(layer.func.buffers, places, strict=True)]
        scalars = [Imm(v, var.dtype) for v, var in zip(layer.call.scalars, called.scalars, strict=True)]
        return CallPrim(layer.function, (*regions, *scalars), index)

    def moved_on(self) -> list[Stmt]:
        """Statements that advance the windows of the state, or after the last turn move them back to their start."""
        rings = self.layout.rings
        if rings is None:
            return []
        counter = self.region(StorageInfo("state", offset=rings.counter), COUNTER)
        back: list[Stmt] = []
        for w in rings.windows:
            source, target = StorageInfo("state", offset=w.start + rings.turns * w.hop), StorageInfo("state", offset=w.start)
            back += self.copy(source, target, w.kept, MOVE)
        on, reset = (
            Store(counter.buffer, (counter.index,), value, COUNTER)
            for value in (binop("+", TURN, Imm(1, COUNTER)), Imm(0, COUNTER))
        )
        return [If(binop("<", TURN, Imm(rings.turns - 1, COUNTER)), (on,), (*back, reset))]


# ---- the pass: from a planned module to one in which everything is a PrimFunc


@dataclass(frozen=True, slots=True, kw_only=True)
class TirModule(IRModule):
    """The main function, the functions that it calls, by their C names, and `arrays`, the constants of all of them.

    `lowered` is the module that it was made from, in whose layout constants have the numbers of their arrays; `tensors` are the
    array numbers of its constant tensors.  `first_main` and `first_kernels` are the functions before any later pass.
    """

    lowered: Planned
    layers: tuple[Layer, ...]
    first_kernels: tuple[NamedFunc, ...]
    arrays: tuple[Param, ...]
    tensors: tuple[int, ...]
    first_main: Main
    init: StateInit

    @property
    def layout(self) -> StorageMap:
        return self.lowered.layout

    @property
    def main(self) -> Main:
        """The main function as the last pass left it."""
        main, of = self.first_main, self._prim_func
        feeding = main.feeding and replace(main.feeding, take=of(main.feeding.take), end=of(main.feeding.end))
        return replace(main, run=of(main.run), feeding=feeding)

    @property
    def kernels(self) -> tuple[NamedFunc, ...]:
        """The functions that main and other functions call, as the last pass left them."""
        return tuple(replace(k, func=self._prim_func(k.func, k.name)) for k in self.first_kernels)

    def _prim_func(self, func: PrimFunc, name: str = "") -> PrimFunc:
        now = self[name or func.name]
        assert isinstance(now, PrimFunc)
        return now


@module_pass(required=True, phase=Planned)
def aot_lower_main(planned: Planned, _context: PassContext) -> TirModule:
    """Merge equal functions and equal constants, under their C names; main becomes copies and calls on one workspace.

    In: a Planned with a target.  Out: a TirModule.
    """
    if planned.target is None:
        raise internal("the module has no target", where=planned.name)
    kernels, names = named_functions(planned, planned.target)
    arrays, constants, tensors = merge_constants(planned)
    arrays, choice = place_constants(arrays, planned, constants, planned.planning.pooling)

    def numbered(place: StorageInfo) -> StorageInfo:
        """A place; for a constant tensor, the tensor's number is replaced by the number of its array."""
        return replace(place, index=tensors[place.index]) if place.where == "const" else place

    def place_of(tensor: TensorRef) -> StorageInfo:
        root, offset = planned.place_in_root(tensor)
        place = numbered(layout.places[root])
        return replace(place, offset=place.offset + offset)

    layout = planned.layout
    layers = tuple(
        Layer(
            call, planned.kernel(call), names[i], constants[i],
            tuple(map(place_of, call.inputs)), tuple(map(place_of, call.outputs)), layout.scratch[i],
        )
        for i, call in enumerate(planned.calls)
    )  # fmt: skip
    layout = replace(
        layout,
        copies=tuple((numbered(p), k) for p, k in layout.copies),
        conditions=tuple(map(numbered, layout.conditions)),
        write_backs=tuple(replace(b, source=numbered(b.source)) for b in layout.write_backs),
        constant_choice=choice,
    )
    table, init = {k.name: k.func for k in kernels}, state_init(planned)
    arrays, planned = (*arrays, *init.arrays), replace(planned, layout=layout)
    main = main_functions(planned, layers=layers, arrays=arrays, functions=table)
    halves = () if main.feeding is None else (main.feeding.take, main.feeding.end)
    known = {a.name: a.data for a in arrays}
    return TirModule(
        {**{f.name: f for f in (main.run, *halves)}, **table},
        planned.name,
        {f.name: known for f in (main.run, *halves)},
        lowered=planned, layers=layers, first_kernels=kernels, arrays=arrays, tensors=tuple(tensors), first_main=main, init=init,
    )  # fmt: skip
