"""`aot boards [NAME]`: the boards that firmware can be built for and run on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli.options import JsonFlag, QuietFlag, load_plugins
from aot.cli.output import Output

if TYPE_CHECKING:
    from aot.micro.board import Board

NAME = "boards"


def describe(board: Board) -> dict[str, Any]:
    """A board as plain data; sizes in bytes."""
    tick = board.tick
    return {
        "name": board.name,
        "title": board.title,
        "kind": board.kind,
        "cpu": board.cpu,
        "flags": list(board.flags),
        "instructions_per_tick": None if tick is None else [tick.numerator, tick.denominator],
        "memory": [{"name": m.name, "access": m.access, "origin": m.origin, "size": m.size} for m in board.memory],
        "constants": list(board.constants),
        "workspace": list(board.workspace),
        "stack": board.stack,
    }


def _show(out: Output, board: Board) -> None:
    out.line(f"{board.name}: {board.title}")
    out.row("core", f"{board.cpu}  {' '.join(board.flags)}")
    for m in board.memory:
        uses = [use for use, names in (("code", (board.code,)), ("constants", board.constants), ("data", (board.data,)),
                                       ("workspace", board.workspace)) if m.name in names]  # fmt: skip
        out.row(m.name, f"0x{m.origin:08x}  {m.size:>10,} B  {m.access}  {', '.join(uses)}")
    if not board.is_host:
        out.row("stack", f"{board.stack:,} B")


def command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this board in full.", show_default=False)] = None,
    *,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """List the boards (--board), or show one of them."""
    from aot.micro.board import board_names, load_board

    load_plugins()
    out = Output(json=as_json, quiet=quiet)
    if name is not None:
        board = load_board(name)
        _show(out, board)
        out.result(describe(board))
        return
    boards = [load_board(n) for n in board_names()]
    out.table(("board", "core", "runs on", "what"), [(b.name, b.cpu, b.kind, b.title) for b in boards])
    out.result({"boards": [describe(b) for b in boards]})
