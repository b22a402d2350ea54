"""`aot boards [NAME]`: the boards to build and run firmware for; `aot boards new --from FILE` drafts a new one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli import completion
from aot.cli.options import JsonFlag, QuietFlag, load_plugins
from aot.cli.output import Output
from aot.errors import Problem, UsageError
from aot.support.text import printable

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
        "emulated_by": None if board.like is None else board.like.name,
        "memory": [{"name": m.name, "access": m.access, "origin": m.origin, "size": m.size} for m in board.memory],
        "constants": list(board.constants),
        "workspace": list(board.workspace),
        "stack": board.stack,
    }


def _show(out: Output, board: Board, called: str) -> None:
    """Print a board; `called` is the value of --board that selects it: a name or a folder."""
    out.line(f"{board.name}: {board.title}")
    out.row("core", f"{board.cpu}  {' '.join(board.flags)}")
    for m in board.memory:
        uses = [use for use, names in (("code", (board.code,)), ("constants", board.constants), ("data", (board.data,)),
                                       ("workspace", board.workspace)) if m.name in names]  # fmt: skip
        out.row(m.name, f"0x{m.origin:08x}  {m.size:>10,} B  {m.access}  {', '.join(uses)}")
    if not board.is_host:
        out.row("stack", f"{board.stack:,} B")
    for pool in board.pools:
        where = "placed by the linker" if pool.address is None else f"0x{pool.address:08x}"
        out.row("pool", f"{pool.name}  {where}  {pool.size:,} B  speed {pool.speed:g}")
    if board.gdb is not None:
        out.row("reached", " ".join(board.gdb.server) or board.gdb.connect)
        out.row("cycles", board.gdb.counter + (f" at {board.gdb.hz / 1e6:g} MHz" if board.gdb.hz else ""))
    if board.like is not None:
        out.row("emulated", f"--board qemu:{called}: QEMU's {board.like.name}")


Search = Annotated[
    str | None, typer.Option("--search", metavar="TEXT", help="List only boards with TEXT in their name, core or title.")
]
Source = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FILE", help="aot boards new: draft a board from a linker script (.ld) or a devicetree (.dts)."
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="DIR", help="Folder of the draft, which gives the board its name; default: FILE's name."
    ),
]
Core = Annotated[
    str | None,
    typer.Option("--cpu", metavar="CORE", autocompletion=completion.targets, help="The draft's core, such as cortex-m4."),
]


def command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", autocompletion=completion.boards, help="Show this board in full.", show_default=False),
    ] = None,
    *,
    search: Search = None,
    source: Source = None,
    folder: Folder = None,
    cpu: Core = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """List the boards for --board, show one of them, or draft a new one (aot boards new --from FILE)."""
    from aot.micro.board import board_names, load_board

    load_plugins()
    out = Output(json=as_json, quiet=quiet)
    if source is not None:
        if name != "new" or search is not None:
            raise UsageError(Problem("E5017", "--from drafts a board: aot boards new --from FILE"))
        _draft(out, source, folder, cpu or "")
        return
    if folder is not None or cpu is not None:
        raise UsageError(Problem("E5017", "--output and --cpu are for drafts: aot boards new --from FILE"))
    if name is not None:
        board = load_board(name)
        _show(out, board, name)
        out.result(describe(board))
        return
    word = (search or "").lower()
    boards = [b for b in map(load_board, board_names()) if word in f"{b.name} {b.cpu} {b.title}".lower()]
    if not boards:
        raise UsageError(
            Problem("E5020", f"no board has {printable(word)!r} in its name, core or title; aot boards lists all boards")
        )
    out.table(("board", "core", "runs on", "what"), [(b.name, b.cpu, _runs_on(b), b.title) for b in boards])
    out.result({"boards": [describe(b) for b in boards]})


def _runs_on(board: Board) -> str:
    return f"{board.kind}, qemu:" if board.like is not None else board.kind


def _draft(out: Output, source: Path, folder: Path | None, cpu: str) -> None:
    """Write a board.toml from `source` (E5385, E5386; E5003 for an invalid name, E5004 if the folder is not empty)."""
    from aot.cli.files import write_new_folder
    from aot.driver.reading import read_limited
    from aot.micro.board import MAX_TEXT, parse_board
    from aot.micro.draft import draft, read_devicetree, read_linker_script

    place = folder or Path(source.stem.lower())
    name = place.resolve().name
    text = read_limited(source, limit=MAX_TEXT).decode("utf-8", "replace")
    chip = (read_devicetree if source.suffix in (".dts", ".dtsi", ".overlay") else read_linker_script)(text)
    if not chip.memory:
        hint = (
            "pass the complete devicetree, build/zephyr/zephyr.dts"
            if source.suffix.startswith(".dt")
            else "it has no MEMORY { } block"
        )
        raise UsageError(Problem("E5385", f"{printable(source.name)} defines no memory: {hint}"))
    text = draft(chip, name=name, source=printable(source.name), cpu=cpu)
    write_new_folder(place, {"board.toml": text})
    board = parse_board(text, f"{name}/board.toml")
    _show(out, board, _argument(place))
    out.row("write", f"{place / 'board.toml'}; use it as --board {_argument(place)}")
    out.result({"ok": True, "output": str(place), **describe(board)})


def _argument(place: Path) -> str:
    return str(place) if "/" in str(place) else f"./{place}"
