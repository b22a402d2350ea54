"""The stack bound: stated in the header, never below what a run uses, not far above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.driver.build import build
from aot.micro.board import load_board
from aot.micro.build.image import check_image
from aot.micro.build.project import prepare
from aot.micro.build.stack import UNKNOWN, board_of, with_stack_bound
from aot.micro.run.runner import run
from aot.report.measure.sets import rule_sets

ROOT = Path(__file__).resolve().parents[3]
MODELS = ROOT / "tests" / "models"
MOST = 400
"""Bytes that the issue allows."""


def test_the_header_template_has_the_place_for_the_bound() -> None:
    template = (ROOT / "aot" / "template" / "model.h.j2").read_text(encoding="utf-8")
    assert UNKNOWN in template


def test_the_header_states_the_bound() -> None:
    header = f"/* m\n{UNKNOWN}   heap        0 bytes\n*/\n#define M_LAYERS 3\nint32_t m_run(void);\n"
    text = with_stack_bound(header, name="m", bound=344, tool="arm-none-eabi-gcc")
    assert "   stack       344 bytes at most (arm-none-eabi-gcc)\n   heap" in text
    assert "\n#define M_STACK_BOUND 344u /* bytes below the caller of m_run */\n#define M_LAYERS 3\n" in text


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
