"""The text of loop nests is stable: golden files, and what is easily got wrong."""

from __future__ import annotations

from aot.tir.builder import IRBuilder, region
from aot.tir.expr import BinOp, imm, select
from aot.tir.printer import print_expr, print_func, print_stmt
from aot.tir.stmt import CallPrim
from aot.tir.transform import flatten, simplified, unroll
from tests.conftest import Golden
from tests.tir.kernels import blocked_dense, conv
from tests.tir.test_interpreter import block_func, module


def test_golden_kernels(golden: Golden) -> None:
    golden("conv.tir", print_func(conv()))
    golden("dense.tir", print_func(blocked_dense()))
    golden("dense_optimized.tir", print_func(simplified(flatten(unroll(blocked_dense())))))
    golden("blocks.tir", print_func(block_func()) + print_func(module()[0]))


def test_parentheses_follow_precedence() -> None:
    b = IRBuilder("f")
    x = b.input("x", (8,), "int32")
    a, c, d = x[0], x[1], x[2]
    assert print_expr((a + c) * d) == "(x[0] + x[1]) * x[2]"
    assert print_expr(a - (c - d)) == "x[0] - (x[1] - x[2])"
    assert print_expr((a << 2) + 1) == "(x[0] << 2) + 1"
    assert print_expr(BinOp("&&", a < c, BinOp("||", c < d, d < a))) == "x[0] < x[1] && (x[1] < x[2] || x[2] < x[0])"
    assert print_expr(select(a < c, imm(3, "uint8"), imm(4, "uint8"))) == "select(x[0] < x[1], uint8(3), uint8(4))"
    assert print_expr(imm(1.5, "float32")) == "1.5"
    assert print_expr(imm(1, "bool")) == "true"


def test_equal_names_are_told_apart() -> None:
    b, c = IRBuilder("f"), IRBuilder("g")
    x, other = b.input("x", (2,), "int32"), c.input("x", (2,), "int32")
    assert print_expr(x[0] + other[1] + x[1]) == "x[0] + x.1[1] + x[1]"
    assert print_stmt(CallPrim("f", (region(x, 1), imm(4)), 3)) == "call @f(x[1 ..], 4)  // layer 3\n"
