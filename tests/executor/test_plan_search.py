"""What a budget for RAM promises: never more memory than without it, and where nothing fits, the smallest that is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot import op as operators
from aot import topi
from aot.driver.build import compile_model, fused_module
from aot.driver.options import OPTS, Options
from aot.executor.plan_memory import memory_bounds
from aot.executor.plan_search import PlanSearch
from aot.frontend.tflite import from_tflite
from aot.ir.module import IRModule
from aot.relay.expr import Function
from aot.relay.transform import pipeline
from aot.target.target import find_target
from tests.executor.random_nets import random_net
from tests.scale import cases

MODELS = Path(__file__).parents[1] / "models"
OWN = ("net_kws_dscnn", "net_sww", "net_ic_resnet", "net_vww_mobilenet", "graph_residual")
SHARES = (0.1, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0, 1.4)
"""Budgets tried, as parts of the workspace of a mode that is given none."""


def module_of(network: str | int) -> IRModule:
    """A network of tests/models, or the random one of a seed."""
    if isinstance(network, int):
        return IRModule({"main": random_net(network)})
    return from_tflite((MODELS / f"{network}.tflite").read_bytes(), oracle="litert", name=network)


def plans(module: IRModule, options: Options | None = None) -> PlanSearch:
    """The plans of a network on a Cortex-M4; what one of them finds out is kept for the others."""
    operators.load_all()
    topi.load_all()
    main = pipeline(2)(module)["main"]
    assert isinstance(main, Function)
    bound = memory_bounds(main, {}).liveness
    fused = fused_module(main, find_target("cortex-m4"), name="net", options=options or Options())
    return PlanSearch(fused, bound)


def check(found: PlanSearch, wanted: list[tuple[str, int]]) -> list[str]:
    """What is wrong with the plans for (mode, budget); the sizes of all of them are compared with each other."""
    usual = {opt: found.best(opt, None).size for opt in OPTS}
    sizes = {(opt, budget): found.best(opt, budget).size for opt, budget in wanted}
    least = min([*usual.values(), *sizes.values()])
    faults = []
    for (opt, budget), size in sizes.items():
        if size > usual[opt]:
            faults.append(f"{opt} within {budget}: {size}, without a budget {usual[opt]}")
        if usual[opt] <= budget and size != usual[opt]:
            faults.append(f"{opt} within {budget}: {size}, though {usual[opt]} without a budget fits")
        if size > budget and size > least:
            faults.append(f"{opt} within {budget}: {size}, though {least} is known")
    return faults


def budgets_of(found: PlanSearch, k: int, count: int) -> list[tuple[str, int]]:
    """`count` pairs of mode and budget for network `k`: other modes with other networks, all parts in turn."""
    pairs = []
    for n in range(count):
        opt = OPTS[(n + k) % len(OPTS)]
        pairs.append((opt, max(1, int(SHARES[(n + 3 * k) % len(SHARES)] * found.best(opt, None).size))))
    return pairs


def test_budgets_of_one_layer() -> None:
    found = plans(module_of("depthwise_same"))
    assert check(found, budgets_of(found, 0, 6)) == []


@pytest.mark.slow
def test_the_command_is_the_plan() -> None:
    """Compiling under a budget gives what the plans say, and nothing that is not smaller than without one."""
    path = MODELS / "graph_residual.tflite"
    usual = compile_model(path).layout.plan.size
    for budget in (1, usual - 1, usual, 10 * usual):
        compiled = compile_model(path, options=Options(ram_budget=budget))
        assert compiled.layout.plan.size == plans(module_of("graph_residual")).best("balanced", budget).size <= usual


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_five_hundred_budgets(block: int) -> None:
    """Ten pairs of mode and budget a network: one of ours and nine random ones a block (the first two of these in CI)."""
    networks: list[str | int] = [OWN[block], *range(9 * block, 9 * block + 9)]
    networks = networks if cases(10) == 10 else networks[1:3] + [OWN[4]] * (block == 0)
    count, faults = 0, []
    for k, network in enumerate(networks):
        found = plans(module_of(network), Options(io="user" if k % 3 == 2 else "arena"))
        wanted = budgets_of(found, k + block, 10)
        count += len(wanted)
        faults += [f"{network}: {fault}" for fault in check(found, wanted)]
    print(f"{count} budgets, {len(faults)} violations")
    assert faults == []


@pytest.mark.slow
@pytest.mark.parametrize("network", ["net_kws_dscnn", "net_vww_mobilenet"][: 1 + (cases(10) == 10)])
def test_small_budgets(network: str) -> None:
    """The scratch memory that kernels for few bytes trade for speed must not hide what `ram` finds."""
    found = plans(module_of(network))
    smallest = found.best("ram", None).size
    assert found.best("balanced", smallest + 1000).size <= smallest + 1000
    assert found.best("ram", smallest * 2 // 3).size <= smallest
    assert found.best("balanced", smallest * 2 // 3).size <= smallest
