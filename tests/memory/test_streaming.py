"""The bounds of whole tensors and of rows, on graphs small enough to count by hand and on known networks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from aot import op as operators
from aot.driver.build import compile_model
from aot.executor.plan_memory import memory_bounds
from aot.frontend.tflite import from_tflite
from aot.frontend.tflite.view import nominal_shapes
from aot.memory import streaming
from aot.memory.streaming import Read, RowGraph, RowOp, RowTensor, fed_by_rows, streaming_bound, whole_tensor_bound
from aot.relay.expr import Function
from aot.relay.transform import pipeline

NETS = Path(__file__).parents[3] / "shared" / "models" / "nets"


def chain(*tensors: tuple[int, int], reads: tuple[Read, ...], local: bool = True) -> RowGraph:
    """Tensor k + 1 is made from tensor k; each tensor is (rows, bytes of a row)."""
    ops = tuple(RowOp((read,), (k + 1,), row_local=local) for k, read in enumerate(reads))
    named = tuple(RowTensor(*t) for t in tensors)
    return RowGraph(named, ops, (0,), (len(tensors) - 1,))


def test_element_wise_needs_one_row_more() -> None:
    graph = chain((10, 100), (10, 100), reads=(Read(0),))
    assert whole_tensor_bound(graph) == 2000
    assert streaming_bound(graph).nbytes == 1100  # the first row of the result beside the whole input
    # nine rows of the result, the last one, and the row it is made from
    assert streaming_bound(fed_by_rows(graph)).nbytes == 1100


def test_what_is_not_row_local_needs_whole_tensors() -> None:
    graph = chain((10, 100), (10, 100), reads=(Read(0),), local=False)
    assert streaming_bound(graph).nbytes == whole_tensor_bound(graph) == 2000


def test_three_by_three_keeps_two_rows_more() -> None:
    # row y of the result is there before row y - 1 of the input can go
    graph = chain((10, 100), (10, 100), reads=(Read(0, extent=3, before=1),))
    assert streaming_bound(graph).nbytes == 1200


def test_a_wide_tensor_between_small_ones_is_never_whole() -> None:
    graph = chain((8, 10), (8, 1000), (8, 10), reads=(Read(0), Read(1, extent=3, before=1)))
    assert whole_tensor_bound(graph) == 8080
    # three wide rows; the input without its rows 0 and 1 once row 2 is made, and the first row of the result
    assert streaming_bound(graph).nbytes == 3 * 1000 + 5 * 10 + 2 * 10


def test_rows_that_a_stride_leaves_out_are_not_made() -> None:
    graph = chain((8, 1), (8, 100), (4, 1), reads=(Read(0), Read(1, stride=2)))
    assert streaming_bound(graph).nbytes == 7 + 100 + 1 - 1 + 1


def test_skip_of_a_residual_block_stays_until_it_is_added() -> None:
    tensors = tuple(RowTensor(10, 100) for _ in "xabs")
    ops = (
        RowOp((Read(0, extent=3, before=1),), (1,), row_local=True),
        RowOp((Read(1, extent=3, before=1),), (2,), row_local=True),
        RowOp((Read(2), Read(0)), (3,), row_local=True),
    )
    graph = RowGraph(tensors, ops, (0,), (3,))
    assert whole_tensor_bound(graph) == 3000
    # x whole, two rows of a, one of b and one of the sum, when the first row is added
    assert streaming_bound(graph).nbytes == 1400


def test_cutting_where_a_tensor_is_small() -> None:
    """A global reduction needs all rows of what it reads: before it, everything lies there whole."""
    graph = chain((8, 10), (8, 50), (1, 4), reads=(Read(0), Read(1, extent=8)))
    assert streaming_bound(graph).nbytes == 8 * 50 + 10


def random_net(seed: int) -> RowGraph:
    """Windows of one to three rows over one or two tensors before, each 12 rows high."""
    rng = random.Random(seed)
    tensors, ops = [RowTensor(12, 40)], []
    for k in range(7):
        extents = [rng.choice((1, 3)) for _ in range(rng.randint(1, 2))]
        reads = {max(0, k - n): Read(max(0, k - n), extent=e, before=e // 2) for n, e in enumerate(extents)}
        ops.append(RowOp(tuple(reads.values()), (k + 1,), row_local=rng.random() < 0.9))
        tensors.append(RowTensor(12, rng.randint(1, 60)))
    return RowGraph(tuple(tensors), tuple(ops), (0,), (7,))


@pytest.mark.parametrize("seed", range(25))
def test_a_search_that_stops_says_what_the_bound_is_at_least(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_net(seed)
    best = streaming_bound(graph)
    assert best.optimal
    for limit in (0, 100, 300):
        monkeypatch.setattr(streaming, "WORK", limit)
        stopped = streaming_bound(graph)
        assert stopped.lower_bound <= best.nbytes <= stopped.nbytes <= whole_tensor_bound(graph)
    monkeypatch.undo()
    monkeypatch.setattr(streaming, "CHAIN_LENGTH", 2)
    short = streaming_bound(graph)
    assert short.lower_bound <= best.nbytes <= short.nbytes


def test_one_that_stops_at_once_is_the_bound_of_whole_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain((8, 10), (8, 1000), (8, 10), reads=(Read(0), Read(1, extent=3, before=1)))
    monkeypatch.setattr(streaming, "WORK", 0)
    # the one chain of both may need as little as the tensors at its ends
    assert streaming_bound(graph) == streaming.RowBound(8080, 80)
    monkeypatch.setattr(streaming, "WORK", 1)
    assert not streaming_bound(graph).optimal


TABLE = {
    "mlperf_vww_mobilenet_int8": (55296, 28032, 10272),
    "person_detect": (55296, 12288, None),
    "mlperf_ic_resnet_int8": (49152, 10944, None),
    "mlperf_kws_dscnn_int8": (16000, 8640, None),
    "mlperf_sww_int8": (6656, 3712, None),
    "mlperf_ad01_int8": (768, 768, None),
    "silabs_image_example1_int8": (69120, 12096, None),
}


needs_nets = pytest.mark.skipif(not NETS.is_dir(), reason="the shared models are not there")


@pytest.mark.slow
@needs_nets
@pytest.mark.parametrize("name", TABLE)
def test_known_networks(name: str) -> None:
    """Counted once by hand from their shapes."""
    operators.load_all()
    data = (NETS / f"{name}.tflite").read_bytes()
    main = pipeline()(from_tflite(data))["main"]
    assert isinstance(main, Function)
    found = memory_bounds(main, nominal_shapes(data))
    liveness, rows, fed = TABLE[name]
    assert (found.liveness, found.streaming.nbytes) == (liveness, rows)
    assert fed is None or found.fed.nbytes == fed


@pytest.mark.slow
@needs_nets
@pytest.mark.parametrize("name", [n for n in TABLE if n.startswith("mlperf")])
def test_plans_of_mlperf_tiny_are_proven_optimal(name: str) -> None:
    assert compile_model(NETS / f"{name}.tflite").artifact.metadata["workspace"]["optimal"]
