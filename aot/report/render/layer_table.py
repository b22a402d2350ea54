"""The layers as a table: shares as bars, instructions a MAC against the usual, the kernel with its reason, and details."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from aot.report.figures.size import next_text
from aot.report.measure.report import Report
from aot.report.render.elements import cell, html_table, scroll, short_html, track
from aot.support.text import does_of

Usual = Mapping[str, float]

_COLUMNS = (
    ("", ""), ("operator", ""), ("result", ""), ("instructions", "n"), ("share", "n"), ("per MAC", "n"), ("kernel, and why", ""),
    ("MAC", "n"), ("cycles, est.", "n"), ("shape", ""), ("code", "n"), ("weights", "n"), ("tables", "n"), ("scratch", "n"),
)  # fmt: skip


def usual_per_mac(reports: Sequence[Report]) -> dict[str, float]:
    """The median of instructions a MAC of each operator on a core, over all layers of the page."""
    found: dict[str, list[float]] = {}
    for report in reports:
        for x in report["layers"]:
            if x["instructions_per_mac"] is not None:
                found.setdefault(f"{report['cpu']} {does_of(x)}", []).append(x["instructions_per_mac"])
    return {kind: median(values) for kind, values in found.items()}


def _columns(report: Report) -> tuple[tuple[str, str], ...]:
    """With the cycles that the board's own counter counted, where it has one."""
    at = [name for name, _ in _COLUMNS].index("cycles, est.")
    return (*_COLUMNS[:at], *((("cycles", "n"),) if _counts_cycles(report) else ()), *_COLUMNS[at:])


def _counts_cycles(report: Report) -> bool:
    return any("cycles" in x for x in report["layers"])


def layer_table(report: Report, usual: Usual, *, prefix: str) -> str:
    """All layers in order of execution; `prefix` makes the ids of the page unique."""
    total = sum(x["instructions"] or 0 for x in report["layers"])
    heads = "".join(f'<th class="{css}"><button type="button">{name or "no."}</button></th>' for name, css in _columns(report))
    rows = [line for x in report["layers"] for line in _rows(x, report, usual, total, f"{prefix}-l{x['index']}")]
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return scroll(f"layers of {report['name']} on {report['board']}", table)


def _rows(x: Mapping[str, Any], report: Report, usual: Usual, total: int, row_id: str) -> list[str]:
    share = None if x["instructions"] is None or not total else x["instructions"] / total
    bar = "-" if share is None else f"{100 * share:.1f} %{track(share)}"
    ratio = "-" if x["instructions_per_mac"] is None else f"{x['instructions_per_mac']:.2f}"
    css, title = _judged(x, usual.get(f"{report['cpu']} {does_of(x)}"))
    detail = _detail(x, report)
    shape = "×".join(map(str, x["output"]["shape"]))
    label = f'aria-expanded="false" aria-controls="{row_id}" aria-label="details of layer {x["index"]}"'
    more = f'<button type="button" class="more" {label}>{x["index"]}</button>'
    kernel = f'{short_html(x["kernel"], 50)}<br><span class="dim">{short_html(_reason(x, report), 60)}</span>'
    cells = [
        f'<td data-v="{x["index"]}">{more if detail else x["index"]}</td>',
        f"<td>{short_html(does_of(x), 28)}</td>",
        f"<td>{short_html(x['name'].partition(';')[0], 28)}</td>",
        _number(x["instructions"]),
        f'<td class="n" data-v="{share or 0:.6f}">{bar}</td>',
        f'<td class="n {css}" data-v="{x["instructions_per_mac"] or ""}" title="{escape(title)}">{ratio}</td>',
        f"<td>{kernel}</td>",
        *(_number(x[k]) for k in ("macs", *(("cycles",) if "cycles" in x else ()), "estimated_cycles")),
        f"<td>{escape(shape)}</td>",
        *(_number(x[k]) for k in ("code", "weights", "tables", "scratch")),
    ]
    lines = [_row(cells, row_id, detail)]
    if detail:
        lines.append(
            f'<tr class="detail" id="{row_id}" hidden><td colspan="{len(_columns(report))}">'
            f'<div class="in2">{detail}</div></td></tr>'
        )
    return lines


def _row(cells: Sequence[str], row_id: str, detail: str) -> str:
    link = f' data-detail="{row_id}"' if detail else ""
    return f"<tr{link}>{''.join(cells)}</tr>"


def _number(value: int | None) -> str:
    return f'<td class="n" data-v="{"" if value is None else value}">{cell(value)}</td>'


def _judged(x: Mapping[str, Any], usual: float | None) -> tuple[str, str]:
    """Green below three quarters of what is usual for the operator, amber above one and a half."""
    if usual is None or not x["instructions_per_mac"]:
        return "", ""
    share = x["instructions_per_mac"] / usual
    words = f"median of {does_of(x)} on this page: {usual:.2f}"
    return ("good" if share < 0.75 else "poor" if share > 1.5 else "", words)


def _reason(x: Mapping[str, Any], report: Report) -> str:
    """Why there is no faster kernel, or what it would cost."""
    if x["next_faster"] is not None:
        return f"next faster, estimated: {next_text(x['next_faster'])}"
    candidates = report.get("extras", {}).get("candidates", ())
    count = len(candidates[x["index"]]) if x["index"] < len(candidates) else 0
    return "" if not count else "the only kernel for it" if count == 1 else f"the fastest of {count} by estimate"


def _detail(x: Mapping[str, Any], report: Report) -> str:
    """What is behind a layer: operators of the file, kernels that were possible, C, instructions."""
    extras = report.get("extras")
    if not extras:
        return ""
    operators = extras["operators"]
    covers = [operators[i] if i < len(operators) else f"op {i}" for i in x["ops"]]
    parts = [f"<div><h4>Operators of the file</h4><p>{escape(' · '.join(covers)) or 'none'}</p></div>"]
    candidates = extras["candidates"][x["index"]] if x["index"] < len(extras["candidates"]) else []
    if candidates:
        rows = [
            ("chosen" if c["chosen"] else "", c["kernel"], c["instructions"], c["code"] + c["constants"], c["scratch"])
            for c in candidates
        ]
        headers = ("", "kernel", "instructions, est.", "flash, B", "scratch, B")
        parts.append(
            "<div><h4>Kernels that were possible</h4>" + html_table(headers, rows, label="kernels", left=2, cut=70) + "</div>"
        )
    function = extras["functions"].get(x["function"], {})
    code = [_source(x["function"], function["c"])] if function.get("c") else []
    code += [_instructions(function["blocks"])] if function.get("blocks") else []
    return "".join(parts) + (f'<div class="two">{"".join(code)}</div>' if code else "")


def _source(name: str, text: str) -> str:
    return (
        f'<div><h4>{escape(name)}</h4><pre tabindex="0" role="group" aria-label="C of {escape(name)}">{escape(text)}</pre></div>'
    )


def _instructions(blocks: Sequence[Mapping[str, Any]]) -> str:
    """The disassembly in blocks of one count, hottest first."""
    text = []
    for b in blocks:
        text.append(f"<b>{b['count']:,} times a run, {100 * b['share']:.1f} % of the function</b>")
        text += [escape(line) for line in b["lines"]]
    body = "\n".join(text)
    title = "Instructions, hottest block first; all layers that share the function together"
    return f'<div><h4>{title}</h4><pre tabindex="0" role="group" aria-label="instructions">{body}</pre></div>'
