"""The checks between the compiler's rooms: every kind of disorder is found, and named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aot.driver.build import build, compile_model
from aot.driver.options import Options
from aot.errors import InternalError, UsageError
from aot.executor.lower_main import TirModule, aot_lower_main
from aot.executor.lower_te import lower_te
from aot.executor.pipeline import PHASES, check_phase
from aot.executor.plan_memory import plan_memory
from aot.executor.select_kernels import select_kernels
from aot.executor.storage_map import Planned, StorageInfo
from aot.ir.instrument import CheckSemantics, VerifyIR
from aot.ir.module import IRModule, of_phase
from aot.ir.transform import Pass, PassContext, PassInstrument, get_pass, is_pass
from aot.relay.expr import Call, Function
from aot.target.target import find_target
from aot.tir.expr import Imm
from aot.tir.function import PrimFunc
from aot.tir.stmt import CallPrim, Region
from tests.executor.nets import small_net
from tests.relay.toy import Net

MODELS = Path(__file__).parents[1] / "models"


def planned() -> Planned:
    return of_phase(plan_memory(replace(small_net(), target=find_target("cortex-m4"))), Planned, "the test")


def lowered_main() -> TirModule:
    return of_phase(aot_lower_main(planned()), TirModule, "the test")


def test_good_modules_pass() -> None:
    assert list(PHASES) == ["fused", "lowered", "planned", "tir"]
    check_phase("lowered", small_net())
    check_phase("planned", planned())
    check_phase("tir", lowered_main())


def test_a_graph_that_is_not_fused() -> None:
    net = Net()
    func = net.func(net.op("neg", net.var(2, 4)))
    with pytest.raises(InternalError, match=r"E9100.*not in a fused function"):
        check_phase("fused", IRModule({"main": func}))
    with pytest.raises(InternalError, match=r"E9100.*no relay function main"):
        check_phase("fused", IRModule({}))
    assert isinstance(func.body, Call)
    inner = Function(func.params, func.body, {"name": "inner"})
    called = Function(func.params, Call(inner, func.params, None, func.body.type, func.body.span))
    with pytest.raises(InternalError, match=r"E9100.*inner is called but not marked primitive"):
        check_phase("fused", IRModule({"main": called}))


def test_calls_of_what_is_not_there() -> None:
    net = small_net()
    with pytest.raises(InternalError, match=r"E9101.*no function dense_2"):
        check_phase("lowered", replace(net, functions={k: f for k, f in net.functions.items() if k != "dense_2"}))
    with pytest.raises(InternalError, match=r"E9104.*takes a LoweredModule"):
        check_phase("lowered", IRModule({}))


def test_tensors_without_a_place() -> None:
    good = planned()
    layout = good.layout
    first, second = good.inputs[0], good.calls[0].outputs[0]
    place = layout.places[second]
    missing = {t: p for t, p in layout.places.items() if t is not first}
    for bad, words in (
        (replace(layout, places=missing), "input/x has no place"),
        (replace(layout, places={**layout.places, second: StorageInfo("workspace", "nowhere")}), "lies in nowhere"),
        (replace(layout, places={**layout.places, second: replace(place, offset=4096)}), "of a workspace of"),
        (replace(layout, scratch=((), *layout.scratch[1:])), "of other calls"),
        (replace(layout, scratch=(("nowhere",), *layout.scratch[1:])), "scratch wide has no place"),
        (replace(layout, scratch=()), "of other calls"),
    ):
        with pytest.raises(InternalError, match=rf"E9102.*{words}"):
            check_phase("planned", replace(good, layout=bad))


def test_calls_that_do_not_fit() -> None:
    good = lowered_main()
    main = good.main.run
    k = next(i for i, s in enumerate(main.body) if isinstance(s, CallPrim) and s.layer == 0)
    call = main.body[k]
    assert isinstance(call, CallPrim)
    region = call.operands[0]
    assert isinstance(region, Region)
    for bad, words in (
        (replace(call, func="nothing"), "no such function"),
        (replace(call, operands=call.operands[1:]), "3 operands for 4 parameters"),
        (replace(call, operands=(Imm(3), *call.operands[1:])), "x is given a number"),
        (replace(call, operands=(replace(region, dtype="int16"), *call.operands[1:])), "x is int8, given int16"),
        (replace(call, operands=(replace(region, index=Imm(4000)), *call.operands[1:])), "x ends at byte 4016"),
    ):
        body = (*main.body[:k], bad, *main.body[k + 1 :])
        with pytest.raises(InternalError, match=rf"E9103.*{words}"):
            check_phase("tir", replace(good, functions={**good.functions, main.name: main.with_body(body)}))
    with pytest.raises(InternalError, match=r"E9103.*other is not a PrimFunc"):
        check_phase("tir", replace(good, functions={**good.functions, "other": Function((), Net().var(1), {})}))


def test_passes_in_the_wrong_place() -> None:
    for step in (lower_te, select_kernels, aot_lower_main):
        assert is_pass(step.name)
        with pytest.raises(InternalError, match=rf"E9104.*{step.name} takes"):
            step(small_net())
    assert get_pass("AOTLowerMain") is aot_lower_main


class _Record(PassInstrument):
    def __init__(self) -> None:
        self.modules: dict[str, IRModule] = {}

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        self.modules.pop(info.name, None)
        self.modules[info.name] = module


def test_instruments_see_the_whole_module() -> None:
    """From lower_te on there is a main to run, and it gives the same after every pass; kernels too, whichever is chosen."""
    record, check = _Record(), CheckSemantics()
    with PassContext(instruments=[record, VerifyIR(), check]):
        exe = compile_model(MODELS / "graph_residual.tflite", options=Options(opt="size"))
    names = list(record.modules)
    assert names[-6:] == ["simplify", "share_functions", "plan_memory", "spread_pools", "slide_windows", "aot_lower_main"]
    for name in names[names.index("lower_te") :]:
        functions = record.modules[name].functions
        main = functions["graph_residual_run"]
        assert isinstance(main, PrimFunc)
        called = {s.func for s in main.body if isinstance(s, CallPrim) and s.layer >= 0}
        assert called <= functions.keys(), name
    assert check.compared > 20
    assert record.modules["aot_lower_main"].functions["graph_residual_run"] is exe.main.run


@pytest.mark.parametrize(
    "after", ["lower_te", "select_kernels", "unroll_loop", "share_functions", "plan_memory", "aot_lower_main"]
)
def test_a_registered_pass_finds_main_and_its_kernels_by_name(after: str) -> None:
    called: list[set[str]] = []

    def look(module: IRModule) -> IRModule:
        main = module["graph_residual_run"]
        assert isinstance(main, PrimFunc)
        called.append({s.func for s in main.body if isinstance(s, CallPrim) and s.layer >= 0})
        assert all(isinstance(module[name], PrimFunc) for name in called[-1])
        return IRModule(dict(module.functions), module.name, module.constants)

    plain = build(MODELS / "graph_residual.tflite")
    with PassContext(add_pass=[(after, look)]):
        assert build(MODELS / "graph_residual.tflite").files == plain.files
    assert all(called)
    assert called


@pytest.mark.parametrize("opt", ["speed", "balanced"])
@pytest.mark.parametrize("after", ["lower_te", "select_kernels", "plan_memory"])
def test_a_changed_kernel_is_the_one_that_is_emitted(after: str, opt: str) -> None:
    """Here by its attributes, which the C names."""

    def marked(module: IRModule) -> IRModule:
        kernels = {k: f for k, f in module.functions.items() if isinstance(f, PrimFunc) and not k.endswith("_run")}
        new = {k: replace(f, attrs=replace(f.attrs, kernel=f"mine.{k}")) for k, f in kernels.items()}
        return replace(module, functions={**module.functions, **new})

    with PassContext(add_pass=[(after, marked)]):
        exe = compile_model(MODELS / "graph_residual.tflite", options=Options(opt=opt))
    assert all(f.func.attrs.kernel.startswith("mine.") for f in exe.kernels)


def test_main_is_made_of_the_layers() -> None:
    def emptied(module: IRModule) -> IRModule:
        main = module["graph_residual_run"]
        assert isinstance(main, PrimFunc)
        return module.with_function("graph_residual_run", main.with_body(()))

    with PassContext(add_pass=[("select_kernels", emptied)]), pytest.raises(UsageError, match="E5038"):
        build(MODELS / "graph_residual.tflite")


def test_instruments_change_nothing() -> None:
    path = MODELS / "graph_residual.tflite"
    plain = build(path)
    with PassContext(instruments=[_Record()]):
        assert build(path).files == plain.files


@pytest.mark.slow
def test_a_pass_may_be_left_out() -> None:
    path = MODELS / "net_kws_dscnn.tflite"
    with PassContext(disabled_pass=["ShareFunctions"]):
        without = compile_model(path, options=Options(opt="size"))
    with_it = compile_model(path, options=Options(opt="size"))
    assert not any(layer.call.shared for layer in without.layers)
    assert any(layer.call.shared for layer in with_it.layers)


def test_a_broken_pass_is_found() -> None:
    """A pass between two rooms that drops a function is named by its phase's code."""

    def drop(module: IRModule) -> IRModule:
        return replace(module, functions=dict(list(module.functions.items())[:-1]))

    for after, code in (("select_kernels", "E9101"), ("plan_memory", "E9102"), ("aot_lower_main", "E9103")):
        with PassContext(add_pass=[(after, drop)]), pytest.raises(InternalError, match=code):
            build(MODELS / "dense_no_bias.tflite")


@pytest.mark.parametrize("after", ["select_kernels", "share_functions", "plan_memory", "aot_lower_main"])
def test_what_a_pass_makes_is_printed(after: str) -> None:
    """Whatever step a pass from outside comes after, its functions are the ones in the C files."""

    def sign(module: IRModule) -> IRModule:
        signed = {
            n: replace(f, attrs=replace(f.attrs, kernel="signed")) for n, f in module.functions.items() if isinstance(f, PrimFunc)
        }
        return replace(module, functions=signed)

    with PassContext(add_pass=[(after, sign)]):
        files = build(MODELS / "dense_no_bias.tflite", name="m").files
    assert "signed" in files["m_kernels.c"]
