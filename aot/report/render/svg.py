"""Drawings of a report as SVG text: bars per layer, a tree map of the flash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

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
    """The first of the names that a converter joined by semicolons, cut where it is wider than `width`.

    A character takes about 6.8; where not even a few letters fit, nothing is left.
    """
    room = int((width - 6) / 6.8)
    name = name.partition(";")[0]
    if len(name) <= room:
        return name
    return name[: room - 1] + "…" if room >= 5 else ""


def layer_bars(layers: Sequence[Mapping[str, Any]]) -> str:
    """Two bars a layer: instructions, and bytes of flash (code, weights, tables stacked)."""
    counted = any(x["instructions"] is not None for x in layers)
    sized = any(x["code"] is not None for x in layers)
    most = max([1, *(x["instructions"] or 0 for x in layers)])
    largest = max([1, *(_flash(x) for x in layers)])
    label, row = 250.0, 22.0
    half = (WIDTH - label - 150) / 2
    second = label + half + 75
    body = [text(label, 12, "instructions", css="small"), text(second, 12, "flash: code, weights, tables", css="small")]
    for i, x in enumerate(layers):
        y = 20 + i * row
        body.append(text(label - 8, y + 14, fitting(f"{x['index']} {x['op']}", label), anchor="end"))
        if counted:
            count = x["instructions"] or 0
            width = half * count / most
            ratio = "" if x["instructions_per_mac"] is None else f"\n{x['instructions_per_mac']:.2f} a MAC"
            body.append(rect(Box(label, y + 2, width, row - 6), "c1", f"{x['kernel']}\n{count:,} instructions{ratio}"))
            body.append(text(label + width + 5, y + 14, f"{count:,}", css="small"))
        if sized:
            body += _flash_bar(x, second, y + 2, scale=half / largest, height=row - 6)
    return _svg(26 + len(layers) * row, "instructions and flash of every layer", body)


def _flash(layer: Mapping[str, Any]) -> int:
    return int((layer["code"] or 0) + (layer["weights"] or 0) + (layer["tables"] or 0))


def _flash_bar(layer: Mapping[str, Any], x: float, y: float, *, scale: float, height: float) -> list[str]:
    parts = []
    for field, css in (("code", "c1"), ("weights", "c4"), ("tables", "c5")):
        size = layer[field] or 0
        if size:
            parts.append(rect(Box(x, y, size * scale, height), css, f"{field} {size:,} B"))
            x += size * scale
    parts.append(text(x + 5, y + 12, f"{_flash(layer):,}", css="small"))
    return parts


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


def flash_map(flash: Mapping[str, Any], *, model: str) -> str:
    """Groups, and the symbols in each, by area."""
    height = 340.0
    groups = sorted(((v, k) for k, v in flash["groups"].items() if v), key=lambda g: (-g[0], g[1]))
    body = []
    for (_, group), box in zip(groups, squarify([g[0] for g in groups], Box(0, 0, WIDTH, height)), strict=True):
        symbols = [s for s in flash["symbols"] if s["group"] == group]
        for s, place in zip(symbols, squarify([s["bytes"] for s in symbols], box), strict=True):
            users = f"\nlayers {', '.join(map(str, s['layers']))}" if s["layers"] else ""
            body.append(rect(place, _GROUP[group], f"{s['name']}\n{group}, {s['bytes']:,} B, {s['file'] or 'padding'}{users}"))
            name = fitting(s["name"].removeprefix(model + "_"), place.w)
            if name and place.h >= 16:
                body.append(text(place.x + place.w / 2, place.y + place.h / 2 + 4, name, anchor="middle", css="in"))
        body.append(f'<rect x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.w)}" height="{_n(box.h)}" class="frame"/>')
    return _svg(height, "flash by group and symbol", body)


def legend(kind: str) -> list[tuple[str, str]]:
    """(class, word) of the colours of a drawing: plan or flash."""
    return [(css, word) for word, css in (_KIND if kind == "plan" else _GROUP).items()]
