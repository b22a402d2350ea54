"""Random networks, compiled with all that makes a workspace small, run as C while every dead byte is overwritten."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.errors import UsageError
from aot.executor.emit import LoweredOutput
from aot.ir.module import IRModule
from aot.relay.expr import Function
from aot.relay.interpreter import evaluate
from tests.executor.poisoned import build_together, run_poisoned, touched_end
from tests.executor.random_nets import random_net
from tests.relay.channel_nets import inputs_of
from tests.scale import cases

BATCH = 20
"""Networks in one library."""

OPTS = ("ram", "balanced", "ram", "speed", "ram", "balanced", "size")

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


def compiled(func: Function, seed: int) -> LoweredOutput:
    """The network with options that depend on the seed; the plan has been replayed on tagged bytes (E9005)."""
    target = "cortex-m4" if seed % 5 == 3 else "host"
    options = Options(opt=OPTS[seed % len(OPTS)], io="user" if seed % 9 == 8 else "arena", feed_rows=seed % 9 == 4)
    module = IRModule({"main": func})
    try:
        return compile_model(module, target=target, name=f"n{seed}", options=options)
    except UsageError as error:
        if [p.code for p in error.problems] != ["E5054"]:
            raise
        # no first layer that takes rows
        return compile_model(module, target=target, name=f"n{seed}", options=Options(opt=options.opt))


def check_together(seeds: Sequence[int], folder: Path) -> list[float]:
    """Exact with two poisons, the workspace written to its last byte; plan over lower bound of each network with a workspace."""
    nets = [random_net(seed) for seed in seeds]
    made = [compiled(func, seed) for func, seed in zip(nets, seeds, strict=True)]
    ratios = []
    for func, exe, module in zip(nets, made, build_together([e.artifact for e in made], folder), strict=True):
        name, plan = exe.artifact.name, exe.layout.plan
        sets = inputs_of(func, seed=plan.size)[2:4]
        for inputs, poison in zip(sets, (0xA5, 0x3C), strict=True):
            for got, want in zip(run_poisoned(module, inputs, poison), evaluate(func, inputs), strict=True):
                np.testing.assert_array_equal(got, want, err_msg=name)
        if plan.size:
            assert touched_end(module, sets[0]) == plan.size, f"{name}: the end of the workspace is never written"
            ratios.append(plan.size / plan.lower_bound)
    return ratios


@needs_gcc
def test_two_networks_in_poisoned_memory(tmp_path: Path) -> None:
    check_together((2, 10), tmp_path)


@needs_gcc
@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_a_thousand_networks_in_poisoned_memory(block: int, tmp_path: Path) -> None:
    """Overlap, results in place, views and cascades; the average plan is close to what no plan can go below."""
    count = cases(1000) // 10
    ratios = []
    for first in range(block * count, block * count + count, BATCH):
        folder = tmp_path / str(first)
        folder.mkdir()
        ratios += check_together(range(first, min(first + BATCH, block * count + count)), folder)
    average = sum(ratios) / len(ratios)
    print(f"{len(ratios)} networks: plan / lower bound {average:.4f} on average, {max(ratios):.3f} at most")
    assert average <= 1.05
