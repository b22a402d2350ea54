"""What a model takes of a board in one mode: what a product would link, and apart from it what the measuring image adds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from aot.driver.options import OPTS, Options
from aot.executor.artifact import Artifact
from aot.micro.board import Board, Memory
from aot.micro.build.image import POOLED, inspect_image, section_sizes
from aot.micro.build.project import prepare
from aot.report.measure.fitting import FLASH, RAM, Tries, Way, ways
from aot.support.dataclass import dataclass

_ROOM = 1 << 28
"""Bytes of flash and of RAM with which a model that does not fit is linked, to see what it takes."""


@dataclass(frozen=True, slots=True)
class ModeFit:
    """Bytes.  `flash` and `ram` are the product's: code, constants, initial values; workspace, state, variables, stack, and
    constants that are copied from flash.  `pooled` are the regions that those are in.

    `image_flash` and `image_ram` are those of the image that measures, with start-up, harness and the whole stack that board.toml
    reserves.  `image_fault`: why that one does not link for the board, "" where it does.
    """

    flash: int
    ram: int
    workspace: int
    stack: int
    image_flash: int
    image_ram: int
    image_fault: str
    pooled: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        names = ("flash", "ram", "workspace", "stack", "image_flash", "image_ram", "image_fault")
        return {name: getattr(self, name) for name in names}


def mode_fit(artifact: Artifact, board: Board, *, fault: str) -> ModeFit:
    """Link the model with room enough; `fault` is what building it for the board itself ended in."""
    with_pools = bool(artifact.metadata["workspace"].get("pools") or artifact.metadata["constants"].get("pools"))
    project = prepare(artifact, board if with_pools else roomy(board))  # pools have their addresses in the board's memory
    image = inspect_image(project)
    whole = section_sizes(project.image("measure"))
    pools = {name: n for name, n in whole.items() if name.startswith((".pool_", POOLED))}
    flash = sum(whole.get(name, 0) for name in (".text", ".ARM.exidx", ".rodata", ".data"))
    ram = sum(whole.get(name, 0) for name in (".stack", ".data", ".bss", ".workspace"))
    return ModeFit(
        flash=image.flash, ram=image.ram + image.stack_bound, workspace=image.workspace, stack=image.stack_bound,
        image_flash=flash + sum(n for name, n in pools.items() if name.startswith(POOLED)),
        image_ram=ram + sum(n for name, n in pools.items() if name.startswith(".pool_")) + sum(image.copied.values()),
        image_fault=fault,
        pooled=tuple(image.copied),
    )  # fmt: skip


def roomy(board: Board) -> Board:
    """A board with this core and stack whose two memories hold any model."""
    memory = (Memory("ROM", "rx", 0, _ROOM), Memory("RAM", "rw", 0x20000000, _ROOM))
    return replace(
        board, memory=memory, code="ROM", constants=("ROM",), data="RAM", workspace=("RAM",), pools=(), kind="qemu", gdb=None,
        like=None, uart=None, gpio=None,
    )  # fmt: skip


def room_for_flash(board: Board) -> int:
    return sum(board.region(name).size for name in {board.code, *board.constants})


def room_for_ram(board: Board, pooled: Iterable[str] = ()) -> int:
    """Bytes of the memories of data and workspace, and of those of `pooled` that the board has."""
    names = {board.data, *board.workspace, *pooled}
    return sum(m.size for m in board.memory if m.name in names)


def shortage(fit: ModeFit, board: Board) -> dict[str, int]:
    """Bytes that the product lacks of flash and RAM on a board; 0 where it has enough.  A workspace lies in one region."""
    rest = fit.ram - fit.workspace
    over = [fit.workspace + (rest if name == board.data else 0) - board.region(name).size for name in board.workspace]
    over_data = max(0, rest - board.region(board.data).size)
    together = board.pools or fit.pooled
    ram = max(0, fit.ram - room_for_ram(board, fit.pooled)) if together else max(over_data, min(over), 0)
    return {"flash": max(0, fit.flash - room_for_flash(board)), "ram": ram}


def next_smaller(board: Board, others: Iterable[Board]) -> Board | None:
    """Of the boards with less RAM, or as much and less flash, the one with the most; emulators of other boards are none."""

    def size(b: Board) -> tuple[int, int]:
        return room_for_ram(b), room_for_flash(b)

    smaller = [b for b in others if not b.is_host and b.name not in (board.name, board.emulates) and size(b) < size(board)]
    return max(smaller, key=lambda b: (*size(b), b.name), default=None)


def shortage_text(lacking: Mapping[str, int]) -> str:
    """`flash 1,024 B and RAM 2,000 B short`; "fits"."""
    names = {"flash": "flash", "ram": "RAM"}
    parts = [f"{names[k]} {n:,} B" for k, n in lacking.items() if n]
    return f"{' and '.join(parts)} short" if parts else "fits"


def modes(options: Options) -> Iterator[tuple[str, Way]]:
    """Every --opt by name, and the least RAM of all: rows that are fed."""
    for opt in OPTS:
        yield opt, Way("" if opt == options.opt else f"--opt {opt}", replace(options, opt=opt), RAM | FLASH)
    yield from (("ram, rows fed", way) for way in ways(options) if way.words == "--opt ram --feed-rows")


def mode_rows(tries: Tries, board: Board, smaller: Board | None) -> list[dict[str, Any]]:
    """What each mode takes of a board and lacks, product and measuring image apart, and lacks on a smaller one."""
    rows = []
    for name, way in modes(tries.options):
        made = tries.fit(way, board, linked=True)
        if made is not None:
            found, outcome = made
            fit = mode_fit(outcome.artifact, board, fault=outcome.problems[0].message if outcome.problems else "")
            row = {
                "mode": name,
                "options": found.way.words,
                "budgets": outcome.budgets,
                **fit.to_json(),
                "short": shortage(fit, board),
            }
            rows.append(row | ({} if smaller is None else {"short_on_smaller": shortage(fit, smaller)}))
    return rows
