"""Constants: each different one once."""

from __future__ import annotations

from dataclasses import replace

from aot.executor.lowered import CallLowered, LoweredModule
from aot.executor.plan.storage_map import alignments
from aot.ir.op import Array
from aot.support.dtype import itemsize
from aot.support.names import NameSupply, c_identifier
from aot.support.text import printable
from aot.target.source_module import Param, as_stream


def merge_constants(lowered: LoweredModule) -> tuple[tuple[Param, ...], list[tuple[int, ...]], list[int]]:
    """Each different constant once; the array numbers of each call's consts, and those of the constant tensors."""
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
        calls.append(
            tuple(
                enter(
                    f"{b.name}_{i}",
                    data[b.name],
                    b.dtype,
                    align=max(b.align, itemsize(b.dtype)),
                    note=_note(i, call),
                )
                for b in lowered.kernel(call).consts
            )
        )
    aligns = alignments(lowered)
    tensors = [
        enter(f"tensor_{k}", value, t.type.dtype, align=aligns[t], note=f"tensor {t.name}")
        for k, (t, value) in enumerate(lowered.values.items())
    ]
    return tuple(arrays), calls, tensors


def _note(index: int, call: CallLowered) -> str:
    """Whose constants these are: `layer 3 op 5 CONV_2D "name"`, `layer 3 ops 5, 6 CONV_2D + ADD "name"`."""
    ops = ", ".join(map(str, call.operators))
    where = f'op{"s" * (len(call.operators) > 1)} {ops} {call.does} "{printable(call.span.name)}"' if ops else str(call.span)
    return f"layer {index} {where}"
