"""The interpreter against numpy, and every rule that it enforces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aot.support.dtype import int_range
from aot.tir.arith import INT_MEANING, wrap
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import ARITHMETIC, COMPARISONS, BinOp, Cast, Expr, Load, Select, cast, equal, imm, select
from aot.tir.function import PrimFunc
from aot.tir.interpreter import InterpreterError, compiled, run, run_module
from aot.tir.intrin import BlockText, Intrin, TensorIntrin
from aot.tir.stmt import CallPrim, Region, Store
from tests.tir.kernels import blocked_dense, conv, random_buffers, results
from tests.work import calls


def test_convolution_equals_numpy() -> None:
    func = conv(5, 4, channels=3, out=6, pad=-3)
    buffers = random_buffers(func)
    run(func, buffers)
    padded = np.full((7, 6, 3), -3, np.int64)
    padded[1:6, 1:5] = buffers["x"][0]
    expected = sum(
        np.einsum("hwc,oc->hwo", padded[p : p + 5, q : q + 4], buffers["k"][:, p, q].astype(np.int64))
        for p in range(3)
        for q in range(3)
    )
    np.testing.assert_array_equal(buffers["y"][0], expected)


def test_blocks_streams_and_scratch_equal_numpy() -> None:
    func = blocked_dense(4, 6, 8)
    buffers = random_buffers(func, 3)
    run(func, buffers)
    stream = buffers["params"]
    bias = stream[:24].view(np.int32) & 1023
    product = buffers["x"].astype(np.int64) @ stream[24:].reshape(6, 8).astype(np.int64).T
    np.testing.assert_array_equal(buffers["y"], np.clip((product + bias) >> 5, -128, 127))


def elementwise(rule: Callable[[Expr, Expr], Expr], dtype: str, out: str, count: int) -> PrimFunc:
    b = IRBuilder("f")
    x, y = b.input("x", (count,), dtype), b.input("y", (count,), dtype)
    z = b.output("z", (count,), out)
    with b.for_("i", count) as i:
        b.append(Store(z, (i,), rule(x[i], y[i]), out))
    return b.finish()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("op", sorted(ARITHMETIC | COMPARISONS))
def test_integer_operators(op: str, dtype: str) -> None:
    """Each operator against its exact meaning; values that would be errors are left out."""
    low, high = int_range(dtype)
    rng = np.random.default_rng(5)
    edges = [low, low + 1, -1, 0, 1, 2, 7, high - 1, high]
    pairs = [(a, b) for a in edges for b in edges] + [
        (int(rng.integers(low, high, dtype=dtype)), int(rng.integers(low, high, dtype=dtype))) for _ in range(20)
    ]
    signed = low < 0
    cases: list[tuple[int, int, int]] = []
    for a, b in pairs:
        if not (low <= a <= high and low <= b <= high):
            continue
        if (op in ("/", "%") and b == 0) or (op in ("<<", ">>") and not 0 <= b < int(high).bit_length() + signed):
            continue
        value = INT_MEANING[op](a, b)
        if signed and op in ARITHMETIC and not low <= value <= high:
            continue
        cases.append((a, b, value if op in COMPARISONS else wrap(value, dtype)))
    out = "bool" if op in COMPARISONS else dtype
    func = elementwise(lambda x, y: BinOp(op, x, y), dtype, out, len(cases))
    x, y = (np.array(column, np.dtype(dtype)) for column in list(zip(*cases, strict=True))[:2])
    z = np.zeros(len(cases), np.dtype(out))
    run(func, {"x": x, "y": y, "z": z})
    assert z.tolist() == [c[2] for c in cases]


@pytest.mark.parametrize("source", ["int8", "uint8", "int32", "uint32", "int64", "bool"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"])
def test_integer_casts_keep_the_low_bits(source: str, target: str) -> None:
    low, high = int_range(source)
    x = np.array([low, high, (low + high) // 2, high // 3], np.dtype(source))
    z = np.zeros(4, np.dtype(target))
    run(elementwise(lambda a, _: Cast(target, a), source, target, 4), {"x": x, "y": x, "z": z})
    assert z.tolist() == [wrap(int(v), target) for v in x.tolist()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["+", "-", "*", "/", "min", "max"])
def test_float_operators_round_to_their_type(op: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(50).astype(dtype) for _ in range(2))
    x[:3], y[:3] = [1e30, -1, 3], [1e30, 0, 7]
    z = np.zeros(50, dtype)
    run(elementwise(lambda a, b: BinOp(op, a, b), dtype, dtype, 50), {"x": x, "y": y, "z": z})
    functions = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "min": np.minimum, "max": np.maximum}
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(z, functions[op](x, y))


def test_float_conversions() -> None:
    x = np.array([2.7, -2.7, 2147483520.0, 1e-9], np.float32)
    z = np.zeros(4, np.int32)
    run(elementwise(lambda a, _: Cast("int32", a), "float32", "int32", 4), {"x": x, "y": x, "z": z})
    assert z.tolist() == [2, -2, 2147483520, 0]
    f = np.zeros(1, np.float32)
    run(elementwise(lambda a, _: Cast("float32", a), "int32", "float32", 1), {"x": z[2:3] + 1, "y": z[2:3], "z": f})
    assert f[0] == np.float32(2147483521)


def faulty(rule: Callable[[IRBuilder, Expr], None], **values: int) -> pytest.ExceptionInfo[InterpreterError]:
    """Run a function whose body `rule` appends, given an int32 that no interval knows; expect an error."""
    b = IRBuilder("faulty")
    x = b.input("x", (4,), "int32")
    b.output("y", (4,), "int32")
    rule(b, x[0])
    func = b.finish()
    array = np.array([values.get("x", 0), 1, 2, 3], np.int32)
    with pytest.raises(InterpreterError) as info:
        run(func, {"x": array, "y": np.zeros(4, np.int32)})
    assert info.value.function == "faulty"
    return info


@pytest.mark.parametrize(("value", "index"), [(4, 0), (-1, 0), (1 << 30, 0), (-(1 << 31), 0)])
def test_out_of_bounds(value: int, index: int) -> None:
    read = faulty(lambda b, v: b.store(b._outputs[0], index, b._inputs[0][v]), x=value)
    assert "out of bounds" in str(read.value)
    assert read.value.statement == f"y[{index}] = x[x[0]]"
    assert "out of bounds" in str(faulty(lambda b, v: b.store(b._outputs[0], v, 1), x=value).value)
    assert "out of bounds" in str(faulty(lambda b, v: b.store(b._outputs[0], 0, b._inputs[0].load("int16", v * 2)), x=5).value)


def test_each_dimension_is_checked() -> None:
    b = IRBuilder("rows")
    x, y = b.input("x", (2, 3), "int8"), b.output("y", (3, 2), "int8")
    with b.for_("i", 3) as i, b.for_("j", 2) as j:
        b.store(y, (i, j), x[j, i + 1])
    with pytest.raises(InterpreterError, match="index 3 is out of bounds for extent 3"):
        run(b.finish(), {"x": np.zeros((2, 3), np.int8), "y": np.zeros((3, 2), np.int8)})


def test_local_buffers_are_checked() -> None:
    def beyond(b: IRBuilder, v: Expr) -> None:
        acc = b.local("acc", (2,), "int32", init=0)
        b.store(acc, v, 1)

    assert "out of bounds" in str(faulty(beyond, x=-1).value)

    def constant(b: IRBuilder, v: Expr) -> None:
        acc = b.local("acc", (2,), "int32", init=0)
        b.store(b._outputs[0], 0, Load(acc, (imm(2),), "int32"))

    assert "out of bounds" in str(faulty(constant).value)


@pytest.mark.parametrize("indexed", [False, True])
def test_unset_locals_are_found(indexed: bool) -> None:
    def body(b: IRBuilder, v: Expr) -> None:
        acc = b.local("acc", (2,), "int32")
        b.store(acc, 0, 1)
        b.store(b._outputs[0], 0, acc[v if indexed else 1] + 1)

    assert "before it is stored" in str(faulty(body, x=1).value)


@pytest.mark.parametrize(
    ("rule", "value", "message"),
    [
        (lambda v: v + 1, 0x7FFFFFFF, "signed overflow: 2147483648"),
        (lambda v: v - 1, -0x80000000, "signed overflow"),
        (lambda v: v * v, 50000, "signed overflow: 2500000000"),
        (lambda v: v << 20, 5000, "signed overflow"),
        (lambda v: v // imm(-1), -0x80000000, "signed overflow"),
        (lambda v: BinOp("/", imm(7), v), 0, "division by zero"),
        (lambda v: BinOp("%", v, v), 0, "division by zero"),
        (lambda v: BinOp("<<", imm(1), v), 32, "shift by 32"),
        (lambda v: BinOp(">>", imm(1), v), -1, "shift by -1"),
        (lambda v: cast("int32", cast("int64", v) * cast("int64", v) * cast("int64", v)), -0x80000000, "signed overflow"),
        (lambda v: cast("int32", cast("float32", v) * imm(2.0, "float32")), 0x7FFFFFFF, "conversion of"),
        (lambda v: cast("int32", cast("float32", v) / imm(0.0, "float32")), 0, "conversion of nan"),
    ],
)
def test_arithmetic_errors(rule: Callable[[Expr], Expr], value: int, message: str) -> None:
    info = faulty(lambda b, v: b.store(b._outputs[0], 0, rule(v)), x=value)
    assert message in str(info.value)
    assert info.value.statement.startswith("y[0] = ")


def test_errors_name_the_statement_in_a_loop() -> None:
    b = IRBuilder("loop")
    x, y = b.input("x", (9,), "int16"), b.output("y", (9,), "int16")
    with b.for_("i", 9) as i:
        twice = b.let("twice", x[i] + x[i])
        b.store(y, i, twice)
    array = np.arange(9, dtype=np.int16) * 4000
    with pytest.raises(InterpreterError) as info:
        run(b.finish(), {"x": array, "y": np.zeros(9, np.int16)})
    assert info.value.statement == "let twice: int16 = x[i] + x[i]"


def test_selects_and_logic_evaluate_only_what_they_need() -> None:
    b = IRBuilder("lazy")
    x, y = b.input("x", (3,), "int32"), b.output("y", (4,), "int32")
    with b.for_("i", 4) as i:
        b.store(y, i, select(i < 3, x[i], imm(-1)))
        with b.if_(BinOp("&&", i < 3, x[i] > 1)):
            b.store(y, i, 9)
        with b.else_(), b.if_(BinOp("||", i >= 3, x[i] < 0)):
            b.store(y, i, y[i] - 5)
    array = np.zeros(4, np.int32)
    run(b.finish(), {"x": np.array([1, 2, -3], np.int32), "y": array})
    assert array.tolist() == [1, 9, -8, -6]


def test_loops_with_computed_bounds_and_steps() -> None:
    b = IRBuilder("triangle")
    x, y = b.input("x", (1,), "int32"), b.output("y", (10,), "int32")
    with b.for_("i", x[0], start=1, step=3) as i, b.for_("j", i + 1, start=i) as j:
        b.store(y, j, i)
    array = np.zeros(10, np.int32)
    run(b.finish(), {"x": np.array([9], np.int32), "y": array})
    assert array.tolist() == [0, 1, 0, 0, 4, 0, 0, 7, 0, 0]


def test_long_expressions_do_not_break_the_parser() -> None:
    b = IRBuilder("long")
    x, y = b.input("x", (300,), "int32"), b.output("y", (2,), "int32")
    total: Expr = x[0]
    nested: Expr = x[0]
    for i in range(1, 300):
        total = total + x[i]
        if i < 90:
            nested = Select(equal(x[i], 0), x[i], nested)
    b.store(y, 0, total)
    b.store(y, 1, nested)
    array = np.zeros(2, np.int32)
    run(b.finish(), {"x": np.arange(300, dtype=np.int32) + 1, "y": array})
    assert array.tolist() == [300 * 301 // 2, 1]


def test_scratch_poison_shows_stale_reads() -> None:
    b = IRBuilder("stale")
    y, s = b.output("y", (4,), "uint8"), b.scratch("s", (4,), "uint8")
    b.store(s, 0, 1)
    with b.for_("i", 4) as i:
        b.store(y, i, s[i])
    func = b.finish()
    a, c = results(func, poison=0)[0], results(func, poison=0xFF)[0]
    assert a.tolist() == [1, 0, 0, 0]
    assert c.tolist() == [1, 255, 255, 255]


def add_block() -> TensorIntrin:
    """acc[i] += x[i] for two int16."""
    b = IRBuilder("add2")
    x, acc = b.input("x", (2,), "int16", align=4), b.output("acc", (2,), "int32")
    with b.for_("i", 2) as i:
        b.store(acc, i, acc[i] + cast("int32", x[i]))
    return TensorIntrin("test.add2", b.finish(), lambda _: BlockText(""))


def block_func(index: Expr | None = None, *, dtype: str = "int16") -> PrimFunc:
    b = IRBuilder("blocks")
    x, n = b.input("x", (4,), "int16", align=4), b.input("n", (1,), "int32")
    y = b.output("y", (2,), "int32", align=4)
    acc = b.local("acc", (2,), "int32", init=100)
    at = n[0] if index is None else index
    b.block(add_block(), region(x, at, dtype=dtype), acc)
    b.store(y, 0, acc[0])
    b.store(y, 1, 0)
    b.block(add_block(), region(x, 2), y)
    b.store(y, 1, y[1] + acc[1])
    return b.finish()


def test_blocks_run_their_description() -> None:
    y = np.zeros(2, np.int32)
    x = np.array([1, 2, 30, 40], np.int16)
    run(block_func(), {"x": x, "n": np.array([2], np.int32), "y": y})
    assert y.tolist() == [160, 180]


@pytest.mark.parametrize(("index", "message"), [(3, "outside its buffer"), (-2, "outside its buffer"), (1, "not aligned to 4")])
def test_block_operands_are_checked(index: int, message: str) -> None:
    arrays = {"x": np.zeros(4, np.int16), "n": np.array([index], np.int32), "y": np.zeros(2, np.int32)}
    with pytest.raises(InterpreterError, match=message) as info:
        run(block_func(), arrays)
    assert info.value.statement == "block test.add2(x[n[0] ..], acc[0 ..])"


def test_errors_inside_a_block_name_the_description() -> None:
    arrays = {"x": np.zeros(4, np.int16), "n": np.zeros(1, np.int32), "y": np.zeros(2, np.int32)}
    b = IRBuilder("over")
    x, y = b.input("x", (4,), "int16", align=4), b.output("y", (2,), "int32")
    acc = b.local("acc", (2,), "int32", init=0x7FFFFFFF)
    b.block(add_block(), x, acc)
    b.store(y, 0, acc[0])
    arrays["x"][0] = 1
    del arrays["n"]
    with pytest.raises(InterpreterError, match="signed overflow") as info:
        run(b.finish(), arrays)
    assert info.value.function == "add2"


def test_intrinsics_are_called() -> None:
    three = Intrin("three", ("int32",), "int32", "({0} * 3)", lambda a: a * 3)
    other = Intrin("three", ("int32",), "int32", "({0} + 3)", lambda a: a + 3)
    b = IRBuilder("calls")
    x, y = b.input("x", (1,), "int32"), b.output("y", (2,), "int32")
    b.store(y, 0, three(x[0]))
    b.store(y, 1, other(three(x[0])))
    array = np.zeros(2, np.int32)
    run(b.finish(), {"x": np.array([7], np.int32), "y": array})
    assert array.tolist() == [21, 24]


def module() -> tuple[PrimFunc, dict[str, PrimFunc]]:
    """main(x, y): t = x + 1 in a workspace, y = t + k."""
    b = IRBuilder("inc")
    x, y = b.input("x", (4,), "int32", align=4), b.output("y", (4,), "int32", align=4)
    with b.for_("i", 4) as i:
        b.store(y, i, x[i] + 1)
    inc = b.finish()
    m = IRBuilder("main")
    a, z = m.input("a", (4,), "int32", align=4), m.output("z", (4,), "int32", align=4)
    space = m.scratch("workspace", (48,), "uint8", align=16)
    zero = imm(0)
    m.append(CallPrim("inc", (Region(a, zero, "int32"), Region(space, imm(32), "uint8")), 0))
    m.append(CallPrim("inc", (Region(space, imm(8), "int32"), Region(z, zero, "int32")), 1))
    return m.finish(), {"inc": inc}


def test_modules_call_their_functions() -> None:
    main, funcs = module()
    seen: list[tuple[int, str, list[int]]] = []
    z = np.zeros(4, np.int32)
    run_module(
        main,
        funcs,
        {"a": np.arange(4, dtype=np.int32), "z": z},
        on_call=lambda layer, name, outs: seen.append((layer, name, np.frombuffer(outs[0], np.int32).tolist())),
    )
    assert z.tolist() == [2, 3, 4, 5]
    assert seen == [(0, "inc", [1, 2, 3, 4]), (1, "inc", [2, 3, 4, 5])]


def test_calls_outside_the_workspace_are_found() -> None:
    main, funcs = module()
    arrays = {"a": np.zeros(4, np.int32), "z": np.zeros(4, np.int32)}
    bad = main.with_body((CallPrim("inc", (Region(main.inputs[0], imm(0), "int32"), Region(main.scratch[0], imm(36), "uint8"))),))
    with pytest.raises(InterpreterError, match="16 bytes at 36"):
        run_module(bad, funcs, arrays)
    for operands in ((Region(main.inputs[0], imm(0), "int32"),), (imm(1), imm(2))):
        with pytest.raises(InterpreterError):
            run_module(main.with_body((CallPrim("inc", operands),)), funcs, arrays)
    with pytest.raises(InterpreterError, match="unknown function"):
        run_module(main.with_body((CallPrim("dec", ()),)), funcs, arrays)


def test_wrong_arrays_are_refused() -> None:
    func = conv(3, 3)
    buffers = random_buffers(func)
    with pytest.raises(ValueError, match="no array for buffer k"):
        run(func, {k: v for k, v in buffers.items() if k != "k"})
    with pytest.raises(ValueError, match="bytes given for"):
        run(func, {**buffers, "x": buffers["x"][:, 1:]})
    with pytest.raises(ValueError, match="C-contiguous"):
        run(func, {**buffers, "x": np.asfortranarray(buffers["x"])})


def test_loops_are_pythons_own() -> None:
    """Whole layers run in tests: 73,728 multiply-accumulates are expressions in loops, and nothing is called for one of them."""
    func = conv(8, 8, channels=8, out=16)
    buffers = random_buffers(func)
    compiled(func)
    calls(lambda: run(func, buffers), most=1000)


def test_special_float_constants() -> None:
    b = IRBuilder("nan")
    y = b.output("y", (3,), "float32")
    for i, value in enumerate((float("nan"), float("inf"), float("-inf"))):
        b.store(y, i, imm(value, "float32"))
    array = np.zeros(3, np.float32)
    run(b.finish(), {"y": array})
    assert np.isnan(array[0])
    assert array[1:].tolist() == [float("inf"), float("-inf")]
