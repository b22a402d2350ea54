"""Pools limit where a plan lies; they take no way to save memory from it: results in place, tighter plans, rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.errors import AotError, TargetError, UsageError
from aot.executor.emit import LoweredOutput
from aot.memory.memory_pools import ONE_POOL, Pooling
from aot.micro.board import board_names, load_board
from aot.support.memory_pool import Pool

MODELS = Path(__file__).parents[2] / "models"
SHARED = Path(__file__).resolve().parents[4] / "shared" / "models"
KWS = MODELS / "net_kws_dscnn.tflite"
SWW = MODELS / "net_sww.tflite"
"""With --opt ram it runs by rows."""
NETS = ("net_kws_dscnn", "net_ad_autoencoder", "net_sww", "graph_branches_concat", "graph_two_inputs_two_outputs")
ROOMY = Pool("SLOW", 1 << 20)


def compiled(model: Path, *pools: Pool, pins: dict[str, str] | None = None, **options: Any) -> LoweredOutput:
    pooling = Pooling(pools, tuple((pins or {}).items())) if pools else ONE_POOL
    return compile_model(model, options=Options(pooling=pooling, **options))


def size_of(found: LoweredOutput) -> int:
    return int(found.artifact.metadata["workspace"]["size"])


def pool_of(found: LoweredOutput) -> dict[str, str]:
    return {name: p["name"] for p in found.artifact.metadata["workspace"]["pools"] for name in p["buffers"]}


def check_one_pool(model: Path, **options: Any) -> None:
    """A pool of exactly the bytes, also beside one that is too small: the same places."""
    plain = compiled(model, **options).layout
    large = Pool("LARGE", plain.plan.size)
    for pools in ((large,), (Pool("SMALL", max(1, plain.plan.size // 4)), large)):
        layout = compiled(model, *pools, **options).layout
        assert layout.plan == plain.plan
        assert [(u.pool, u.base, u.used) for u in layout.pools] == [(large, 0, plain.plan.size)]


@pytest.mark.slow
@pytest.mark.parametrize("opt", ["balanced", "ram"])
@pytest.mark.parametrize("name", NETS)
def test_the_plan_is_the_one_without_pools(name: str, opt: str) -> None:
    check_one_pool(MODELS / f"{name}.tflite", opt=opt)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"feed_rows": True}, {"ram_budget": 5000}, {"io": "user"}, {"opt": "speed"}])
def test_with_other_options_too(options: dict[str, Any]) -> None:
    check_one_pool(SWW, **options)


def shared_networks() -> Iterator[Path]:
    for folder in ("nets", "derived"):
        yield from sorted(p for p in (SHARED / folder).glob("*.tflite") if p.stat().st_size < 100_000)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/models is not there")
@pytest.mark.parametrize("model", list(shared_networks()), ids=lambda p: p.stem)
def test_the_plan_of_real_networks(model: Path) -> None:
    try:
        found = compiled(model)
    except AotError:
        pytest.skip("it does not compile without options")
    if size_of(found):
        check_one_pool(model)


@pytest.mark.slow
@pytest.mark.parametrize("board", [name for name in board_names() if load_board(name).pools])
def test_no_board_takes_more_for_its_pools(board: str) -> None:
    place = load_board(board)
    for name in ("net_kws_dscnn", "net_ad_autoencoder"):
        plans = [
            compile_model(MODELS / f"{name}.tflite", target=place.cpu, options=Options(pooling=pooling))
            for pooling in (ONE_POOL, Pooling(place.pools))
        ]
        assert size_of(plans[1]) <= size_of(plans[0])


@pytest.mark.slow
def test_a_pool_is_a_budget() -> None:
    """Where the usual plan does not fit, a smaller one is looked for, as for --ram-budget."""
    usual, least = size_of(compiled(SWW)), size_of(compiled(SWW, opt="ram"))
    assert least < usual
    for room in (usual - 1, least):
        pooled, budget = compiled(SWW, Pool("ONE", room)), compiled(SWW, ram_budget=room)
        assert pooled.layout.plan == budget.layout.plan
    with pytest.raises(TargetError, match=r"E2013 .*; all buffers in one memory need [0-9,]+ bytes"):
        compiled(MODELS / "graph_pad_then_conv.tflite", Pool("ONE", 64))


@pytest.mark.slow
def test_several_pools_take_no_more_bytes_than_one() -> None:
    whole = size_of(compiled(KWS))
    for room in (whole // 8, whole // 3, whole // 2, whole - 1):
        assert size_of(compiled(KWS, Pool("FAST", room, speed=9), ROOMY)) == whole


@pytest.mark.slow
def test_what_only_several_pools_hold_together() -> None:
    """Neither has room for all; the sum of both has little more than one memory needs."""
    found = compiled(KWS, Pool("ONE", 8100), Pool("TWO", 8100))
    pools = found.artifact.metadata["workspace"]["pools"]
    assert [p["name"] for p in pools] == ["ONE", "TWO"]
    assert all(p["used"] <= 8100 for p in pools)


@pytest.mark.slow
def test_pins_are_kept_where_results_are_in_place() -> None:
    """depthwise_conv_2d_2 is written over conv_2d_1."""
    first, second = "conv_2d_1", "depthwise_conv_2d_2"
    fast = Pool("FAST", 1 << 14, speed=2)
    both = compiled(KWS, fast, ROOMY, pins={second: "SLOW"})
    assert second not in pool_of(both), "in place still"
    assert pool_of(both)[first] == "SLOW"
    apart = pool_of(compiled(KWS, fast, ROOMY, pins={first: "FAST", second: "SLOW"}))
    assert (apart[first], apart[second]) == ("FAST", "SLOW")
    with pytest.raises(UsageError, match=r"E5019 --pin conv_9: no such tensor"):
        compiled(KWS, fast, ROOMY, pins={"conv_9": "FAST"})


@pytest.mark.slow
def test_a_pinned_tensor_is_not_taken_apart_into_rows() -> None:
    """conv_2d_1 is made by rows with --opt ram, and then there is no such tensor to pin."""
    found = compiled(MODELS / "net_ic_resnet.tflite", ROOMY, Pool("OTHER", 1 << 15), opt="ram", pins={"conv_2d_1": "OTHER"})
    assert pool_of(found)["conv_2d_1"] == "OTHER"
