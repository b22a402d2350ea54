"""Random layers of every kernel that has C of its own, by name, with the board whose core it is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tests.topi import drawn, drawn_float, drawn_float_elementwise
from tests.topi.arm_dsp import test_elementwise_group, test_halfwords_int16x8, test_lstm, test_smlal_transpose, test_tile_hybrid
from tests.topi.arm_dsp.elementwise import test_multiply
from tests.topi.arm_dsp.test_transpose import draw_transpose
from tests.topi.drawn import BOARDS, Case, target_of
from tests.topi.drawn_elementwise import FLAT, VECTORS, draw_elementwise
from tests.topi.drawn_groups import Draw, cases
from tests.topi.drawn_pool import POOLS, draw_float_pool, draw_pool
from tests.topi.generic.test_copy import draw_movement
from tests.topi.generic.test_te_group_finite import draw_finite

M4 = BOARDS["cortex-m4"]
CORES = {"arm_mve": "cortex-m55", "arm_v6m": "cortex-m0plus"}
CORES |= {"generic.quantize_steps": "cortex-m0plus", "generic.dequantize_table": "cortex-m3"}
"""The core of a folder of kernels, or of a kernel."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Endless random layers that a kernel takes, by seed; `together`: how many make one program."""

    cases: Callable[[int], Iterator[Case]]
    board: str = M4
    together: int = 50


def _windows() -> Iterator[tuple[str, Drawn]]:
    """Layers of bytes: convolutions, depthwise and fully connected ones."""
    for name, (_, impl) in drawn.KERNELS.items():
        yield name, Drawn(partial(drawn.random_cases, name), BOARDS[target_of(impl).name])


def _others() -> Iterator[tuple[str, Drawn]]:
    for name, (_, impl) in drawn_float.KERNELS.items():
        yield name, Drawn(partial(drawn_float.random_cases, name), BOARDS[drawn_float.target_of(impl).name])
    for kind in drawn_float_elementwise.KINDS:
        yield f"{kind} arm_mve.{kind}_float", Drawn(partial(drawn_float_elementwise.random_cases, kind), BOARDS["cortex-m55"])
    for name in test_halfwords_int16x8.KERNELS:
        yield name, Drawn(partial(test_halfwords_int16x8.random_cases, name))
    for name in test_tile_hybrid.KERNELS:
        yield name, Drawn(partial(test_tile_hybrid.random_cases, name))
    for name in test_lstm.KERNELS:
        yield f"lstm {name}", Drawn(partial(test_lstm.random_cases, name), together=10)  # the tables are in the program for each
    for name in test_smlal_transpose.KERNELS:
        yield f"transposed {name}", Drawn(partial(test_smlal_transpose.random_cases, kernel=name))
    for lanes in test_elementwise_group.LANES:
        yield f"group {test_elementwise_group.kernel(lanes)}", Drawn(partial(test_elementwise_group.cases, lanes=lanes))
    yield f"multiply {test_multiply.KERNEL}", Drawn(test_multiply.cases)
    plain = "cortex-m0plus"
    yield "gate arm_v6m.multiply", Drawn(partial(test_multiply.cases, kernel="arm_v6m.multiply", cpu=plain), BOARDS[plain])


def _groups() -> Iterator[tuple[str, Drawn]]:
    """Operators alone: element-wise ones, pools and movements of data."""
    kinds: list[tuple[str, str, Draw]] = [(f"arm_mve.{kind}", kind, draw_elementwise) for kind in VECTORS]
    kinds += [(f"arm_dsp.{kind}", kind, draw_elementwise) for kind in ("add", "lut", "quantize", "dequantize")]
    kinds += [(f"arm_v6m.{kind}", kind, draw_elementwise) for kind in ("add", "multiply")]
    kinds += [("generic.elementwise", kind, draw_elementwise) for kind in FLAT]
    kinds += [(f"{room}.pool", kind, draw_pool) for room in ("arm_mve", "generic") for kind in POOLS]
    kinds += [("generic.copy", "movement", draw_movement), ("arm_dsp.transpose", "transpose", draw_transpose)]
    kinds += [("generic.finite", "arithmetic", draw_finite)]
    kinds += [("generic.pool_float", kind, draw_float_pool) for kind in ("max_pool", "avg_pool")]
    kinds += [
        ("generic.quantize_steps", "quantize", draw_elementwise),
        ("generic.dequantize_table", "dequantize", draw_elementwise),
    ]
    for kernel, kind, draw in kinds:
        cpu = CORES.get(kernel) or CORES.get(kernel.partition(".")[0], "cortex-m4")
        yield f"{kind} {kernel}", Drawn(partial(cases, draw, kernel, kind, cpu=cpu), BOARDS[cpu])


EVERY = dict([*_windows(), *_others(), *_groups()])
"""Every kernel that has a generator of layers."""
