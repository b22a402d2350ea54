"""PrimFunc: one C function to be."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from aot.ir.span import NO_SPAN, Span
from aot.tir.buffer import Buffer
from aot.tir.expr import Var
from aot.tir.stmt import Stmt


@dataclass(frozen=True, slots=True)
class FuncAttrs:
    """What is known of a kernel beside its body.

    `kernel` names implementation and schedule (`generic.conv2d(pixels=1, channels=4)`); `macs` are multiply-accumulates of one
    call; `opt` is the C optimisation level that it wants: "speed" or "size".  `args` are the buffers' names in the order in which
    a caller gives them, where that is not the order of the PrimFunc.
    """

    kernel: str = ""
    span: Span = NO_SPAN
    macs: int = 0
    opt: str = "speed"
    args: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class PrimFunc:
    """A loop nest over buffers.

    `inputs` are read, `outputs` written, `consts` are packed streams in flash, `scratch` is planned memory without contents
    before or after the call, `scalars` are parameters that are numbers (from merging kernels that differ in numbers only).
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    consts: tuple[Buffer, ...] = ()
    scratch: tuple[Buffer, ...] = ()
    scalars: tuple[Var, ...] = ()
    attrs: FuncAttrs = field(default_factory=FuncAttrs)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffer parameters in the order of the C signature."""
        return self.inputs + self.outputs + self.consts + self.scratch

    @property
    def params(self) -> tuple[Buffer | Var, ...]:
        return (*self.buffers, *self.scalars)

    def with_body(self, body: tuple[Stmt, ...]) -> PrimFunc:
        return replace(self, body=body)
