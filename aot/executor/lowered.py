"""The program that the executor compiles: kernel calls on named tensors, in order of execution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Self

from aot.errors import InternalError, Problem, UsageError
from aot.executor.config import PlanConfig, SelectionConfig
from aot.executor.selection import Candidate, Selection
from aot.ir.module import IRModule
from aot.ir.op import Array
from aot.ir.span import NO_SPAN, Span
from aot.ir.type import TensorType
from aot.memory.liveness import Control, Nested, nested
from aot.memory.order import Order
from aot.relay.expr import Function
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.support.names import NameSupply
from aot.support.text import operators_text
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, Imm, Load
from aot.tir.function import PrimFunc
from aot.tir.intrin import COPY
from aot.tir.stmt import CallPrim, If, Region, Stmt, While


@dataclass(frozen=True, slots=True, eq=False)
class TensorRef:
    """A tensor of the graph, compared by identity; `tensor` is its index in the .tflite, or -1 for a step within an operator.

    `channels` are the indices along the last axis of the file's tensor that remain; empty if all of them do.
    """

    name: str
    type: TensorType
    tensor: int = -1
    channels: tuple[int, ...] = ()


Alias = Mapping[TensorRef, tuple[TensorRef, int]]
"""View -> the tensor whose bytes it shows, and the offset of the first one."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelCall:
    """One layer: a call of the module's function `func` with the tensors in the order of its input and output buffers.

    Functions are referred to by name, as with TVM's GlobalVar.  `scalars` are the values of the function's scalars.
    `operators` maps the indices of all .tflite operators in the layer to their names; `span` is the span of its result.
    `fused` is the relay function that it runs; `candidates` are the kernels that were considered, and `estimate` the instructions
    of the chosen one.
    `shared` names the function that is emitted if layers that differ in numbers share one; `func` stays the layer's own function,
    and `scalars` are the arguments of the emitted one.  `callees` are the functions that `func` calls (a cascade's row kernels);
    each comes before its callers.
    `feed`: if the input is fed by rows, the callee that accepts one row of the first input and its number, and the first and last
    number.
    `carried`: bytes of a state that the kernel copies while it joins or slices, only in order to keep them.
    """

    func: str
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]
    scalars: tuple[int | float, ...] = ()
    span: Span = NO_SPAN
    operators: Mapping[int, str] = field(default_factory=dict)
    fused: Function | None = None
    candidates: tuple[Candidate, ...] = ()
    estimate: int = 0
    shared: str = ""
    callees: tuple[str, ...] = ()
    feed: tuple[str, int, int] | None = None
    carried: int = 0

    @property
    def tensors(self) -> tuple[TensorRef, ...]:
        """The inputs and the outputs, as the function's buffers."""
        return *self.inputs, *self.outputs

    @property
    def does(self) -> str:
        """What the layer computes, in the words of the .tflite: `CONV_2D + ADD`; the result's operator if no others are known."""
        return operators_text(tuple(self.operators.values()) or (self.span.opcode,))

    @property
    def emitted(self) -> str:
        """The function that is called."""
        return self.shared or self.func


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A persistent tensor: `old` is its value before a run, `new` its value after it (`old` itself if nothing changes it).

    `shared`: other signatures of the file use it too.  `fresh`: how many bytes of the new value are not in the old one, if the
    others stay in place; None if all bytes are written.  `kept`: how many bytes of the new value are old ones from another place.
    """

    name: str
    initial: Array
    old: TensorRef
    new: TensorRef
    shared: bool = False
    fresh: int | None = None
    kept: int = 0


@dataclass(frozen=True, slots=True)
class CascadeRuns:
    """How many runs of layers the search for cascades tried, and how many could be cascades within its limit of bytes."""

    tried: int
    possible: int


@dataclass(frozen=True, slots=True)
class LoweredModule(IRModule):
    """A whole model: PrimFuncs by name, and the calls of them in order, which are its main.

    `constants` gives each function's constants by buffer name (packed bytes or elements).
    `views` maps a tensor to the one whose bytes it shows (reshape), starting at byte `offsets` (0 if there is no entry).
    Layers may write views; together they fill the tensor that they are parts of.  `values` holds the constant tensors that a
    layer reads or that the model returns unchanged.  `target`, `config` and `planning` say what to compile for and how to do the
    remaining steps; `selection` describes the chosen kernels, once they are chosen.

    `controls` are branches and loops over the calls, `conditions` the one-bool tensor that decides each of them.  `variables` are
    the tensors that are written more than once: loop variables, and results of branches.  A loop whose number of iterations is
    unknown is given up after `max_iterations` (0: never).  `order`: how good the order of the layers is, counting whole tensors;
    with branches and loops, for the function whose order may be furthest from its best.  `cascade_runs`: what the search for
    cascades tried, if there was one.
    """

    inputs: tuple[TensorRef, ...] = ()
    outputs: tuple[TensorRef, ...] = ()
    calls: tuple[KernelCall, ...] = ()
    views: Mapping[TensorRef, TensorRef] = field(default_factory=dict)
    values: Mapping[TensorRef, Array] = field(default_factory=dict)
    offsets: Mapping[TensorRef, int] = field(default_factory=dict)
    states: tuple[State, ...] = ()
    controls: tuple[Control, ...] = ()
    conditions: tuple[TensorRef, ...] = ()
    variables: frozenset[TensorRef] = frozenset()
    order: Order | None = None
    cascade_runs: CascadeRuns | None = None
    target: Target | None = None
    config: SelectionConfig = field(default_factory=SelectionConfig)
    planning: PlanConfig = field(default_factory=PlanConfig)
    selection: Selection = field(default_factory=Selection)

    def prim_func(self, name: str) -> PrimFunc:
        """The function called `name`."""
        func = self.functions[name]
        assert isinstance(func, PrimFunc)
        return func

    @property
    def prim_funcs(self) -> dict[str, PrimFunc]:
        """All functions by name."""
        return {name: func for name, func in self.functions.items() if isinstance(func, PrimFunc)}

    def kernel(self, call: KernelCall) -> PrimFunc:
        """The layer's own function."""
        return self.prim_func(call.func)

    def shown(self) -> IRModule:
        """The module with its main as a PrimFunc, one buffer per tensor."""
        main, constants = main_of(self)
        return IRModule({main.name: main, **self.functions}, self.name, {**self.constants, main.name: constants})

    def merged(self, seen: IRModule, result: IRModule) -> IRModule:
        """This module with the kernels of `result`; UsageError E5038 if main differs, since main is generated from the calls."""
        if isinstance(result, LoweredModule):
            return result
        name = next(n for n in seen.functions if n not in self.functions)
        was, now = seen.functions[name], result.functions.get(name)
        if not isinstance(was, PrimFunc) or not isinstance(now, PrimFunc) or (now.body, now.buffers) != (was.body, was.buffers):
            raise UsageError(Problem("E5038", f"a pass changes {name}, which is made of the layers once memory is planned"))
        functions = {k: f for k, f in result.functions.items() if k != name}
        return replace(self, functions=functions, constants={k: c for k, c in result.constants.items() if k != name})

    def with_calls(self, calls: Sequence[KernelCall]) -> Self:
        """The module with other calls, and without the functions that none of these calls needs."""
        used = {name for c in calls for name in (*c.callees, c.func, c.emitted)}
        return replace(
            self,
            calls=tuple(calls),
            functions={k: f for k, f in self.functions.items() if k in used},
            constants={k: c for k, c in self.constants.items() if k in used},
        )

    def with_views(self, alias: Alias) -> Self:
        """The module with more views."""
        return replace(
            self,
            views={**self.views, **{t: shown for t, (shown, _) in alias.items()}},
            offsets={**self.offsets, **{t: offset for t, (_, offset) in alias.items()}},
        )

    def maker(self, tensor: TensorRef) -> KernelCall | None:
        """The call whose only result is this very tensor; None if there is none."""
        return next((c for c in self.calls if c.outputs == (tensor,)), None)

    @property
    def max_iterations(self) -> int:
        """The number of iterations after which a loop whose end depends on data is given up; 0: never."""
        return self.planning.max_iterations

    @property
    def estimate(self) -> int:
        """Instructions of one run, as far as the kernels state estimates."""
        return self._instructions(nested(self.controls, len(self.calls)))

    def _instructions(self, items: Sequence[int | Nested]) -> int:
        """Instructions of some calls: loops times their iterations, if known; for a branch, the more expensive side."""
        total = 0
        for item in items:
            if isinstance(item, int):
                total += self.calls[item].estimate
                continue
            first, second = self._instructions(item.first), self._instructions(item.second)
            trips = 1 if item.control.trips is None else item.control.trips
            total += max(first, second) if item.control.kind == "if" else first * (trips + 1) + second * trips
        return total

    def root(self, tensor: TensorRef) -> TensorRef:
        """The tensor that owns the bytes of `tensor`."""
        while tensor in self.views:
            tensor = self.views[tensor]
        return tensor

    def place_in_root(self, tensor: TensorRef) -> tuple[TensorRef, int]:
        """The tensor that owns the bytes of `tensor`, and the offset of the first byte in it."""
        offset = 0
        while tensor in self.views:
            offset += self.offsets.get(tensor, 0)
            tensor = self.views[tensor]
        return tensor, offset

    def is_whole(self, tensor: TensorRef) -> bool:
        """Whether a tensor covers all of the tensor that owns its bytes."""
        root, offset = self.place_in_root(tensor)
        return offset == 0 and root.type.nbytes == tensor.type.nbytes

    def shows(self, tensor: TensorRef, other: TensorRef) -> bool:
        """Whether `tensor` is `other` or a view of it."""
        while tensor is not other and tensor in self.views:
            tensor = self.views[tensor]
        return tensor is other


def main_of(lowered: LoweredModule) -> tuple[PrimFunc, dict[str, Array]]:
    """The calls of a lowered module as a PrimFunc before memory is planned, and its constants by buffer name.

    Each tensor that is not a view has its own buffer, and so do inputs and outputs; an operand is a region of a buffer.
    """
    supply = NameSupply()
    inputs = {t: Buffer(supply.fresh(f"input_{i}"), t.type.shape, t.type.dtype) for i, t in enumerate(lowered.inputs)}
    outputs = [Buffer(supply.fresh(f"output_{i}"), t.type.shape, t.type.dtype) for i, t in enumerate(lowered.outputs)]
    constants: dict[str, Array] = {}
    known = dict(inputs)
    for tensor, data in lowered.values.items():
        known[tensor] = Buffer(supply.fresh(tensor.name), tensor.type.shape, tensor.type.dtype, "const", ALIGN)
        constants[known[tensor].name] = data
    state = [
        Buffer(supply.fresh(f"state_{k}"), s.old.type.shape, s.old.type.dtype, "state", ALIGN)
        for k, s in enumerate(lowered.states)
    ]
    known |= {s.old: buffer for s, buffer in zip(lowered.states, state, strict=True)}
    scratch: list[Buffer] = []

    def own(name: str, shape: tuple[int, ...], dtype: str) -> Buffer:
        scratch.append(Buffer(supply.fresh(name), shape, dtype, "arena", ALIGN))
        return scratch[-1]

    def region(tensor: TensorRef, dtype: str) -> Region:
        root, offset = lowered.place_in_root(tensor)
        if root not in known:
            known[root] = own(root.name, root.type.shape, root.type.dtype)
        return Region(known[root], Imm(offset // itemsize(dtype)), dtype)

    parts = [(s.old, b) for s, b in zip(lowered.states, state, strict=True) if lowered.root(s.old) is not s.old]
    body: list[Stmt] = [_copy(_start(b), region(t, "uint8"), b.nbytes) for t, b in parts]
    params: list[Buffer] = []
    calls: list[CallPrim] = []
    for i, call in enumerate(lowered.calls):
        func = lowered.kernel(call)
        tensors = zip(call.tensors, (*func.inputs, *func.outputs), strict=True)
        operands = [region(t, b.dtype) for t, b in tensors]
        for b in func.consts:
            params.append(Buffer(supply.fresh(f"{call.func}_{b.name}"), b.shape, b.dtype, "const", b.align))
            constants[params[-1].name] = lowered.constants[call.func][b.name]
            operands.append(Region(params[-1], Imm(0), b.dtype))
        operands += [Region(own(f"{call.func}_{b.name}", b.shape, b.dtype), Imm(0), b.dtype) for b in func.scratch]
        scalars = zip(call.scalars, lowered.prim_func(call.emitted).scalars, strict=True)
        calls.append(CallPrim(call.emitted, (*operands, *(Imm(v, var.dtype) for v, var in scalars)), i))
    decided = [region(c, "bool") for c in lowered.conditions]
    body += structured(lowered, calls, [Load(r.buffer, (r.index,), "bool") for r in decided])
    for tensor, out in zip(lowered.outputs, outputs, strict=True):
        body.append(_copy(region(tensor, "uint8"), _start(out), out.nbytes))
    kept = [own(f"new_{b.name}", b.shape, b.dtype) for b in state]  # copy all new values before overwriting any old one
    body += [_copy(region(s.new, "uint8"), _start(b), b.nbytes) for s, b in zip(lowered.states, kept, strict=True)]
    body += [_copy(_start(b), _start(s), b.nbytes) for b, s in zip(kept, state, strict=True)]
    consts = (*(known[t] for t in lowered.values), *params)
    main = PrimFunc(
        f"{lowered.name}_run", tuple(inputs.values()), tuple(outputs), tuple(body), consts, tuple(scratch), state=tuple(state)
    )  # fmt: skip
    return main, constants


def structured(lowered: LoweredModule, calls: Sequence[CallPrim], conditions: Sequence[Expr]) -> list[Stmt]:
    """The calls of a module, in order, as statements inside its branches and loops."""

    def body(items: Sequence[int | Nested]) -> tuple[Stmt, ...]:
        return tuple(calls[item] if isinstance(item, int) else control(item) for item in items)

    def control(item: Nested) -> Stmt:
        condition, first, second = conditions[item.index], body(item.first), body(item.second)
        if item.control.kind == "if":
            return If(condition, first, second)
        return While(first, condition, second, lowered.max_iterations if item.control.trips is None else 0)

    return list(body(nested(lowered.controls, len(calls))))


def _start(buffer: Buffer) -> Region:
    return Region(buffer, Imm(0), "uint8")


def _copy(source: Region, target: Region, size: int) -> CallPrim:
    return CallPrim(COPY, (source, target, Imm(size, "uint32")))


ALIGN = 16
"""The alignment of a tensor's own buffer, in bytes."""


# ---- what must hold for the calls


def check_lowered(lowered: LoweredModule) -> None:
    """Raise E9101 unless each tensor is written once, before it is read, and all calls fit their functions."""
    for problem in lowered_faults(lowered):
        raise InternalError(Problem("E9101", problem, lowered.name))


def lowered_faults(lowered: LoweredModule) -> Iterator[str]:
    """All faults, in the order of the calls."""
    known = {*lowered.inputs, *lowered.values, *(s.old for s in lowered.states)}
    order = _Order(lowered)
    for state in lowered.states:
        if state.old in lowered.views:
            order.fill(state.old)
    yield from order.faults(nested(lowered.controls, len(lowered.calls)), known)
    for i, call in enumerate(lowered.calls):
        yield from (f"layer {i} ({call.func}): {fault}" for fault in _call_faults(lowered, call))
    for tensor in (*lowered.outputs, *(s.new for s in lowered.states)):
        if not order.is_known(lowered.root(tensor), known):
            yield f"output {tensor.name} is never written"


class _Order:
    """Finds reads before writes, and second writes; `known` are the tensors that have a value on every path so far."""

    def __init__(self, lowered: LoweredModule) -> None:
        self.lowered = lowered
        self.filled: dict[TensorRef, list[tuple[int, int]]] = {}
        """For each tensor that layers write in parts: the byte ranges (first, end) written so far."""

    def faults(self, items: Sequence[int | Nested], known: set[TensorRef]) -> Iterator[str]:
        """The faults of these calls, which may read what is in `known`; afterwards it contains what they write, too."""
        for item in items:
            if isinstance(item, int):
                yield from self.call_faults(item, known)
                continue
            is_loop = item.control.kind == "while"
            other = set(known)
            yield from self.faults(item.first, known)
            condition = self.lowered.conditions[item.index]
            if not self.is_known(condition, known if is_loop else other):
                yield f"the condition {condition.name} is read before it is written"
            other = set(known) if is_loop else other
            yield from self.faults(item.second, other)
            if not is_loop:
                known &= other

    def call_faults(self, i: int, known: set[TensorRef]) -> Iterator[str]:
        lowered, call = self.lowered, self.lowered.calls[i]
        where = f"layer {i} ({call.func})"
        for tensor in call.inputs:
            if not self.is_known(tensor, known):
                yield f"{where} reads {tensor.name} before it is written"
        for tensor in call.outputs:
            root = lowered.root(tensor)
            if (tensor in known or root in known) and root not in lowered.variables:
                yield f"{where} writes {tensor.name} again"
            known.add(tensor)
            if root is not tensor:
                self.fill(tensor)
                if self.is_filled(root) or (root in lowered.variables and lowered.is_whole(tensor)):
                    known.add(root)

    def is_known(self, tensor: TensorRef, known: set[TensorRef]) -> bool:
        """Whether a tensor, or a tensor that it is a view of, has its value, perhaps written in parts."""
        shown = tensor
        while shown not in known and shown in self.lowered.views:
            shown = self.lowered.views[shown]
        return shown in known or self.is_filled(tensor)

    def fill(self, tensor: TensorRef) -> None:
        root, start = self.lowered.place_in_root(tensor)
        self.filled.setdefault(root, []).append((start, start + tensor.type.nbytes))

    def is_filled(self, tensor: TensorRef) -> bool:
        """Whether every byte of a tensor has been written."""
        root, start = self.lowered.place_in_root(tensor)
        end = start + tensor.type.nbytes
        for first, behind in sorted(self.filled.get(root, ())):
            if first <= start:
                start = max(start, behind)
        return start >= end


def _call_faults(lowered: LoweredModule, call: KernelCall) -> Iterator[str]:
    missing = [name for name in (*call.callees, call.func, call.emitted) if name not in lowered.functions]
    if missing:
        yield f"the module has no function {missing[0]}"
        return
    func = lowered.kernel(call)
    if (
        len(func.inputs) != len(call.inputs)
        or len(func.outputs) != len(call.outputs)
        or len(lowered.prim_func(call.emitted).scalars) != len(call.scalars)
    ):
        yield "the number of operands differs from the function's"
        return
    for buffer, tensor in zip(func.inputs + func.outputs, call.tensors, strict=True):
        if buffer.nbytes != tensor.type.nbytes:
            yield f"{tensor.name} has {tensor.type.nbytes} bytes, buffer {buffer.name} {buffer.nbytes}"
    constants = lowered.constants.get(call.func, {})
    for buffer in func.consts:
        data = constants.get(buffer.name)
        if data is None or data.nbytes != buffer.nbytes:
            yield f"constant {buffer.name} needs {buffer.nbytes} bytes, {'none' if data is None else data.nbytes} given"
