"""The bytes a weight of docs/kernels.md: what a layer of twice the depth takes more in flash."""

from __future__ import annotations

from math import prod

import pytest

from aot.executor.candidates import LoweringCache, all_candidates
from aot.target.target import find_target
from tests.topi.layers import Layer, build

BYTES: dict[str, dict[str, float]] = {
    "cortex-m4 conv": {
        "arm_dsp.conv2d_chain": 2,
        "arm_dsp.conv2d_chain_rows": 2,
        "arm_dsp.conv2d_w8": 1,
        "arm_dsp.conv2d_w8_direct": 1,
        "arm_dsp.conv2d_winograd(m=2)": 3.6,
        "arm_dsp.conv2d_winograd(m=4)": 8,
    },
    "cortex-m4 map": {"arm_dsp.conv2d_few": 2},
    "cortex-m4 dense": {"arm_dsp.dense_w8": 1, "arm_dsp.dense_w8_direct": 1, "arm_dsp.dense_pairs": 2},
    "cortex-m3 conv": {"arm_dsp.conv2d_winograd_mla(m=4)": 16},
    "cortex-m3 dense": {"arm_dsp.dense_chain": 2},
    "cortex-m55 conv": {"arm_mve.conv2d": 1},
    "cortex-m55 dense": {"arm_mve.dense": 1},
    "cortex-m0plus conv": {"arm_v6m.conv2d": 1},
    "cortex-m0plus dense": {"arm_v6m.dense": 2.7},
}


def layer(kind: str, depth: int) -> Layer:
    if kind in ("conv", "map"):
        return Layer("conv", (1, 8, 8, depth), (32 if kind == "conv" else 1, 3, 3, depth), (1, 1), (1, 1, 1, 1))
    return Layer("dense", (1, depth), (48, depth), rounding="single")


def constants(place: str, depth: int) -> tuple[int, dict[str, int]]:
    """The weights of a layer, and the bytes of constants of its kernels by name."""
    core, kind = place.split()
    found: dict[str, int] = {}
    for c in all_candidates(build(layer(kind, depth)), find_target(core), "layer", LoweringCache()):
        name = c.kernel if "winograd" in c.kernel else c.kernel.partition("(")[0]
        found.setdefault(name, c.constants)
    return prod(layer(kind, depth).weight), found


@pytest.mark.parametrize("place", BYTES)
def test_bytes_a_weight(place: str) -> None:
    (few, small), (many, large) = (constants(place, depth) for depth in (48, 96))
    found = {name: round((large[name] - small[name]) / (many - few), 1) for name in BYTES[place]}
    assert found == BYTES[place]
