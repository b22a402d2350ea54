"""Two reports in one page: what differs first, then both memory maps and both lists of layers side by side."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from aot.report.gate.diff import change_text, total_rows
from aot.report.measure.report import Report
from aot.report.render.elements import html_table, page, scroll
from aot.report.render.formats import outputs_word
from aot.report.render.html import moved_tables
from aot.report.render.memory import key
from aot.report.render.plan_svg import memory_plan
from aot.support.text import does_of

_KINDS = ("input", "output", "tensor", "scratch")


def compare_html(diff: Mapping[str, Any], before: Mapping[str, Report], after: Mapping[str, Report]) -> str:
    """The page of a difference (aot.report.gate.diff); `before` and `after` are the reports by key."""
    pairs = diff["pairs"]
    moved = sum(any(row[3] != "=" for row in total_rows(p)) for p in pairs)
    title = f"aot: {moved} of {len(pairs)} model{'s' if len(pairs) != 1 else ''} moved"
    body = [f"<header><h1>{title}</h1></header>\n<main>"]
    for word in ("added", "removed"):
        if diff[word]:
            body.append(f"<p>{word.capitalize()}: {escape(', '.join(diff[word]))}</p>")
    for number, pair in enumerate(pairs):
        old = before.get(f"{pair['previous_name']}@{pair['board']}")
        body.append(_pair(pair, old, after.get(f"{pair['name']}@{pair['board']}"), first=number == 0))
    return page(title, [*body, "</main>"])


def _pair(pair: Mapping[str, Any], old: Report | None, new: Report | None, *, first: bool) -> str:
    css = ' class="first"' if first else ""
    parts = [f"<h2{css}>{escape(pair['name'])} on {escape(pair['board'])}</h2>"]
    if pair["outputs_changed"]:
        parts.append('<p class="bad">The outputs changed for the same model and inputs.</p>')
    if pair["fingerprint"]:
        parts.append(f"<p>Made with another {escape(', '.join(c['field'] for c in pair['fingerprint']))}.</p>")
    parts += [_totals(pair), *moved_tables(pair)]
    if old is not None and new is not None and "plan" in old and "plan" in new:  # a baseline has none
        parts += _sides(old, new)
    return "\n".join(parts)


def _totals(pair: Mapping[str, Any]) -> str:
    rows = sorted(
        ((m, e["before"], e["after"], change_text(e)) for m, e in pair["totals"].items() if e["after"] is not None),
        key=lambda row: row[3] in ("=", "-"),
    )
    return html_table(("total", "before", "after", "change"), rows, label="totals")


def _sides(old: Report, new: Report) -> list[str]:
    """Memory maps and layers, the old ones to the left where the page is wide enough."""
    used = {b["kind"] for r in (old, new) for b in r["plan"]["buffers"]}
    found = [key("plan", used & set(_KINDS)), '<div class="sides">']
    for word, report in (("before", old), ("after", new)):
        plan = report["plan"]
        text = f"{outputs_word(report['verdict'])}, workspace {plan['size']:,} B"
        drawing = scroll(f"memory map {word}", memory_plan(plan), "bare map")
        rows = [(x["index"], does_of(x), x["kernel"], x["instructions"], _sum(x["code"], x["weights"])) for x in report["layers"]]
        headers = ("no.", "operator", "kernel", "instructions", "flash, B")
        layers = html_table(headers, rows, label=f"layers {word}", left=3, cut=34)
        name = f"{report['name']}, {report['fingerprint']['tool']}"
        found.append(
            f'<section><h3>{word.capitalize()}: {escape(name)}</h3><p class="dim">{escape(text)}</p>{drawing}{layers}</section>'
        )
    return [*found, "</div>"]


def _sum(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
