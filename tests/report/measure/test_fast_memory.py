"""What tightly coupled memory could hold: proposed where a board has some and counts cycles, and linked as proposed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aot.driver.options import Options
from aot.driver.reading import NamedBytes
from aot.memory.memory_pools import Pooling, parse_pool
from aot.micro.board import Board, board_names, load_board
from aot.micro.build.image import inspect_image
from aot.micro.build.project import prepare
from aot.report.measure.fitting import Tries, advice, advice_text, fast_constants, fast_constants_text
from tests.cli.helper import Cli
from tests.micro.projects import ROOT, need

CONV = ROOT / "tests" / "models" / "conv2d_valid_relu.tflite"
KWS = ROOT / "tests" / "models" / "net_kws_dscnn.tflite"


def tries(board: Board, model: Path = CONV, **options: object) -> Tries:
    """A model's ways, as asked for with the board's pools."""
    asked = replace(Options(pooling=Pooling(board.pools)), **options)
    return Tries(NamedBytes(model, model.read_bytes()), board.cpu, "m", asked)


def test_boards_with_room_in_tightly_coupled_memory() -> None:
    found = {b: fast_constants(tries(load_board(b)), load_board(b)) for b in board_names()}
    rows = {b: row for b, row in found.items() if row is not None}
    assert {b: row["region"] for b, row in rows.items()} == {"nucleo-h743zi2": "DTCM", "stm32f746g-disco": "DTCM"}
    row = rows["nucleo-h743zi2"]
    assert 0 < row["bytes"] <= row["free"] <= 0x8000 - load_board("nucleo-h743zi2").stack
    assert (row["layers"], row["of_layers"], row["macs"]) == (1, 1, 1.0)
    (pool,) = (parse_pool(w) for w in row["words"].split() if w.startswith("HOT="))
    assert (pool.size, pool.address % 1024, pool.speed) == (row["free"], 0, 4.0)


def test_nothing_where_pools_are_named_or_the_model_does_not_fit() -> None:
    board = load_board("nucleo-h743zi2")
    named = Pooling(board.pools, (), (parse_pool("HOT=16K@0x20004000:4"), parse_pool("FLASH=2M")))
    assert fast_constants(tries(board, pooling=named), board) is None
    assert fast_constants(tries(board, ram_budget=10), board) is None
    small = replace(board, memory=tuple(replace(m, size=0x8000) if m.name == "DTCM" else m for m in board.memory), stack=0x7E00)
    assert fast_constants(tries(small), small) is None


def test_the_report_proposes_it_last() -> None:
    board = load_board("stm32f746g-disco")
    made = tries(board)
    row = advice(made, board=board)[-1]
    proposed = fast_constants(made, board)
    assert proposed is not None
    assert advice_text(row) == f"{fast_constants_text(proposed)}; measure cycles to see whether it pays"
    assert row["command"] == f"aot verify conv2d_valid_relu.tflite --board stm32f746g-disco {proposed['words']}"


@pytest.mark.slow
def test_check_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(capsys)
    words = ("check", CONV, "--board", "nucleo-h743zi2", "--no-modes")
    hot = cli(*words, "--json").json["fast_constants"]
    text = cli(*words).out
    assert fast_constants_text(hot) in text
    assert f"aot verify {CONV} --board nucleo-h743zi2 {hot['words']}" in text
    assert "fast_constants" not in cli("check", CONV, "--board", "mps2-an386", "--no-modes", "--json").json


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["nucleo-h743zi2", "stm32f746g-disco"])
def test_what_is_proposed_links_and_is_copied(tmp_path: Path, name: str) -> None:
    """The linker script asserts that the pool shares bytes with nothing else of the image."""
    need("arm-none-eabi-gcc")
    board = load_board(name)
    made = tries(board, KWS)
    row = fast_constants(made, board)
    assert row is not None
    pools = tuple(parse_pool(w) for w in row["words"].split() if "=" in w)
    own = replace(made.options, pooling=Pooling(board.pools, (), pools))
    artifact = Tries(made.source, board.cpu, "m", own).asked.artifact
    image = inspect_image(prepare(artifact, board, folder=tmp_path))
    assert 0 < row["bytes"] - 64 <= image.copied["DTCM"] <= row["bytes"] <= row["free"]
    assert 0 < row["layers"] < row["of_layers"]
    assert 0 < row["macs"] < 1
