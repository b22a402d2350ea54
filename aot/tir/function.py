"""PrimFunc: what becomes one C function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from aot.ir.module import WRITTEN
from aot.ir.span import NO_SPAN, Span
from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.expr import Var
from aot.tir.stmt import Stmt


@dataclass(frozen=True, slots=True)
class Move:
    """`size` bytes from byte `source` of input number `operand` to byte `target` of the result."""

    operand: int
    source: int
    target: int
    size: int


@dataclass(frozen=True, slots=True)
class Shift:
    """A result that is the first input from byte `by` on, except for `fresh` bytes, which `rest` computes from the other inputs.

    If the result is `by` bytes after the start of the input, calling `rest` (the other inputs -> the result, where it writes
    only these bytes) does the whole job; the input loses the bytes overwritten there.
    """

    by: int
    fresh: int
    rest: PrimFunc


@dataclass(frozen=True, slots=True)
class FuncAttrs:
    """What is known about a kernel besides its body.

    `kernel` names the implementation and schedule (`generic.conv2d(pixels=1, channels=4)`); `macs` are the multiply-accumulates
    per call; `opt` is the C optimisation level it asks for: "speed" or "size".  `args` are the buffer names in the order in which
    callers pass them, if that is not the order of the PrimFunc.

    `moves`: everything that a kernel does, if it only copies runs of its operands.  `shift`: set if most of its work is moving
    its first input (not part of the text: a kernel that was read back moves it).  `distances`: (name of a, name of b) -> d if the
    author of the function knows that start(b) - start(a) >= d is safe; None means that analysis determines it.
    """

    kernel: str = ""
    span: Span = NO_SPAN
    macs: int = 0
    opt: str = "speed"
    args: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    shift: Shift | None = field(default=None, metadata={WRITTEN: False})
    distances: Mapping[tuple[str, str], int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PrimFunc:
    """A loop nest over buffers.

    `inputs` are read, `outputs` written, `consts` are packed streams in flash; `scratch` is planned memory, undefined before and
    after the call; `state` is memory that keeps its contents between calls; `scalars` are numeric parameters (from merging
    kernels that differ in numbers only).  `like`: a function that is equal except for its name and attributes.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    consts: tuple[Buffer, ...] = ()
    scratch: tuple[Buffer, ...] = ()
    scalars: tuple[Var, ...] = ()
    attrs: FuncAttrs = field(default_factory=FuncAttrs)
    state: tuple[Buffer, ...] = ()
    like: PrimFunc | None = field(default=None, compare=False)

    @property
    def core(self) -> PrimFunc:
        """The function under which analyses cache their results: `like`, only while body and buffers are identical."""
        other = self.like
        if other is None or other.body is not self.body or other.scalars is not self.scalars:
            return self
        pairs = ((self.inputs, other.inputs), (self.outputs, other.outputs), (self.consts, other.consts))
        same = all(a is b for a, b in (*pairs, (self.scratch, other.scratch), (self.state, other.state)))
        return other if same and self.attrs.opt == other.attrs.opt else self

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffer parameters in the order of the C signature."""
        return self.inputs + self.outputs + self.consts + self.scratch + self.state

    @property
    def params(self) -> tuple[Buffer | Var, ...]:
        return (*self.buffers, *self.scalars)

    def with_body(self, body: tuple[Stmt, ...]) -> PrimFunc:
        return replace(self, body=body)
