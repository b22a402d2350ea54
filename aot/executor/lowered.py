"""The order of execution that the executor compiles: calls of kernels over named tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aot.errors import internal
from aot.executor.select.selection import Candidate
from aot.ir.module import IRModule
from aot.ir.op import Array
from aot.ir.span import NO_SPAN, Span
from aot.ir.type import TensorType
from aot.memory.pools import ONE_POOL, Pooling
from aot.tir.function import PrimFunc


@dataclass(frozen=True, slots=True, eq=False)
class TensorRef:
    """A tensor of the graph, compared by identity; `tensor` is its index in the .tflite, or -1 for a step within an operator.

    `channels` are the indices of the last axis that are left of the file's tensor; empty where all of them are.
    """

    name: str
    type: TensorType
    tensor: int = -1
    channels: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class CallLowered:
    """One layer: the module's function `func` over the tensors, in the order of its input and output buffers.

    Functions are named, as by TVM's GlobalVar.  `scalars` are the values of the function's scalars.
    `ops` are the indices of all operators of the .tflite that went into the layer; `span` is that of its result.
    `candidates` are the kernels that were considered, `estimate` the instructions of the one that was chosen.
    `shared` names the function that is emitted where layers of different numbers share one; `func` stays the layer's own, and
    `scalars` are the arguments of whichever is emitted.  `callees` are the functions that `func` calls (a cascade's row
    kernels), those that are called before their callers.
    `feed`: (callee that takes one row of the first input and its number, first and last number), where the input is fed by rows.
    """

    func: str
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]
    scalars: tuple[int | float, ...] = ()
    span: Span = NO_SPAN
    ops: tuple[int, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    estimate: int = 0
    shared: str = ""
    callees: tuple[str, ...] = ()
    feed: tuple[str, int, int] | None = None

    @property
    def emitted(self) -> str:
        """The function that is called."""
        return self.shared or self.func


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A persistent tensor: `old` is the value before a run, `new` the one after it (`old` itself where nothing changes it)."""

    name: str
    initial: Array
    old: TensorRef
    new: TensorRef


@dataclass(frozen=True, slots=True)
class LoweredModule(IRModule):
    """A whole model: PrimFuncs by name, and as its main the calls of them in their order.

    `constants` gives each constant of a function by buffer name (packed bytes or elements).
    `views` maps a tensor to the one whose bytes it shows (reshape), from byte `offsets` of it on (0 where there is none).
    Layers may write such views, which then fill the tensor that they are parts of.  `values` holds the tensors whose values are
    known and which a layer reads or the model returns as they are.
    """

    inputs: tuple[TensorRef, ...] = ()
    outputs: tuple[TensorRef, ...] = ()
    calls: tuple[CallLowered, ...] = ()
    views: Mapping[TensorRef, TensorRef] = field(default_factory=dict)
    values: Mapping[TensorRef, Array] = field(default_factory=dict)
    offsets: Mapping[TensorRef, int] = field(default_factory=dict)
    pooling: Pooling = ONE_POOL
    states: tuple[State, ...] = ()

    def prim_func(self, name: str) -> PrimFunc:
        """The function of that name."""
        func = self.functions[name]
        assert isinstance(func, PrimFunc)
        return func

    @property
    def prim_funcs(self) -> dict[str, PrimFunc]:
        """All functions by name."""
        return {name: func for name, func in self.functions.items() if isinstance(func, PrimFunc)}

    def kernel(self, call: CallLowered) -> PrimFunc:
        """The layer's own function."""
        return self.prim_func(call.func)

    def with_calls(self, calls: Sequence[CallLowered]) -> LoweredModule:
        """The module with other calls of its functions, and without those that none of them needs."""
        used = {name for c in calls for name in (*c.callees, c.func, c.emitted)}
        return replace(
            self,
            calls=tuple(calls),
            functions={k: f for k, f in self.functions.items() if k in used},
            constants={k: c for k, c in self.constants.items() if k in used},
        )

    @property
    def estimate(self) -> int:
        """Instructions of one run, as far as the kernels state them."""
        return sum(call.estimate for call in self.calls)

    def root(self, tensor: TensorRef) -> TensorRef:
        """The tensor that owns the bytes."""
        while tensor in self.views:
            tensor = self.views[tensor]
        return tensor

    def place_in_root(self, tensor: TensorRef) -> tuple[TensorRef, int]:
        """The tensor that owns the bytes, and the first of them."""
        offset = 0
        while tensor in self.views:
            offset += self.offsets.get(tensor, 0)
            tensor = self.views[tensor]
        return tensor, offset

    def is_whole(self, tensor: TensorRef) -> bool:
        """Whether a tensor is all of what owns its bytes."""
        root, offset = self.place_in_root(tensor)
        return offset == 0 and root.type.nbytes == tensor.type.nbytes

    def shows(self, tensor: TensorRef, other: TensorRef) -> bool:
        """Whether `tensor` is `other` or a view of it."""
        while tensor is not other and tensor in self.views:
            tensor = self.views[tensor]
        return tensor is other


def check_lowered(lowered: LoweredModule) -> None:
    """Raise E9001 unless each tensor is written once, before it is read, and calls fit their functions."""
    for problem in _faults(lowered):
        raise internal(problem, where=lowered.name)


def _faults(lowered: LoweredModule) -> Iterator[str]:
    known = {*lowered.inputs, *lowered.values, *(s.old for s in lowered.states)}
    filled: dict[TensorRef, int] = {}  # bytes that layers have written of a tensor of which they write parts
    for state in lowered.states:
        root = lowered.root(state.old)
        if root is not state.old:
            filled[root] = filled.get(root, 0) + state.old.type.nbytes
    for i, call in enumerate(lowered.calls):
        where = f"layer {i} ({call.func})"
        for tensor in call.inputs:
            if not _is_known(lowered, tensor, known):
                yield f"{where} reads {tensor.name} before it is written"
        for tensor in call.outputs:
            root = lowered.root(tensor)
            if tensor in known or root in known:
                yield f"{where} writes {tensor.name} again"
            known.add(tensor)
            if root is not tensor:
                filled[root] = filled.get(root, 0) + tensor.type.nbytes
                if filled[root] == root.type.nbytes:
                    known.add(root)
        yield from (f"{where}: {fault}" for fault in _call_faults(lowered, call))
    for tensor in (*lowered.outputs, *(s.new for s in lowered.states)):
        if lowered.root(tensor) not in known:
            yield f"output {tensor.name} is never written"


def _is_known(lowered: LoweredModule, tensor: TensorRef, known: set[TensorRef]) -> bool:
    """Whether a tensor, or one that it is a view of, has its value."""
    while tensor not in known and tensor in lowered.views:
        tensor = lowered.views[tensor]
    return tensor in known


def _call_faults(lowered: LoweredModule, call: CallLowered) -> Iterator[str]:
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
    for buffer, tensor in zip(func.inputs + func.outputs, call.inputs + call.outputs, strict=True):
        if buffer.nbytes != tensor.type.nbytes:
            yield f"{tensor.name} has {tensor.type.nbytes} bytes, buffer {buffer.name} {buffer.nbytes}"
    constants = lowered.constants.get(call.func, {})
    for buffer in func.consts:
        data = constants.get(buffer.name)
        if data is None or data.nbytes != buffer.nbytes:
            yield f"constant {buffer.name} needs {buffer.nbytes} bytes, {'none' if data is None else data.nbytes} given"
