"""PassTimingInstrument, DumpIR, VerifyIR and CheckSemantics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.errors import InternalError
from aot.ir.instrument import CheckSemantics, DumpIR, PassTimingInstrument, StopAfter, Stopped, VerifyIR, random_inputs
from aot.ir.module import Dialect, IRModule, dialect, dialect_of, register_dialect
from aot.ir.transform import Pass, PassContext, PassInstrument
from aot.ir.type import TensorType
from aot.relay.expr import Call, Expr, Function, const, post_order, rewrite
from aot.relay.transform import pipeline
from aot.tir.function import PrimFunc
from aot.tir.transform import pipeline as tir_pipeline
from tests.relay.toy import Net, ScaleAttrs
from tests.tir.kernels import conv


def _module() -> IRModule:
    net = Net()
    x = net.var(2, 4)
    c = net.op("neg", const(np.arange(4, dtype=np.int8)))
    return IRModule({"main": net.func(net.op("scale", net.op("add", net.op("conv", x), c), attrs=ScaleAttrs(3)))})


def _pass(name: str, change: object) -> Pass:
    def transform(module: IRModule, context: PassContext) -> IRModule:
        main = module["main"]
        assert isinstance(main, Function)
        return module.with_function("main", rewrite(main, change))  # type: ignore[arg-type]

    return Pass(name, transform)


def _other_factor(expr: Expr) -> Expr:
    wrong = isinstance(expr, Call) and isinstance(expr.attrs, ScaleAttrs)
    return replace(expr, attrs=ScaleAttrs(4)) if wrong else expr  # type: ignore[type-var]


def _other_type(expr: Expr) -> Expr:
    return replace(expr, type=TensorType((1,), "int8")) if isinstance(expr, Call) and isinstance(expr.attrs, ScaleAttrs) else expr


def test_timing() -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=(timing,)):
        pipeline()(_module())
    assert [r.name for r in timing.rows] == [p.name for p in pipeline().passes]
    assert {type(r.seconds) for r in timing.rows} == {float}


def test_dump_writes_one_numbered_file_per_pass(tmp_path: Path) -> None:
    dump = DumpIR(tmp_path / "new" / "folder")
    with PassContext(instruments=(dump,)):
        pipeline()(_module())
    names = sorted(p.name for p in (tmp_path / "new" / "folder").iterdir())
    assert names[0] == "00_input.relay"
    assert names[-1] == f"{len(pipeline().passes):02d}_fuse_ops.relay"
    assert names == [p.name for p in dump.files]
    first, folded, last = (dump.files[i].read_text() for i in (0, names.index("04_fold_constant.relay"), -1))
    assert "t.neg" in first
    assert "t.neg" not in folded
    assert "fn conv_add_scale(" in last


def test_verify_names_the_pass() -> None:
    with PassContext(instruments=(VerifyIR(),)), pytest.raises(InternalError, match="E9003") as caught:
        _pass("breaker", _other_type)(_module())
    assert "after pass breaker" in caught.value.__notes__


def test_check_semantics_accepts_the_pipeline() -> None:
    check = CheckSemantics(sets=3)
    with PassContext(instruments=(check,)):
        pipeline()(_module())
    assert check.compared == len(pipeline().passes)


def test_check_semantics_finds_a_wrong_pass() -> None:
    wanted = r"E9004.*breaker.*output 0 differs"
    with PassContext(instruments=(CheckSemantics(),)), pytest.raises(InternalError, match=wanted) as caught:
        _pass("breaker", _other_factor)(_module())
    assert "factor=4" in caught.value.__notes__[0]


def test_check_semantics_finds_a_lost_output() -> None:
    def shorter(module: IRModule, context: PassContext) -> IRModule:
        main = module["main"]
        assert isinstance(main, Function)
        return module.with_function("main", replace(main, body=main.params[0]))

    wide = _module()
    main = wide["main"]
    assert isinstance(main, Function)
    with PassContext(instruments=(CheckSemantics(),)), pytest.raises(InternalError, match=r"E9004"):
        Pass("shorter", shorter)(wide)
    assert len(post_order(main.body)) > 1


def test_dialects() -> None:
    assert dialect("relay").func_class is Function
    assert dialect_of(_module()["main"]).name == "relay"
    with pytest.raises(TypeError, match="belongs to no registered IR"):
        dialect_of(object())
    with pytest.raises(ValueError, match="twice"):
        register_dialect(Dialect("relay", Function, to_text=lambda f, n: "", verify=lambda f, n: None))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint64", "bool", "float32", "int4"])
def test_random_inputs(dtype: str) -> None:
    wanted = TensorType((50, 40), dtype)
    (first,), (again,), (other,) = (random_inputs([wanted], seed=s) for s in (1, 1, 2))
    assert first.shape == (50, 40)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    if dtype in ("int8", "int4"):
        assert (first.min(), first.max()) == ((-128, 127) if dtype == "int8" else (-8, 7))


def _loops(module: IRModule) -> tuple[str, PrimFunc]:
    ((name, func),) = module.functions.items()
    assert isinstance(func, PrimFunc)
    return name, func


def test_check_semantics_runs_loop_nests() -> None:
    check = CheckSemantics(sets=2)
    module = IRModule({"conv": conv()})
    with PassContext(instruments=(VerifyIR(), check)):
        tir_pipeline()(module)
    assert check.compared == len(tir_pipeline().passes)


def test_check_semantics_finds_a_wrong_loop_pass() -> None:
    def shorter(module: IRModule, context: PassContext) -> IRModule:
        name, func = _loops(module)
        return module.with_function(name, func.with_body(func.body[:-1]))

    with PassContext(instruments=(CheckSemantics(),)), pytest.raises(InternalError, match=r"E9004.*shorter.*conv"):
        Pass("shorter", shorter)(IRModule({"conv": conv()}))


def test_every_pass_of_a_model_is_checked() -> None:
    """The passes over the graph see it, all later ones main and all kernels in one module, with their constants."""
    model = Path(__file__).parents[1] / "models" / "graph_branches_concat.tflite"
    check, seen = CheckSemantics(), Seen()
    with PassContext(instruments=(VerifyIR(), check, seen)):
        functions = {f.name for f in compile_model(model).kernels}
    *_, lowered = seen.modules
    assert {"graph_branches_concat_run", *functions} == set(lowered.functions)
    whole = [module for module in seen.modules[:-1] if "main" not in module.functions]
    assert seen.names[-len(whole) - 1 :] == [
        "lower_te", "select_kernels", *(p.name for p in tir_pipeline().passes), "share_functions", "plan_memory",
        "spread_pools", "slide_windows", "aot_lower_main",
    ]  # fmt: skip
    assert all("graph_branches_concat_run" in module.functions for module in whole)
    assert all(len(module.functions) > len(functions) > 1 for module in whole)
    assert all(module.constants for module in whole)
    assert check.compared == sum(len(m.functions) for m in seen.modules) - seen.changes


class Seen(PassInstrument):
    """Keeps the modules, and counts the functions that a pass adds."""

    def __init__(self) -> None:
        self.modules: list[IRModule] = []
        self.names: list[str] = []
        self.changes = 0
        self._before: set[str] = set()

    def run_before_pass(self, module: IRModule, info: Pass) -> None:
        self._before = set(module.functions)

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        self.modules.append(module)
        self.names.append(info.name)
        self.changes += len(module.functions.keys() - self._before)


def test_stop_after() -> None:
    seen = Seen()
    with PassContext(instruments=(seen, StopAfter("canonicalize"))), pytest.raises(Stopped):
        pipeline()(_module())
    assert 0 < len(seen.modules) < len(pipeline().passes)
