"""Reports for other programs: a badge, JUnit XML, benchmark figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from aot.report.measure.gate import Finding
from aot.report.measure.report import Report, key_of

BENCHMARKS = {"instructions": "instructions", "flash": "bytes", "ram": "bytes", "workspace": "bytes", "stack": "bytes"}
"""Totals that github-action-benchmark tracks, with their units; smaller is better for all."""

Failures = Sequence[Mapping[str, Any]]
"""What is known of each model that has no report (aot.report.measure.report.bundle)."""


def kib(number: int | None) -> str:
    """`47.9 KiB`, `4.0 MiB`; below 1 KiB `640 B`; `-` if unknown."""
    if number is None:
        return "-"
    if number >= 1 << 20:
        return f"{number / (1 << 20):.1f} MiB"
    return f"{number} B" if number < 1024 else f"{number / 1024:.1f} KiB"


def short(number: int | None) -> str:
    """`2.33 M`, `66.9 k`, `640`; `-` if unknown."""
    if number is None:
        return "-"
    if number < 1000:
        return str(number)
    return f"{number / 1e6:.2f} M" if number >= 1e6 else f"{number / 1e3:.1f} k"


def exact_text(reports: Sequence[Report], count: int) -> str:
    """`3/4 bit-exact, 1 off by a known fault of the reference`, for `count` models on boards."""
    exact = sum(r["verdict"]["exact"] for r in reports)
    faults = sum(r["verdict"]["accepted"] for r in reports) - exact
    return f"{exact}/{count} bit-exact" + (f", {faults} off by a known fault of the reference" if faults else "")


def outputs_word(verdict: Mapping[str, Any]) -> str:
    """`exact`, `known fault` if the reference is wrong and that is accepted, or `DIFFERS`."""
    return "exact" if verdict["exact"] else "known fault" if verdict["accepted"] else "DIFFERS"


def headline(reports: Sequence[Report], failures: Failures, findings: Sequence[Finding]) -> str:
    """`3/3 bit-exact, 1 limit exceeded`."""
    over = sum(f.state == "over" for f in findings)
    better = len({(f.key, f.metric) for f in findings if f.state == "improved"})
    text = "aot: " + exact_text(reports, len(reports) + len(failures))
    text += f", {over} limit{'s' if over != 1 else ''} exceeded" if over else ""
    return text + (f", {better} figure{'s' if better != 1 else ''} improved" if better else "")


def badge(reports: Sequence[Report], failures: Failures, findings: Sequence[Finding]) -> dict[str, Any]:
    """The content of a shields.io endpoint: the figures of a single report, or how many models are exact."""
    exact = sum(r["verdict"]["accepted"] for r in reports)
    count = len(reports) + len(failures)
    good = exact == count and not any(f.state == "over" for f in findings)
    label = "models"
    message = exact_text(reports, count)
    if count == len(reports) == 1:
        totals = reports[0]["totals"]
        label = reports[0]["name"]
        figures = [f"{kib(totals['flash'])} flash", f"{kib(totals['ram'])} RAM", f"{short(totals['instructions'])} instr"]
        measured = [f for f in figures if not f.startswith("-")]
        message = " · ".join([_outputs(reports[0]["verdict"]), *measured])
    if exact == count and not good:
        message += " · over budget"
    return {"schemaVersion": 1, "label": label, "message": message, "color": "brightgreen" if good else "red"}


def _outputs(verdict: Mapping[str, Any]) -> str:
    return "bit-exact" if verdict["exact"] else outputs_word(verdict)


def benchmark(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Input of github-action-benchmark, tool customSmallerIsBetter."""
    return [
        {"name": f"{key_of(r)} {metric}", "unit": unit, "value": r["totals"][metric]}
        for r in reports
        for metric, unit in BENCHMARKS.items()
        if r["totals"][metric] is not None
    ]


_CONTROL = dict.fromkeys([*range(0, 9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF, *range(0xD800, 0xE000)], "?")


def _attr(text: object) -> str:
    """A quoted XML attribute; characters that XML forbids become question marks."""
    return quoteattr(str(text).translate(_CONTROL))


def junit(reports: Sequence[Report], failures: Failures, findings: Sequence[Finding]) -> str:
    """JUnit XML: one suite per board; a case for each verdict, each limit, and each model that could not be reported."""
    board_of = {key_of(r): r["board"] for r in reports}
    cases = [(r["board"], key_of(r), *_verdict_case(r["verdict"])) for r in reports]
    for f in findings:
        if f.state != "new":
            over = ("failure", f.text) if f.state == "over" else ("", "")
            cases.append((board_of[f.key], f.key, f"{f.metric} ({f.limit})", *over))
    for x in failures:
        text = "; ".join(f"{p['code']} {p['message']}" for p in x["problems"])
        cases.append((x["board"], f"{x['model']}@{x['board']}", "report", "error", text))
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<testsuites name="aot report">']
    for board in sorted({case[0] for case in cases} | set(board_of.values())):
        own = [case[1:] for case in cases if case[0] == board]
        bad, broken = (sum(case[2] == tag for case in own) for tag in ("failure", "error"))
        head = f"<testsuite name={_attr(board)} tests={_attr(len(own))} failures={_attr(bad)} errors={_attr(broken)}>"
        lines += [f"  {head}", *(_case(*case) for case in own), "  </testsuite>"]
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _verdict_case(verdict: Mapping[str, Any]) -> tuple[str, str, str]:
    """Name, tag and message."""
    if verdict["accepted"]:
        return _outputs(verdict), "", ""
    bad = verdict["sets"] - verdict["sets_exact"]
    return "bit-exact", "failure", f"{bad} of {verdict['sets']} sets differ from {verdict['reference']}"


def _case(classname: str, name: str, tag: str, message: str) -> str:
    start = f"    <testcase classname={_attr(classname)} name={_attr(name)}"
    return f"{start}><{tag} message={_attr(message)}/></testcase>" if tag else f"{start}/>"
