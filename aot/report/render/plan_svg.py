"""The memory plan as a drawing: time from left to right, addresses from top to bottom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from aot.report.render.svg import WIDTH, Box, fitting, legend, rect, text

LEFT, TOP, HEIGHT = 76.0, 22.0, 320.0
_BOUNDS = (("liveness_bound", "whole tensors"), ("streaming_bound", "rows"))

STYLE = """text { font: 11px system-ui, sans-serif; fill: #1c2733; } .small { font-size: 10px; } .in { fill: #14181d; }
.halo { paint-order: stroke; stroke: #f1f4f8; stroke-width: 3px; }
rect { stroke: #ffffff; stroke-width: .7; } .ground { fill: #f1f4f8; stroke: none; } .grid { stroke: #d5dce4; stroke-width: .6; }
.bound { stroke: #14181d; stroke-dasharray: 4 3; } .peak { stroke: #c0392b; stroke-width: 1.2; } .pool { stroke: #14181d; }
.c1 { fill: #7ea6e0; } .c2 { fill: #c3b1e1; } .c3 { fill: #8fd3a8; } .c5 { fill: #f19c99; } .c6 { fill: #9fd5d8; }"""
"""The colours of the page, for a drawing that stands alone."""


def memory_plan(plan: Mapping[str, Any]) -> str:
    """The drawing, as part of a page that has the colours: a column a layer, addresses from the top.

    One rectangle a buffer, from its first write to its last read, with its name and bytes; what two of them share is hatched;
    lines for the peak and the bounds; the layers that set the peak have a mark.
    """
    return "\n".join([_head(width_of(plan)), *_body(plan), "</svg>"])


def standalone(plan: Mapping[str, Any], *, title: str) -> str:
    """The drawing as a file of its own, with title and legend."""
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
    """Units of the drawing's width: a column is never so narrow that nothing can be told apart."""
    return max(float(WIDTH), LEFT + 8 + (int(plan["layers"]) + 2) * 16.0)


def _head(width: float, attributes: str = "", *, extra: float = 0.0) -> str:
    label = "memory plan: layers from left to right, addresses from top to bottom"
    wide = f' style="width:{width:g}px"' if width > WIDTH else ""
    box = f'viewBox="0 0 {width:g} {TOP + HEIGHT + 24 + extra:g}"'
    return f'<svg{attributes}{wide} {box} role="img" aria-label="{escape(label)}">'


def _scale(plan: Mapping[str, Any]) -> int:
    """The address at the lower edge: what the largest line needs."""
    size = int(plan["size"])
    return max(1, size, *(int(plan[k] or 0) for k, _ in _BOUNDS if (plan[k] or 0) <= 2 * size))


def _body(plan: Mapping[str, Any]) -> list[str]:
    top_address, layers = _scale(plan), plan["layers"]
    steps = layers + 2  # inputs are there at step -1, outputs until step `layers`
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
        body.append(rect(box(b), dict((w, c) for c, w in legend("plan")).get(b["kind"], "c6"), title))
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
    """Where each memory begins in the plan's addresses, with what of it is used."""
    body = []
    for pool in plan.get("pools", ()):
        y = TOP + pool["base"] * scale
        where = "" if pool["address"] is None else f" at {pool['address']:#x}"
        what = f"{pool['name']}: {pool['used']:,} of {pool['size']:,} B{where}"
        body += [_line(y, "pool", width), text(LEFT + 4, y - 3 if y > TOP + 12 else y + 11, what, css="small halo")]
    return body


_Line = tuple[float, float, str, str]
"""Middle, base line, content and class of a text."""


def _labels(places: Iterable[tuple[Mapping[str, Any], Box]]) -> list[str]:
    """The buffers' names and bytes; where buffers overlap, those that would be written over others are left out."""
    kept: list[_Line] = []
    for buffer, place in places:
        lines = _label(buffer, place)
        if not any(_meet(a, b) for a in lines for b in kept):
            kept += lines
    return [text(x, y, content, anchor="middle", css=css) for x, y, content, css in kept]


def _meet(a: _Line, b: _Line) -> bool:
    return abs(a[0] - b[0]) < 3.4 * (len(a[2]) + len(b[2])) and abs(a[1] - b[1]) < 11


def _label(buffer: Mapping[str, Any], place: Box) -> list[_Line]:
    """Name and bytes, where there is room."""
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
    """The peak, and those bounds that are on the drawing."""
    top = TOP + plan["size"] * scale
    body = [_line(top, "peak", width), text(LEFT + 4, top + 12, f"peak {plan['size']:,} B", css="small halo")]
    bounds = sorted((plan[key], word) for key, word in _BOUNDS if plan[key] is not None and plan[key] * scale <= HEIGHT + 0.5)
    labels: list[tuple[float, str]] = []
    for bound, word in bounds:
        y = TOP + bound * scale
        body.append(_line(y, "bound", width))
        label = f"{word} {bound:,} B"
        if labels and y - labels[-1][0] < 12:  # two lines that are close share the place of the upper one's words
            labels[-1] = (labels[-1][0], f"{labels[-1][1]} · {label}")
        else:
            labels.append((y, label))
    return body + [text(width - 10, y - 3, label, anchor="end", css="small halo") for y, label in labels]
