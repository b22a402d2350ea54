"""What messages said beside the point: names, pools, boards, inputs, stages, counters, counts of functions, cycles of a core."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot.cli.files import model_name
from aot.errors import UsageError
from aot.frontend.chain import Stage
from aot.memory.memory_pools import Pooling, check_pooling, parse_pool
from aot.micro.board import load_board
from aot.micro.run.runner import CHECK_INSTRUCTIONS, _check_counter
from aot.report.figures.cycles import estimate_text, timing_of
from aot.report.figures.size import operators_of
from aot.report.measure.inputs import own_sets
from aot.testing.text_model import text_model
from tests.driver.test_model_pipeline import ROWS, refused
from tests.micro.run.test_gdb import gdb_board

INPUT = {"index": 0, "name": "serving:0", "c_name": "serving_0", "shape": [1, 2], "dtype": "int8"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("9bad", "a letter first"),
        ("Abc", "must be lower case"),
        ("aot_x", "is reserved: the runtime"),
        ("int", "is reserved in C"),
        ("a__b", "or contain __"),
        ("x" * 200, "longer than"),
    ],
)
def test_a_name_says_what_is_wrong_with_it(name: str, said: str) -> None:
    with pytest.raises(UsageError, match="E5003") as caught:
        model_name(Path("m.tflite"), name)
    assert said in str(caught.value)


def test_a_pin_to_no_pool_lists_the_pools() -> None:
    with pytest.raises(UsageError, match="there is no such pool; there are no pools: give --pool"):
        check_pooling(Pooling((), (("foo", "DTCM"),)))
    with pytest.raises(UsageError, match=r"the pools are FAST, SLOW"):
        check_pooling(Pooling((parse_pool("FAST=1K"), parse_pool("SLOW=2K")), (("foo", "XYZ"),)))


def test_a_board_of_this_folder_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b18").mkdir()
    (tmp_path / "b18" / "board.toml").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"E5020.*did you mean \./b18"):
        load_board("b18")


def test_inputs_by_name() -> None:
    array = np.ones((1, 2), np.int8)
    for given in ({"serving:0": array}, [{"serving_0": array}], [[array]]):
        assert (own_sets({"inputs": [INPUT]}, given).inputs[0][0] == array).all()
    with pytest.raises(UsageError, match=r"E5022.*'serving' is not an input.*serving:0"):
        own_sets({"inputs": [INPUT]}, {"serving": array})
    with pytest.raises(UsageError, match=r"E5022.*a single array"):
        own_sets({"inputs": [INPUT]}, array)


def test_stages_of_other_sizes_are_not_told_to_quantise_only() -> None:
    big = text_model(
        "in x int8[1,90] scale=0.1 zero_point=3\nout y int8[1,90] scale=0.1 zero_point=3\nMAXIMUM x x -> y version=2"
    )
    assert "slide = N" in refused("E1302", ROWS, Stage("big", big))


@pytest.mark.parametrize(
    ("cycles", "why"), [(0, "the board does not have this counter"), (90_000, "does not count the core's cycles")]
)
def test_a_counter_that_an_emulator_lacks(cycles: int, why: str) -> None:
    assert cycles < CHECK_INSTRUCTIONS // 2
    board = replace(gdb_board("mps2-an386", counter="dwt"))
    with pytest.raises(UsageError, match="E5024") as caught:
        _check_counter(board, cycles)
    assert why in str(caught.value)
    assert "no [cycles] for an emulator" in str(caught.value)


def test_layers_and_functions_are_counted_apart() -> None:
    layers = [{"function": f} for f in ("a", "b", "a")]
    assert operators_of({"layers": layers, "macs": 7, "macs_nominal": 7}) == "3 layers in 2 functions, 7 MAC"
    assert operators_of({"layers": layers[:1], "macs": 7, "macs_nominal": 7}) == "1 layer in 1 function, 7 MAC"


def test_every_core_has_cycles_or_says_that_it_has_none() -> None:
    timing = timing_of("cortex-m85+nomve")
    assert timing is not None
    assert replace(timing, timed_as="") == timing_of("cortex-m55")
    assert estimate_text("cortex-m85", "1,234") == "1,234 cycles, estimated as on a Cortex-M55"
    assert estimate_text("cortex-m4", "1,234") == "1,234 cycles, estimated"
    assert estimate_text("cortex-m4", None) == ""
    assert "not estimated" in estimate_text("my-core", None)
