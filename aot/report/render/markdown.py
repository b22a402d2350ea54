"""Reports and differences as Markdown that fits a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aot.report.figures.size import over_time
from aot.report.gate.budget import Finding
from aot.report.gate.diff import change_text
from aot.report.measure.divergence import fault_text
from aot.report.measure.report import Report, key_of
from aot.report.render.formats import exact_text, outputs_word, short
from aot.support.text import does_of

COMMENT_LIMIT = 65_000
"""GitHub takes 65,536 characters."""

_COLUMNS = ("instructions", "flash", "ram", "workspace", "stack")
_MAX_ROWS = 40


def cell(value: object) -> str:
    """A value in a table: thousands grouped, `-` for None, nothing that ends a cell or starts markup."""
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = re.sub(r"([\\|`*\[\]])", r"\\\1", " ".join(str(value).split()))
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    # names come from the model: none is to notify a person, refer to an issue, or become a link
    return re.sub(r"(?<!\w)@|#(?=\d)|(?i:\bGH-|\bwww\.|:(?=//))", lambda found: f"{found[0]}\u200b", text)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> list[str]:
    """A Markdown table; all columns but the first `left` are to the right."""
    rule = [":--" if i < left else "--:" for i in range(len(headers))]
    return [f"| {' | '.join(r)} |" for r in (headers, rule, *([cell(c) for c in row] for row in rows))]


def report_markdown(
    reports: Sequence[Report],
    failures: Sequence[Mapping[str, Any]],
    findings: Sequence[Finding],
    changes: Mapping[str, Any] | None = None,
) -> str:
    """Verdict and totals of all models (with the change to the baseline, where there is one), then details folded."""
    parts = [["## " + headline(reports, failures, findings)]]
    pairs = {f"{p['name']}@{p['board']}": p for p in changes["pairs"]} if changes is not None else {}
    parts.append(_matrix(reports, pairs))
    if failures:
        rows = [(f["model"], f["board"], "; ".join(f"{p['code']} {p['message']}" for p in f["problems"])) for f in failures]
        parts.append(["### Not reported", "", *table(("model", "board", "why"), rows, left=3)])
    parts += [_differences(r) for r in reports if r["verdict"]["divergence"] is not None]
    parts.append(_budget(findings))
    parts += [_changes(pairs[key_of(r)]) for r in reports if key_of(r) in pairs]
    parts += [_layers(r) for r in reports]
    return _fit(parts)


def _fit(parts: Sequence[Sequence[str]]) -> str:
    """As many parts, from the first, as a comment may hold."""
    text = ""
    for i, part in enumerate(p for p in parts if p):
        more = "\n".join(part) + "\n"
        if i and len(text) + len(more) + 80 > COMMENT_LIMIT:
            return text + "\nThe rest is left out; report.html holds all of it.\n"
        text += ("\n" if i else "") + more
    return text


def headline(reports: Sequence[Report], failures: Sequence[Mapping[str, Any]], findings: Sequence[Finding]) -> str:
    """`3/3 bit-exact, 1 limit exceeded`."""
    over = sum(f.state == "over" for f in findings)
    better = len({(f.key, f.metric) for f in findings if f.state == "improved"})
    text = "aot: " + exact_text(reports, len(reports) + len(failures))
    text += f", {over} limit{'s' if over != 1 else ''} exceeded" if over else ""
    return text + (f", {better} figure{'s' if better != 1 else ''} improved" if better else "")


def _matrix(reports: Sequence[Report], pairs: Mapping[str, Any]) -> list[str]:
    rows = []
    for report in reports:
        entry = pairs.get(key_of(report), {}).get("totals", {})
        figures = []
        for metric in _COLUMNS:
            value = report["totals"][metric]
            change = change_text(entry[metric]) if metric in entry else "-"
            shown = cell(value)
            figures.append(shown if change in ("-", "=") else f"{shown} {change}")
        verdict = report["verdict"]
        exact = outputs_word(verdict) if verdict["accepted"] else f"**{verdict['sets_exact']}/{verdict['sets']} sets**"
        rows.append((report["name"], report["board"], exact, *figures))
    units = [m if m == "instructions" else f"{m}, B" for m in _COLUMNS]
    return table(("model", "board", "outputs", *units), rows, left=2) if rows else []


def _differences(report: Report) -> list[str]:
    """The first layers that differ from the reference, and how far the outputs are off."""
    found = report["verdict"]["divergence"]
    rows = [(f"{x['layer']} {does_of(x)}", x["kernel"], x["count"], x["size"], x["max_abs"]) for x in found["layers"][:10]]
    lines = [f"### {cell(key_of(report))} differs", ""]
    fault = report["verdict"]["known_fault"]
    lines += [cell(fault_text(fault)), ""] if fault is not None else []
    lines += table(("layer", "kernel", "values that differ", "of", "by at most"), rows, left=2) if rows else []
    off = ", ".join(f"{h['difference']:+d}: {h['count']:,}" for h in found["histogram"])
    return [*lines, "", f"Outputs are off by (all sets): {off}"] if off else lines


def _budget(findings: Sequence[Finding]) -> list[str]:
    over = [f for f in findings if f.state == "over"]
    better = [f for f in findings if f.state == "improved"]
    new = sorted({f.key for f in findings if f.state == "new"})
    lines = []
    if over:
        lines += ["### Over budget", "", *(f"- **{cell(f.key)}**: {cell(f.text)}" for f in over[:_MAX_ROWS])]
    if better:
        seen = dict.fromkeys((f.key, f.metric, f.baseline, f.value) for f in better)
        lines += ["", "### Improved", ""]
        lines += [f"- {cell(k)}: {m} {b:,} → {v:,} ({v - b:+,})" for k, m, b, v in list(seen)[:_MAX_ROWS] if b is not None]
    if new:
        lines += ["", f"Not in the baseline: {cell(', '.join(new))}"]
    return lines[1:] if lines and not lines[0] else lines


def _changes(pair: Mapping[str, Any], *, top: int = 10) -> list[str]:
    """Top movers of one model, folded."""
    body = _movers(pair, top=top)
    if not body:
        return []
    title = f"{pair['name']} on {pair['board']}: what moved"
    return ["<details>", f"<summary>{cell(title)}</summary>", "", *body, "", "</details>"]


def _movers(pair: Mapping[str, Any], *, top: int) -> list[str]:
    lines = []
    if pair["layers"]:
        rows = [
            (f"{m['layer']} {does_of(m)} {m['name']}"[:80], change_text(m["instructions"]), change_text(m["bytes"]), _kernel(m))
            for m in pair["layers"][:top]
        ]
        lines += table(("layer", "instructions", "flash", "kernel"), rows)
    if pair["symbols"]:
        symbols = [(s["name"], s["file"], change_text(s)) for s in pair["symbols"][:top]]
        lines += ["", *table(("symbol", "file", "flash"), symbols, left=2)]
    return lines[1:] if lines and not lines[0] else lines


def _kernel(mover: Mapping[str, Any]) -> str:
    before, after = mover["kernel"]["before"], mover["kernel"]["after"]
    if mover["status"] != "changed":
        return str(mover["status"])
    return str(after) if before == after else f"{before} → {after}"


def _layers(report: Report) -> list[str]:
    rows = [
        (f"{x['index']} {does_of(x)}", x["kernel"], x["macs"], x["instructions"], x["instructions_per_mac"],
         None if x["code"] is None else x["code"] + x["weights"] + x["tables"], x["scratch"])
        for x in report["layers"][:_MAX_ROWS]
    ]  # fmt: skip
    left_out = len(report["layers"]) - len(rows)
    flash = report["flash"]
    groups = [] if flash is None else [", ".join(f"{k} {v:,} B" for k, v in flash["groups"].items() if v)]
    count = len(report["layers"])
    layers = f"{count} layer{'s' if count != 1 else ''}"
    title = f"{report['name']} on {report['board']}: {layers}, {short(report['totals']['macs'])} MAC"
    nominal = report["totals"]["macs_nominal"]
    title += f" ({short(nominal)} in the file)" if nominal not in (None, report["totals"]["macs"]) else ""
    headers = ("layer", "kernel", "MAC", "instructions", "per MAC", "flash, B", "scratch, B")
    lines = ["<details>", f"<summary>{cell(title)}</summary>", "", *table(headers, rows, left=2)]
    if left_out:
        lines += ["", f"{left_out} more layers are in report.html."]
    if groups:
        lines += ["", f"Flash: {groups[0]}."]
    lines += [line for word, text in over_time(report) for line in ("", f"{word.capitalize()}: {text}.")]
    print_ = report["fingerprint"]
    made = [print_["tool"], print_["compiler"], print_["emulator"] or "native", f"inputs {print_['inputs']['crc32']}"]
    return [*lines, "", f"Made with {cell(', '.join(made))}.", "", "</details>"]


def diff_markdown(diff: Mapping[str, Any], *, top: int) -> str:
    """An `aot diff` as Markdown."""
    parts = []
    for pair in diff["pairs"]:
        lines = [f"### {cell(pair['name'])} on {cell(pair['board'])}", ""]
        lines += [f"- before: {cell(pair['previous_name'])}"] if pair["previous_name"] != pair["name"] else []
        lines += [f"- {f['field']} differs" for f in pair["fingerprint"]]
        if any(f["field"] == "model" for f in pair["fingerprint"]):
            lines.append(f"- {'the same' if pair['same_layers'] else 'other'} layers")
        lines += ["- the outputs changed for the same model and inputs"] if pair["outputs_changed"] else []
        rows = [(m, e["before"], e["after"], change_text(e)) for m, e in pair["totals"].items()
                if e["before"] is not None or e["after"] is not None]  # fmt: skip
        parts.append([*lines, "", *table(("total", "before", "after", "change"), rows), "", *_movers(pair, top=top)])
    for word in ("added", "removed"):
        if diff[word]:
            parts.append([f"{word.capitalize()}: {cell(', '.join(diff[word]))}"])
    return _fit(parts) if parts else "Nothing to compare.\n"
