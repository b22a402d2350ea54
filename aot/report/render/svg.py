"""Drawings of a report as SVG text: bars per layer, a tree map of the flash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from aot.report.render.elements import middle
from aot.support.dataclass import dataclass

WIDTH = 960
"""Units of all drawings; the page scales them."""

_KIND = {"input": "c3", "output": "c5", "tensor": "c1", "scratch": "c2"}
_GROUP = {"kernels": "c1", "weights": "c4", "tables": "c5", "main": "c3", "runtime": "c2", "startup": "c6", "other": "c7"}


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle: corner, width and height."""

    x: float
    y: float
    w: float
    h: float


def _n(value: float) -> str:
    """A coordinate with at most two decimals; the same on every machine."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def rect(box: Box, css: str, title: str) -> str:
    """A rectangle with a tool tip."""
    place = f'x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.w)}" height="{_n(box.h)}"'
    return f'<rect {place} class="{css}"><title>{escape(title)}</title></rect>'


def text(x: float, y: float, content: str, *, anchor: str = "start", css: str = "") -> str:
    """A line of text; `anchor`: start, middle or end."""
    extra = f' class="{css}"' if css else ""
    return f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{extra}>{escape(content)}</text>'


def _svg(height: float, label: str, body: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {_n(height)}" role="img" aria-label="{escape(label)}">'
    return "\n".join([head, *body, "</svg>"])


def fitting(name: str, width: float) -> str:
    """The first of the names that a converter joined by semicolons, shortened in the middle where it is wider than `width`.

    A character takes about 6.8; where not even a few letters fit, nothing is left.
    """
    room = int((width - 6) / 6.8)
    return middle(name.partition(";")[0], room)


def squarify(sizes: Sequence[float], box: Box) -> list[Box]:
    """Rectangles with areas in proportion to `sizes` (largest first, all positive) that fill `box`, as square as rows allow.

    The squarified tree map of Bruls, Huizing and van Wijk (2000).
    """
    total = sum(sizes)
    if not sizes or total <= 0 or box.w <= 0 or box.h <= 0:
        return [Box(box.x, box.y, 0, 0) for _ in sizes]
    areas = [s * box.w * box.h / total for s in sizes]
    boxes: list[Box] = []
    at = 0
    while at < len(areas):
        side = min(box.w, box.h)
        end = at + 1
        while end < len(areas) and _worst(areas[at : end + 1], side) <= _worst(areas[at:end], side):
            end += 1
        row, box = _lay(areas[at:end], box)
        boxes += row
        at = end
    return boxes


def _worst(row: Sequence[float], side: float) -> float:
    """The largest ratio of sides in a row of these areas along `side`."""
    total = sum(row)
    if side <= 0 or total <= 0:
        return float("inf")
    return max(side * side * max(row) / (total * total), total * total / (side * side * min(row)))


def _lay(row: Sequence[float], box: Box) -> tuple[list[Box], Box]:
    """The row along the shorter side of `box`, and what is left of it."""
    thick = sum(row) / min(box.w, box.h) if min(box.w, box.h) > 0 else 0.0
    boxes, at = [], 0.0
    for area in row:
        length = area / thick if thick else 0.0
        boxes.append(Box(box.x, box.y + at, thick, length) if box.w >= box.h else Box(box.x + at, box.y, length, thick))
        at += length
    if box.w >= box.h:
        return boxes, Box(box.x + thick, box.y, max(0.0, box.w - thick), box.h)
    return boxes, Box(box.x, box.y + thick, box.w, max(0.0, box.h - thick))


def flash_map(flash: Mapping[str, Any], *, model: str, only: str = "") -> str:
    """Groups, and the symbols in each, by area; with `only` the symbols of one group, as large as the drawing."""
    height = 340.0
    groups = sorted(((v, k) for k, v in flash["groups"].items() if v and only in ("", k)), key=lambda g: (-g[0], g[1]))
    body = []
    for (_, group), box in zip(groups, squarify([g[0] for g in groups], Box(0, 0, WIDTH, height)), strict=True):
        symbols = [s for s in flash["symbols"] if s["group"] == group and s["bytes"]]
        for s, place in zip(symbols, squarify([s["bytes"] for s in symbols], box), strict=True):
            body += _symbol(s, place, model)
        body.append(f'<rect x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.w)}" height="{_n(box.h)}" class="frame"/>')
    return _svg(height, f"flash of {only}, by symbol" if only else "flash by group and symbol", body)


def _symbol(s: Mapping[str, Any], place: Box, model: str) -> list[str]:
    """The rectangle of a symbol, with its name and bytes where there is room."""
    group, size = s["group"], f"{s['bytes']:,} B"
    users = f"\nlayers {', '.join(map(str, s['layers']))}" if s["layers"] else ""
    lines = [rect(place, _GROUP[group], f"{s['name']}\n{group}, {size}, {s['file'] or 'padding'}{users}")]
    name = fitting(s["name"].removeprefix(model + "_"), place.w)
    x, y = place.x + place.w / 2, place.y + place.h / 2 + 4
    if name and place.h >= 32 and fitting(size, place.w) == size:
        lines += [text(x, y - 7, name, anchor="middle", css="in"), text(x, y + 7, size, anchor="middle", css="in small")]
    elif name and place.h >= 16:
        lines.append(text(x, y, name, anchor="middle", css="in"))
    return lines


def legend(kind: str) -> list[tuple[str, str]]:
    """(class, word) of the colours of a drawing: plan or flash."""
    return [(css, word) for word, css in (_KIND if kind == "plan" else _GROUP).items()]
