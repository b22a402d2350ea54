"""Functions of C that a main function calls beside its kernels: their names, and their meaning."""

from __future__ import annotations

from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.expr import Imm, Load, Var
from aot.tir.function import PrimFunc
from aot.tir.stmt import For, Store


def _mover(name: str) -> PrimFunc:
    """`size` bytes from the operand to the result."""
    source, target = (Buffer(word, (UNKNOWN_EXTENT,), "uint8") for word in ("source", "target"))
    size, i = Var("size", "uint32"), Var("i")
    body = For(i, Imm(0), size, (Store(target, (i,), Load(source, (i,), "uint8"), "uint8"),))
    return PrimFunc(name, (source,), (target,), (body,), scalars=(size,))


COPY = "copy"
"""Between the caller's memory, which may be missing or the same, and the workspace."""

MOVE = "memmove"

BUILTINS = {name: _mover(name) for name in (COPY, MOVE)}
"""By name; C has the result first."""
