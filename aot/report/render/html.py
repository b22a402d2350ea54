"""Reports as one HTML file that needs nothing else: no script, no network, drawings as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from aot.report.figures.choice import next_text
from aot.report.figures.report import Report, key_of
from aot.report.gate.budget import Finding
from aot.report.gate.diff import change_text
from aot.report.measure.faults import fault_text
from aot.report.render.formats import kib, outputs_word, short
from aot.report.render.markdown import headline
from aot.report.render.plan_svg import memory_plan
from aot.report.render.svg import flash_map, layer_bars, legend

_CSS = """
:root { color-scheme: light dark; --fg: #1b1f24; --dim: #57606a; --bg: #fff; --soft: #f3f4f6; --line: #d0d7de;
  --c1: #7ea6e0; --c2: #c3b1e1; --c3: #8fd3a8; --c4: #f3c178; --c5: #f19c99; --c6: #9fd5d8; --c7: #c9ced6; --in: #14181d; }
@media (prefers-color-scheme: dark) { :root { --fg: #e6edf3; --dim: #9aa4af; --bg: #0f1318; --soft: #1a2027; --line: #343c46; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 24px 28px 60px; font: 15px/1.5 system-ui, sans-serif; color: var(--fg);
  background: var(--bg); }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 40px 0 8px; padding-top: 12px;
  border-top: 1px solid var(--line); }
h3 { font-size: 15px; margin: 26px 0 8px; } p { margin: 6px 0; } .dim { color: var(--dim); }
.ok { color: #1a7f37; } .bad { color: #d1242f; font-weight: 600; }
.cards { display: flex; flex-wrap: wrap; gap: 10px; margin: 14px 0; }
.card { background: var(--soft); border-radius: 8px; padding: 8px 14px; min-width: 150px; }
.card b { display: block; font-size: 19px; font-weight: 600; } .card span { color: var(--dim); font-size: 13px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; width: 100%; }
th, td { padding: 4px 10px; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; } th { color: var(--dim); font-weight: 600; }
svg { width: 100%; height: auto; display: block; font: 11px system-ui, sans-serif; }
svg text { fill: var(--fg); } svg .small { fill: var(--dim); font-size: 10.5px; }
svg .in { fill: var(--in); pointer-events: none; }
svg rect { stroke: var(--bg); stroke-width: .7; } svg .ground { fill: var(--soft); stroke: none; }
svg .frame { fill: none; stroke: var(--bg); stroke-width: 3; pointer-events: none; }
svg .grid { stroke: var(--line); stroke-width: .6; }
.c1 { fill: var(--c1); background: var(--c1); } .c2 { fill: var(--c2); background: var(--c2); }
.c3 { fill: var(--c3); background: var(--c3); } .c4 { fill: var(--c4); background: var(--c4); }
.c5 { fill: var(--c5); background: var(--c5); } .c6 { fill: var(--c6); background: var(--c6); }
.c7 { fill: var(--c7); background: var(--c7); }
.key { font-size: 12.5px; color: var(--dim); margin: 4px 0 8px; } .key i { display: inline-block; width: 11px; height: 11px;
  border-radius: 2px; margin: 0 5px 0 12px; vertical-align: -1px; } .key i:first-child { margin-left: 0; }
""".strip()

_LONG = 44
"""Characters of a table's cell; converters make names of hundreds."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Forbids the browser every request, whatever a model's names may contain."""


def report_html(
    reports: Sequence[Report],
    failures: Sequence[Mapping[str, Any]],
    findings: Sequence[Finding],
    changes: Mapping[str, Any] | None = None,
) -> str:
    """The page: verdicts and totals of all models, then a chapter for each."""
    body = [f"<h1>{escape(headline(reports, failures, findings))}</h1>", _tools(reports)]
    pairs = {f"{p['name']}@{p['board']}": p for p in changes["pairs"]} if changes is not None else {}
    body += [_overview(reports, pairs), _failures(failures), _limits(findings)]
    body += [_chapter(r, pairs.get(key_of(r))) for r in reports]
    head = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">',
        f"<title>{escape(headline(reports, failures, findings))}</title>\n<style>\n{_CSS}\n</style>\n</head>\n<body>",
    ]
    return "\n".join([*head, *(b for b in body if b), "</body>\n</html>\n"])


def html_table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1, cut: int = _LONG) -> str:
    """A table; all columns but the first `left` are to the right, and cells of more than `cut` characters are cut."""

    def line(tag: str, row: Sequence[object]) -> str:
        right = ' class="n"'
        cells = [f"<{tag}{'' if i < left else right}>{_short(_cell(c), cut)}</{tag}>" for i, c in enumerate(row)]
        return f"<tr>{''.join(cells)}</tr>"

    return "\n".join(['<div class="scroll"><table>', line("th", headers), *(line("td", r) for r in rows), "</table></div>"])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _short(content: str, limit: int) -> str:
    """Text of a cell; long text is cut, with all of it as a tool tip."""
    if len(content) <= limit:
        return escape(content)
    return f'<span title="{escape(content)}">{escape(content[: limit - 1])}…</span>'


def _tools(reports: Sequence[Report]) -> str:
    made = {(r["fingerprint"]["tool"], r["fingerprint"]["compiler"], r["fingerprint"]["emulator"] or "native") for r in reports}
    return "".join(f'<p class="dim">{escape(" · ".join(m))}</p>' for m in sorted(made))


def _overview(reports: Sequence[Report], pairs: Mapping[str, Any]) -> str:
    if len(reports) < 2 and not pairs:
        return ""
    rows = []
    for r in reports:
        totals, change = r["totals"], pairs.get(key_of(r), {}).get("totals", {})
        figures = []
        for metric in ("instructions", "flash", "ram", "workspace", "stack"):
            moved = change_text(change[metric]) if metric in change else "-"
            figures.append(_cell(totals[metric]) + ("" if moved in ("-", "=") else f"  {moved}"))
        rows.append((r["name"], r["board"], outputs_word(r["verdict"]), *figures))
    headers = ("model", "board", "outputs", "instructions", "flash, B", "RAM, B", "workspace, B", "stack, B")
    return html_table(headers, rows, left=3)


def _failures(failures: Sequence[Mapping[str, Any]]) -> str:
    if not failures:
        return ""
    rows = [(f["model"], f["board"], "; ".join(f"{p['code']} {p['message']}" for p in f["problems"])) for f in failures]
    return "<h3>Not reported</h3>\n" + html_table(("model", "board", "why"), rows, left=3, cut=1000)


def _limits(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    rows = [(f.key, f.metric, f.state, f.value, f.bound, f.baseline, f.limit) for f in findings]
    rows.sort(key=lambda r: ("over", "improved", "new", "ok").index(r[2]))
    return "<h3>Budget</h3>\n" + html_table(("model", "total", "state", "value", "limit", "baseline", "rule"), rows, left=3)


def _chapter(report: Report, pair: Mapping[str, Any] | None) -> str:
    verdict, totals = report["verdict"], report["totals"]
    style = "ok" if verdict["accepted"] else "bad"
    state = (
        f'<span class="ok">all {verdict["sets"]} sets bit-exact</span>'
        if verdict["exact"]
        else f'<span class="{style}">{verdict["sets_exact"]} of {verdict["sets"]} sets exact</span>'
    )
    per_mac = totals["instructions"] / totals["macs"] if totals["instructions"] and totals["macs"] else None
    cards = [
        (short(totals["instructions"]), "instructions" if per_mac is None else f"instructions, {per_mac:.2f} a MAC"),
        (short(totals["estimated_cycles"]), "cycles, estimated"),
        (kib(totals["flash"]), f"flash: code {kib(totals['code'])}, constants {kib(totals['constants'])}"),
        (kib(totals["ram"]), f"RAM: workspace {kib(totals['workspace'])}, stack {kib(totals['stack_bound'])}"),
        (short(totals["macs"]), macs_label(totals)),
    ]
    shown = "".join(f'<div class="card"><b>{escape(a)}</b><span>{escape(b)}</span></div>' for a, b in cards if a != "-")
    parts = [
        f'<h2>{escape(report["name"])} on {escape(report["board"])} <span class="dim">{escape(report["cpu"])}</span></h2>',
        f'<p>{state} <span class="dim">against {escape(verdict["reference"])}</span></p>',
        _fault(verdict["known_fault"]),
        _differences(verdict["divergence"]),
        f'<div class="cards">{shown}</div>',
        _memory(report),
        _moved(pair),
        "<h3>Memory plan</h3>",
        _plan_text(report),
        _legend("plan", {b["kind"] for b in report["plan"]["buffers"]}),
        memory_plan(report["plan"]),
        _peak_text(report["plan"]),
        "<h3>Layers</h3>",
        layer_bars(report["layers"]),
        _layer_table(report),
    ]
    if report["flash"] is not None:
        used = {k for k, v in report["flash"]["groups"].items() if v}
        parts += [f"<h3>Flash, {report['flash']['bytes']:,} B</h3>", _legend("flash", used)]
        parts += [flash_map(report["flash"], model=report["name"]), _symbol_table(report["flash"])]
    return "\n".join(p for p in [*parts, _fingerprint(report)] if p)


def _fault(found: Mapping[str, Any] | None) -> str:
    """Why the difference is no fault of the compiled model."""
    return "" if found is None else f"<p>{escape(fault_text(found))}</p>"


def macs_label(totals: Mapping[str, Any]) -> str:
    """`multiply-accumulates`, with the number that the file's shapes ask for where it is another one."""
    nominal = totals["macs_nominal"]
    return "multiply-accumulates" + (f", {short(nominal)} in the file" if nominal not in (None, totals["macs"]) else "")


def _differences(found: Mapping[str, Any] | None) -> str:
    """Which layers differ from the reference, and how far the outputs are off."""
    if found is None:
        return ""
    rows = [(x["layer"], x["op"], x["name"], x["kernel"], x["count"], x["size"], x["max_abs"]) for x in found["layers"]]
    headers = ("", "operator", "result", "kernel", "values that differ", "of", "by at most")
    off = ", ".join(f"{h['difference']:+d}: {h['count']:,}" for h in found["histogram"])
    lines = [f"<h3>Differences of set {found['set']}</h3>", html_table(headers, rows, left=4)]
    return "\n".join([*lines, f'<p class="dim">Outputs are off by (all sets): {escape(off)}</p>' if off else ""])


def _memory(report: Report) -> str:
    """How full the board's memory is."""
    parts = [f"{m['region']} {m['used']:,} of {m['size']:,} B ({100 * m['used'] / m['size']:.1f} %)" for m in report["memory"]]
    return f'<p class="dim">Memory of the board: {escape(" · ".join(parts))}</p>' if parts else ""


def _plan_text(report: Report) -> str:
    plan = report["plan"]
    over = plan["size"] - plan["plan_lower_bound"]
    verdict = "which no plan can undercut" if plan["optimal"] else f"{over:,} B above the lower bound of any plan"
    rows = "" if plan["streaming_bound"] is None else f", rows {plan['streaming_bound']:,} B"
    verdict += f"; whole tensors need {plan['liveness_bound']:,} B{rows}"
    axes = "layers from left to right, addresses from top to bottom"
    return f'<p class="dim">{plan["size"]:,} B of workspace, {verdict}; {axes}.</p>'


def _peak_text(plan: Mapping[str, Any]) -> str:
    """Which layers set the peak."""
    at = ", ".join(f"{s['step']} ({s['what']})" if s["step"] >= 0 else s["what"] for s in plan["peak"]["steps"][:4])
    return f'<p class="dim">The peak is set by {escape(at)}.</p>' if at else ""


def _legend(kind: str, used: set[str]) -> str:
    return '<p class="key">' + "".join(f'<i class="{css}"></i>{word}' for css, word in legend(kind) if word in used) + "</p>"


def _moved(pair: Mapping[str, Any] | None) -> str:
    if pair is None or not (pair["layers"] or pair["symbols"]):
        return ""
    layers = [(f"{m['layer']} {m['op']} {m['name']}", m["status"], change_text(m["instructions"]), change_text(m["bytes"]))
              for m in pair["layers"][:20]]  # fmt: skip
    symbols = [(s["name"], s["file"], change_text(s)) for s in pair["symbols"][:20]]
    tables = [html_table(("layer", "", "instructions", "flash, B"), layers, left=2)] if layers else []
    tables += [html_table(("symbol", "file", "flash, B"), symbols, left=2)] if symbols else []
    return "\n".join(["<h3>Moved since the baseline</h3>", *tables])


def _layer_table(report: Report) -> str:
    """One row a layer; the last column only where some layer has a faster candidate."""
    slower = any(x["next_faster"] is not None for x in report["layers"])
    rows = []
    for x in report["layers"]:
        name, shape = x["name"].partition(";")[0], "×".join(map(str, x["output"]["shape"]))
        row = (x["index"], x["op"], name, x["kernel"], shape, x["macs"], x["instructions"])
        sizes = (x["instructions_per_mac"], x["estimated_cycles"], x["code"], x["weights"], x["tables"], x["scratch"])
        rows.append((*row, *sizes, *([next_text(x["next_faster"])] if slower else [])))
    figures = ("MAC", "instructions", "per MAC", "cycles, est.", "code", "weights", "tables", "scratch")
    headers = ("", "operator", "result", "kernel", "shape", *figures, *(["next faster, estimated"] if slower else []))
    return html_table(headers, rows, left=5, cut=70 if slower else _LONG)


def _symbol_table(flash: Mapping[str, Any]) -> str:
    rows = [(s["name"], s["group"], s["file"], " ".join(map(str, s["layers"])), s["bytes"]) for s in flash["symbols"]]
    shown = html_table(("symbol", "group", "file", "layers", "bytes"), rows, left=4)
    return f"<details><summary>All symbols</summary>\n{shown}\n</details>"


def _fingerprint(report: Report) -> str:
    f = report["fingerprint"]
    rows = [
        ("tool", f["tool"]),
        ("model", f"{f['model']['file']} {f['model']['sha256']}"),
        ("options", ", ".join(f"{k} {v}" for k, v in f["options"].items())),
        ("compiler", f["compiler"]),
        ("flags, kernels", " ".join(f["flags"]["kernels"])),
        ("flags, main", " ".join(f["flags"]["main"])),
        ("emulator", f["emulator"]),
        ("inputs", f"{f['inputs']['origin']}, CRC-32 {f['inputs']['crc32']}"),
        ("outputs", f"CRC-32 {f['outputs']['crc32']}"),
    ]
    return "<details><summary>Fingerprint</summary>\n" + html_table(("", ""), rows, left=2, cut=1000) + "\n</details>"
