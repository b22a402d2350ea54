"""HTML for notebooks: headings, lines and tables, with inline styles only, because notebooks drop style sheets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from aot.support.text import does_of

_CELL = "text-align:{};padding:2px 10px;border-bottom:1px solid rgba(128,128,128,.3);white-space:nowrap"
_COLOURS = {"input": "#8fd3a8", "output": "#f19c99", "scratch": "#c3b1e1"}
_LONG = 60


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> str:
    """An HTML table: the first `left` columns are left-aligned, numbers have commas, and a `Bar` is drawn."""

    def line(tag: str, row: Sequence[object]) -> str:
        cells = (f'<{tag} style="{_CELL.format("left" if i < left else "right")}">{_cell(c)}</{tag}>' for i, c in enumerate(row))
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(line("td", row) for row in rows)
    label = escape(f"table by {next(filter(None, headers), 'rows')}")
    frame = f'style="overflow-x:auto" role="group" tabindex="0" aria-label="{label}"'  # scrollable by keyboard
    return f"<div {frame}><table><thead>{line('th', headers)}</thead><tbody>{body}</tbody></table></div>"


class Bar:
    """A bar from `start` to `end`, fractions of the cell's width, with a label for screen readers."""

    def __init__(self, start: float, end: float, label: str, colour: str = "#7ea6e0") -> None:
        self.start, self.end, self.label, self.colour = start, end, label, colour

    def __str__(self) -> str:
        place = f"margin-left:{100 * self.start:.1f}%;width:{max(1.0, 100 * (self.end - self.start)):.1f}%"
        inner = f"{place};height:10px;background:{self.colour};border-radius:2px"
        return f'<div style="width:160px" role="img" aria-label="{escape(self.label)}"><div style="{inner}"></div></div>'


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, Bar):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = str(value)
    return escape(text) if len(text) <= _LONG else f'<span title="{escape(text)}">{escape(text[: _LONG - 1])}…</span>'


def section(title: str, *parts: str) -> str:
    """A bold title followed by `parts`, which are HTML."""
    return f"<div><p><b>{escape(title)}</b></p>{''.join(parts)}</div>"


def plan_table(metadata: Mapping[str, Any]) -> str:
    """The buffers of the workspace by address, each with its size and a bar from its first to its last layer."""
    steps = len(metadata["layers"]) + 2  # inputs are alive from step -1, outputs until one step after the last layer
    rows = []
    for b in sorted(metadata["workspace"]["buffers"], key=lambda b: (b["offset"], b["first"])):
        when = f"{b['first']} to {b['last']}"
        bar = Bar((b["first"] + 1) / steps, (b["last"] + 2) / steps, f"layers {when}", _COLOURS.get(b["kind"], "#7ea6e0"))
        rows.append((b["name"], b["kind"], bar, when, b["offset"], b["size"]))
    return table(("buffer", "kind", "over time", "layers", "at", "bytes"), rows, left=4)


def layer_table(layers: Sequence[Mapping[str, Any]]) -> str:
    """One row per layer: number, operator, result, kernel, shape, multiply-accumulates with their share, constants, scratch."""
    total = sum(x["macs"] for x in layers)
    rows = []
    for x in layers:
        share = x["macs"] / total if total else 0.0
        shape = "×".join(map(str, x["output"]["shape"]))
        bar = Bar(0, share, f"{100 * share:.1f} %")
        figures = (x["macs"], f"{100 * share:.1f} %", bar, x["constants"], x["scratch"])
        rows.append((x["index"], does_of(x), x["name"].partition(";")[0], x["kernel"], shape, *figures))
    headers = ("", "operator", "result", "kernel", "shape", "MAC", "share", "", "constants, B", "scratch, B")
    return table(headers, rows, left=5)
