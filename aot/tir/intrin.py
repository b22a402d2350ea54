"""Intrinsics: the only way to get C text into a kernel, each declared once as {C text, meaning}."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.expr import Call, Expr, Imm, IntoExpr, Load, Var, as_expr
from aot.tir.function import PrimFunc
from aot.tir.stmt import For, Store


@dataclass(frozen=True, slots=True, eq=False)
class Intrin:
    """A scalar intrinsic: one C expression and its meaning.

    `c` is a format string over the printed arguments (`"aot_smlad({0}, {1}, {2})"`); `py` computes the result from Python ints of
    the argument dtypes; `header` is the crt header that declares it ("" for none); `requires` names a CPU feature ("dsp", "mve"),
    without which the header supplies a portable fallback.
    """

    name: str
    args: tuple[str, ...]
    dtype: str
    c: str
    py: Callable[..., int | float]
    header: str = "aot/kernel.h"
    requires: str = ""

    def __post_init__(self) -> None:
        INTRINSICS.setdefault(self.name, []).append(self)

    def __call__(self, *values: IntoExpr) -> Call:
        if len(values) != len(self.args):
            raise TypeError(f"{self.name} takes {len(self.args)} arguments, not {len(values)}")
        args: list[Expr] = []
        for value, dtype in zip(values, self.args, strict=True):
            expr = as_expr(value, dtype)
            if expr.dtype != dtype:
                raise TypeError(f"{self.name}: an argument is {expr.dtype}, not {dtype}")
            args.append(expr)
        return Call(self, tuple(args))


INTRINSICS: dict[str, list[Intrin]] = {}
"""Scalar intrinsics by name, registered when declared: what parsed text may call.  Overloads differ in their argument types."""


@dataclass(frozen=True, slots=True)
class COperand:
    """How a block's operand looks in C: `pointer` for memory, `scalars` for a local buffer's elements, `value` for a scalar."""

    pointer: str = ""
    scalars: tuple[str, ...] = ()
    value: str = ""


@dataclass(frozen=True, slots=True)
class BlockText:
    """The C statements of a block, and what they need that a build may not have: core registers, an FPU."""

    text: str
    registers: int = 0
    fpu: bool = False


EXTERNAL = "external"
"""`requires` of a block that calls a library: its C text is printed for every target, since there is no alternative."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorIntrin:
    """A block intrinsic: its meaning is the loop nest `desc`, its C text comes from `emit`.

    `emit` receives the operands by the names of `desc`'s parameters and returns C statements (usually one asm block).  If the
    target lacks `requires`, the code generator prints `desc` instead, so that host and interpreter run the same meaning.
    Otherwise it prints both, and the preprocessor selects `desc` in a build that lacks `requires`, the registers or the FPU.

    `ordered`: the C text writes no byte of memory before the loads that precede that store in `desc`, so operands may overlap
    wherever they may in `desc`.
    """

    name: str
    desc: PrimFunc
    emit: Callable[[Mapping[str, COperand]], BlockText]
    requires: str = "dsp"
    header: str = "aot/kernel.h"
    ordered: bool = False


# C functions that a main function calls besides its kernels: their names, and their meaning.


def _mover(name: str) -> PrimFunc:
    """A function that copies `size` bytes from the operand to the result."""
    source, target = (Buffer(word, (UNKNOWN_EXTENT,), "uint8") for word in ("source", "target"))
    size, i = Var("size", "uint32"), Var("i")
    body = For(i, Imm(0), size, (Store(target, (i,), Load(source, (i,), "uint8"), "uint8"),))
    return PrimFunc(name, (source,), (target,), (body,), scalars=(size,))


COPY = "copy"
"""Copies between the caller's memory, which may be missing or the same, and the workspace."""

MOVE = "memmove"

BUILTINS = {name: _mover(name) for name in (COPY, MOVE)}
"""By name; in C the result comes first."""
