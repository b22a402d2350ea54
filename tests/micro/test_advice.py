"""What is said where a model does not fit a board: numbers, and what would help."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aot.errors import TargetError
from aot.micro.board import Board, Memory, load_board
from aot.micro.build.project import choose_places

ROWS = {"streaming_bound": 9_000, "fed_bound": 5_000}


def metadata(*, workspace: int = 100, constants: int = 100, **more: Any) -> dict[str, Any]:
    """Two layers; the second reads a large tensor and its input, and has kernels with fewer constants."""
    buffers = [
        {"name": "x", "size": 1_000, "first": -1, "last": 1, "kind": "input"},
        {"name": "big", "size": 20_000, "first": 0, "last": 1, "kind": "tensor"},
        {"name": "y", "size": 10, "first": 1, "last": 2, "kind": "output"},
    ]
    candidates = [{"constants": constants - 60_000}, {"constants": constants - 50_000}]
    layers = [
        {"index": 0, "op": "CONV_2D", "constants": 50_000, "candidates": []},
        {"index": 1, "op": "FULLY_CONNECTED", "constants": constants - 50_000, "candidates": candidates},
    ]
    table = {"size": workspace, "buffers": buffers, **ROWS}
    return {"inputs": [], "outputs": [], "workspace": table, "constants": {"size": constants}, "layers": layers, **more}


def problem(board: Board, given: dict[str, Any]) -> str:
    with pytest.raises(TargetError) as caught:
        choose_places(board, given)
    (found,) = caught.value.problems
    return found.message


def test_a_workspace_that_is_too_large() -> None:
    text = problem(load_board("microbit"), metadata(workspace=21_000))
    assert "workspace of 21,000 bytes does not fit; free bytes: RAM 14," in text
    assert "the peak is at layer 1 FULLY_CONNECTED with big 20,000, x 1,000, y 10" in text
    assert text.endswith("y 10")  # what other modes reach is not promised by bounds


def test_memories_with_room() -> None:
    """Regions that the board does not offer for the workspace; several that have room together."""
    board = load_board("microbit")
    outside = replace(board, memory=(*board.memory, Memory("EXT", "rw", 0x60000000, 1 << 20)))
    assert problem(outside, metadata(workspace=21_000)).endswith("EXT has 1,048,576 free: --pool EXT=SIZE@ADDRESS")
    second = replace(board, memory=(*board.memory, Memory("RAM2", "rw", 0x60000000, 16_000)), workspace=("RAM", "RAM2"))
    assert problem(second, metadata(workspace=21_000)).endswith("RAM and RAM2 together have enough room: spread it with --pool")


def test_several_models_may_share() -> None:
    several = {**metadata(workspace=21_000), "models": ["a", "b"], "layers": []}
    several["workspace"] = {"size": 21_000, "shared": False}
    assert problem(load_board("microbit"), several).endswith("; --share-workspace lets the models share it")


def test_constants_that_are_too_large() -> None:
    board = load_board("microbit")
    text = problem(board, metadata(constants=300_000))
    assert text.startswith("constants of 300,000 bytes do not fit; free bytes: FLASH 262,144; the largest are in layer 1 FULLY")
    assert "FULLY_CONNECTED 250,000, layer 0 CONV_2D 50,000; --opt size reduces this towards 290,000, still too much; " in text
    assert text.endswith("external flash could hold them: --const-pool NAME=SIZE@ADDRESS")
    assert "--opt size" not in problem(board, metadata(constants=300_000, opt="size"))
    outside = replace(board, memory=(*board.memory, Memory("QSPI", "rx", 0x60000000, 1 << 20)))
    assert problem(outside, metadata(constants=300_000)).endswith("QSPI has 1,048,576 free: --const-pool QSPI=SIZE@ADDRESS")


def test_a_stack_that_is_too_large() -> None:
    board = replace(load_board("microbit"), stack=20_000)
    with pytest.raises(
        TargetError, match=r"20,272 bytes do not fit; .*; the stack is 20,000 of these \(\[run\] stack in board.toml"
    ):
        choose_places(board, metadata())
