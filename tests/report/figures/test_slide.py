"""What a window that moves saves, in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aot.driver.options import Options
from aot.driver.slide import slid
from aot.frontend.tflite import from_tflite
from aot.report.figures.size import slide_lines
from tests.stateful import Tcn, tcn

KWS = Path(__file__).parents[2] / "models" / "net_kws_dscnn.tflite"


def lines(model: bytes, name: str, hop: int) -> list[str]:
    return slide_lines({"slide": slid(from_tflite(model), Options(slide=((name, hop),)), opt_level=2).told()})


def test_padding_is_named_with_what_it_costs() -> None:
    gain, padding, whole, fewer = lines(KWS.read_bytes(), "input", 2)
    assert gain == "2 of 49 rows of input are new per run: 1,105,408 of 2,656,768 MAC (0.42), 24,470 B of rows are kept"
    assert padding.startswith("padding in 5 layers: up to 14 of 25 rows are computed again")
    assert "with VALID padding 1, and about 107,008 MAC in total" in padding
    assert whole.endswith("works over all rows; layers after such places run in full: 768 MAC")
    assert fewer.startswith("--ram-budget can keep fewer rows: 18,390 B for 1,156,608 MAC (0.44), ")


def test_ways_to_keep_less_that_were_not_all_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aot.relay.transform.sliding.EXACT", 0)
    stopped = lines(KWS.read_bytes(), "input", 2)[-1]
    found = re.fullmatch(r"plans that keep fewer rows: the search stopped at its limit, (\d+) of (\d+) were tried", stopped)
    assert found is not None
    assert 1 < int(found[1]) < int(found[2])


def test_without_padding_only_the_mean_over_time_stays() -> None:
    texts = lines(tcn(Tcn(frames=20, features=4, channels=4, classes=3, dilations=(1, 2))), "x", 1)
    assert [text.split()[0] for text in texts] == ["1", "AVERAGE_POOL_2D"]


def test_a_mean_over_many_rows_is_a_running_sum() -> None:
    _, sums, whole, *_ = lines(tcn(Tcn(frames=60, features=4, channels=4, classes=3, dilations=(1, 2))), "x", 1)
    assert sums.startswith("AVERAGE_POOL_2D ")
    assert sums.endswith(" keeps 4 running sums: it reads 2 rows instead of 54")
    assert whole == "layers after the rows run in full: 12 MAC"


def test_a_model_that_does_not_slide_has_no_lines() -> None:
    assert slide_lines({}) == []
