"""The picture of the memory plan and its data."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

from aot.report.figures.size import overlaps, plan_data
from aot.report.render.drawings import memory_plan, standalone

BUFFERS = [
    {"name": "x<1>", "size": 40, "offset": 0, "first": -1, "last": 0, "kind": "input"},
    {"name": "t", "size": 60, "offset": 30, "first": 0, "last": 1, "kind": "tensor"},
    {"name": "s", "size": 10, "offset": 90, "first": 1, "last": 1, "kind": "scratch"},
    {"name": "y", "size": 20, "offset": 0, "first": 1, "last": 2, "kind": "output"},
]
WORKSPACE = {
    "size": 100, "align": 16, "liveness_bound": 100, "streaming_bound": 50, "fed_bound": 20, "plan_lower_bound": 90,
    "optimal": True, "buffers": BUFFERS,
}  # fmt: skip
LAYERS = [{"op": "CONV_2D", "name": "a"}, {"op": "SOFTMAX", "name": "b"}]


def test_data_names_what_overlaps_and_the_layers_at_the_peak() -> None:
    plan = plan_data(WORKSPACE, LAYERS)
    assert plan["overlaps"] == [{"below": "x<1>", "above": "t", "offset": 30, "size": 10, "first": 0, "last": 0}]
    assert plan["peak"] == {"bytes": 100, "steps": [{"step": 1, "what": "SOFTMAX b", "live": ["t", "s", "y"]}]}


def test_buffers_that_only_touch_do_not_overlap() -> None:
    touching = [
        {"name": "a", "size": 4, "offset": 0, "first": 0, "last": 1},
        {"name": "b", "size": 4, "offset": 4, "first": 1, "last": 2},
        {"name": "c", "size": 4, "offset": 0, "first": 2, "last": 3},
    ]
    assert overlaps(touching) == []


def test_drawing_is_well_formed_and_true_to_scale() -> None:
    text = standalone(plan_data(WORKSPACE, LAYERS), title="net & co")
    root = ElementTree.fromstring(text)
    titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "x<1> and t share 10 B" in titles
    assert "SOFTMAX b" in titles
    assert any(t and t.startswith("x<1>\ninput, 40 B at 0 to 40") for t in titles)
    (ground,) = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" class="ground"', text)
    (shared,) = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" fill="url', text)
    gx, gy, gw, gh = map(float, ground)
    x, y, w, h = map(float, shared)
    assert (y - gy) / gh == 0.3
    assert h / gh == 0.1
    assert abs((x - gx) / gw - 0.25) < 1e-3
    assert abs(w / gw - 0.25) < 1e-3
    assert {"peak 100 B", "whole tensors 100 B", "rows 50 B"} <= {t.text for t in root.iter("{http://www.w3.org/2000/svg}text")}


def test_words_of_bounds_that_are_close_share_a_line() -> None:
    text = memory_plan(plan_data({**WORKSPACE, "streaming_bound": 99}, LAYERS))
    assert ">rows 99 B · whole tensors 100 B<" in text


def test_no_label_is_written_over_another() -> None:
    """Two buffers of one place whose middles are a column apart."""
    layers = [{"op": "ADD", "name": f"t{i}"} for i in range(60)]
    chain = [{"name": f"tensor{i}", "size": 100, "offset": 0, "first": i, "last": i + 1, "kind": "tensor"} for i in range(60)]
    found = re.findall(
        r'<text x="([\d.]+)"[^>]*class="in small">100<', memory_plan(plan_data({**WORKSPACE, "buffers": chain}, layers))
    )
    places = [float(x) for x in found]
    assert len(places) == 30
    assert all(b - a > 20 for a, b in pairwise(places))


def test_plans_without_layers_or_bounds_can_be_drawn() -> None:
    empty = {**WORKSPACE, "size": 0, "liveness_bound": 0, "streaming_bound": None, "buffers": []}
    assert "<svg" in memory_plan(plan_data(empty, []))
