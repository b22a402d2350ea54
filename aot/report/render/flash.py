"""The flash of a model: a tree map that zooms into its groups, its symbols, and the sections of the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aot.report.measure.report import Report
from aot.report.render.elements import html_table, scroll
from aot.report.render.memory import key
from aot.report.render.svg import flash_map


def flash_section(report: Report, *, prefix: str) -> str:
    """All of it as HTML; empty where the board links no image."""
    flash = report["flash"]
    if flash is None:
        return ""
    used = [k for k, v in sorted(flash["groups"].items(), key=lambda g: (-g[1], g[0])) if v]
    names = ["", *used]
    tabs = "".join(
        f'<button type="button" aria-controls="{prefix}-f{i}" aria-pressed="{"false" if i else "true"}">'
        f"{name or 'all'} {flash['groups'].get(name, flash['bytes']):,} B</button>"
        for i, name in enumerate(names)
    )
    maps = "".join(
        f'<div id="{prefix}-f{i}"{" hidden" if i else ""}>'
        + scroll(
            f"flash of {report['name']}: {name or 'all groups'}", flash_map(flash, model=report["name"], only=name), "bare map"
        )
        + "</div>"
        for i, name in enumerate(names)
    )
    parts = [f"<h3>Flash, {flash['bytes']:,} B</h3>", key("flash", set(used))]
    parts.append(f'<div class="tabs" role="group" aria-label="zoom into">{tabs}</div>{maps}')
    return "\n".join([*parts, _symbols(flash), _sections(report)])


def _symbols(flash: Mapping[str, Any]) -> str:
    rows = [(s["name"], s["group"], s["file"], " ".join(map(str, s["layers"])), s["bytes"]) for s in flash["symbols"]]
    shown = html_table(("symbol", "group", "file", "layers", "bytes"), rows, label="symbols", left=4)
    return f"<details><summary>All {len(rows)} symbols</summary>\n{shown}\n</details>"


def _sections(report: Report) -> str:
    rows = [(m["region"], ", ".join(m["sections"]), m["used"], m["size"]) for m in report["memory"]]
    size = report["flash"]["size"]
    text = f'<p class="dim">text {size["text"]:,} B, data {size["data"]:,} B, bss {size["bss"]:,} B.</p>'
    shown = html_table(("memory", "sections", "used, B", "size, B"), rows, label="sections", left=2)
    return f"<details><summary>Sections</summary>\n{text}{shown}\n</details>"
