"""The public header says what the main function asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aot.driver.build import build
from aot.driver.options import Options

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
QUANTIZE = ROOT / "tests" / "models" / "quantize.tflite"


def asked(source: str, expression: str) -> int:
    """The alignment in bytes that the main function checks of a pointer."""
    found = re.search(rf"\(\(\(uintptr_t\){re.escape(expression)} & (\d+)u\) != 0u\)", source)
    return int(found[1]) + 1 if found else 1


def macro(header: str, name: str) -> int:
    found = re.search(rf"#define {name} (\d+)u ", header)
    assert found, f"{name} is not in the header"
    return int(found[1])


def test_alignment_of_the_callers_memory() -> None:
    artifact = build(QUANTIZE, name="m", options=Options(io="user"))
    header, source = artifact.files["m.h"], artifact.files["m.c"]
    meta = artifact.metadata
    rows = [("INPUT", "in", t) for t in meta["inputs"]] + [("OUTPUT", "out", t) for t in meta["outputs"]]
    for kind, struct, row in rows:
        want = asked(source, f"{struct}->{row['c_name']}")
        assert macro(header, f"M_{kind}_{row['index']}_ALIGN") == row["align"] == want
    assert {row["align"] for _, _, row in rows} == {1, 4}
    assert "_ALIGN" not in build(QUANTIZE, name="m").files["m.h"]


@pytest.mark.slow
def test_alignment_of_a_row() -> None:
    artifact = build(DIGITS, name="m", options=Options(feed_rows=True))
    header = artifact.files["m.h"]
    assert macro(header, "M_FEED_ROW_ALIGN") == asked(artifact.files["m.c"], "row")
    assert "write them anew" not in header
    assert "m_input_0" not in header
