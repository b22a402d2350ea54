"""Reports compared with a budget and a baseline: what is over, what is not exact, and the exit code that follows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aot.errors import EXIT_DOES_NOT_FIT, EXIT_VERIFICATION, Problem, UsageError
from aot.report.figures.report import Report, key_of
from aot.report.gate.baseline import baseline_text
from aot.report.gate.budget import DEFAULT_BASELINE, Budget, Finding, check_reports, load_budget
from aot.report.gate.diff import FIELDS, check_comparable, diff_reports, load_reports
from aot.support.dataclass import dataclass
from aot.support.near import did_you_mean
from aot.support.text import does_of


@dataclass(frozen=True, slots=True)
class Gate:
    """What the reports are compared with: a budget, and the baseline that lies at `path`, where there is one."""

    budget: Budget | None
    path: Path
    baseline: Mapping[str, Report] | None
    allow: frozenset[str]


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of it; `refused` says why the baseline cannot be compared."""

    findings: Sequence[Finding]
    changes: Mapping[str, Any] | None
    refused: UsageError | None


def allowed_parts(allow: Sequence[str] | None) -> frozenset[str]:
    """The parts of a fingerprint that may differ, by name (E5009)."""
    for part in allow or ():
        if part not in FIELDS:
            raise UsageError(Problem("E5009", f"--allow {part}{did_you_mean(part, FIELDS)}: choose one of {', '.join(FIELDS)}"))
    return frozenset(allow or ())


def open_gate(budget_file: Path | None, baseline: Path | None, *, accept: bool, allow: Sequence[str] | None) -> Gate:
    """Read budget and baseline before the long work (E5001, E5050, E5052)."""
    budget = load_budget(budget_file, Path())
    named = baseline or (budget.baseline if budget is not None else None)
    path = named or Path(DEFAULT_BASELINE)
    known = load_reports(path) if os.path.exists(path) else None
    relative = budget is not None and any(
        limit.relative for rules in budget.rules.values() for limits in rules.values() for limit in limits
    )
    if known is None and not accept and (named is not None or relative):
        raise UsageError(Problem("E5052", f"there is no baseline '{path}'; aot report --accept writes it"))
    return Gate(budget, path, known, allowed_parts(allow) | {"tool", "model"})


def judge(reports: Sequence[Report], gate: Gate) -> Judged:
    """The reports compared with the budget and the baseline; where the baseline's cannot be compared, against absolute limits."""
    known = gate.baseline
    if known is None:
        return Judged(check_reports(reports, gate.budget, None), None, None)
    by_key = {key_of(r): r for r in reports}
    before = {k: known[k] for k in known if k in by_key}
    try:
        check_comparable(before, by_key, allow=gate.allow)
    except UsageError as error:
        return Judged(check_reports(reports, gate.budget, None), None, error)
    return Judged(check_reports(reports, gate.budget, before), diff_reports(before, by_key, allow=gate.allow), None)


def judge_absolute(reports: Sequence[Report], gate: Gate) -> Judged:
    """What a new baseline must keep to as well: limits that are not relative to one."""
    return Judged([f for f in check_reports(reports, gate.budget, None) if f.state != "new"], None, None)


def new_baseline(reports: Sequence[Report], gate: Gate) -> tuple[str, int]:
    """The baseline's text with `reports`, and how many reports of other models and boards it keeps."""
    fresh = {key_of(r) for r in reports}
    kept = [r for k, r in (gate.baseline or {}).items() if k not in fresh]
    return baseline_text([*kept, *reports]), len(kept)


def exit_code(bundle: Mapping[str, Any], judged: Judged) -> int:
    """That of the first failure; else 5 for outputs that are not accepted, 2 for a baseline of others, 4 over a limit."""
    if bundle["failures"]:
        return int(bundle["failures"][0]["exit_code"])
    if not all(r["verdict"]["accepted"] for r in bundle["reports"]):
        return EXIT_VERIFICATION
    if judged.refused is not None:
        return judged.refused.exit_code
    return EXIT_DOES_NOT_FIT if any(f.state == "over" for f in judged.findings) else 0


def complaints(bundle: Mapping[str, Any], judged: Judged) -> list[Problem]:
    """All that is wrong: what failed, outputs that are not accepted (E4001), a baseline of others (E5051), limits (E2020)."""
    problems = [
        Problem(p["code"], p["message"], " ".join(x for x in (f"{f['model']}@{f['board']}", p["where"]) if x))
        for f in bundle["failures"]
        for p in f["problems"]
    ]
    for r in bundle["reports"]:
        verdict = r["verdict"]
        if not verdict["accepted"]:
            bad = verdict["sets"] - verdict["sets_exact"]
            text = f"{bad} of {verdict['sets']} sets differ from {verdict['reference']}; {_first_layer(verdict)}"
            problems.append(Problem("E4001", text, key_of(r)))
    problems += judged.refused.problems if judged.refused is not None else ()
    return problems + [Problem("E2020", f.text, f.key) for f in judged.findings if f.state == "over"]


def _first_layer(verdict: Mapping[str, Any]) -> str:
    """Where to look, and with which inputs."""
    found = verdict["divergence"]
    if found is None:
        return "aot verify names the first layer"
    place = "every layer agrees with the reference's tensors"
    if found["layers"]:
        x = found["layers"][0]
        where = f'layer {x["layer"]} {does_of(x)} "{x["name"]}", kernel {x["kernel"]}'
        place = f"first at {where}: {x['count']} of {x['size']} values"
    return f"{place}; inputs in {found['reproducer']}" if found["reproducer"] else place
