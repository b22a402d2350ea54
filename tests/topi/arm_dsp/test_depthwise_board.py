"""Depthwise kernels as instructions on emulated boards, and over random shapes in the interpreter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot.executor.candidates import group_of
from aot.micro.build.toolchain import have_tool
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from aot.topi.strategy import OpImplementation, implementations
from tests.scale import cases
from tests.topi.arm_dsp.test_depthwise import SAME, dw
from tests.topi.layers import Layer, build, check, data_for
from tests.topi.oncore import run_on

OTHERS = ("arm_dsp.depthwise_16x8", "arm_dsp.depthwise_window")
"""For data of 16 bits and for one position: drawn in test_halfwords_int16x8.py and test_halfwords_streaming.py."""

ARM = [i for i in implementations("nn.depthwise_conv2d") if i.name.startswith("arm_dsp.") and i.name not in OTHERS]
TARGETS = {"mps2-an385": "cortex-m3", "mps2-an386": "cortex-m4", "mps2-an500": "cortex-m7", "mps2-an505": "cortex-m33"}
BOARD_CASES = [
    dw((6, 7, 3), (3, 3), padding=SAME),
    dw((9, 37, 2), (3, 3), padding=SAME, out_zp=5, pad_value=9),
    dw((5, 6, 300), (3, 3), padding=SAME, clip=(-100, 90)),
    dw((9, 8, 5), (3, 3), strides=(2, 2), padding=(0, 0, 1, 1)),
    dw((8, 9, 2), (7, 7), padding=(3, 3, 3, 3), out_zp=0),
    dw((11, 12, 2), (5, 5), strides=(2, 2), padding=(2, 2, 2, 2)),
    dw((24, 1, 9), (10, 1), out_zp=11),
    dw((60, 70, 1), (3, 3), padding=SAME),
    dw((12, 9, 2), (4, 6), strides=(3, 3), dilation=(2, 1)),
]


def compare(impl: OpImplementation, layer: Layer, *, board: str, folder: Path) -> None:
    """Constants and scratch go in as further inputs and outputs of the function."""
    func = build(layer)
    lowered = impl.lower(group_of(func), find_target(TARGETS[board]), "kernel")
    x = data_for(layer)
    kernel = lowered.func
    open_func = replace(
        kernel, inputs=kernel.inputs + kernel.consts, consts=(), outputs=kernel.outputs + kernel.scratch, scratch=()
    )
    inputs = {kernel.inputs[0].name: x.reshape(kernel.inputs[0].shape), **lowered.constants}
    actual, _ = run_on(open_func, inputs, board=board, folder=folder)
    (expected,) = evaluate(func, [x])
    np.testing.assert_array_equal(
        actual[kernel.outputs[0].name].reshape(expected.shape), expected, err_msg=f"{impl.name}: {layer}"
    )


@pytest.mark.qemu
@pytest.mark.skipif(
    not (have_tool("arm-none-eabi-gcc") and have_tool("qemu-system-arm")), reason="needs arm-none-eabi-gcc and QEMU"
)
@pytest.mark.parametrize("board", sorted(TARGETS))
@pytest.mark.parametrize("impl", ARM, ids=lambda i: i.name)
def test_kernel_on_the_board(impl: OpImplementation, board: str, tmp_path: Path) -> None:
    target = find_target(TARGETS[board])
    taken = [layer for layer in BOARD_CASES if impl.accepts(group_of(build(layer)), target)]
    if not taken:
        pytest.skip(f"{impl.name} is not for {target.name}")
    cases = taken if board in ("mps2-an385", "mps2-an386") else taken[1:3]
    for i, layer in enumerate(cases):
        compare(impl, layer, board=board, folder=tmp_path / str(i))


def random_layer(rng: np.random.Generator, seed: int, *, three: bool = False) -> Layer:
    """Any layer; with `three` one of a 3x3 window, as some kernels want."""
    kernel = (int(rng.integers(1, 8)), int(rng.integers(1, 8)))
    if rng.random() < 0.2:
        kernel = (int(rng.integers(1, 24)), 1)
    strides = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    dilation = (int(rng.integers(1, 4)), 1) if rng.random() < 0.2 else (1, 1)
    if three:
        kernel, strides, dilation = (3, 3), (strides[0], strides[0]), (1, 1)
    padding = tuple(int(rng.integers(0, k)) for k in (*kernel, *kernel))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    size = [max(1, r - padding[i] - padding[i + 2]) + int(rng.integers(0, 9)) for i, r in enumerate(reach)]
    if rng.random() < 0.1:
        size[1] += 30
    lo, hi = (-128, 127) if rng.random() < 0.7 else (int(rng.integers(-128, 0)), int(rng.integers(1, 128)))
    return dw(
        (size[0], size[1], int(rng.choice([1, 2, 3, 5, 7]))),
        kernel,
        strides=strides,
        dilation=dilation,
        padding=padding,
        pad_value=int(rng.choice([-128, 127, 0, 3])),
        out_zp=int(rng.choice([-128, -128, 127, 0, -5])),
        clip=(lo, hi),
        per_channel=bool(rng.random() < 0.7),
        multiplier=int(rng.choice([1, 1, 1, 2, 3])),
        spread=float(rng.choice([30, 200, 2000])),
        seed=seed,
    )


@pytest.mark.slow
@pytest.mark.parametrize("impl", ARM, ids=lambda i: i.name)
@pytest.mark.parametrize("part", range(4))
def test_random_layers(impl: OpImplementation, part: int) -> None:
    rng = np.random.default_rng(part)
    targets = [find_target("cortex-m4"), find_target("cortex-m3")]
    tried = 0
    for seed in range(4000):
        layer = random_layer(rng, seed, three="3x3" in impl.name)
        group = group_of(build(layer))
        target = next((t for t in targets if impl.accepts(group, t)), None)
        if target is not None:
            check(impl, layer, target)
            tried += 1
        if tried == cases(500):
            return
    assert tried >= cases(500)
