"""Constants in tightly coupled memory: what a board has free there, and which of a model's constants would take it.

A proposal, not a default: whether it pays depends on clock, wait states and caches, which only the board can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aot.driver.options import Options
from aot.memory.pooling import Pooling
from aot.micro.board import Board, Memory
from aot.micro.build.project import choose_places, copied_to, fixed_ram
from aot.report.measure.board_fit import problems_on
from aot.report.measure.fitting import Tries, Way
from aot.support.pool import Pool

NAME = "HOT"
"""Of the proposed pool."""

_NAMES = ("TCM", "CCM")
"""Parts of the names of memories that a core reads without wait states and past its caches."""

_SPEED = 4.0
"""Beside flash: only the order counts, as each pool is filled by what is read most for a byte."""

_STEP = 1024
"""Sizes and addresses are multiples of it."""


def fast_constants(tries: Tries, board: Board) -> dict[str, Any] | None:
    """The proposal: `region`, `free` bytes there, the options `words`, `bytes` of constants that would go there, the `layers`
    (`of_layers` have constants) that would have all of theirs there, and their share `macs` of the multiply-accumulates.

    None where a board has no such memory for constants, or no room in it, where the options name pools for constants, and on
    a board that does not count cycles (QEMU), where no difference would be seen.
    """
    options = tries.options
    if not board.counts_cycles or options.pooling.constants or problems_on(board, tries.asked.metadata):
        return None
    found = max(((*_free(board, m, tries.asked.metadata), m) for m in board.memory if _is_fast(board, m)), default=None)
    if found is None or found[0] < _STEP:
        return None
    size, address, region = found
    flash = board.region(choose_places(board, tries.asked.metadata).constants)
    if any(p.name in (NAME, flash.name) for p in options.pooling.pools):
        return None
    way = _way(options, Pool(NAME, size, address, _SPEED), Pool(flash.name, flash.size))
    made = tries.compiled(way)
    if made is None or problems_on(board, made.metadata):
        return None
    hot = next((p for p in made.metadata["constants"]["pools"] if p["name"] == NAME), None)
    if hot is None:
        return None
    return {
        "region": region.name,
        "free": size,
        "words": way.words,
        "bytes": hot["used"],
        **_layers(made.metadata, hot["arrays"]),
    }


def fast_constants_text(row: Mapping[str, Any]) -> str:
    """`DTCM has 16,384 B free: 15,824 B of constants, those of 5 of 8 layers with 41 % of the multiply-accumulates`."""
    what = f"{row['bytes']:,} B of constants, all those of {row['layers']} of {row['of_layers']} layers"
    return f"{row['region']} has {row['free']:,} B free: {what} with {100 * row['macs']:.0f} % of the multiply-accumulates"


def _is_fast(board: Board, memory: Memory) -> bool:
    """Whether constants would be copied there from flash, to be read faster."""
    return any(part in memory.name.upper() for part in _NAMES) and copied_to(board, memory.name)


def _free(board: Board, memory: Memory, metadata: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes between what lies at the bottom of a memory and the board's pools in it, and their address."""
    low, high = memory.origin, memory.origin + memory.size
    if memory.name == board.data:
        low += fixed_ram(board, metadata)
    pools = [p.address for p in board.pools if p.address is not None and low <= p.address < high]
    if not metadata["workspace"].get("pools") and choose_places(board, metadata).workspace == memory.name:
        low += int(metadata["workspace"]["size"])
        pools = []
    start, end = -(-low // _STEP) * _STEP, min([high, *pools]) // _STEP * _STEP
    return max(0, end - start), start


def _way(options: Options, hot: Pool, flash: Pool) -> Way:
    """The options with the two pools for constants."""
    words = f"--const-pool {hot.name}={hot.size}@{hot.address:#x}:{hot.speed:g} --const-pool {flash.name}={flash.size}"
    old = options.pooling
    return Way(words, replace(options, pooling=Pooling(old.pools, old.pins, (hot, flash))), frozenset())


def _layers(metadata: Mapping[str, Any], arrays: list[str]) -> dict[str, Any]:
    """The layers all of whose constants are among `arrays`, and their share of the work of all layers with constants."""
    rows = [row for row in metadata["layers"] if row.get("arrays")]
    inside = [row for row in rows if set(row["arrays"]) <= set(arrays)]
    work = sum(int(row["macs"]) for row in rows)
    return {"layers": len(inside), "of_layers": len(rows), "macs": sum(int(row["macs"]) for row in inside) / max(1, work)}
