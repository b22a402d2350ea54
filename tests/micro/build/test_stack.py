"""The stack bound: stated in the header, never below what a run uses, not far above it."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from aot.driver.build import build
from aot.micro.board import load_board
from aot.micro.build.image import FRAMES, LEVELS, UNKNOWN, StatedStack, board_of, bounds_by_level, check_image, with_stack_bound
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.report.measure.inputs import rule_sets
from tests.micro.build.build_flags import Flags, flagged

ROOT = Path(__file__).resolve().parents[3]
MODELS = ROOT / "tests" / "models"
FULL = os.environ.get("AOT_FULL") == "1"
MOST = 400
"""Bytes that the issue allows."""


def test_the_header_template_has_the_place_for_the_bound() -> None:
    template = (ROOT / "aot" / "template" / "model.h.j2").read_text(encoding="utf-8")
    assert UNKNOWN in template


def test_the_header_states_the_bound() -> None:
    header = f"/* m\n{UNKNOWN}   heap        0 bytes\n*/\n#define M_LAYERS 3\nint32_t m_run(void);\n"
    text = with_stack_bound(header, name="m", stack=StatedStack(344, "gcc 1.2.3 with -O2"))
    assert "   stack       344 bytes at most, by gcc 1.2.3 with -O2\n   heap" in text
    assert "/* Bytes below the caller of m_run, compiled by\n   gcc 1.2.3 with -O2 */\n" in text
    assert "*/\n#define M_STACK_BOUND 344u\n#define M_LAYERS 3\n" in text
    text = with_stack_bound(header, name="m", stack=StatedStack(344, "gcc", {"-O0": 1000, "-Og": 300}))
    assert "all of it at one level: -O0 1000, -Og 300\n" in text
    assert "\n#define M_STACK_BOUND_O0 1000u\n#define M_STACK_BOUND_OG 300u\n#define M_STACK_BOUND_WORST 1000u\n" in text


def test_a_core_without_a_board_has_none_to_link_for() -> None:
    board = board_of("cortex-m4")
    assert board is not None
    assert board.name == "mps2-an386"
    assert board_of("pdp-11") is None


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["net_ic_resnet", "net_sww", "net_ad_autoencoder", "net_kws_dscnn", "net_vww_mobilenet"])
def test_bound_and_measured_depth(name: str, tmp_path: Path) -> None:
    artifact = build(MODELS / f"{name}.tflite", target="cortex-m4")
    project = prepare(artifact, load_board("mps2-an386"), folder=tmp_path)
    bound = check_image(project).stack_bound
    measured = run(project, rule_sets(artifact.metadata["inputs"], 1).inputs).stack_bytes
    assert measured is not None
    assert measured <= bound <= min(MOST, 1.3 * measured)


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["net_sww", "net_kws_dscnn", "net_ic_resnet"] if FULL else ["net_sww"])
def test_bound_and_measured_depth_at_every_level(name: str, tmp_path: Path) -> None:
    """The header's bounds hold for builds at any level, with and without a frame pointer."""
    artifact = build(MODELS / f"{name}.tflite", target="cortex-m4")
    project = prepare(artifact, load_board("mps2-an386"), folder=tmp_path)
    bounds = bounds_by_level(project)
    assert list(bounds) == list(LEVELS)
    inputs = rule_sets(artifact.metadata["inputs"], 1).inputs
    for level, frame in product(LEVELS, FRAMES if FULL else FRAMES[1:]):
        measured = run(flagged(project, Flags("gcc", level, frame, "hard")), inputs).stack_bytes
        assert measured is not None
        assert 0 < measured <= bounds[level], f"{level} {frame}"
    assert bounds["-O0"] > bounds["-O2"]
