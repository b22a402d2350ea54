"""Text of loop nests is read back: every module of every phase after lowering, and what is wrong with a text is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import build, compile_model
from aot.driver.options import Options
from aot.errors import AotError, UsageError
from aot.ir.module import IRModule, parse
from aot.ir.structural import structural_equal
from aot.ir.transform import Pass, PassContext, PassInstrument
from aot.target.codegen_c import emit_func
from aot.target.target import find_target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import BinOp, Cast, Expr, Imm, Select, Var
from aot.tir.function import PrimFunc
from aot.tir.interpreter import run_module
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Block, CallPrim, If, Store, While
from aot.tir.transform import flatten, unroll
from tests.conftest import Golden
from tests.scale import cases
from tests.tir.kernels import blocked_dense, conv
from tests.tir.test_interpreter import block_func, module

MODELS = Path(__file__).parents[1] / "models"
ALL = sorted(p.stem for p in MODELS.glob("*.tflite"))
CORPUS = sorted((MODELS.parents[2] / "shared" / "models").glob("[!r]*/*.tflite"), key=lambda p: (p.parent.name, p.name))
"""All but reject/."""
SOME = ("net_kws_dscnn", "add_relu6", "softmax")


def round_trip(given: IRModule) -> IRModule:
    """The module from its own text, which has to be the same, and the same text again."""
    text = given.astext(show_meta_data=True)
    back = parse(text, name=given.name)
    assert structural_equal(given, back)
    assert back.astext(show_meta_data=True) == text
    return back


class Keep(PassInstrument):
    """Every module after lower_te."""

    def __init__(self) -> None:
        self.modules: dict[str, IRModule] = {}

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        if "main" not in module.functions:
            self.modules[info.name] = module


def read_back(path: Path, target: str, options: Options) -> None:
    """All modules of a compilation, and the C of the functions that were read."""
    keep = Keep()
    with PassContext(instruments=[keep]):
        compile_model(path, target=target, options=options)
    cpu = find_target(target)
    for after, given in keep.modules.items():
        back = round_trip(given)
        called = {s.func for f in given.functions.values() if isinstance(f, PrimFunc) for s in f.body if isinstance(s, CallPrim)}
        for key, func in given.functions.items():
            if after != "aot_lower_main" or key not in called:
                continue
            other = back[key]
            assert isinstance(func, PrimFunc)
            assert isinstance(other, PrimFunc)
            texts = [emit_func(f, name=key, target=cpu, linkage="extern", note="") for f in (func, other)]
            assert texts[0] == texts[1]


@pytest.mark.parametrize("name", SOME[1:])
def test_a_sample_of_models(name: str) -> None:
    read_back(MODELS / f"{name}.tflite", "cortex-m4", Options())


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL[:: len(ALL) // cases(len(ALL))])
@pytest.mark.parametrize(
    ("target", "opt"), [("cortex-m4", "balanced"), ("cortex-m4", "size"), ("cortex-m55", "speed"), ("host", "ram")]
)
def test_all_models(name: str, target: str, opt: str) -> None:
    try:
        build(MODELS / f"{name}.tflite", target=target, options=Options(opt=opt))
    except AotError:
        pytest.skip("refused")
    read_back(MODELS / f"{name}.tflite", target, Options(opt=opt))


@pytest.mark.slow
@pytest.mark.parametrize("path", CORPUS[:: len(CORPUS) // cases(len(CORPUS))] if CORPUS else [], ids=lambda p: p.stem)
def test_corpus(path: Path) -> None:
    try:
        read_back(path, "cortex-m4", Options())
    except AotError as error:
        if not all(p.code == "E1214" for p in error.problems):
            raise
        pytest.skip("its shapes have to be given")


def test_kernels_by_hand() -> None:
    for func in (conv(), blocked_dense(), flatten(unroll(blocked_dense())), block_func(), module()[0]):
        back = round_trip(IRModule({func.name: func}))
        assert back[func.name] is not func


@pytest.mark.parametrize("limit", [0, 9])
def test_a_loop_with_a_condition(limit: int) -> None:
    n = Buffer("n", (1,), "int32", align=4)
    test, body = (Store(n, (Imm(0),), n[0], "int32"),), (Store(n, (Imm(0),), n[0] - 1, "int32"),)
    loop = While(test, BinOp("<", Imm(0), n[0]), body, limit)
    round_trip(IRModule({"f": PrimFunc("f", (), (n,), (loop, If(BinOp("<", n[0], Imm(1)), body, test)))}))


def test_what_is_read_runs() -> None:
    func = conv()
    back = round_trip(IRModule({"conv": func}))["conv"]
    assert isinstance(back, PrimFunc)
    rng = np.random.default_rng(1)
    found = []
    arrays = {
        b.name: rng.integers(0, 8, b.size).astype(b.dtype).reshape(b.shape) for b in (*func.inputs, *func.outputs, *func.consts)
    }
    for f in (func, back):
        buffers = {name: a.copy() for name, a in arrays.items()}
        run_module(f, {}, buffers)
        found.append([buffers[b.name].tobytes() for b in f.outputs])
    assert found[0] == found[1]


EXPRESSIONS = [
    BinOp("-", Var("a"), BinOp("-", Var("a"), Imm(-5))),
    BinOp("*", BinOp("+", Var("a"), Imm(1)), BinOp("%", Var("a"), Imm(3))),
    BinOp("min", Imm(-(2**31)), BinOp("max", Var("a"), Imm(2**31 - 1))),
    Cast("int32", Cast("int8", Imm(300))),
    Cast("int32", Imm(1, "bool")),
    Cast("int32", Imm(-1.5, "float32")),
    Cast("int32", BinOp("/", Imm(1e-07, "float32"), Imm(-0.0, "float32"))),
    Cast("int32", BinOp("*", Imm(3.0, "float64"), Imm(1e300, "float64"))),
    Cast("int32", BinOp("+", Imm(2**63, "uint64"), Imm(0, "uint64"))),
    Select(BinOp("&&", BinOp("<", Var("a"), Imm(3)), BinOp("==", Var("a"), Imm(2))), Imm(1), Imm(2)),
    BinOp("<<", Var("a"), BinOp("&", Var("a"), BinOp("^", Imm(1), BinOp("|", Var("a"), Imm(2))))),
]


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=range(len(EXPRESSIONS)))
def test_expressions(expr: Expr) -> None:
    """Nothing is folded, and precedence, types and signs survive."""
    a = next((e for e in _leaves(expr) if isinstance(e, Var)), Var("a"))
    expr = _with(expr, a)
    b = IRBuilder("f")
    y = b.output("y", (1,), "int32")
    func = b.finish()
    func = PrimFunc("f", func.inputs, func.outputs, (Store(y, (Imm(0),), expr, "int32"),), scalars=(a,))
    round_trip(IRModule({"f": func}))


def _leaves(expr: Expr) -> list[Expr]:
    inner = [getattr(expr, n) for n in ("a", "b", "value", "cond", "then", "orelse") if isinstance(getattr(expr, n, None), Expr)]
    return [leaf for e in inner for leaf in _leaves(e)] or [expr]


def _with(expr: Expr, var: Var) -> Expr:
    """`expr` with one variable in the place of all."""
    match expr:
        case Var():
            return var
        case BinOp(op, a, b):
            return BinOp(op, _with(a, var), _with(b, var))
        case Cast(dtype, value):
            return Cast(dtype, _with(value, var))
        case Select(cond, then, orelse):
            return Select(_with(cond, var), _with(then, var), _with(orelse, var))
        case _:
            return expr


def test_equality_sees_differences() -> None:
    def func(name: str, number: int, dtype: str = "int8") -> IRModule:
        b = IRBuilder("f")
        x, y = b.input("x", (4,), dtype), b.output("y", (4,), dtype)
        with b.for_(name, 4) as i:
            b.store(y, i, x[i] + number)
        return IRModule({"f": b.finish()})

    assert structural_equal(func("i", 1), func("i", 1))
    assert structural_equal(func("i", 1), func("k", 1))  # names of variables do not count
    for other in (func("i", 2), func("i", 1, "int16"), IRModule({})):
        assert not structural_equal(func("i", 1), other)
    data = {"f": {"c": np.zeros(3, np.int8)}}
    assert not structural_equal(IRModule(func("i", 1).functions, constants=data), func("i", 1))


GOOD = "prim_func @f(x: int8[4], y: int8[4]) -> y {\n  for i in 0..4 {\n    y[i] = x[i]\n  }\n}\n#[metadata]\n{}\n"


def test_a_text_by_hand() -> None:
    """A text without metadata for its function has no attributes and no constants."""
    func = parse(GOOD)["f"]
    assert isinstance(func, PrimFunc)
    assert [b.name for b in func.buffers] == ["x", "y"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("prim_func @f", "prim_func f", "E5130.*prim_func @name"),
        ("x: int8[4]", "x: int7[4]", "E5130.*an element type is expected before 'int7"),
        ("x: int8[4]", "x: int8[n]", "E5130.*a whole number"),
        ("for i in 0..4 {", "for i in 0 {", r"E5130.*line 2.*'\.\.' is expected"),
        ("x[i]", "z[i]", "E5130.*line 3.*a known name is expected before 'z"),
        ("x[i]", "x[i] +", "E5130.*line 3"),
        ("x[i]", "x[i] x", "E5130.*the end of the line"),
        ("x[i]", "nothing(x[i])", "E5130.*an intrinsic that takes int8, not nothing"),
        ("x[i]", "int16(x[i])", "E5130.*a int16 is stored as int8"),
        ("y[i] = x[i]", "x[i] = y[i]", "E5130"),
        ("y[i] = x[i]", "y[i] = x[9]", "E5130"),
        ("y[i] = x[i]", "block arm_dsp.none(x[0 ..])", "E5130.*an intrinsic defined above"),
        ("y[i] = x[i]", "local x: int8[4]", "E5130.*a new name"),
        ("  }\n}", "  }", "E5130.*} is expected"),
        ("{}\n", '{"@f": 3}', "E5131.*metadata of @f is corrupt"),
        ("{}\n", '{"@f": {"attrs": 3}}', "E5131.*metadata of f is corrupt"),
    ],
)
def test_what_is_wrong_is_said(old: str, new: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError, match=words):
        parse(GOOD.replace(old, new))


def test_a_block_without_its_text() -> None:
    text = IRModule({"blocks": block_func()}).astext(show_meta_data=True)
    assert text.startswith("intrin @")
    with pytest.raises(UsageError, match=r"E5131.*metadata of the intrinsic"):
        parse(text.replace('"forms"', '"form"'))


def test_golden_text(golden: Golden) -> None:
    """With everything that is read back."""
    b = IRBuilder("whole")
    x, y = b.input("x", (4,), "int8", align=4), b.output("y", (4,), "int8")
    with b.for_("i", 4, kind="unroll") as i:
        b.store(y, i, x[i])
    b.append(CallPrim("other", (region(x, 0), region(y, 0))))
    golden("whole.tir", IRModule({"whole": b.finish()}, constants={"whole": {}}).astext(show_meta_data=True))


def test_blocks_that_share_a_name() -> None:
    """Two meanings under one name, which is no word either, stay apart; two objects of one meaning are one."""

    def double(times: int) -> TensorIntrin:
        b = IRBuilder("double")
        x, y = b.input("x", (4,), "int32"), b.output("y", (4,), "int32")
        with b.for_("i", 4) as i:
            b.store(y, i, x[i] * times)
        return TensorIntrin("odd-name 1", b.finish(), lambda ops: BlockText(f"f({ops['x'].pointer}, {ops['y'].pointer});"))

    b = IRBuilder("f")
    x, y = b.input("x", (4,), "int32"), b.output("y", (4,), "int32")
    for times in (2, 3, 2):
        b.block(double(times), x, y)
    text = IRModule({"f": b.finish()}).astext(show_meta_data=True)
    assert text.count("intrin @odd_name_1") == 2
    back = round_trip(parse(text))["f"]
    assert isinstance(back, PrimFunc)
    names = [s.intrin.name for s in back.body if isinstance(s, Block)]
    assert names == ["odd-name 1"] * 3
