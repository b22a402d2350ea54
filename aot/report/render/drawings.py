"""The drawings of a report as SVG text: the memory plan, and a tree map of the flash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

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
    """A coordinate with at most two decimals, the same on every machine."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def rect(box: Box, css: str, title: str) -> str:
    """A rectangle with a tool tip."""
    place = f'x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.w)}" height="{_n(box.h)}"'
    return f'<rect {place} class="{css}"><title>{escape(title)}</title></rect>'


def text(x: float, y: float, content: str, *, anchor: str = "start", css: str = "") -> str:
    """A line of text; `anchor`: start, middle or end."""
    extra = f' class="{css}"' if css else ""
    return f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{extra}>{escape(content)}</text>'


def middle(name: str, limit: int) -> str:
    """A name shortened to at most `limit` characters, keeping its start and end, which say most."""
    if len(name) <= limit:
        return name
    if limit < 5:
        return ""
    end = (limit - 1) // 2
    return f"{name[: limit - 1 - end]}…{name[-end:]}"


def fitting(name: str, width: float) -> str:
    """The first of several names that a converter joined by semicolons, shortened in the middle to fit `width`.

    A character is about 6.8 wide; empty if not even a few letters fit.
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
    """The largest aspect ratio in a row of these areas along `side`."""
    total = sum(row)
    if side <= 0 or total <= 0:
        return float("inf")
    return max(side * side * max(row) / (total * total), total * total / (side * side * min(row)))


def _lay(row: Sequence[float], box: Box) -> tuple[list[Box], Box]:
    """The row along the shorter side of `box`, and the remaining box."""
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
    """Groups, and the symbols in each, by area; with `only` the symbols of one group, filling the drawing."""
    height = 340.0
    groups = sorted(((v, k) for k, v in flash["groups"].items() if v and only in ("", k)), key=lambda g: (-g[0], g[1]))
    body = []
    for (_, group), box in zip(groups, squarify([g[0] for g in groups], Box(0, 0, WIDTH, height)), strict=True):
        symbols = [s for s in flash["symbols"] if s["group"] == group and s["bytes"]]
        for s, place in zip(symbols, squarify([s["bytes"] for s in symbols], box), strict=True):
            body += _symbol(s, place, model)
        body.append(f'<rect x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.w)}" height="{_n(box.h)}" class="frame"/>')
    label = escape(f"flash of {only}, by symbol" if only else "flash by group and symbol")
    return "\n".join([f'<svg viewBox="0 0 {WIDTH} {_n(height)}" role="img" aria-label="{label}">', *body, "</svg>"])


def _symbol(s: Mapping[str, Any], place: Box, model: str) -> list[str]:
    """The rectangle of a symbol, with its name and bytes if they fit."""
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


# ---- the memory plan: time from left to right, addresses from top to bottom


LEFT, TOP, HEIGHT = 76.0, 22.0, 320.0
_BOUNDS = (("liveness_bound", "whole tensors"), ("streaming_bound", "rows"))

STYLE = """text { font: 11px system-ui, sans-serif; fill: #1c2733; } .small { font-size: 10px; } .in { fill: #14181d; }
.halo { paint-order: stroke; stroke: #f1f4f8; stroke-width: 3px; }
rect { stroke: #ffffff; stroke-width: .7; } .ground { fill: #f1f4f8; stroke: none; } .grid { stroke: #d5dce4; stroke-width: .6; }
.bound { stroke: #14181d; stroke-dasharray: 4 3; } .peak { stroke: #c0392b; stroke-width: 1.2; } .pool { stroke: #14181d; }
.c1 { fill: #7ea6e0; } .c2 { fill: #c3b1e1; } .c3 { fill: #8fd3a8; } .c5 { fill: #f19c99; } .c6 { fill: #9fd5d8; }"""
"""The page's colours, for a standalone drawing."""


def memory_plan(plan: Mapping[str, Any]) -> str:
    """The drawing for a page that has the colours: one column per layer, addresses from the top.

    One rectangle per buffer, from its first write to its last read, with name and bytes; shared addresses are hatched; lines mark
    the peak and the bounds; triangles mark the layers that set the peak.
    """
    return "\n".join([_head(width_of(plan)), *_body(plan), "</svg>"])


def standalone(plan: Mapping[str, Any], *, title: str) -> str:
    """The drawing as a standalone file, with title and legend."""
    used = {b["kind"] for b in plan["buffers"]}
    key, x = [], LEFT
    for css, word in legend("plan"):
        if word in used:
            key += [rect(Box(x, HEIGHT + TOP + 34, 10, 10), css, word), text(x + 14, HEIGHT + TOP + 43, word)]
            x += 90
    key.append(text(x, HEIGHT + TOP + 43, "hatched: shared by two buffers · ▲ layer at the peak"))
    width = width_of(plan)
    body = [_head(width, f' xmlns="http://www.w3.org/2000/svg" width="{width:g}"', extra=34), f"<style>{STYLE}</style>"]
    body += [f'<g transform="translate(0 18)">{text(LEFT, -4, title)}', *_body(plan), *key, "</g>", "</svg>"]
    return "\n".join(body) + "\n"


def width_of(plan: Mapping[str, Any]) -> float:
    """The drawing's width in units; columns have a minimum width so that they stay distinguishable."""
    return max(float(WIDTH), LEFT + 8 + (int(plan["layers"]) + 2) * 16.0)


def _head(width: float, attributes: str = "", *, extra: float = 0.0) -> str:
    label = "memory plan: layers from left to right, addresses from top to bottom"
    wide = f' style="width:{width:g}px"' if width > WIDTH else ""
    box = f'viewBox="0 0 {width:g} {TOP + HEIGHT + 24 + extra:g}"'
    return f'<svg{attributes}{wide} {box} role="img" aria-label="{escape(label)}">'


def _scale(plan: Mapping[str, Any]) -> int:
    """The address at the lower edge, so that the highest line fits."""
    size = int(plan["size"])
    return max(1, size, *(int(plan[k] or 0) for k, _ in _BOUNDS if (plan[k] or 0) <= 2 * size))


def _body(plan: Mapping[str, Any]) -> list[str]:
    top_address, layers = _scale(plan), plan["layers"]
    steps = layers + 2  # inputs are live at step -1, outputs until step `layers`
    width = width_of(plan)
    column, scale = (width - LEFT - 8) / steps, HEIGHT / top_address

    def box(entry: Mapping[str, Any]) -> Box:
        """The rectangle of something with first, last, offset and size."""
        width = (entry["last"] - entry["first"] + 1) * column
        return Box(LEFT + (entry["first"] + 1) * column, TOP + entry["offset"] * scale, width, entry["size"] * scale)

    body = [_HATCH, rect(Box(LEFT, TOP, column * steps, HEIGHT), "ground", "not used")]
    for i in range(5):
        y = TOP + HEIGHT * i / 4
        body.append(_line(y, "grid", width))
        body.append(text(LEFT - 6, y + 4, f"{top_address * i // 4:,}", anchor="end", css="small"))
    every = max(1, round(22 / column))
    body += [text(LEFT + (i + 1.5) * column, TOP - 6, str(i), anchor="middle", css="small") for i in range(0, layers, every)]
    for b in plan["buffers"]:
        where = f"{b['size']:,} B at {b['offset']:,} to {b['offset'] + b['size']:,}"
        title = f"{b['name']}\n{b['kind']}, {where}\nsteps {b['first']} to {b['last']}"
        body.append(rect(box(b), _KIND.get(b["kind"], "c6"), title))
    for shared in plan["overlaps"]:
        title = f"{shared['below']} and {shared['above']} share {shared['size']:,} B"
        place = box(shared)
        body.append(rect(place, "shared", title).replace('class="shared"', 'fill="url(#shared)" stroke="none"'))
    body += _labels((b, box(b)) for b in plan["buffers"])
    for step in plan["peak"]["steps"]:
        x = LEFT + (step["step"] + 1.5) * column
        mark = f'<text x="{x:.2f}" y="{TOP + HEIGHT + 12:g}" text-anchor="middle" class="small">▲'
        body.append(f"{mark}<title>{escape(step['what'])}</title></text>")
    return [*body, *_pools(plan, scale, width), *_lines(plan, scale, width)]


_HATCH = (
    '<defs><pattern id="shared" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path d="M0 0V6" stroke="#14181d" stroke-width="1.4" stroke-opacity=".45"/></pattern></defs>'
)


def _line(y: float, css: str, width: float) -> str:
    return f'<line x1="{LEFT:g}" y1="{y:.2f}" x2="{width - 8:g}" y2="{y:.2f}" class="{css}"/>'


def _pools(plan: Mapping[str, Any], scale: float, width: float) -> list[str]:
    """The start of each memory in the plan's addresses, with its used size."""
    body = []
    for pool in plan.get("pools", ()):
        y = TOP + pool["base"] * scale
        where = "" if pool["address"] is None else f" at {pool['address']:#x}"
        what = f"{pool['name']}: {pool['used']:,} of {pool['size']:,} B{where}"
        body += [_line(y, "pool", width), text(LEFT + 4, y - 3 if y > TOP + 12 else y + 11, what, css="small halo")]
    return body


_Line = tuple[float, float, str, str]
"""Centre, baseline, content and class of a text."""


def _labels(places: Iterable[tuple[Mapping[str, Any], Box]]) -> list[str]:
    """The buffers' names and bytes; labels that would cover others are left out."""
    kept: list[_Line] = []
    for buffer, place in places:
        lines = _label(buffer, place)
        if not any(abs(x - u) < 3.4 * (len(a) + len(b)) and abs(y - v) < 11 for x, y, a, _ in lines for u, v, b, _ in kept):
            kept += lines
    return [text(x, y, content, anchor="middle", css=css) for x, y, content, css in kept]


def _label(buffer: Mapping[str, Any], place: Box) -> list[_Line]:
    """Name and bytes, if they fit."""
    name = fitting(buffer["name"], place.w)
    size = f"{buffer['size']:,} B"
    if place.h < 14 or not name:
        bare = f"{buffer['size']:,}"
        room = place.h >= 12 and fitting(bare, place.w) == bare
        return [(place.x + place.w / 2, place.y + place.h / 2 + 4, bare, "in small")] if room else []
    x, y = place.x + place.w / 2, place.y + place.h / 2 + 4
    if place.h >= 28 and fitting(size, place.w) == size:
        return [(x, y - 6, name, "in"), (x, y + 7, size, "in small")]
    return [(x, y, name, "in")]


def _lines(plan: Mapping[str, Any], scale: float, width: float) -> list[str]:
    """The peak, and the bounds that are within the drawing."""
    top = TOP + plan["size"] * scale
    body = [_line(top, "peak", width), text(LEFT + 4, top + 12, f"peak {plan['size']:,} B", css="small halo")]
    bounds = sorted((plan[key], word) for key, word in _BOUNDS if plan[key] is not None and plan[key] * scale <= HEIGHT + 0.5)
    labels: list[tuple[float, str]] = []
    for bound, word in bounds:
        y = TOP + bound * scale
        body.append(_line(y, "bound", width))
        label = f"{word} {bound:,} B"
        if labels and y - labels[-1][0] < 12:  # close lines share one label
            labels[-1] = (labels[-1][0], f"{labels[-1][1]} · {label}")
        else:
            labels.append((y, label))
    return body + [text(width - 10, y - 3, label, anchor="end", css="small halo") for y, label in labels]
