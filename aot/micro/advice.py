"""What takes the memory of a model that does not fit a board, and what would help: texts with numbers, from the metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aot.executor.artifact import LARGEST, layer_text, peak_of

if TYPE_CHECKING:
    from aot.micro.board import Board


def workspace_advice(metadata: Mapping[str, Any], board: Board, free: Mapping[str, int]) -> str:
    """The buffers at the peak, what helps several models, and regions with room.  What other modes reach, `board_fit` tries."""
    workspace = metadata["workspace"]
    size, tried = int(workspace["size"]), board.workspace
    helps = []
    if len(metadata.get("models", ())) > 1 and not workspace.get("shared"):
        helps.append("--share-workspace lets the models use one after the other")
    if len(tried) > 1 and sum(max(0, free[name]) for name in tried) >= size and not workspace.get("pools"):
        helps.append(f"{' and '.join(tried)} have enough room together: spread it with --pool")
    others = [m.name for m in board.memory if m.access == "rw" and m.name not in tried]
    return "; ".join([*peak_of(metadata), *helps, *_room(others, free, size, "--pool")])


def constants_advice(metadata: Mapping[str, Any], board: Board, free: Mapping[str, int]) -> str:
    """The layers with the most constants; what the smallest kernels take; regions with room, or flash outside."""
    size, layers = int(metadata["constants"]["size"]), metadata["layers"]
    largest = sorted(layers, key=lambda row: (-row.get("constants", 0), row.get("index", 0)))[:LARGEST]
    named = ", ".join(f"{layer_text(row)} {row.get('constants', 0):,}" for row in largest)
    texts = [f"the largest are those of {named}"] if named else []
    least = size - sum(row["constants"] - min(_constants(row)) for row in layers if row.get("constants"))
    if least < size and metadata.get("opt") != "size":
        texts.append(f"--opt size works towards {least:,}" + _too_much(least, (free[name] for name in board.constants)))
    others = [m.name for m in board.memory if m.name not in board.constants]
    there = _room(others, free, size, "--const-pool")
    return "; ".join([*texts, *(there or ["flash outside would take them: --const-pool NAME=SIZE@ADDRESS"])])


def _too_much(need: int, free: Iterable[int]) -> str:
    return ", still too much" if need > max(free) else ""


def _constants(layer: Mapping[str, Any]) -> list[int]:
    """Bytes that the kernels of a layer take; those of the chosen one where no others are known."""
    return [int(c["constants"]) for c in layer.get("candidates", ())] or [int(layer["constants"])]


def _room(names: Sequence[str], free: Mapping[str, int], size: int, option: str) -> list[str]:
    """Regions that the board does not offer, but that have room."""
    return [f"{name} has {free[name]:,} free: {option} {name}=SIZE@ADDRESS" for name in names if free[name] >= size]
