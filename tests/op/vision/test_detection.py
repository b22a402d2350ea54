"""TFLite_Detection_PostProcess."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from flatbuffers import flexbuffers
from hypothesis import given

from aot.errors import AotError
from aot.relay.interpreter import evaluate
from aot.testing import HAVE_LITERT, ModelBuilder, reference_sets
from tests.op._differential import FAST, SEEDS, SLOW, check_lowering, main_of
from tests.op._drawn_count import count as count_case

OPTIONS: dict[str, Any] = {
    "max_detections": 6,
    "max_classes_per_detection": 1,
    "detections_per_class": 100,
    "use_regular_nms": False,
    "nms_score_threshold": 0.3,
    "nms_iou_threshold": 0.5,
    "num_classes": 3,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}


def detection_model(dtype: str, count: int, *, anchors: np.ndarray[Any, Any], background: int = 1, **options: Any) -> bytes:
    """Boxes [1, count, 4] and scores [1, count, classes] as inputs, anchors as a constant."""
    chosen = OPTIONS | options
    columns = chosen["num_classes"] + background
    rows = chosen["max_detections"] * chosen["max_classes_per_detection"]
    b = ModelBuilder()
    box: dict[str, Any] = {"scale": 0.06, "zero_point": 120} if dtype == "uint8" else {}
    score: dict[str, Any] = {"scale": 1 / 256, "zero_point": 0} if dtype == "uint8" else {}
    place: dict[str, Any] = {"scale": 1 / 255, "zero_point": 0} if dtype == "uint8" else {}
    inputs = [b.tensor("boxes", (1, count, 4), dtype, **box), b.tensor("scores", (1, count, columns), dtype, **score)]
    table = b.tensor("anchors", anchors.shape, dtype, data=anchors, **place)
    shapes: list[tuple[int, ...]] = [(1, rows, 4), (1, rows), (1, rows), (1,)]
    results = [b.tensor(f"y{i}", s, "float32") for i, s in enumerate(shapes)]
    blob = bytes(flexbuffers.Dumps(chosen))
    b.custom_op("TFLite_Detection_PostProcess", [*inputs, table], results, custom_options=blob)
    return b.build(inputs, results)


def case(dtype: str, count: int, seed: int, **options: Any) -> tuple[bytes, list[Any]]:
    """Anchors on a grid, so that boxes overlap now and then; scores without ties within a box."""
    rng = np.random.default_rng(seed)
    classes = (OPTIONS | options)["num_classes"] + options.get("background", 1)
    centres, sizes = rng.random((count, 2)), 0.1 + 0.3 * rng.random((count, 2))
    anchors = np.concatenate([centres, sizes], axis=1).astype(np.float32)
    boxes = rng.normal(size=(1, count, 4)).astype(np.float32)
    scores = rng.random((1, count, classes)).astype(np.float32)
    if dtype == "uint8":
        anchors, boxes = np.rint(anchors * 255).astype(np.uint8), np.clip(np.rint(boxes / 0.06) + 120, 0, 255).astype(np.uint8)
        ranks = rng.permuted(np.tile(np.arange(classes), (1, count, 1)), axis=2)
        scores = (np.floor(rng.random((1, count, 1)) * (256 - 40 * classes)) + 40 * ranks).astype(np.uint8)
    return detection_model(dtype, count, anchors=anchors, **options), [boxes, scores]


def check_detection(model: bytes, inputs: list[Any], *, host: bool = False) -> int:
    """Compare what was detected; the reference does not write the places behind it.  Returns the number of detections."""
    func = main_of(model)
    found = evaluate(func, inputs)
    count = int(found[3][0]) * (found[1].size // 6)
    if HAVE_LITERT:
        wanted = reference_sets(model, [inputs])[0]
        assert wanted[3] == found[3]
        for a, b in zip(found[:3], wanted[:3], strict=True):
            np.testing.assert_allclose(a[0, :count], b[0, :count], rtol=1e-6, atol=1e-6)
    assert not any(f[0, count:].any() for f in found[:3])
    check_lowering(func, [inputs], [found], host=host)
    count_case(model, [inputs])
    return int(found[3][0])


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, list[Any]]:
    dtype = draw(st.sampled_from(["uint8", "float32"]))
    return case(
        dtype,
        draw(st.integers(1, 30)),
        draw(SEEDS),
        background=draw(st.integers(0, 1)),
        max_classes_per_detection=draw(st.integers(1, 3)),
        nms_score_threshold=draw(st.sampled_from([0.0, 0.3, 0.7, 2.0])),
        nms_iou_threshold=draw(st.sampled_from([0.1, 0.5, 0.9])),
    )


@given(cases())
@FAST
def test_random(drawn: tuple[bytes, list[Any]]) -> None:
    check_detection(*drawn)


@pytest.mark.slow
@given(cases())
@SLOW
def test_random_often(drawn: tuple[bytes, list[Any]]) -> None:
    check_detection(*drawn)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_on_host(dtype: str) -> None:
    assert check_detection(*case(dtype, 40, 3), host=True) == 6
    assert check_detection(*case(dtype, 40, 3, nms_score_threshold=1.5), host=True) == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"use_regular_nms": True}, "E1203"),
        ({"max_classes_per_detection": 4}, "E1122"),
        ({"max_detections": 0}, "E1122"),
        ({"y_scale": 0.0}, "E1122"),
    ],
)
def test_refused(options: dict[str, Any], code: str) -> None:
    with pytest.raises(AotError, match=code):
        main_of(case("uint8", 5, 0, **options)[0])


def test_broken_options() -> None:
    b = ModelBuilder()
    inputs = [b.tensor("x", (1, 2, 4), "float32"), b.tensor("z", (1, 2, 4), "float32")]
    anchors = b.tensor("anchors", (2, 4), "float32", data=np.zeros((2, 4), np.float32))
    results = [b.tensor(f"y{i}", s, "float32") for i, s in enumerate([(1, 1, 4), (1, 1), (1, 1), (1,)])]
    b.custom_op("TFLite_Detection_PostProcess", [*inputs, anchors], results, custom_options=b"\xff\xff\xff\xff")
    with pytest.raises(AotError, match="E1116"):
        main_of(b.build(inputs, results))
