"""The C of a PrimFunc against the TIR interpreter, and the look of it."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import numpy as np
import pytest

from aot.errors import InternalError
from aot.ir.span import Span
from aot.support.dtype import int_range, numpy_dtype
from aot.target.codegen_c import LINE, canonical, emit_func, emit_prototype, fold_lines, headers
from aot.target.target import find_target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import BinOp, Expr, Imm, Load, Select, Var, cast, clamp, imm, select
from aot.tir.function import FuncAttrs, PrimFunc
from aot.tir.interpreter import InterpreterError, run
from aot.tir.intrin import BlockText, Intrin, TensorIntrin
from aot.tir.stmt import Store
from aot.topi.arm_dsp.halfwords import dot_quads
from tests.c_tools import compile_all, shared_library

HOST = find_target("host")
M4 = find_target("cortex-m4")
DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def write_c(folder: Path, funcs: list[PrimFunc], target=HOST) -> Path:
    """One file with all functions, called by their own names."""
    lines = [f'#include "{h}"' for h in sorted({h for f in funcs for h in headers(f)})]
    lines += [emit_prototype(f, name=f.name, target=target) for f in funcs]
    lines += [emit_func(f, name=f.name, target=target, linkage="extern") for f in funcs]
    path = folder / "funcs.c"
    path.write_text("\n".join(lines) + "\n")
    return path


def call_c(library: ctypes.CDLL, func: PrimFunc, buffers: dict[str, np.ndarray]) -> None:
    getattr(library, func.name)(*(ctypes.c_void_p(buffers[b.name].ctypes.data) for b in func.buffers))


def check_equal(funcs: list[PrimFunc], folder: Path, *, seed: int = 0, target=HOST) -> None:
    """Each function gives the same bytes in C as in the interpreter, on random contents of all buffers."""
    path = write_c(folder, funcs, target)
    trap = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    library = ctypes.CDLL(str(shared_library([path], folder / "funcs.so", *trap)))
    for func in funcs:
        got, want = fill(func, seed), fill(func, seed)
        run(func, want)
        call_c(library, func, got)
        for b in func.outputs:
            np.testing.assert_array_equal(got[b.name], want[b.name], err_msg=emit_func(func, name=func.name, target=target))


def fill(func: PrimFunc, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    out = {}
    for b in func.buffers:
        dtype = numpy_dtype(b.dtype)
        if dtype.kind == "f":
            out[b.name] = rng.standard_normal(b.shape).astype(dtype)
        else:
            low, high = int_range(b.dtype)
            out[b.name] = rng.integers(low, high, b.shape, dtype=dtype, endpoint=True)
    return out


# ---- expressions


class RandomExpr:
    """Random expressions of every operator and integer type; the interpreter says later which of them are defined."""

    def __init__(self, rng: random.Random, leaves: list[Load]) -> None:
        self.rng = rng
        self.leaves = leaves

    def make(self, dtype: str, depth: int) -> Expr:
        rng = self.rng
        if depth == 0 or rng.random() < 0.1:
            return cast(dtype, rng.choice(self.leaves)) if rng.random() < 0.8 else Imm(self.small(dtype), dtype)
        kind = rng.randrange(10)
        if kind < 5:
            op = rng.choice(["+", "-", "*", "min", "max", "&", "|", "^"])
            return BinOp(op, self.make(dtype, depth - 1), self.make(dtype, depth - 1))
        if kind == 5:
            amount = Imm(rng.randrange(0, 7), dtype)
            return BinOp(rng.choice(["<<", ">>"]), self.make(dtype, depth - 1), amount)
        if kind == 6:
            return BinOp(rng.choice(["/", "%"]), self.make(dtype, depth - 1), Imm(rng.randrange(2, 50), dtype))
        if kind == 7:
            return Select(self.condition(depth - 1), self.make(dtype, depth - 1), self.make(dtype, depth - 1))
        return cast(dtype, self.make(rng.choice(DTYPES), depth - 1))

    def condition(self, depth: int) -> Expr:
        dtype = self.rng.choice(("int32", "int64"))
        left, right = self.make(dtype, depth), self.make(dtype, depth)
        test = BinOp(self.rng.choice(["<", "<=", ">", ">=", "==", "!="]), cast(dtype, self.leaves[0]) + left, right)
        if self.rng.random() < 0.3 and depth > 0:
            return BinOp(self.rng.choice(["&&", "||"]), test, self.condition(depth - 1))
        return test

    def small(self, dtype: str) -> int:
        low, high = int_range(dtype)
        return self.rng.choice([low, high, 0, 1, self.rng.randint(max(low, -200), min(high, 200))])


def random_func(seed: int) -> PrimFunc:
    rng = random.Random(seed)
    b = IRBuilder(f"f{seed}")
    inputs = [b.input(f"x{i}", (4,), rng.choice(DTYPES)) for i in range(3)]
    dtype = rng.choice(DTYPES)
    out = b.output("y", (4,), dtype)
    with b.for_("i", 4) as i:
        value = RandomExpr(rng, [x[i] for x in inputs]).make(dtype, rng.randint(2, 4))
        b.append(Store(out, (i,), value, dtype))
    return b.finish()


@pytest.fixture(scope="module")
def defined() -> list[PrimFunc]:
    """Random functions whose evaluation breaks no rule."""
    funcs = []
    for seed in range(250):
        func = random_func(seed)
        try:
            run(func, fill(func, 0))
        except InterpreterError:
            continue
        funcs.append(func)
    assert len(funcs) > 75
    return funcs


def test_random_expressions_equal_the_interpreter(defined: list[PrimFunc], tmp_path: Path) -> None:
    check_equal(defined, tmp_path)


@pytest.mark.parametrize(
    "compiler", ["gcc", pytest.param("clang", marks=pytest.mark.slow), pytest.param("arm-m4", marks=pytest.mark.slow)]
)
def test_random_expressions_compile_without_warnings(defined: list[PrimFunc], tmp_path: Path, compiler: str) -> None:
    path = write_c(tmp_path, defined)
    # random expressions contain tests whose result is known, which is not what this is about
    quiet = ["-Wno-type-limits", "-Wno-tautological-compare", "-Wno-overflow"]
    quiet += ["-Wno-integer-overflow"] if compiler == "clang" else ["-Wno-int-in-bool-context"]
    compile_all(compiler, [path], *quiet, level="-O1")


# ---- statements and tensor intrinsics


def mac_intrin() -> TensorIntrin:
    d = IRBuilder("mac2x4")
    x, w, acc = d.input("x", (4,), "int8"), d.input("w", (2, 4), "int8"), d.output("acc", (2,), "int32")
    d.input("hint", (1,), "int16")  # an operand that only the instructions want
    with d.for_("o", 2) as o, d.for_("k", 4) as k:
        d.store(acc, o, acc[o] + cast("int32", x[k]) * cast("int32", w[o, k]))
    return TensorIntrin(
        "mac2x4",
        d.finish(),
        lambda ops: BlockText(
            "\n".join(
                f"{a} = aot_fake_mac({ops['x'].pointer}, {ops['w'].pointer} + {4 * i}, {a});"
                for i, a in enumerate(ops["acc"].scalars)
            ),
            registers=5,
        ),
    )


def conv(name: str = "conv") -> PrimFunc:
    """A small convolution by blocks, with typed loads, lets, branches and a scratch buffer."""
    b = IRBuilder(name)
    x, y = b.input("x", (4, 8), "int8"), b.output("y", (4, 4), "int8")
    p = b.const("params", (48,), "uint8")
    row = b.scratch("row", (8,), "int16")
    mac = mac_intrin()
    with b.for_("i", 4) as i:
        with b.for_("c", 8) as c:
            b.store(row, c, x[i, c])
        with b.for_("o", 4, step=2) as o:
            acc = b.local("acc", (2,), "int32", init=0)
            dead = b.local("dead", (2,), "int32", init=0)
            with b.for_("k", 8, step=4) as k:
                b.block(mac, region(x, i * 8 + k), region(p, o * 8 + k, dtype="int8"), region(row), region(acc))
            for j in range(2):
                total = acc[j] + cast("int32", p.load("int16", 16 + j))
                wide = b.let("wide", cast("int64", total) * cast("int64", p.load("uint32", 9)))
                b.let("unused", wide * 2)
                q = b.let("q", cast("int32", wide >> 31) + cast("int32", row[o + j]))
                b.store(dead, j, dead[j] + q)
                with b.if_(q > 5):
                    b.store(y, (i, o + j), clamp(q, -128, 127))
                with b.else_():
                    with b.if_(q < -100):
                        b.store(y, (i, o + j), cast("int8", select(q > -110, q << 3, q >> 1)))
                    with b.else_():
                        b.store(y, (i, o + j), q & 127)
    return b.finish(FuncAttrs("generic.conv2d(1,2)", Span(3, "CONV_2D", "sep2/*conv??/", 4), 128))


def test_statements_equal_the_interpreter(tmp_path: Path) -> None:
    for seed in range(3):
        check_equal([conv()], tmp_path, seed=seed)
    check_equal([conv()], tmp_path, target=M4)  # the guard's other branch


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-m4", "arm-m0"])
def test_statements_compile_without_warnings(tmp_path: Path, compiler: str) -> None:
    target = M4 if compiler != "arm-m4" else HOST  # the fake instruction has no C to call
    compile_all(compiler, [write_c(tmp_path, [conv()], target)])


def test_look_of_a_function() -> None:
    text = emit_func(conv(), name="net_conv2d_0", target=M4)
    head, _, body = text.partition("*/\n")
    assert head == (
        '/* op 3 CONV_2D "sep2/ *conv? ?/"\n   int8[4, 8] -> int8[4, 4]\n   kernel generic.conv2d(1,2), 128 MACs\n'
    )  # fmt: skip
    assert body.startswith(
        "AOT_KERNEL static void net_conv2d_0(const int8_t *x, int8_t *y, const uint8_t *params, int16_t *row) {\n"
    )
    assert "      int32_t acc_0 = 0, acc_1 = 0;\n" in body
    assert "dead" not in body
    assert "unused" not in body
    assert "acc_0 = aot_fake_mac(&x[i * 8 + k], (const int8_t *)&params[o * 8 + k] + 0, acc_0);" in body
    assert "#if AOT_DSP && AOT_REGISTERS >= 5\n" in body
    assert "#if" not in emit_func(conv(), name="f", target=HOST)
    assert "y[i * 4 + o] = (int8_t)aot_ssat8(q);" in body


def test_unused_parameter_is_voided(tmp_path: Path) -> None:
    b = IRBuilder("f")
    b.input("idle", (1,), "int8")
    b.store(b.output("y", (1,), "int8"), 0, 1)
    func = b.finish()
    assert "(void)idle;" in emit_func(func, name="f", target=HOST)
    compile_all("gcc", [write_c(tmp_path, [func])])


def test_canonical_ignores_names_of_buffers_and_comment() -> None:
    def make(name: str, kernel: str, value: int) -> PrimFunc:
        b = IRBuilder(name)
        b.store(b.output(name, (1,), "int8"), 0, value)
        return b.finish(FuncAttrs(kernel))

    assert canonical(make("a", "k", 1), HOST) == canonical(make("b", "j", 1), HOST)
    assert canonical(make("a", "k", 1), HOST) != canonical(make("a", "k", 2), HOST)


def test_floats_and_64_bit(tmp_path: Path) -> None:
    b = IRBuilder("wide")
    x, z = b.input("x", (4,), "float32"), b.input("z", (4,), "int64", align=8)
    y, u = b.output("y", (4,), "float32"), b.output("u", (4,), "int64", align=8)
    scale = Imm(0.1, "float32")
    with b.for_("i", 4) as i:
        b.store(y, i, BinOp("max", x[i] * scale + 1.0, Imm(-3.0, "float32")))
        b.store(u, i, (z[i] >> 20) * 3 - cast("int64", cast("int32", z[i])) * cast("int64", Imm(1 << 20)))
    func = b.finish()
    check_equal([func], tmp_path)
    for compiler in ("gcc", "clang", "arm-m4"):
        compile_all(compiler, [write_c(tmp_path, [func])])


def test_intrinsic_arguments_are_parenthesised_where_the_format_needs_it() -> None:
    twice = Intrin("twice", ("int32",), "int32", "{0} * 2", lambda a: a * 2)
    b = IRBuilder("f")
    x, y = b.input("x", (1,), "int32"), b.output("y", (1,), "int32")
    b.store(y, 0, twice(x[0] + 1) * 5)
    assert "y[0] = ((x[0] + 1) * 2) * 5;" in emit_func(b.finish(), name="f", target=HOST)


def test_local_index_that_is_not_constant_is_refused() -> None:
    b = IRBuilder("f")
    x, y = b.input("x", (4,), "int32"), b.output("y", (1,), "int32")
    acc = b.local("acc", (4,), "int32", init=0)
    b.store(y, 0, acc[x[0]])
    with pytest.raises(InternalError, match="E9001"):
        emit_func(b.finish(), name="f", target=HOST)


def test_loop_over_registers_is_unrolled(tmp_path: Path) -> None:
    b = IRBuilder("f")
    x, y = b.input("x", (4,), "int8"), b.output("y", (4,), "int32")
    acc = b.local("acc", (4,), "int32", init=1)
    with b.for_("i", 4) as i:
        b.store(acc, i, acc[i] + cast("int32", x[i]))
        v = b.let("v", acc[i] * 2)
        b.store(y, i, v)
    func = b.finish()
    text = emit_func(func, name="f", target=HOST)
    assert "for" not in text
    assert "acc_3 += x[3];" in text
    assert "const int32_t v_3 = acc_3 * 2;" in text
    check_equal([func], tmp_path)


def test_scalar_parameter_and_indexed_local(tmp_path: Path) -> None:
    from aot.tir.buffer import Buffer
    from aot.tir.stmt import Allocate, For

    n, i = Var("n"), Var("i")
    x, y, t = Buffer("x", (4,), "int8"), Buffer("y", (4,), "int8"), Buffer("t", (4,), "int8", "local", indexed=True)
    body = (
        Allocate(t),
        For(i, Imm(0), n, (Store(t, (i,), x[i], "int8"),)),
        For(i, Imm(0), n, (Store(y, (i,), t[BinOp("-", BinOp("-", n, Imm(1)), i)], "int8"),)),
    )
    func = PrimFunc("reverse", (x,), (y,), body, scalars=(n,))
    text = emit_func(func, name="reverse", target=HOST)
    assert "int8_t *y, int32_t n) {" in text
    assert "int8_t t[4];" in text
    library = ctypes.CDLL(str(shared_library([write_c(tmp_path, [func])], tmp_path / "f.so")))
    data, out = np.array([1, 2, 3, 4], np.int8), np.zeros(4, np.int8)
    library.reverse(ctypes.c_void_p(data.ctypes.data), ctypes.c_void_p(out.ctypes.data), 4)
    np.testing.assert_array_equal(out, [4, 3, 2, 1])


def test_long_lines_are_folded_between_operands() -> None:
    terms = [f"(int32_t)(acc_{i} * params[{i} * 2 + 1], 7)" for i in range(12)]
    for line in (f"    y = f({', '.join(terms)});", f"  const int32_t sum = {' + '.join(terms)};", f"    : {', '.join(terms)}"):
        folded = fold_lines(line).split("\n")
        assert max(map(len, folded)) <= LINE
        assert " ".join(part.strip() for part in folded) == line.strip()
        assert all(part.startswith(("    ", "  const")) and part.count("(") == part.count(")") for part in folded[1:-1])
    for line in (f'  "{"ldr r0, [r1] " * 12}\\n"', f"/* {'a, b ' * 40}*/", f"#define X {'1 + ' * 40}2", "x" * 200):
        assert fold_lines(line) == line


def test_an_accumulator_that_only_a_block_uses() -> None:
    """Blocks of fixed size may compute more than is wanted; Clang would warn of what is set and never read."""
    b = IRBuilder("f")
    x, w = b.input("x", (4,), "int16", align=4), b.input("w", (8,), "int16", align=4)
    out = b.output("out", (1,), "int32")
    acc = b.local("acc", (2,), "int32")
    for i in range(2):
        b.store(acc, i, imm(0))
    b.block(dot_quads(2, 1), x, w, acc)
    b.store(out, 0, acc[0])
    text = emit_func(b.finish(), name="f", target=find_target("cortex-m4"))
    assert "(void)acc_1;" in text
    assert "(void)acc_0;" not in text
