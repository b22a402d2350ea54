"""Reports as one HTML file that needs nothing else: no network, one small script of its own, drawings as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from aot.report.gate.budget import Finding
from aot.report.gate.diff import change_text
from aot.report.measure.report import Report, key_of
from aot.report.render.elements import cell, html_table, page
from aot.report.render.flash import flash_section
from aot.report.render.formats import outputs_word
from aot.report.render.layer_table import Usual, layer_table, usual_per_mac
from aot.report.render.markdown import headline
from aot.report.render.memory import memory_section
from aot.report.render.summary import answers
from aot.support.text import does_of


def report_html(
    reports: Sequence[Report],
    failures: Sequence[Mapping[str, Any]],
    findings: Sequence[Finding],
    changes: Mapping[str, Any] | None = None,
) -> str:
    """The page: verdicts and totals of all models, then a chapter for each."""
    title = headline(reports, failures, findings)
    pairs = {f"{p['name']}@{p['board']}": p for p in changes["pairs"]} if changes is not None else {}
    usual = usual_per_mac(reports)
    single = len(reports) == 1 and not failures
    body = ['<a class="skip" href="#m0">to the first model</a>', "<header>"]
    body += [f"<h1>{escape(title)}</h1>", _tools(reports), "" if single else _contents(reports), "</header>\n<main>"]
    body += ["" if single else _overview(reports, pairs), _failures(failures), _limits(findings)]
    for number, report in enumerate(reports):
        body.append(_chapter(report, pairs.get(key_of(report)), findings, usual, f"m{number}"))
    return page(title, [*body, "</main>"])


def _tools(reports: Sequence[Report]) -> str:
    made = {(r["fingerprint"]["tool"], r["fingerprint"]["compiler"], r["fingerprint"]["emulator"] or "native") for r in reports}
    return "".join(f'<p class="dim">{escape(" · ".join(m))}</p>' for m in sorted(made))


def _contents(reports: Sequence[Report]) -> str:
    links = "".join(f'<li><a href="#m{i}">{escape(r["name"])} on {escape(r["board"])}</a></li>' for i, r in enumerate(reports))
    return f'<nav aria-label="models"><ul>{links}</ul></nav>' if links else ""


def _overview(reports: Sequence[Report], pairs: Mapping[str, Any]) -> str:
    if not reports:
        return ""
    rows = []
    for r in reports:
        totals, change = r["totals"], pairs.get(key_of(r), {}).get("totals", {})
        figures = []
        for metric in ("instructions", "flash", "ram", "workspace", "stack"):
            moved = change_text(change[metric]) if metric in change else "-"
            figures.append(cell(totals[metric]) + ("" if moved in ("-", "=") else f"  {moved}"))
        rows.append((r["name"], r["board"], outputs_word(r["verdict"]), *figures))
    headers = ("model", "board", "outputs", "instructions", "flash, B", "RAM, B", "workspace, B", "stack, B")
    return html_table(headers, rows, label="all models", left=3)


def _failures(failures: Sequence[Mapping[str, Any]]) -> str:
    if not failures:
        return ""
    rows = [(f["model"], f["board"], "; ".join(f"{p['code']} {p['message']}" for p in f["problems"])) for f in failures]
    return '<h2 class="first">Not reported</h2>\n' + html_table(
        ("model", "board", "why"), rows, label="not reported", left=3, cut=1000
    )


def _limits(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    rows = [(f.key, f.metric, f.state, f.value, f.bound, f.baseline, f.limit) for f in findings]
    rows.sort(key=lambda r: ("over", "improved", "new", "ok").index(r[2]))
    headers = ("model", "total", "state", "value", "limit", "baseline", "rule")
    over = any(f.state in ("over", "improved") for f in findings)
    shown = html_table(headers, rows, label="budget", left=3)
    return f"<details{' open' if over else ''}><summary>Budget</summary>\n{shown}\n</details>"


def _chapter(
    report: Report, pair: Mapping[str, Any] | None, findings: Sequence[Finding], usual: Usual, prefix: str
) -> str:  # fmt: skip
    first = ' class="first"' if prefix == "m0" else ""
    parts = [
        f'<h2 id="{prefix}"{first}>{escape(report["name"])} on {escape(report["board"])} '
        f'<span class="dim">{escape(report["cpu"])}</span></h2>',
        answers(report, pair, findings),
        _differences(report["verdict"]["divergence"]),
        _moved(pair),
        memory_section(report),
        "<h3>Layers</h3>",
        _layers_text(report),
        layer_table(report, usual, prefix=prefix),
        flash_section(report, prefix=prefix),
        _fingerprint(report),
    ]
    return "\n".join(p for p in parts if p)


def _layers_text(report: Report) -> str:
    text = "A heading sorts. "
    if report.get("extras"):
        text += "A number in the first column opens the operators, the kernels that were possible, the C and the instructions. "
    text += "Instructions a MAC are green below three quarters of the median of such layers on this page, amber above 1.5 times."
    return f'<p class="dim">{text}</p>'


def _differences(found: Mapping[str, Any] | None) -> str:
    """Which layers differ from the reference, and how far the outputs are off."""
    if found is None:
        return ""
    rows = [(x["layer"], does_of(x), x["name"], x["kernel"], x["count"], x["size"], x["max_abs"]) for x in found["layers"]]
    headers = ("", "operator", "result", "kernel", "values that differ", "of", "by at most")
    off = ", ".join(f"{h['difference']:+d}: {h['count']:,}" for h in found["histogram"])
    lines = [f"<h3>Differences of set {found['set']}</h3>", html_table(headers, rows, label="differences", left=4)]
    return "\n".join([*lines, f'<p class="dim">Outputs are off by (all sets): {escape(off)}</p>' if off else ""])


def _moved(pair: Mapping[str, Any] | None) -> str:
    if pair is None or not (pair["layers"] or pair["symbols"]):
        return ""
    return "\n".join(["<h3>Moved since the baseline</h3>", *moved_tables(pair)])


def moved_tables(pair: Mapping[str, Any]) -> list[str]:
    """The layers and the symbols that moved most, largest first."""
    layers = [
        (f"{m['layer']} {m['op']} {m['name']}", m["status"], change_text(m["instructions"]), change_text(m["bytes"]))
        for m in pair["layers"][:20]
    ]
    symbols = [(s["name"], s["file"], change_text(s)) for s in pair["symbols"][:20]]
    headers = ("layer", "", "instructions", "flash, B")
    tables = [html_table(headers, layers, label="layers that moved", left=2)] if layers else []
    more = [html_table(("symbol", "file", "flash, B"), symbols, label="symbols that moved", left=2)] if symbols else []
    return [*tables, *more]


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
    shown = html_table(("part", "value"), rows, label="fingerprint", left=2, cut=1000)
    return f"<details><summary>Fingerprint</summary>\n{shown}\n</details>"
