"""signal.rfft2d: rows, then columns, of one image at a time in double precision; the last column is made of the first one."""

from __future__ import annotations

from aot.numerics.elementary import SQRT_DOUBLE
from aot.relay.expr import tensor_type
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, equal, imm, logical_and, select
from aot.topi.generic.flat import FlatKernel, accepts_alone, flat_kernel
from aot.topi.generic.signal.split_radix import Transforms
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

ZERO = imm(0.0, "float64")


def lower_rfft2d(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (data,), attrs = kernel.b, kernel.args, group.anchor.attrs
    height, width = attrs.height, attrs.width
    given = tensor_type(group.anchor.args[0]).shape[-2:]
    rows = b.scratch("rows", (height * width,), "float64", align=8)
    transforms = Transforms(kernel, rows)
    with b.for_("image", data.size // (given[0] * given[1])) as image:
        base = b.let("base", image * (given[0] * given[1]))
        with b.for_("i", height) as i, b.for_("j", width) as j:
            inside = logical_and(i < given[0], j < given[1])
            source = cast("float64", data[base + i * given[1] + j])
            fits = given[0] >= height and given[1] >= width
            b.store(rows, i * width + j, source if fits else select(inside, source, ZERO))
        with b.for_("i", height) as i:
            transforms.real(b.let("row", i * width), width)
        if height > 1:
            _columns(kernel, rows, height, width)
        _results(kernel, rows, height, width, image=image)
    return kernel.finish("rfft2d")


def _columns(kernel: FlatKernel, rows: Buffer, height: int, width: int) -> None:
    """Each column of points, in memory of its own."""
    b = kernel.b
    column = b.scratch("column", (2 * height,), "float64", align=8)
    transforms = Transforms(kernel, column)
    with b.for_("c", width // 2) as c:
        with b.for_("i", height) as i:
            for part in range(2):
                b.store(column, i * 2 + part, rows[i * width + c * 2 + part])
        transforms.complex(imm(0), height)
        with b.for_("i", height) as i:
            for part in range(2):
                b.store(rows, i * width + c * 2 + part, column[i * 2 + part])
    _separate(b, rows, height, width)


def _separate(b: IRBuilder, rows: Buffer, height: int, width: int) -> None:
    """Of the first column, what belongs to the first bin and what to the last one."""
    with b.for_("i", height // 2, start=1) as i:
        near, far = b.let("near", i * width), b.let("far", (imm(height) - i) * width)
        real = b.let("real", (rows[near] - rows[far]) * 0.5)
        b.store(rows, far, real)
        b.store(rows, near, rows[near] - real)
        imaginary = b.let("imaginary", (rows[near + 1] + rows[far + 1]) * 0.5)
        b.store(rows, far + 1, imaginary)
        b.store(rows, near + 1, rows[near + 1] - imaginary)


def _results(kernel: FlatKernel, rows: Buffer, height: int, width: int, *, image: Expr) -> None:
    """Pairs of float32 with the sign of the imaginary part turned; zeros have the reference's signs."""
    b, out = kernel.b, kernel.out
    line, half = width + 2, height // 2
    first = b.let("first", image * (height * line))

    def put(i: Expr, at: Expr | int, real: Expr, imaginary: Expr) -> None:
        place = b.let("place", first + i * line + at)
        b.store(out, place, cast("float32", real))
        b.store(out, place + 1, cast("float32", imaginary * -1.0))

    with b.for_("i", height) as i, b.for_("c", width // 2, start=1) as c:
        at = b.let("at", i * width + c * 2)
        put(i, c * 2, rows[at], rows[at + 1])
    for whole in sorted({0, half}):
        put(imm(whole), 0, rows[whole * width], ZERO)
        put(imm(whole), width, rows[whole * width + 1], ZERO)
    with b.for_("i", height, start=half + 1) as i:
        near, far = b.let("near", (imm(height) - i) * width), b.let("far", i * width)
        put(i, width, rows[far + 1], rows[far])
        put(imm(height) - i, width, rows[far + 1], rows[far] * -1.0)
        put(i, 0, rows[near], rows[near + 1] * -1.0)
        put(imm(height) - i, 0, rows[near], rows[near + 1])


def lower_part(group: Group, _target: Target, name: str) -> Lowered:
    """real and imag."""
    kernel = flat_kernel(group, name)
    b, (data,), out = kernel.b, kernel.args, kernel.out
    kind = str(group.anchor.op)
    with b.for_("i", out.size) as i:
        b.store(out, i, data[i * 2 + (1 if kind == "imag" else 0)])
    return kernel.finish(kind)


def lower_abs(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (data,), out = kernel.b, kernel.args, kernel.out
    infinity = imm(float("inf"), "float32")
    with b.for_("i", out.size) as i:
        parts = [b.let("part", data[i * 2 + k]) for k in range(2)]
        wide = [b.let("wide", cast("float64", p)) for p in parts]
        found: Expr = cast("float32", SQRT_DOUBLE(wide[0] * wide[0] + wide[1] * wide[1]))
        for p in parts:
            for limit in (infinity, imm(float("-inf"), "float32")):
                found = select(equal(p, limit), infinity, found)
        b.store(out, i, found)
    return kernel.finish("complex_abs")


def accepts_pairs(group: Group, target: Target) -> bool:
    """A reshape of complex numbers that is no view."""
    return accepts_alone(group, target) and tensor_type(group.anchor).dtype == "complex64"


def lower_copy(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (data,), out = kernel.b, kernel.args, kernel.out
    with b.for_("i", out.size) as i:
        b.store(out, i, data[i])
    return kernel.finish("copy_complex")


register_impl(OpImplementation("generic.rfft2d", "signal.rfft2d", accepts_alone, lower_rfft2d))
register_impl(OpImplementation("generic.copy_complex", "reshape", accepts_pairs, lower_copy))
register_impl(OpImplementation("generic.complex_abs", "complex_abs", accepts_alone, lower_abs))
for _name in ("real", "imag"):
    register_impl(OpImplementation(f"generic.{_name}", _name, accepts_alone, lower_part))
