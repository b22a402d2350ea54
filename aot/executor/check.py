"""What must hold of the calls of a lowered module."""

from __future__ import annotations

from collections.abc import Iterator

from aot.errors import InternalError, Problem
from aot.executor.lowered import CallLowered, LoweredModule, TensorRef


def check_lowered(lowered: LoweredModule) -> None:
    """Raise E9101 unless each tensor is written once, before it is read, and calls fit their functions."""
    for problem in lowered_faults(lowered):
        raise InternalError(Problem("E9101", problem, lowered.name))


def lowered_faults(lowered: LoweredModule) -> Iterator[str]:
    """All that is wrong, in the order of the calls."""
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
