"""On which boards a model has room, as far as bounds tell."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aot.errors import TargetError

if TYPE_CHECKING:
    from aot.driver.options import Options
    from aot.driver.outline import Outline
    from aot.micro.board import Board


def outlook(found: Outline, options: Options) -> list[dict[str, Any]]:
    """For each board `fits`: "likely" where whole tensors have room, "tight" where rows have, else "unlikely"."""
    from aot.micro.board import board_names, load_board

    boards = [load_board(name) for name in board_names()]
    return [{"board": b.name, "cpu": b.cpu, "fits": _verdict(found, options, b)} for b in boards]


def _verdict(found: Outline, options: Options, board: Board) -> str:
    if _has_room(found, options, board, found.liveness):
        return "likely"
    return "tight" if _has_room(found, options, board, found.streaming) else "unlikely"


def _has_room(found: Outline, options: Options, board: Board, workspace: int) -> bool:
    from aot.micro.build.project import choose_places

    if board.is_host:
        return True
    layer = {"constants": 0, "candidates": []}
    metadata = {
        "workspace": {"size": workspace}, "constants": {"size": found.weights}, "layers": [layer] * found.layers,
        "io": options.io, "opt": options.opt, "state": {"size": found.state}, "inputs": found.inputs, "outputs": found.outputs,
    }  # fmt: skip
    try:
        choose_places(board, metadata)
    except TargetError:
        return False
    return True


def figures(found: Outline) -> dict[str, Any]:
    """The outline as --json has it."""
    rows = asdict(found)
    keys = {"liveness": "liveness_bound", "streaming": "streaming_bound", "weights": "weight_bytes", "state": "state_bytes"}
    keys["streaming_least"] = "streaming_lower_bound"
    made = {keys.get(k, k): v for k, v in rows.items() if v is not None}
    return made
