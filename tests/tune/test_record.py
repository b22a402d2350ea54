"""Records as lines, and files of them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from aot.errors import UsageError
from aot.tune.record import Record, history_of, load, load_history, merged, parse_line, save

ONE = Record("w", "k(unroll=2)", "cortex-m4", "mps2-an386", "gcc 12", "instructions", 100, 90, "nn.dense int8[1, 8]")
SLOWER = replace(ONE, kernel="l", count=200)
CYCLES = replace(ONE, target="cortex-m7", board="nucleo", unit="cycles", count=55)
EMULATED = replace(ONE, target="cortex-m7", board="mps2-an500", count=44)


def code(line: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_line(line, "f:1")
    assert caught.value.problems[0].where == "f:1"
    return caught.value.problems[0].code


def test_a_line_is_the_record() -> None:
    assert parse_line(ONE.line(), "") == ONE
    assert "\n" not in ONE.line()
    assert ONE.id != SLOWER.id
    assert ONE.id == replace(ONE, count=1, estimate=1, text="").id


@pytest.mark.parametrize(
    "change",
    [{"count": -1}, {"count": True}, {"count": "1"}, {"kernel": 1}, {"unit": "seconds"}, {"id": "0" * 16}, {"board": "other"}],
)
def test_a_changed_line_is_refused(change: dict[str, object]) -> None:
    assert code(json.dumps({**json.loads(ONE.line()), **change})) == "E5501"


@pytest.mark.parametrize("line", ["", "{", "[]", "1", "NaN", '{"v": 1}', '"v"'])
def test_other_lines_are_refused(line: str) -> None:
    assert code(line) in ("E5501", "E5502")


def test_other_versions_are_refused() -> None:
    assert code(json.dumps({**json.loads(ONE.line()), "v": 2})) == "E5502"


def test_order_and_repetition_do_not_count(tmp_path: Path) -> None:
    records = [ONE, SLOWER, CYCLES, EMULATED, replace(CYCLES, count=50), ONE]
    wanted = merged(records)
    assert len(wanted) == 4
    for seed in range(5):
        random.Random(seed).shuffle(records)
        assert merged(records) == wanted
    assert [r.count for r in wanted if r.unit == "cycles"] == [50]
    path = tmp_path / "sub" / "a.jsonl"
    save(path, records)
    first = path.read_bytes()
    assert load(path) == wanted
    (tmp_path / "b.jsonl").write_bytes(SLOWER.line().encode() + b"\n\n" + first + first)  # cat
    assert load(tmp_path / "b.jsonl") == wanted
    save(path, wanted[::-1])
    assert path.read_bytes() == first


def test_the_line_of_a_fault_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{ONE.line()}\n\nnothing\n")
    with pytest.raises(UsageError) as caught:
        load(path)
    assert caught.value.problems[0].where == f"{path}:3"
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="UTF-8"):
        load(path)
    with pytest.raises(UsageError, match="E5001"):
        load(tmp_path / "none")


def test_cycles_go_before_instructions(tmp_path: Path) -> None:
    """A core has one unit, or its kernels could not be compared."""
    history = history_of([ONE, SLOWER, CYCLES, EMULATED, replace(ONE, board="other", count=80)])
    assert history.rows == (
        ("cortex-m4", "w", "k(unroll=2)", 80), ("cortex-m4", "w", "l", 200), ("cortex-m7", "w", "k(unroll=2)", 55)
    )  # fmt: skip
    assert history.cycles == ("cortex-m7",)
    save(tmp_path / "a.jsonl", [CYCLES, EMULATED])
    assert load_history(tmp_path / "a.jsonl") == history_of([CYCLES])
