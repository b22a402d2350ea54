"""lower_te: every fused call becomes a layer with its kernels; views and constants become none."""

from __future__ import annotations

import numpy as np

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.executor.candidates import CandidateModule, FusedModule
from aot.executor.lower_te import cut_groups, lower_te
from aot.ir.module import IRModule
from aot.ir.transform import PassContext
from aot.relay.expr import Function
from aot.relay.interpreter import evaluate
from aot.relay.transform import pipeline
from aot.target.target import find_target
from tests.executor.matrix_nets import WIDTH, network


def draft() -> tuple[Function, CandidateModule]:
    func = network([700, -900])
    with PassContext():
        fused = pipeline()(IRModule({"main": func}))
    found = lower_te(cut_groups(FusedModule(fused.functions, "net", target=find_target("cortex-m4"))))
    assert isinstance(found, CandidateModule)
    return func, found


def test_each_fused_call_is_a_layer_with_candidates() -> None:
    func, found = draft()
    assert len(found.calls) >= 2
    for call in found.calls:
        kernels = call.candidates
        assert all(k.instructions > 0 for k in kernels)
        assert found.kernel(call).attrs.kernel in {k.lowered.func.attrs.kernel for k in kernels}, (
            "the preferred one is in the module"
        )
    assert max(len(call.candidates) for call in found.calls) > 1, "there is a choice"
    assert [t.type.shape for t in found.inputs] == [func.params[0].type.shape]
    assert found.outputs == found.calls[-1].outputs


def test_it_computes_what_the_graph_means() -> None:
    func, _ = draft()
    data = np.random.default_rng(1).integers(-128, 128, (1, WIDTH)).astype(np.int8)
    for opt in ("balanced", "size"):
        (found,) = compile_model(IRModule({"main": func}), options=Options(opt=opt)).interpret([data])
        np.testing.assert_array_equal(found, evaluate(func, [data])[0])
