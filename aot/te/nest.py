"""From tensors to loop nests: one nest over the output's shape for each output."""

from __future__ import annotations

from collections.abc import Sequence

from aot.te.tensor import TensorFn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs, PrimFunc

_NAMES = {1: ("c",), 2: ("m", "c"), 3: ("h", "w", "c"), 4: ("n", "h", "w", "c")}


def emit_nest(b: IRBuilder, out: Buffer, tensor: TensorFn) -> None:
    """Append loops over `out.shape` that store each element of `tensor`; an axis of extent 1 gets no loop.

    `out` may differ from `tensor` in shape only by having the same number of elements in one flat axis.
    """
    shape = tensor.shape
    flat = out.shape != shape
    if out.size != tensor_size(shape) or (flat and len(out.shape) != 1):
        raise ValueError(f"{out.name} of shape {out.shape} cannot hold a tensor of shape {shape}")
    names = _NAMES.get(len(shape)) or tuple(f"i{axis}" for axis in range(len(shape)))

    def nest(indices: tuple[Expr, ...]) -> None:
        axis = len(indices)
        if axis == len(shape):
            value = tensor.at(b, indices)
            b.store(out, _row_major(shape, indices) if flat or not shape else indices, value)
        elif shape[axis] == 1:
            nest((*indices, imm(0)))
        else:
            with b.for_(names[axis], shape[axis]) as var:
                nest((*indices, var))

    nest(())


def emit_flat(b: IRBuilder, out: Buffer, tensor: TensorFn, *, unroll: int = 4) -> None:
    """Append one loop that stores the elements of a tensor with one axis, `unroll` at a time, and what is left after it.

    The values of a turn are computed before any of them is stored, so that loads do not wait for stores.
    """
    (size,) = tensor.shape
    if out.shape != tensor.shape:
        raise ValueError(f"{out.name} of shape {out.shape} cannot hold a tensor of shape {tensor.shape}")

    def turn(start: Expr, count: int) -> None:
        values = [b.let("value", tensor.at(b, (start + u,))) for u in range(count)]
        for u, value in enumerate(values):
            b.store(out, start + u, value)

    whole = size - size % unroll
    if whole == unroll:
        turn(imm(0), unroll)
    elif whole:
        with b.for_("i", whole, step=unroll) as i:
            turn(i, unroll)
    if whole < size:
        turn(imm(whole), size - whole)


def tensor_size(shape: Sequence[int]) -> int:
    """Number of elements."""
    size = 1
    for extent in shape:
        size *= extent
    return size


def _row_major(shape: Sequence[int], indices: Sequence[Expr]) -> Expr:
    flat: Expr = imm(0)
    for extent, index in zip(shape, indices, strict=True):
        flat = flat * extent + index
    return flat


def create_prim_func(b: IRBuilder, outputs: Sequence[tuple[Buffer, TensorFn]], attrs: FuncAttrs | None = None) -> PrimFunc:
    """The PrimFunc of builder `b` that computes each (output buffer, tensor), one nest after the other."""
    for out, tensor in outputs:
        emit_nest(b, out, tensor)
    return b.finish(attrs)
