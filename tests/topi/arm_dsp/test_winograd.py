"""Winograd kernels against the operators' meaning, in the TIR interpreter and on emulated cores; their algebra, their limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot.executor.candidates import group_of
from aot.ir.type import TensorType, per_tensor
from aot.micro.build.toolchain import have_tool
from aot.op.qnn.arithmetic import AddAttrs
from aot.relay.expr import Function, Var, call
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import imm
from aot.tir.function import PrimFunc
from aot.tir.transform import optimize
from aot.topi.arm_dsp.winograd import (
    F2,
    F4,
    NUMBERS,
    PAIRS,
    Product,
    Winograd,
    copy_pixels,
    fill_pixels,
    is_winograd_shape,
    plan_winograd,
    winograd_product,
)
from aot.topi.layer.fused import match_layer
from aot.topi.strategy import OpImplementation, implementations
from tests.scale import cases
from tests.topi import oncore
from tests.topi.layers import Layer, build, check, data_for, interpret

M3, M4 = find_target("cortex-m3"), find_target("cortex-m4")
IMPLS = {i.name.partition("winograd_")[2]: i for i in implementations("nn.conv2d") if "winograd" in i.name}
FORMS = {"f2": F2, "f4": F4, "f4_mla": F4}
TARGETS = {"f2": M4, "f4": M4, "f4_mla": M3}
BOARDS = {"f2": "mps2-an386", "f4": "mps2-an386", "f4_mla": "mps2-an385"}
ALL = (1, 1, 1, 1)

needs_board = pytest.mark.skipif(
    not (have_tool("arm-none-eabi-gcc") and have_tool("qemu-system-arm")), reason="needs arm-none-eabi-gcc and QEMU"
)


def conv(height: int, width: int, inputs: int, outputs: int, **more: object) -> Layer:
    return Layer("conv", (1, height, width, inputs), (outputs, 3, 3, inputs), **more)  # type: ignore[arg-type]


CASES = [
    conv(8, 8, 8, 4, padding=ALL),
    conv(6, 6, 8, 5),
    conv(5, 9, 9, 3, padding=(0, 1, 1, 0), pad_value=127, out_zp=127),
    conv(7, 10, 12, 1, padding=(2, 0, 1, 3), pad_value=3, out_zp=-20, clip=(-100, 90)),
    conv(4, 7, 17, 2, padding=ALL, pad_value=-1, out_zp=0, rounding="single", per_channel=False),
    conv(4, 8, 33, 7, padding=ALL, spread=900.0, out_zp=9),
    conv(4, 6, 68, 4, padding=ALL, spread=60.0, out_zp=-2),
    replace(conv(6, 8, 8, 4, padding=ALL), data=(2, 6, 8, 8)),
]


@pytest.mark.parametrize("name", sorted(IMPLS))
@pytest.mark.parametrize("layer", CASES)
def test_kernel_equals_meaning(layer: Layer, name: str) -> None:
    assert check(IMPLS[name], layer, TARGETS[name]) > 10


INPUT_MATRIX = {
    2: [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
    4: [
        [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1],
    ],
}  # fmt: skip
OUTPUT_MATRIX = {
    2: [[1, 1, 1, 0], [0, 1, -1, -1]],
    4: [[1, 4, 4, 1, 1, 0], [0, 2, -2, 1, -1, 0], [0, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 1]],
}


@pytest.mark.parametrize("form", [F2, F4])
def test_algebra(form: Winograd) -> None:
    """U, V and the inverse transform of one tile, by the definition, give the convolution times the known factors."""
    rng = np.random.default_rng(form.m)
    n = form.n
    g, b, a, factors = (np.asarray(m) for m in (form.g, INPUT_MATRIX[form.m], OUTPUT_MATRIX[form.m], form.row_factor))
    assert int(np.abs(b).sum(axis=1).max()) ** 2 == form.input_gain
    assert (a[:, 1] * factors == form.bias_gain).all()
    assert max(int(np.maximum(np.outer(p, q), 0).sum()) for p in b for q in b) <= form.offset_gain
    assert max(int(np.maximum(-np.outer(p, q), 0).sum()) for p in b for q in b) <= form.offset_gain
    for _ in range(20):
        w, x = rng.integers(-128, 128, (3, 3)), rng.integers(-128, 128, (n, n))
        out = a @ ((g @ w @ g.T) * (b @ x @ b.T)) @ a.T
        direct = np.array([[(w * x[i : i + 3, j : j + 3]).sum() for j in range(form.m)] for i in range(form.m)])
        np.testing.assert_array_equal(out * np.outer(factors, factors), direct * form.denominator**2)


def accepts(impl: OpImplementation, layer: Layer, cpu: str = "cortex-m4") -> bool:
    return impl.accepts(group_of(build(layer)), find_target(cpu))


@pytest.mark.parametrize("name", sorted(IMPLS))
def test_what_is_accepted(name: str) -> None:
    impl, m = IMPLS[name], FORMS[name].m
    good = conv(8, 8, 8, 4, padding=ALL)
    for cpu, dsp in (("cortex-m4", True), ("cortex-m33", True), ("cortex-m3", False), ("cortex-m33+nodsp", False)):
        assert accepts(impl, good, cpu) == (dsp != name.endswith("mla"))
    assert not accepts(impl, good, "cortex-m0plus")

    def accepted(layer: Layer) -> bool:
        return accepts(impl, layer, TARGETS[name].name)

    assert not accepted(conv(8, 8, 7, 4, padding=ALL))
    assert not accepted(conv(m - 1, 8, 8, 4, padding=ALL))
    assert not accepted(conv(8, 3, 8, 4, padding=ALL))
    assert not accepted(replace(good, strides=(1, 2)))
    assert not accepted(replace(good, dilation=(2, 2)))
    assert not accepted(replace(good, weight=(4, 3, 1, 8)))


def test_accumulators_have_to_fit() -> None:
    """Of 64 * acc modulo 2^32 only |acc| < 2^25 can be told; 4 * acc has 4 bits more."""
    layer = match_layer(group_of(build(conv(4, 4, 800, 2, padding=ALL))))
    assert layer is not None
    assert int(layer.acc_high.max()) >= 1 << 25
    assert plan_winograd(layer, F4) is None
    assert plan_winograd(layer, F2) is not None


def test_ways_to_requantise() -> None:
    """576 * acc without another multiplication where that is exact, else 64 * acc; a sign term only where signs matter."""
    factors = set()
    for seed in range(12):
        layer = conv(4, 8, 8, 2, padding=ALL, out_zp=5 if seed % 3 == 0 else -128, seed=seed)
        fused = match_layer(group_of(build(layer)))
        assert fused is not None
        plan = plan_winograd(fused, F4)
        assert plan is not None
        assert int(np.abs(plan.weights).max()) < 1 << 15
        assert plan.requant.signed == (seed % 3 == 0)
        assert check(IMPLS["f4"], layer, M4) > 10
        if seed < 4:
            assert check(IMPLS["f4_mla"], layer, M3) > 10
        factors.add(plan.factor * 9 % (1 << 32))
    assert factors == {9, 1}


def test_inner_loop_reaches() -> None:
    """A position's data are at most 508 words: as many channels without DSP instructions, twice as many with them."""
    for channels, product, fits in ((508, NUMBERS, True), (512, NUMBERS, False), (1016, PAIRS, True), (1020, PAIRS, False)):
        fused = match_layer(group_of(build(conv(4, 4, channels, 1, padding=ALL))))
        assert fused is not None
        assert is_winograd_shape(fused, product) == fits


def residual(layer: Layer) -> Function:
    """The layer with an ADD of another tensor behind it."""
    func = build(layer)
    body = func.body
    assert isinstance(body.type, TensorType)
    other = Var("y", body.type.with_dtype("int8", per_tensor(0.5, 4)))
    attrs = AddAttrs((layer.out_zp, 4), (1 << 30, 1518500250), (-1, 0), 1340000000, -19, -7, -128, 127)
    return Function((*func.params, other), call("qnn.add", [body, other], attrs), {"Primitive": 1})


@pytest.mark.parametrize("name", sorted(IMPLS))
def test_residual_add(name: str) -> None:
    layer = conv(5, 9, 8, 6, padding=ALL, out_zp=3)
    func = residual(layer)
    rng = np.random.default_rng(3)
    inputs = [rng.integers(-128, 128, p.type.shape).astype(np.int8) for p in func.params]
    (expected,) = evaluate(func, inputs)
    lowered = IMPLS[name].lower(group_of(func), TARGETS[name], "kernel")
    np.testing.assert_array_equal(interpret(lowered, inputs, expected.shape), expected)
    assert len(np.unique(expected)) > 40


# ---- on the core


def run_layer(name: str, layer: Layer, *, board: str, folder: Path) -> tuple[bool, float]:
    """(whether the outputs are right, estimated by counted instructions) of a layer on a board."""
    func = build(layer)
    lowered = IMPLS[name].lower(group_of(func), TARGETS[name], "kernel")
    kernel = optimize(lowered.func)
    x = data_for(layer)
    (expected,) = evaluate(func, [x])
    whole = replace(kernel, inputs=kernel.inputs + kernel.consts, outputs=kernel.outputs + kernel.scratch, consts=(), scratch=())
    arrays = {kernel.inputs[0].name: x.reshape(kernel.inputs[0].shape)}
    arrays |= {b.name: np.asarray(lowered.constants[b.name]).reshape(b.shape) for b in kernel.consts}
    outputs, result = oncore.run_on(whole, arrays, board=board, folder=folder)
    same = bool((outputs[kernel.outputs[0].name].reshape(-1) == expected.reshape(-1)).all())
    return same, lowered.instructions / (result.instructions or 1)


ON_BOARD = [
    conv(16, 16, 16, 16, padding=ALL),
    conv(13, 11, 20, 7, padding=(1, 0, 0, 1), out_zp=5),
    conv(9, 8, 10, 6, padding=ALL, clip=(-90, 80)),
    conv(8, 8, 136, 8, padding=ALL, out_zp=-3),
]


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("name", sorted(IMPLS))
@pytest.mark.parametrize("layer", ON_BOARD)
def test_on_the_board(tmp_path: Path, layer: Layer, name: str) -> None:
    same, ratio = run_layer(name, layer, board=BOARDS[name], folder=tmp_path)
    assert same
    assert 0.95 < ratio < 1.05


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("board", ["mps2-an500", "mps2-an505"])
def test_on_other_cores(tmp_path: Path, board: str) -> None:
    assert run_layer("f4", ON_BOARD[1], board=board, folder=tmp_path)[0]


@pytest.mark.qemu
@needs_board
def test_targets_of_resnet(tmp_path: Path) -> None:
    """Instructions per multiply-accumulate of the residual network's layers, with the estimate's error."""
    for name, limits in (("f2", (0.53, 0.42, 0.37)), ("f4", (0.42, 0.30, 0.24)), ("f4_mla", (0.63, 0.49, 0.43))):
        for (size, channels), limit in zip(((32, 16), (16, 32), (8, 64)), limits, strict=True):
            layer = conv(size, size, channels, channels, padding=ALL)
            same, ratio = run_layer(name, layer, board=BOARDS[name], folder=tmp_path / f"{name}_{size}")
            assert same
            estimate = IMPLS[name].lower(group_of(build(layer)), TARGETS[name], "kernel").instructions
            assert estimate / ratio < limit * size * size * channels * channels * 9


def block_kernel(positions: int, words: int, product: Product) -> PrimFunc:
    """Both pixel blocks and the product block on memory: y = x but for the sums, z = some pixels of x and a fill."""
    b = IRBuilder("blocks")
    row = 2 * words + 8
    w = b.input("w", (positions * words * 4,), "int32", align=4)
    x = b.input("x", (positions * row,), "uint32", align=4)
    y = b.output("y", (positions * row,), "uint32", align=4)
    z = b.output("z", (128,), "uint32", align=4)
    with b.for_("i", positions * row) as i:
        b.store(y, i, x[i])
    b.block(winograd_product(positions, words, product), w, y)
    at = 0
    for size, pixels in ((1, 3), (2, 0), (3, 2), (4, 1), (34, 1)):
        b.block(copy_pixels(size), x, region(z, at), pixels)
        at += size * pixels
        b.block(fill_pixels(size), region(z, at), 1, imm(0x80808080, "uint32"))
        at += size
    b.block(fill_pixels(3), region(z, at), 0, imm(5, "uint32"))
    with b.for_("i", 128, start=at) as i:
        b.store(z, i, 9)
    return b.finish()


def block_case(positions: int, words: int, product: Product = PAIRS) -> tuple[PrimFunc, dict[str, np.ndarray]]:
    rng = np.random.default_rng(words)
    func = block_kernel(positions, words, product)
    w, x = (rng.integers(0, 1 << 32, b.shape, dtype=np.uint32) for b in func.inputs)
    w[:4], x[:4] = 0x80008000, 0x80008000  # -2^15 squared twice: SMLAD's only overflow of one step
    return func, {"w": w.view(np.int32), "x": x}


@pytest.mark.parametrize("pairs", [1, 4])
def test_product_in_the_interpreter(pairs: int) -> None:
    func, inputs = block_case(4, pairs)
    y = oncore.interpret(func, inputs)["y"].reshape(4, -1)
    words = inputs["w"].view(np.int16).reshape(4, pairs, 4, 2).astype(object)
    data = inputs["x"].view(np.int16).reshape(4, -1, 2)[:, : 2 * pairs].reshape(4, pairs, 2, 2).astype(object)
    sums = np.einsum("pkch,pkth->pct", words, data).reshape(4, 8) % (1 << 32)
    np.testing.assert_array_equal(y[:, 2 * pairs :], sums.astype(np.uint32))
    np.testing.assert_array_equal(y[:, : 2 * pairs], inputs["x"].reshape(4, -1)[:, : 2 * pairs])


@pytest.mark.parametrize("words", [1, 5])
def test_product_of_numbers_in_the_interpreter(words: int) -> None:
    func, inputs = block_case(4, words, NUMBERS)
    y = oncore.interpret(func, inputs)["y"].reshape(4, -1)
    data = inputs["x"].reshape(4, -1)[:, : 2 * words].reshape(4, words, 2)
    sums = np.einsum("pkc,pkt->pct", inputs["w"].reshape(4, words, 4).astype(object), data.astype(object)).reshape(4, 8) % (
        1 << 32
    )
    np.testing.assert_array_equal(y[:, 2 * words :], sums.astype(np.uint32))
    np.testing.assert_array_equal(y[:, : 2 * words], inputs["x"].reshape(4, -1)[:, : 2 * words])


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("product", [PAIRS, NUMBERS])
@pytest.mark.parametrize("words", [1, 2, 32, 33, 48])
def test_blocks_on_the_board(tmp_path: Path, words: int, product: Product) -> None:
    func, inputs = block_case(4, words, product)
    expected = oncore.interpret(func, inputs)
    actual, _ = oncore.run_on(func, inputs, board="mps2-an386" if product.pair else "mps2-an385", folder=tmp_path)
    for name, values in expected.items():
        np.testing.assert_array_equal(actual[name], values)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(IMPLS))
def test_random_layers(name: str) -> None:
    """2,000 layers (AOT_FULL=1) of random shapes, paddings, zero points and ranges."""
    rng = np.random.default_rng(11)
    impl, form = IMPLS[name], FORMS[name]
    seed, checked = 0, 0
    while checked < cases(2000):
        seed += 1
        padding = tuple(int(v) for v in rng.integers(0, 4, 4))
        height = int(rng.integers(max(1, form.n - padding[0] - padding[2]), form.n + 4))
        width = int(rng.integers(max(1, form.window_width - padding[1] - padding[3]), form.window_width + 4))
        layer = conv(
            height, width, int(rng.integers(8, 14)), int(rng.integers(1, 7)), padding=padding, seed=seed,
            pad_value=int(rng.choice([-128, 127, 0, int(rng.integers(-128, 128))])), out_zp=int(rng.choice([-128, 127, 0, 13])),
            clip=(-128, 127) if rng.random() < 0.7 else (-100, 120), rounding=str(rng.choice(["double", "single"])),
            per_channel=bool(rng.random() < 0.7), spread=float(rng.choice([20.0, 200.0, 2000.0])),
        )  # fmt: skip
        if layer.clip[0] > layer.out_zp or layer.clip[1] < layer.out_zp or not accepts(impl, layer, TARGETS[name].name):
            continue
        check(impl, layer, TARGETS[name])
        checked += 1
