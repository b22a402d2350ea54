"""Operands copied, part by part, into the tensor that joins them."""

from __future__ import annotations

from dataclasses import replace

from aot.executor.lowered import CallLowered, LoweredModule, TensorRef
from aot.executor.plan.aliases import fits_offset, is_output, moves_of, without_call
from aot.ir.type import TensorType
from aot.memory.control import with_steps
from aot.support.dtype import itemsize
from aot.tir.buffer import Buffer
from aot.tir.expr import Imm, Load, Var
from aot.tir.function import FuncAttrs, Move, PrimFunc
from aot.tir.stmt import For, Store

Parts = list[tuple[TensorRef, Move]]
"""What a call joins: operands, and where their bytes go."""


def with_gathered_rows(lowered: LoweredModule, most: int) -> LoweredModule:
    """Without the calls that join rows of a state with what layers make: the layers write there, and the rows are copied.

    Results of more than `most` bytes stay as they are, since they are there from the first part on.
    """
    for call in lowered.calls:
        if len(moves_of(lowered.kernel(call))) > 1 and call.outputs[0].type.nbytes <= most:
            lowered = _gathered(lowered, call)
    return lowered


def _gathered(lowered: LoweredModule, call: CallLowered) -> LoweredModule:
    (result,), moves = call.outputs, moves_of(lowered.kernel(call))
    olds = {lowered.root(s.old) for s in lowered.states}
    if is_output(lowered, result) or result in lowered.views or not any(lowered.root(t) in olds for t in call.inputs):
        return lowered
    alias: dict[TensorRef, tuple[TensorRef, int]] = {}
    copies: Parts = []
    for move in moves:
        operand = call.inputs[move.operand]
        root = lowered.root(operand)
        made = any(root in c.outputs for c in lowered.calls) and root not in olds
        whole = made and move.size == root.type.nbytes and root not in alias and not is_output(lowered, root)
        if whole and fits_offset(lowered, root, move.target):
            alias[root] = (result, move.target)
        else:
            copies.append((operand, move))
    if not alias or sum(m.size for m in moves) != result.type.nbytes:
        return lowered
    return without_call(with_copies(lowered, call, copies, result), call, alias)


def with_copies(lowered: LoweredModule, call: CallLowered, copies: Parts, result: TensorRef) -> LoweredModule:
    """With a call in front of `call` for each operand that has to be copied into its result."""
    functions, views, offsets, made = dict(lowered.functions), dict(lowered.views), dict(lowered.offsets), []
    for operand, move in copies:
        type_, start = operand.type, lowered.place_in_root(operand)[1] + move.source
        if move.size != type_.nbytes:
            type_ = replace(type_, shape=rows_of(type_, move.size))
            source = TensorRef(f"{operand.name}_part", type_)
            views[source], offsets[source] = operand, move.source
            operand = source
        func = _copy(move, start)
        functions.setdefault(func.name, func)
        part = TensorRef(f"{operand.name}_kept", type_)
        views[part], offsets[part] = result, move.target
        made.append(CallLowered(func.name, (operand,), (part,), span=call.span, operators=call.operators))
    at = lowered.calls.index(call)
    calls = (*lowered.calls[:at], *made, *lowered.calls[at:])
    controls = with_steps(lowered.controls, at, len(made))
    return replace(lowered, functions=functions, views=views, offsets=offsets, calls=calls, controls=controls)


def rows_of(type_: TensorType, size: int) -> tuple[int, ...]:
    """The shape of the last `size` bytes: fewer rows along the first axis that has several, or just elements."""
    axis = next((i for i, n in enumerate(type_.shape) if n > 1), 0)
    row = type_.nbytes // type_.shape[axis]
    if size % row:
        return (size // itemsize(type_.dtype),)
    return (*type_.shape[:axis], size // row, *type_.shape[axis + 1 :])


def _copy(move: Move, offset: int) -> PrimFunc:
    """A kernel that copies a move's bytes, which begin `offset` bytes into their tensor; as words where they lie as such."""
    unit = 4 if not (move.size | move.target | offset) % 4 else 1
    word = "int32" if unit == 4 else "int8"
    source, target = (Buffer(name, (move.size,), "int8", align=unit) for name in ("data", "result"))
    i = Var("i")
    body = For(i, Imm(0), Imm(move.size // unit), (Store(target, (i,), Load(source, (i,), word), word),))
    return PrimFunc(
        f"keep_{move.size}_{word}",
        (source,),
        (target,),
        (body,),
        attrs=FuncAttrs("generic.copy", moves=(Move(0, 0, 0, move.size),)),
    )
