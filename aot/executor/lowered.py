"""The order of execution that the executor compiles: calls of kernels over named tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from aot.errors import internal
from aot.executor.select.selection import Candidate
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
class Callee:
    """A function that a layer's own function calls; `shared` and `scalars` as in CallLowered."""

    func: PrimFunc
    shared: PrimFunc | None = None
    scalars: tuple[int | float, ...] = ()

    @property
    def emitted(self) -> PrimFunc:
        """The function that is called."""
        return self.shared or self.func


@dataclass(frozen=True, slots=True, eq=False)
class CallLowered:
    """One layer: `func` over the tensors, in the order of its input and output buffers.

    `constants` gives each of `func.consts` by buffer name (packed bytes or elements), `scalars` the values of `func.scalars`.
    `ops` are the indices of all operators of the .tflite that went into the layer; `span` is that of its result.
    `candidates` are the kernels that were in the running, `estimate` the instructions of the one that was chosen.
    `shared` is the function that is emitted where layers of different numbers share one; `func` stays the layer's own, and
    `scalars` are the arguments of whichever is emitted.  `callees` are the functions that the CallPrim statements of `func`
    name (a cascade's row kernels).
    `feed`: (callee that takes one row of the first input and its number, first and last number), where the input is fed by rows.
    """

    func: PrimFunc
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]
    constants: Mapping[str, Array] = field(default_factory=dict)
    scalars: tuple[int | float, ...] = ()
    span: Span = NO_SPAN
    ops: tuple[int, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    estimate: int = 0
    shared: PrimFunc | None = None
    callees: Mapping[str, Callee] = field(default_factory=dict)
    feed: tuple[str, int, int] | None = None

    @property
    def emitted(self) -> PrimFunc:
        """The function that is called."""
        return self.shared or self.func

    @property
    def called(self) -> Mapping[str, PrimFunc]:
        """What `func` calls, by the names that it uses."""
        return {name: callee.func for name, callee in self.callees.items()}


@dataclass(frozen=True, slots=True)
class LoweredModule:
    """A whole model.

    `views` maps a tensor to the one whose bytes it shows (reshape), from byte `offsets` of it on (0 where there is none).
    Layers may write such views, which then fill the tensor that they are parts of.  `constants` holds the tensors whose values
    are known and which a layer reads or the model returns as they are.
    """

    name: str
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]
    calls: tuple[CallLowered, ...]
    views: Mapping[TensorRef, TensorRef] = field(default_factory=dict)
    constants: Mapping[TensorRef, Array] = field(default_factory=dict)
    offsets: Mapping[TensorRef, int] = field(default_factory=dict)
    pooling: Pooling = ONE_POOL

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

    def map_functions(self, transform: Callable[[PrimFunc], PrimFunc]) -> LoweredModule:
        """The lowered module with every function transformed; a function that several calls share is transformed once."""
        done: dict[PrimFunc, PrimFunc] = {}

        def new(func: PrimFunc) -> PrimFunc:
            if func not in done:
                done[func] = transform(func)
            return done[func]

        def call(old: CallLowered) -> CallLowered:
            callees = {name: replace(c, func=new(c.func)) for name, c in old.callees.items()}
            return replace(old, func=new(old.func), callees=callees)

        return replace(self, calls=tuple(map(call, self.calls)))


def check_lowered(lowered: LoweredModule) -> None:
    """Raise E9001 unless each tensor is written once, before it is read, and calls fit their functions."""
    for problem in _faults(lowered):
        raise internal(problem, where=lowered.name)


def _faults(lowered: LoweredModule) -> Iterator[str]:
    known = set(lowered.inputs) | set(lowered.constants)
    filled: dict[TensorRef, int] = {}  # bytes that layers have written of a tensor of which they write parts
    for i, call in enumerate(lowered.calls):
        where = f"layer {i} ({call.func.name})"
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
        yield from (f"{where}: {fault}" for fault in _call_faults(call))
    for tensor in lowered.outputs:
        if lowered.root(tensor) not in known:
            yield f"output {tensor.name} is never written"


def _is_known(lowered: LoweredModule, tensor: TensorRef, known: set[TensorRef]) -> bool:
    """Whether a tensor, or one that it is a view of, has its value."""
    while tensor not in known and tensor in lowered.views:
        tensor = lowered.views[tensor]
    return tensor in known


def _call_faults(call: CallLowered) -> Iterator[str]:
    func = call.func
    if (
        len(func.inputs) != len(call.inputs)
        or len(func.outputs) != len(call.outputs)
        or len(call.emitted.scalars) != len(call.scalars)
    ):
        yield "the number of operands differs from the function's"
        return
    for buffer, tensor in zip(func.inputs + func.outputs, call.inputs + call.outputs, strict=True):
        if buffer.nbytes != tensor.type.nbytes:
            yield f"{tensor.name} has {tensor.type.nbytes} bytes, buffer {buffer.name} {buffer.nbytes}"
    for buffer in func.consts:
        data = call.constants.get(buffer.name)
        if data is None or data.nbytes != buffer.nbytes:
            yield f"constant {buffer.name} needs {buffer.nbytes} bytes, {'none' if data is None else data.nbytes} given"
