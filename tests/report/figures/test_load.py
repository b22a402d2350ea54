"""What a chain costs over time."""

from __future__ import annotations

import pytest

from aot.errors import UsageError
from aot.report.figures.size import check_clock, load_of, load_text, over_time, parse_clock

CHAIN = {"chain": {"rate": 16000.0, "hop": 320}}


@pytest.mark.parametrize(
    ("text", "hertz"), [("64MHz", 64_000_000), ("1.5 ghz", 1_500_000_000), ("32000", 32_000), ("8 kHz", 8_000)]
)
def test_clocks(text: str, hertz: int) -> None:
    assert parse_clock(text) == hertz


@pytest.mark.parametrize("text", ["", "fast", "0", "-1MHz", "64 MB"])
def test_what_is_no_clock(text: str) -> None:
    with pytest.raises(UsageError, match="E5018"):
        parse_clock(text)


def test_fifty_pushes_a_second() -> None:
    load = load_of(CHAIN, (80_000, 96_000), 64_000_000)
    assert load == {
        "pushes_per_second": 50.0,
        "instructions_per_second": 4_000_000,
        "clock_hz": 64_000_000,
        "highest": 0.075,
    }
    assert load_text(load) == (
        "4,000,000 instructions per second of input (50 pushes);"
        " at 64 MHz and one instruction per cycle the longest push needs 7.5 % of its time"
    )
    slow = load_of(CHAIN, (80_000, 96_000), None)
    assert slow is not None
    assert load_text(slow).endswith("(50 pushes)")


def test_without_a_rate_there_is_no_load() -> None:
    assert load_of({}, (1, 2), None) is None
    assert load_of({"chain": {"rate": None, "hop": 4}}, (1, 2), 100) is None
    assert load_of(CHAIN, None, 100) is None
    check_clock({}, None)
    check_clock(CHAIN, 100)
    with pytest.raises(UsageError, match="E1306"):
        check_clock({}, 100)


def test_a_report_has_its_pushes_and_load_in_words() -> None:
    every, load = {"average": 80_000, "most": 96_000}, load_of(CHAIN, (80_000, 96_000), None)
    assert load is not None
    said = ("pushes", "80,000 instructions on average, 96,000 at most, over 7")
    assert over_time({"verdict": {"sets": 7}, "pushes": every, "load": load}) == [said, ("load", load_text(load))]
    assert over_time({"verdict": {"sets": 7}, "pushes": every}) == [said]
    assert over_time({"verdict": {"sets": 7}}) == []
