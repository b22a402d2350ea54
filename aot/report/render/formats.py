"""Reports for other programs: a badge, JUnit XML, benchmark figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from aot.report.measure.gate import Finding
from aot.report.measure.report import Report, key_of

BENCHMARKS = {"instructions": "instructions", "flash": "bytes", "ram": "bytes", "workspace": "bytes", "stack": "bytes"}
"""Totals that github-action-benchmark tracks, with their units; smaller is better for all."""


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


def headline(reports: Sequence[Report], failures: Sequence[Mapping[str, Any]], findings: Sequence[Finding]) -> str:
    """`3/3 bit-exact, 1 limit exceeded`."""
    over = sum(f.state == "over" for f in findings)
    better = len({(f.key, f.metric) for f in findings if f.state == "improved"})
    text = "aot: " + exact_text(reports, len(reports) + len(failures))
    text += f", {over} limit{'s' if over != 1 else ''} exceeded" if over else ""
    return text + (f", {better} figure{'s' if better != 1 else ''} improved" if better else "")


def badge(reports: Sequence[Report], failures: Sequence[Mapping[str, Any]], findings: Sequence[Finding]) -> dict[str, Any]:
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


def junit(reports: Sequence[Report], failures: Sequence[Mapping[str, Any]], findings: Sequence[Finding]) -> str:
    """JUnit XML: one suite per board; a case for each verdict, each limit, and each model that could not be reported."""
    boards = sorted({r["board"] for r in reports} | {f["board"] for f in failures})
    board_of = {key_of(r): r["board"] for r in reports}
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    suites = []
    for board in boards:
        cases = [_verdict_case(r) for r in reports if r["board"] == board]
        cases += [_limit_case(f) for f in findings if board_of[f.key] == board and f.state != "new"]
        cases += [_failure_case(f) for f in failures if f["board"] == board]
        bad, broken = (sum(f"<{tag} " in c for c in cases) for tag in ("failure", "error"))
        head = f"<testsuite name={_attr(board)} tests={_attr(len(cases))} failures={_attr(bad)} errors={_attr(broken)}>"
        suites.append("\n".join([f"  {head}", *cases, "  </testsuite>"]))
    return "\n".join([*lines, '<testsuites name="aot report">', *suites, "</testsuites>"]) + "\n"


def _case(classname: str, name: str, inside: str = "") -> str:
    start = f"    <testcase classname={_attr(classname)} name={_attr(name)}"
    return f"{start}>{inside}</testcase>" if inside else f"{start}/>"


def _verdict_case(report: Report) -> str:
    verdict = report["verdict"]
    if verdict["accepted"]:
        return _case(key_of(report), _outputs(verdict))
    bad = verdict["sets"] - verdict["sets_exact"]
    text = f"{bad} of {verdict['sets']} sets differ from {verdict['reference']}"
    return _case(key_of(report), "bit-exact", f"<failure message={_attr(text)}/>")


def _limit_case(finding: Finding) -> str:
    inside = f"<failure message={_attr(finding.text)}/>" if finding.state == "over" else ""
    return _case(finding.key, f"{finding.metric} ({finding.limit})", inside)


def _failure_case(failure: Mapping[str, Any]) -> str:
    text = "; ".join(f"{p['code']} {p['message']}" for p in failure["problems"])
    return _case(f"{failure['model']}@{failure['board']}", "report", f"<error message={_attr(text)}/>")
