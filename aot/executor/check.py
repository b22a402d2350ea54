"""What must hold of the calls of a lowered module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aot.errors import InternalError, Problem
from aot.executor.lowered import CallLowered, LoweredModule, TensorRef
from aot.memory.control import Nested, nested

Filled = dict[TensorRef, list[tuple[int, int]]]
"""Which bytes (first, end) layers have written of a tensor of which they write parts."""


def check_lowered(lowered: LoweredModule) -> None:
    """Raise E9101 unless each tensor is written once, before it is read, and calls fit their functions."""
    for problem in lowered_faults(lowered):
        raise InternalError(Problem("E9101", problem, lowered.name))


def lowered_faults(lowered: LoweredModule) -> Iterator[str]:
    """All that is wrong, in the order of the calls."""
    known = {*lowered.inputs, *lowered.values, *(s.old for s in lowered.states)}
    filled: Filled = {}
    for state in lowered.states:
        if state.old in lowered.views:
            _fill(lowered, state.old, filled)
    yield from _order_faults(lowered, nested(lowered.controls, len(lowered.calls)), known, filled)
    for i, call in enumerate(lowered.calls):
        yield from (f"layer {i} ({call.func}): {fault}" for fault in _call_faults(lowered, call))
    for tensor in (*lowered.outputs, *(s.new for s in lowered.states)):
        if not _is_known(lowered, lowered.root(tensor), known, filled):
            yield f"output {tensor.name} is never written"


def _order_faults(
    lowered: LoweredModule, items: Sequence[int | Nested], known: set[TensorRef], filled: Filled
) -> Iterator[str]:  # fmt: skip
    """Reads before writes, and second writes; `known` becomes what has its value afterwards, whichever way was taken."""
    for item in items:
        if isinstance(item, int):
            yield from _call_order_faults(lowered, item, known, filled)
            continue
        is_loop = item.control.kind == "while"
        other = set(known)
        yield from _order_faults(lowered, item.first, known, filled)
        condition = lowered.conditions[item.index]
        if not _is_known(lowered, condition, known if is_loop else other, filled):
            yield f"the condition {condition.name} is read before it is written"
        other = set(known) if is_loop else other
        yield from _order_faults(lowered, item.second, other, filled)
        if not is_loop:
            known &= other


def _call_order_faults(
    lowered: LoweredModule, i: int, known: set[TensorRef], filled: Filled
) -> Iterator[str]:  # fmt: skip
    call = lowered.calls[i]
    where = f"layer {i} ({call.func})"
    for tensor in call.inputs:
        if not _is_known(lowered, tensor, known, filled):
            yield f"{where} reads {tensor.name} before it is written"
    for tensor in call.outputs:
        root = lowered.root(tensor)
        if (tensor in known or root in known) and root not in lowered.variables:
            yield f"{where} writes {tensor.name} again"
        known.add(tensor)
        if root is not tensor:
            _fill(lowered, tensor, filled)
            if _is_filled(lowered, root, filled) or (root in lowered.variables and lowered.is_whole(tensor)):
                known.add(root)


def _is_known(lowered: LoweredModule, tensor: TensorRef, known: set[TensorRef], filled: Filled) -> bool:
    """Whether a tensor, or one that it is a view of, has its value; it may have been written part by part."""
    shown = tensor
    while shown not in known and shown in lowered.views:
        shown = lowered.views[shown]
    return shown in known or _is_filled(lowered, tensor, filled)


def _fill(lowered: LoweredModule, tensor: TensorRef, filled: Filled) -> None:
    root, start = lowered.place_in_root(tensor)
    filled.setdefault(root, []).append((start, start + tensor.type.nbytes))


def _is_filled(lowered: LoweredModule, tensor: TensorRef, filled: Filled) -> bool:
    """Whether every byte of a tensor has been written."""
    root, start = lowered.place_in_root(tensor)
    end = start + tensor.type.nbytes
    for first, behind in sorted(filled.get(root, ())):
        if first <= start:
            start = max(start, behind)
    return start >= end


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
