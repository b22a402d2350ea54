"""The pages of `aot report` and `aot diff` as blocks: verdicts and totals of all models, then a chapter for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aot.report.gate.budget import Finding
from aot.report.gate.diff import change_text, total_rows
from aot.report.measure.report import Report, key_of
from aot.report.render.blocks import Block, Columns, Details, Drawing, Heading, Table, Text, number
from aot.report.render.drawings import memory_plan
from aot.report.render.formats import headline, outputs_word
from aot.report.render.html import page
from aot.report.render.sections import (
    WATCHED,
    Usual,
    answers,
    failure_blocks,
    fingerprint_section,
    flash_section,
    layers_section,
    memory_section,
    off_text,
    plan_key,
    usual_per_mac,
)  # fmt: skip
from aot.support.text import does_of


def report_html(
    reports: Sequence[Report],
    failures: Sequence[Mapping[str, Any]],
    findings: Sequence[Finding],
    changes: Mapping[str, Any] | None = None,
) -> str:
    """The page of reports; `changes` since the baseline, if there is one (aot.report.gate.diff)."""
    pairs = {key_of(p): p for p in changes["pairs"]} if changes is not None else {}
    usual = usual_per_mac(reports)
    single = len(reports) == 1 and not failures
    builds = {(r["fingerprint"]["tool"], r["fingerprint"]["compiler"], r["fingerprint"]["emulator"] or "native") for r in reports}
    links = [] if single else [(f"m{i}", f"{r['name']} on {r['board']}") for i, r in enumerate(reports)]
    blocks = [*([] if single else _overview(reports, pairs)), *failure_blocks(failures, level=2), *_limits(findings)]
    for i, report in enumerate(reports):
        blocks += _chapter(report, pairs.get(key_of(report)), findings, usual, f"m{i}")
    notes = [" · ".join(m) for m in sorted(builds)]
    return page(headline(reports, failures, findings), blocks, skip="m0", notes=notes, links=links)


def _overview(reports: Sequence[Report], pairs: Mapping[str, Any]) -> list[Block]:
    rows = []
    for r in reports:
        totals, change = r["totals"], pairs.get(key_of(r), {}).get("totals", {})
        figures = []
        for metric in WATCHED:
            moved = change_text(change[metric]) if metric in change else "-"
            figures.append(number(totals[metric]) + ("" if moved in ("-", "=") else f"  {moved}"))
        rows.append((r["name"], r["board"], outputs_word(r["verdict"]), *figures))
    headers = ("model", "board", "outputs", "instructions", "flash, B", "RAM, B", "workspace, B", "stack, B")
    return [Table(headers, rows, "all models", left=3)] if rows else []


def _limits(findings: Sequence[Finding]) -> list[Block]:
    rows = [(f.key, f.metric, f.state, f.value, f.bound, f.baseline, f.limit) for f in findings]
    rows.sort(key=lambda r: ("over", "improved", "new", "ok").index(r[2]))
    headers = ("model", "total", "state", "value", "limit", "baseline", "rule")
    over = any(f.state in ("over", "improved") for f in findings)
    return [Details("Budget", [Table(headers, rows, "budget", left=3)], open=over)] if rows else []


def _chapter(
    report: Report, pair: Mapping[str, Any] | None, findings: Sequence[Finding], usual: Usual, prefix: str
) -> list[Block]:  # fmt: skip
    title = Heading(f"{report['name']} on {report['board']}", 2, prefix, report["cpu"], first=prefix == "m0")
    return [
        title,
        answers(report, pair, findings),
        *_differences(report["verdict"]["divergence"]),
        *([] if pair is None or not (tables := _moved(pair)) else [Heading("Changes since the baseline"), *tables]),
        *memory_section(report),
        *layers_section(report, usual, prefix=prefix),
        *flash_section(report, prefix=prefix),
        fingerprint_section(report),
    ]


def _differences(divergence: Mapping[str, Any] | None) -> list[Block]:
    """The layers that differ from the reference, and how far the outputs are off."""
    if divergence is None:
        return []
    rows = [(x["layer"], does_of(x), x["name"], x["kernel"], x["count"], x["size"], x["max_abs"]) for x in divergence["layers"]]
    headers = ("", "operator", "result", "kernel", "values that differ", "of", "by at most")
    shown: list[Block] = [Heading(f"Differences of set {divergence['set']}"), Table(headers, rows, "differences", left=4)]
    return [*shown, *([Text(text, "dim")] if (text := off_text(divergence)) else [])]


def _moved(pair: Mapping[str, Any]) -> list[Block]:
    """The layers and symbols that changed most, largest first."""
    layers = [
        (f"{m['layer']} {m['op']} {m['name']}", m["status"], change_text(m["instructions"]), change_text(m["bytes"]))
        for m in pair["layers"][:20]
    ]
    symbols = [(s["name"], s["file"], change_text(s)) for s in pair["symbols"][:20]]
    headers = ("layer", "", "instructions", "flash, B")
    tables: list[Block] = [Table(headers, layers, "layers that changed", left=2)] if layers else []
    return tables + ([Table(("symbol", "file", "flash, B"), symbols, "symbols that changed", left=2)] if symbols else [])


# ---- two reports in one page: the differences, then both memory maps and both lists of layers side by side


def compare_html(diff: Mapping[str, Any], before: Mapping[str, Report], after: Mapping[str, Report]) -> str:
    """The page of a difference (aot.report.gate.diff); `before` and `after` are the reports by key."""
    pairs = diff["pairs"]
    moved = sum(any(row[3] != "=" for row in total_rows(p)) for p in pairs)
    blocks: list[Block] = [Text(f"{w.capitalize()}: {', '.join(diff[w])}") for w in ("added", "removed") if diff[w]]
    for i, pair in enumerate(pairs):
        old = before.get(f"{pair['previous_name']}@{pair['board']}")
        blocks += _pair(pair, old, after.get(key_of(pair)), first=i == 0)
    return page(f"aot: {moved} of {len(pairs)} model{'s' if len(pairs) != 1 else ''} changed", blocks)


def _pair(pair: Mapping[str, Any], old: Report | None, new: Report | None, *, first: bool) -> list[Block]:
    parts: list[Block] = [Heading(f"{pair['name']} on {pair['board']}", 2, first=first)]
    if pair["outputs_changed"]:
        parts.append(Text("The outputs changed for the same model and inputs.", "bad"))
    if pair["fingerprint"]:
        parts.append(Text(f"Fingerprints differ in: {', '.join(c['field'] for c in pair['fingerprint'])}."))
    rows = [(m, e["before"], e["after"], change_text(e)) for m, e in pair["totals"].items() if e["after"] is not None]
    rows.sort(key=lambda row: row[3] in ("=", "-"))
    parts += [Table(("total", "before", "after", "change"), rows, "totals"), *_moved(pair)]
    if old is not None and new is not None and "plan" in old and "plan" in new:  # a baseline has none
        parts += [plan_key([old["plan"], new["plan"]]), Columns([_side("before", old), _side("after", new)])]
    return parts


def _side(word: str, report: Report) -> list[Block]:
    """Memory map and layers of one of two reports."""
    plan = report["plan"]
    rows = [(x["index"], does_of(x), x["kernel"], x["instructions"], _sum(x["code"], x["weights"])) for x in report["layers"]]
    headers = ("no.", "operator", "kernel", "instructions", "flash, B")
    return [
        Heading(f"{word.capitalize()}: {report['name']}, {report['fingerprint']['tool']}"),
        Text(f"{outputs_word(report['verdict'])}, workspace {plan['size']:,} B", "dim"),
        Drawing(f"memory map {word}", memory_plan(plan)),
        Table(headers, rows, f"layers {word}", left=3, cut=34),
    ]


def _sum(*parts: int | None) -> int | None:
    present = [part for part in parts if part is not None]
    return sum(present) if len(present) == len(parts) else None
