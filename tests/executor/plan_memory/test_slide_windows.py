"""Windows of the state that move on: what they need, that they never meet, and that nothing changes but the copies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.driver.build import build, compile_model
from aot.driver.options import Options
from aot.errors import TargetError, UsageError
from aot.memory.memory_pools import parse_pool
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.runtime.module import load
from aot.testing import ModelBuilder
from aot.testing.builder import assign, handle, initialize, read
from aot.testing.reference import reference_sets
from tests.executor.copy_elision.test_state_windows import steps, stream
from tests.op.state.test_variable import check, same

Array = np.ndarray[Any, Any]
QUANT = {"scale": 0.5, "zero_point": -3}
DRAWN = 300 if os.environ.get("AOT_FULL") else 12


def draw_streams(seed: int) -> tuple[bytes, list[list[Array]]]:
    """A chain of windows of different lengths and widths, some of them kept whole, and inputs for many steps."""
    rng = np.random.default_rng(seed)
    b = ModelBuilder()
    main = b.subgraphs[0]
    dtype = "int8" if seed % 3 else "float32"
    quant: dict[str, Any] = QUANT if dtype == "int8" else {}
    width, new, count = int(rng.integers(1, 7)), int(rng.integers(1, 4)), int(rng.integers(1, 5))
    kept = [int(rng.integers(1, 24)) for _ in range(count)]
    whole = [bool(rng.integers(2)) for _ in range(count)]
    rows = [k + new if w else k for k, w in zip(kept, whole, strict=True)]
    data = {f"v{i}": rng.integers(-9, 9, (1, r, width)).astype(dtype) for i, r in enumerate(rows)}
    initialize(b, data, **{name: quant for name in data})
    x = value = b.tensor("x", (1, new, width), dtype, **quant)

    def numbers(name: str, *values: int) -> int:
        return b.tensor(name, (len(values),), "int32", data=np.array(values, np.int32))

    def cut(source: int, first: int, size: int, name: str) -> int:
        result = b.tensor(name, (1, size, width), dtype, **quant)
        b.op("SLICE", [source, numbers(f"{name}_b", 0, first, 0), numbers(f"{name}_s", 1, size, width)], [result])
        return result

    outputs = []
    for i in range(count):
        v = handle(main, f"v{i}")
        old = read(main, v, (1, rows[i], width), dtype, **quant)
        if whole[i]:
            old = cut(old, new, kept[i], f"old{i}")
        window = b.tensor(f"window{i}", (1, kept[i] + new, width), dtype, **quant)
        b.op("CONCATENATION", [old, value], [window], axis=1, fused_activation_function="NONE")
        assign(main, v, window if whole[i] else cut(window, new, kept[i], f"tail{i}"))
        value = b.tensor(f"y{i}", (1, new, width), dtype, **quant)
        most = b.tensor(f"most{i}", (1, 1, width), dtype, **quant)
        b.op("REDUCE_MAX", [window, numbers(f"axis{i}", 1)], [most], keep_dims=True)
        b.op("MINIMUM", [most, cut(window, int(rng.integers(kept[i] + 1)), new, f"part{i}")], [value])
        outputs.append(most)
    draw = rng.integers(-128, 128, (40, 1, new, width)).astype(dtype)
    return b.build([x], [value, *outputs]), [[d] for d in draw]


@pytest.mark.parametrize("seed", range(3))
def test_some_streams(seed: int) -> None:
    model, inputs = draw_streams(seed)
    check(model, inputs[:16], io="user" if seed % 2 else "arena")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 3 + DRAWN))
def test_drawn_streams(seed: int) -> None:
    model, inputs = draw_streams(seed)
    check(model, inputs, io="user" if seed % 2 else "arena", opt=("balanced", "speed", "ram")[seed % 3])


def test_most_draws_have_windows_that_slide() -> None:
    turns = [compile_model(draw_streams(seed)[0]).layout.rings for seed in range(6)]
    assert sum(r is not None and r.turns < 40 for r in turns) >= 3, "and are moved back within the steps of a test"


def test_what_is_moved_and_what_it_costs() -> None:
    sizes = {}
    for kind in ("copy", "slide"):
        sizes[kind] = compile_model(stream(20, 1), options=Options(rings=kind)).artifact.metadata["state"]
    assert (sizes["copy"]["bytes_new"], sizes["copy"]["bytes_moved"], sizes["copy"]["size"]) == (4, 80, 84)
    slid = sizes["slide"]
    assert slid["bytes_moved"] <= 1.2 * slid["bytes_new"] < slid["bytes_moved_most"] == 80
    assert slid["rings"]["turns"] == 17, "80 bytes are moved once while 17 * 4 new ones come"
    assert slid["size"] == 84 + 4 + 16 * 4 == 4 + 84 + slid["rings"]["room"]


def test_a_window_that_is_kept_whole_is_cut() -> None:
    for seed in range(4):
        model, _ = draw_streams(seed)
        states = compile_model(model, options=Options(rings="copy")).artifact.metadata["state"]
        assert states["bytes_moved"] <= states["bytes_written"]
        assert states["tensors"][0]["shape"][1] < 24, "rows that are never read are not kept"


def test_modes_and_budgets_decide() -> None:
    model = stream(20, 1)
    assert compile_model(model, options=Options(opt="speed")).layout.rings is not None
    for opt in ("size", "ram"):
        assert compile_model(model, options=Options(opt=opt)).layout.rings is None
        assert compile_model(model, options=Options(opt=opt, rings="slide")).layout.rings is not None
    slides = compile_model(model)
    total = slides.layout.plan.size + slides.layout.state_size
    assert compile_model(model, options=Options(ram_budget=total)).layout.rings is not None
    tight = compile_model(model, options=Options(ram_budget=total - 1))
    assert tight.layout.rings is None
    assert "rings" not in tight.artifact.metadata["options"], "listed only where it was asked for"
    with pytest.raises(UsageError, match="E5009"):
        Options(rings="turn")


def test_a_pool_decides() -> None:
    from aot.memory.memory_pools import Pooling

    model = stream(20, 1)
    needs = compile_model(model).layout.state_size
    for size, slides in ((-(-needs // 16) * 16 + 64, True), (96, False)):  # the workspace has a part of it
        pools = (parse_pool(f"FAST={size}@0x20000000"), parse_pool("SLOW=4K@0x20010000"))
        made = compile_model(model, options=Options(pooling=Pooling(pools, (("state", "FAST"),))))
        assert (made.layout.rings is not None) == slides
        assert made.layout.state_pool is not None
    pools = (parse_pool("FAST=32@0x20000000"), parse_pool("SLOW=4K@0x20010000"))
    with pytest.raises(TargetError, match="E2013"):
        compile_model(model, options=Options(pooling=Pooling(pools, (("state", "FAST"),))))


def test_a_state_that_was_never_reset_is_refused() -> None:
    model = stream(20, 1)
    host = load(build(model, target="host", options=Options(io="user")))
    state = host.new_state()
    state[:] = 0xA5
    with pytest.raises(Exception, match="-3"):
        host.run(steps(1, count=1)[0], state=state)
    assert (state == 0xA5).all(), "and left as it is"


def test_a_copy_of_a_state_goes_back_in_time() -> None:
    model, inputs = stream(20, 1, twice=True), steps(1, count=60)
    expected = reference_sets(model, inputs)
    host = load(build(model, target="host", options=Options(io="user")))
    state = host.new_state()
    assert same([host.run(s, state=state) for s in inputs[:25]], expected[:25])
    saved = state.copy()
    for _ in range(2):
        assert same([host.run(s, state=state) for s in inputs[25:]], expected[25:])
        state[:] = saved


@pytest.mark.qemu
@pytest.mark.parametrize("io", ["arena", "user"])
def test_on_a_board(io: Any, tmp_path: Path) -> None:
    model, inputs = draw_streams(5)
    out = compile_model(model, target="cortex-m4", options=Options(io=io))
    assert out.layout.rings is not None
    project = prepare(out.artifact, load_board("mps2-an386"), folder=tmp_path)
    assert same(run(project, inputs).outputs, reference_sets(model, inputs))
