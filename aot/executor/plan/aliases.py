"""Copies that need not be made: slices read where they lie, parts of a concatenation written where they are wanted.

A layer whose kernel does nothing but copy runs of bytes says so (`FuncAttrs.moves`).  Where a result is one run of an
operand it becomes a view of it, at an offset; where operands fill a result run by run they become views of the result, and the
layers that make them write into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aot.executor.lowered import CallLowered, LoweredModule, TensorRef
from aot.memory.control import without_step
from aot.support.dtype import itemsize
from aot.tir.function import Move, PrimFunc

Alias = dict[TensorRef, tuple[TensorRef, int]]
"""View -> the tensor whose bytes it shows, and the first of them."""


def moves_of(func: PrimFunc) -> tuple[Move, ...]:
    """What a pure copy moves, in the order of the result; empty for any other layer."""
    return tuple(sorted(func.attrs.moves, key=lambda m: m.target))


def with_aliases(lowered: LoweredModule, *, slices: bool = True, parts: bool = True) -> LoweredModule:
    """The lowered module without the copies that views can stand for: of slices, of parts of a concatenation, or of both."""
    for call in lowered.calls:
        moves = moves_of(lowered.kernel(call))
        alias: Alias | None = None
        if slices and len(moves) == 1:
            alias = _slice(lowered, call, moves[0])
        if alias is None and parts and len(moves) > 1:
            alias = _parts(lowered, call, moves)
        if alias is not None:
            lowered = without_call(lowered, call, alias)
    return lowered


def without_call(lowered: LoweredModule, call: CallLowered, alias: Alias) -> LoweredModule:
    """The module without a call that the views of `alias` replace; unchanged if a branch or loop does nothing else."""
    controls = without_step(lowered.controls, lowered.calls.index(call))
    if controls is None:
        return lowered
    return replace(
        lowered.with_calls([c for c in lowered.calls if c is not call]),
        controls=controls,
        views={**lowered.views, **{t: root for t, (root, _) in alias.items()}},
        offsets={**lowered.offsets, **{t: offset for t, (_, offset) in alias.items() if offset}},
    )


def _slice(lowered: LoweredModule, call: CallLowered, move: Move) -> Alias | None:
    """The result as a view of the operand; a result of the model stays a tensor of its own."""
    (result,) = call.outputs
    if move.size != result.type.nbytes or is_output(lowered, result) or result in lowered.views:
        return None  # what is a part of something else already has its place there
    if {lowered.root(result), lowered.root(call.inputs[move.operand])} & lowered.variables:
        return None  # its bytes change while the view is read
    _, start = lowered.place_in_root(call.inputs[move.operand])
    return {result: (call.inputs[move.operand], move.source)} if fits_offset(lowered, result, start + move.source) else None


def _parts(lowered: LoweredModule, call: CallLowered, moves: Sequence[Move]) -> Alias | None:
    """All operands as views of the result; each has to be a whole tensor that a layer makes, and no other part."""
    (result,) = call.outputs
    if lowered.root(result) in lowered.variables or {lowered.root(t) for t in call.inputs} & lowered.variables:
        return None
    alias: Alias = {}
    made = {t for c in lowered.calls for t in c.outputs} | {lowered.root(t) for c in lowered.calls for t in c.outputs}
    made -= {lowered.root(s.old) for s in lowered.states}  # has a place of its own
    end = 0
    for move in moves:
        root, start = lowered.place_in_root(call.inputs[move.operand])
        whole = start == 0 and move.source == 0 and move.size == root.type.nbytes
        if not whole or root not in made or root in alias or move.target != end:
            return None
        if is_output(lowered, root) or not fits_offset(lowered, root, move.target):
            return None
        alias[root] = (result, move.target)
        end += move.size
    return alias if end == result.type.nbytes else None


def is_output(lowered: LoweredModule, root: TensorRef) -> bool:
    """Whether the model returns the tensor."""
    return any(lowered.root(t) is root for t in lowered.outputs)


def fits_offset(lowered: LoweredModule, tensor: TensorRef, offset: int) -> bool:
    """Whether an offset is aligned for every reader and writer of the tensor or a view of it."""
    needed = itemsize(tensor.type.dtype)
    for call in lowered.calls:
        func = lowered.kernel(call)
        for buffer, operand in zip(func.inputs + func.outputs, call.inputs + call.outputs, strict=True):
            if lowered.shows(operand, tensor):
                needed = max(needed, buffer.align, itemsize(buffer.dtype))
    return offset % needed == 0
