"""The generic kernels of convolutions and fully connected layers against the operators' meaning, in the TIR interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from aot.target.target import find_target
from aot.topi.strategy import implementations
from tests.scale import cases
from tests.topi.layers import Layer, check

M3 = find_target("cortex-m3")
GENERIC = {
    i.name: i
    for a in ("nn.conv2d", "nn.depthwise_conv2d", "nn.dense")
    for i in implementations(a)
    if i.name.startswith("generic.")
}

CONV = [
    Layer("conv", (1, 6, 7, 5), (7, 3, 3, 5), padding=(1, 1, 1, 1)),
    Layer(
        "conv",
        (2, 9, 7, 4),
        (4, 3, 2, 4),
        strides=(2, 1),
        padding=(0, 0, 1, 1),
        dilation=(2, 2),
        pad_value=3,
        out_zp=5,
        clip=(-100, 127),
    ),
    Layer("conv", (1, 9, 7, 4), (4, 3, 2, 4), strides=(2, 3), pad_value=127, out_zp=127, per_channel=False),
    Layer("conv", (1, 5, 5, 2), (3, 5, 5, 2), padding=(2, 2, 2, 2), pad_value=127, out_zp=0, rounding="single"),
    Layer("conv", (1, 1, 1, 3), (17, 3, 3, 3), padding=(1, 1, 1, 1), pad_value=-1, out_zp=-128),
    Layer("conv", (1, 2, 5, 1), (5, 1, 3, 1), padding=(3, 4, 2, 1), strides=(3, 3), dilation=(1, 2), pad_value=9, out_zp=9),
]
POINTWISE = [
    Layer("conv", (1, 3, 3, 8), (8, 1, 1, 8), out_zp=5),
    Layer("conv", (1, 5, 5, 3), (6, 1, 1, 3), per_channel=False, out_zp=-20),
    Layer("conv", (2, 1, 1, 33), (5, 1, 1, 33)),
]
DEPTHWISE = [
    Layer("dw", (1, 5, 6, 6), (1, 3, 3, 6), padding=(1, 1, 1, 1)),
    Layer("dw", (1, 5, 6, 2), (1, 3, 3, 12), strides=(2, 1), padding=(0, 1, 1, 1), multiplier=6, out_zp=3),
    Layer(
        "dw",
        (1, 9, 9, 1),
        (1, 3, 3, 8),
        strides=(2, 2),
        padding=(2, 2, 2, 2),
        dilation=(2, 2),
        multiplier=8,
        pad_value=77,
        out_zp=7,
    ),
    Layer("dw", (1, 4, 4, 3), (1, 2, 5, 15), padding=(1, 0, 2, 4), multiplier=5, per_channel=False, out_zp=0),
]
DENSE = [Layer("dense", (3, 20), (10, 20), rounding="single"), Layer("dense", (4, 7), (3, 7), rounding="double", out_zp=4)]
CASES = [
    (n, c)
    for n, cs in (("conv2d", CONV + POINTWISE), ("pointwise", POINTWISE), ("depthwise_conv2d", DEPTHWISE), ("dense", DENSE))
    for c in cs
]


@pytest.mark.parametrize(("kernel", "layer"), CASES)
def test_kernel_equals_meaning(kernel: str, layer: Layer) -> None:
    assert check(GENERIC[f"generic.{kernel}"], layer, M3) > 3


@pytest.mark.parametrize("shift_of_spread", [1e-4, 30.0, 1e6, 1e9])
def test_extreme_multipliers(shift_of_spread: float) -> None:
    """Results that vanish, that saturate, and shifts to the left."""
    layer = Layer("conv", (1, 4, 4, 3), (5, 3, 3, 3), padding=(1, 1, 1, 1), spread=shift_of_spread, out_zp=11)
    check(GENERIC["generic.conv2d"], layer, M3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(cases(2000)))
def test_random_layers(seed: int) -> None:
    check(*random_case(seed), M3)


def random_case(seed: int):  # type: ignore[no-untyped-def]
    """A random layer with awkward numbers, and a generic kernel for it."""
    rng = np.random.default_rng(seed)
    pick = lambda *v: v[int(rng.integers(len(v)))]  # noqa: E731
    kind, c, k = pick("conv", "dw"), pick(1, 3, 4, 5, 8), (pick(1, 2, 3), pick(1, 2, 3, 5))
    size, dilation = (pick(1, 2, 5, 6), pick(1, 2, 5, 7)), (pick(1, 1, 2), pick(1, 1, 2))
    pads = [0, 0, 0, 0]
    for axis in (0, 1):
        need = max(0, (k[axis] - 1) * dilation[axis] + 1 - size[axis])
        before = int(rng.integers(0, need + k[axis]))
        pads[axis], pads[axis + 2] = before, max(0, need - before) + int(rng.integers(0, 2))
    multiplier = pick(1, 1, 2, 3, 8) if kind == "dw" else 1
    weight = (1, *k, c * multiplier) if kind == "dw" else (pick(1, 3, 4, 7, 9), *k, c)
    zp = int(pick(-128, 127, 0, int(rng.integers(-128, 128))))
    layer = Layer(
        kind,
        (1, *size, c),
        weight,
        (pick(1, 2, 3), pick(1, 2, 3)),
        tuple(pads),
        dilation,
        zp,
        int(pick(-128, 127, -3)),  # type: ignore[arg-type]
        rounding=pick("double", "single"),
        per_channel=bool(pick(0, 1)),
        multiplier=multiplier,
        seed=seed,
        spread=float(pick(20, 300)),
    )
    return GENERIC["generic.depthwise_conv2d" if kind == "dw" else "generic.conv2d"], layer
