"""Pools with an address: what holds them, and what else is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aot.errors import Problem, TargetError
from aot.micro.board import Board

_VECTORS = 64
"""Bytes of the vector table of crt/src/startup.c; code follows it."""

Row = dict[str, Any]


def pool_rows(metadata: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], str]]:
    """The pools that a model uses, as the metadata has them, with their kind: bss or rodata."""
    workspace, constants = metadata["workspace"].get("pools") or (), metadata["constants"].get("pools") or ()
    state = metadata.get("state", {})
    kept = state.get("pool")
    if kept is not None:  # shares its pool with buffers of the workspace, or has it alone
        used = -(-int(state["size"]) // 16) * 16
        inside = [p for p in workspace if p["name"] == kept["name"]]
        whole = {**kept, "used": used + sum(int(p["used"]) for p in inside)}
        workspace = [*(p for p in workspace if p not in inside), whole]
    return [(p, "bss") for p in workspace] + [(p, "rodata") for p in constants]


def pool_problems(board: Board, metadata: Mapping[str, Any]) -> list[Problem]:
    """Pools whose address is in no memory of the board (E2014), or over what certainly lies there (E2015).

    The rest is known when the image is linked: board.ld asserts that no pool shares bytes with anything.
    """
    problems = []
    taken = list(_certain(board))
    for p, kind in pool_rows(metadata):
        if p["address"] is None:
            continue
        start, end = p["address"], p["address"] + p["used"]
        if not _region(board, start, end, kind):
            what = "writable memory" if kind == "bss" else "memory"
            problems.append(Problem("E2014", f"pool {p['name']} at {start:#x}: no {what} of {board.name} is there"))
        for what, low, high in taken:
            if start < high and low < end:
                shared = f"pool {p['name']}, {start:#x} to {end:#x}, lies over {what} of {board.name}, {low:#x} to {high:#x}"
                problems.append(Problem("E2015", f"{shared}; give it another address"))
    return problems


def _certain(board: Board) -> Iterator[tuple[str, int, int]]:
    """(what, first byte, byte after the last) of what has its place whatever the model needs."""
    code = board.region(board.code).origin
    yield "the vector table", code, code + _VECTORS
    if board.data not in (board.code, *board.constants):
        bottom = board.region(board.data).origin
        yield "the stack", bottom, bottom + board.stack


def _region(board: Board, start: int, end: int, kind: str) -> str:
    """The name of the region that holds these bytes; "" if there is none."""
    fitting = [m for m in board.memory if m.access == "rw" or kind == "rodata"]
    return next((m.name for m in fitting if m.origin <= start and end <= m.origin + m.size), "")


def copied_to(board: Board, region: str) -> bool:
    """Whether constants that lie in `region` have to be copied there from flash by the start-up code.

    Not where the board has constants in that memory anyhow, or gets its whole image by a debugger that writes RAM.
    """
    loaded = board.gdb is not None and board.gdb.load == "ram"
    return board.region(region).access == "rw" and region not in (board.code, *board.constants) and not loaded


def pool_regions(board: Board, metadata: Mapping[str, Any]) -> list[Row]:
    """The pools for the linker script: name, kind, size, address as text ("": it has none), and its region (E2014, E2015)."""
    problems = pool_problems(board, metadata)
    if problems:
        raise TargetError(*problems)
    rows = []
    for p, kind in pool_rows(metadata):
        address = p["address"]
        row = {"name": p["name"], "kind": kind, "size": p["size"], "address": "", "region": ""}
        if address is not None:
            row |= {"address": f"{address:#010x}", "region": _region(board, address, address + p["used"], kind)}
        rows.append(row)
    return rows
