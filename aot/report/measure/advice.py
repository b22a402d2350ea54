"""What to do next: other ways to compile a model, each with what it would gain and cost by the compiler's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aot.micro.board import Board
from aot.report.measure.fast_memory import fast_constants, fast_constants_text
from aot.report.measure.fitting import Compiled, Tries, Way, price, ways

MAX_LAYERS = 200
"""Beyond this many layers a compilation takes too long to try others for advice."""

_LEAST = 0.02
"""A gain below this share of the figure is not worth a line."""


def advice(tries: Tries, *, board: Board) -> list[dict[str, Any]]:
    """Ways that make something at least 2 % better: `command`, and the changes `ram`, `flash` (bytes), `time` (share).

    The best gain of RAM, of flash and of time comes first; sizes are workspace and constants, time is by estimate.  Last
    comes, with its own `text`, what tightly coupled memory could hold.
    """
    asked = tries.asked
    if len(asked.metadata["layers"]) > MAX_LAYERS:
        return []
    found: list[dict[str, Any]] = []
    for way in _ways(tries):
        made = tries.compiled(way)
        if made is not None:
            row = _row(made, asked, board=board.name)
            if row is not None and not any(_same(row, other) for other in found):
                found.append(row)
    return [*sorted(found, key=lambda r: (r["ram"] + r["flash"], r["time"])), *_fast(tries, board)]


def _fast(tries: Tries, board: Board) -> list[dict[str, Any]]:
    """Constants that would go into tightly coupled memory, if there is any for them."""
    row = fast_constants(tries, board)
    if row is None:
        return []
    text = f"{fast_constants_text(row)}; cycles tell whether it pays"
    return [{"words": row["words"], "command": _command("verify", tries.asked, board.name, row["words"]), "text": text}]


def _ways(tries: Tries) -> list[Way]:
    """Each single other way, speed included."""
    from dataclasses import replace

    plain = [w for w in ways(tries.options) if w.words and w.words.count("--") == 1]
    if tries.options.opt != "speed":
        plain.append(Way("--opt speed", replace(tries.options, opt="speed"), frozenset()))
    return list({w.words: w for w in plain}.values())


def _row(made: Compiled, asked: Compiled, *, board: str) -> dict[str, Any] | None:
    new, old = price(made, asked), price(asked, asked)
    ram = new["workspace_bytes"] - old["workspace_bytes"]
    flash = new["constant_bytes"] - old["constant_bytes"]
    time = (new["instructions"] or 1.0) - 1.0
    gains = (-ram / max(1, old["workspace_bytes"]), -flash / max(1, old["constant_bytes"]), -time)
    if max(gains) < _LEAST:
        return None
    command = _command("report", asked, board, made.way.words)
    return {"words": made.way.words, "command": command, "ram": ram, "flash": flash, "time": round(time, 4)}


def _command(verb: str, asked: Compiled, board: str, words: str) -> str:
    file = asked.metadata["model"]["file"] or f"{asked.metadata['name']}.tflite"
    return f"aot {verb} {file} --board {board} {words}"


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return all(a[k] == b[k] for k in ("ram", "flash", "time"))


def advice_text(row: Mapping[str, Any]) -> str:
    """`−3,120 B RAM, +8 % time` of what changes; the row's own text where it has one."""
    if "text" in row:
        return str(row["text"])
    parts: Sequence[str] = [f"{row[k]:+,} B {word}" for k, word in (("ram", "RAM"), ("flash", "constants")) if row[k]]
    time = [f"{100 * row['time']:+.0f} % time" if abs(row["time"]) >= 0.005 else "same time"]
    return ", ".join([*parts, *time]).replace("-", "\N{MINUS SIGN}")
