"""Budgets: limits for the totals of reports, absolute or relative to a baseline.

A rule names a total (measure/report.py): an absolute limit, `"24 KiB"` or `4_000_000`, or an allowed growth over the baseline,
`"+0.5 %"` or `"+128"`; a list holds several.  Rules at the top hold for all models, those in a table `[kws]`, `["@mps2-an386"]`
or `["kws@mps2-an386"]` for some; the closest one counts.  With a baseline, totals without a
rule must not grow at all.  `options` are words of the command line, with which a model is compiled.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from aot.driver.reading import read_limited
from aot.errors import EXIT_DOES_NOT_FIT, EXIT_VERIFICATION, Problem, UsageError
from aot.report.gate.diff import FIELDS, baseline_text, check_comparable, diff_reports, load_reports
from aot.report.measure.report import Report, key_of
from aot.support.dataclass import dataclass
from aot.support.suggestions import did_you_mean
from aot.support.text import does_of
from aot.support.untrusted import parse_toml

METRICS = (
    "instructions",
    "macs",
    "flash",
    "code",
    "constants",
    "ram",
    "workspace",
    "stack",
    "stack_bound",
    "heap",
    "estimated_cycles",
)
WATCHED = ("instructions", "code", "constants", "workspace", "stack", "stack_bound")
"""Totals that must not grow over a baseline unless a rule says how much."""

_COVERED = {"flash": ("code", "constants"), "ram": ("workspace", "stack", "stack_bound")}
"""A rule for the sum takes its parts out of WATCHED."""

_UNITS = {"": 1, "B": 1, "k": 1000, "M": 10**6, "G": 10**9, "kB": 1000, "MB": 10**6, "KiB": 1 << 10, "MiB": 1 << 20}
_VALUE = re.compile(r"(\+?)\s*(\d[\d_, ]*(?:\.\d+)?)\s*(%|[A-Za-z]*)")
DEFAULT_BASELINE = "aot-baseline.json"


@dataclass(frozen=True, slots=True)
class Limit:
    """`amount` in the total's unit, or percent of the baseline; `relative` ones allow a growth, others are the most."""

    text: str
    amount: Fraction
    relative: bool = False
    percent: bool = False

    def bound(self, baseline: int | None) -> int | None:
        """The largest value that is allowed; None for a relative limit without a baseline."""
        if not self.relative:
            return int(self.amount)
        if baseline is None:
            return None
        return baseline + int(baseline * self.amount / 100 if self.percent else self.amount)


@dataclass(frozen=True, slots=True)
class Budget:
    """`rules[scope][total]`: limits; the scope "" is the top.  `baseline`: where the accepted reports lie.

    `options[scope]`: words of the command line; `file`: whose content it is.
    """

    rules: Mapping[str, Mapping[str, tuple[Limit, ...]]]
    baseline: Path | None = None
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    file: Path = Path()

    def limits(self, report: Report, metric: str) -> tuple[Limit, ...] | None:
        """The closest rule for a total of a report; None without one."""
        for scope in (key_of(report), report["name"], f"@{report['board']}", ""):
            found = self.rules.get(scope, {}).get(metric)
            if found is not None:
                return found
        return None

    def options_of(self, name: str, board: str) -> tuple[str, ...]:
        """The words for a model on a board; those of the closest table come last, where they count."""
        scopes = ("", f"@{board}", name, f"{name}@{board}")
        return tuple(word for scope in scopes for word in self.options.get(scope, ()))


@dataclass(frozen=True, slots=True)
class Finding:
    """One total compared with one limit: `state` is over, ok, improved (below the baseline) or new (not in the baseline)."""

    key: str
    metric: str
    value: int
    limit: str
    bound: int | None
    baseline: int | None
    state: str

    @property
    def text(self) -> str:
        """`instructions 101 exceed 100 (+0 over the baseline 100)`, for people."""
        if self.state == "new":
            return f"{self.metric} {self.value:,}: not in the baseline"
        change = "" if self.baseline is None else f", {self.value - self.baseline:+,} to the baseline"
        if self.state == "over":
            return f"{self.metric} {self.value:,} is more than {self.bound:,} ({self.limit}{change})"
        return f"{self.metric} {self.value:,} of {self.bound:,} ({self.limit}{change})"


_LONGEST = 40
"""Characters of a number."""


def parse_limit(value: object, where: str) -> Limit:
    """One limit of a budget file (E5052)."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Limit(f"{value:,}", Fraction(value))
    found = _VALUE.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = found.group(3) if found else None
    if found is None or (unit != "%" and unit not in _UNITS) or (unit == "%" and not found.group(1)):
        form = '"24 KiB", 4000000, "+0.5 %" or "+128"'
        raise UsageError(Problem("E5052", f"{value!r} is no limit; limits look like {form}", where))
    if len(found.group(2)) > _LONGEST:
        raise UsageError(Problem("E5052", f"a limit of {len(found.group(2)):,} digits is none", where))
    number = Fraction(re.sub(r"[_, ]", "", found.group(2)))
    assert isinstance(value, str)
    factor = 1 if unit == "%" else _UNITS[unit or ""]
    return Limit(value.strip(), number * factor, bool(found.group(1)), unit == "%")


def _limits(value: object, where: str) -> tuple[Limit, ...]:
    if value is False:
        return ()
    return tuple(parse_limit(v, where) for v in (value if isinstance(value, list) else [value]))


def _words(value: object, where: str) -> tuple[str, ...]:
    """Options as a text, split as a shell splits it (nothing in it is expanded), or as a list of words (E5052)."""
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    try:
        return tuple(shlex.split(value)) if isinstance(value, str) else _no_words(value, where)
    except ValueError as error:
        raise UsageError(Problem("E5052", f"{value!r}: {error}", where)) from None


def _no_words(value: object, where: str) -> NoReturn:
    raise UsageError(Problem("E5052", f'{value!r} are no options; write "--opt ram --feed-rows"', where))


def parse_budget(table: Mapping[str, Any], file: Path) -> Budget:
    """The content of budget.toml or of [tool.aot.budget]; all its errors at once (E5052)."""
    rules: dict[str, dict[str, tuple[Limit, ...]]] = {"": {}}
    problems: list[Problem] = []
    baseline = table.get("baseline")
    if baseline is not None and not isinstance(baseline, str):
        problems.append(Problem("E5052", "baseline must be the path of a file", str(file)))
        baseline = None

    options: dict[str, tuple[str, ...]] = {}

    def enter(scope: str, metric: str, value: object) -> None:
        where = f"{file}: {scope + '.' if scope else ''}{metric}"
        if metric == "options":
            try:
                options[scope] = _words(value, where)
            except UsageError as error:
                problems.extend(error.problems)
            return
        if metric not in METRICS:
            problems.append(Problem("E5052", f"unknown total{did_you_mean(metric, METRICS)}; known: {', '.join(METRICS)}", where))
            return
        try:
            rules.setdefault(scope, {})[metric] = _limits(value, where)
        except UsageError as error:
            problems.extend(error.problems)

    for name, value in table.items():
        if isinstance(value, Mapping):
            for metric, limit in value.items():
                enter(name, metric, limit)
        elif name != "baseline":
            enter("", name, value)
    if problems:
        raise UsageError(*problems)
    return Budget(rules, None if baseline is None else file.parent / baseline, options, file)


_MAX_BYTES = 1 << 24


def load_budget(path: Path | None, folder: Path) -> Budget | None:
    """The budget in `path`, else in budget.toml or pyproject.toml of `folder`; None if there is none (E5001, E5002, E5052)."""
    candidates = [path] if path is not None else [folder / "budget.toml", folder / "pyproject.toml"]
    for file in candidates:
        if path is None and not file.is_file():
            continue
        try:
            data = parse_toml(read_limited(file, limit=_MAX_BYTES))
        except ValueError as error:
            raise UsageError(Problem("E5052", f"not TOML: {error}", str(file))) from None
        table = _table(data, file)
        if table is not None:
            return parse_budget(table, file)
        if path is not None:
            raise UsageError(Problem("E5052", "has no table [tool.aot.budget]", str(file)))
    return None


def _table(data: Mapping[str, Any], file: Path) -> Mapping[str, Any] | None:
    """The budget's table: the whole file, unless it is a pyproject.toml or has [tool.aot.budget]."""
    inner: Any = data
    for key in ("tool", "aot", "budget"):
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    if isinstance(inner, Mapping):
        return inner
    return None if file.name == "pyproject.toml" else data


def check_report(report: Report, budget: Budget | None, baseline: Report | None) -> list[Finding]:
    """Every total of a report that has a rule or, with a baseline, is watched."""
    given = {m: budget.limits(report, m) for m in METRICS} if budget is not None else dict.fromkeys(METRICS)
    covered = {part for whole, parts in _COVERED.items() if given[whole] is not None for part in parts}
    findings = []
    for metric in METRICS:
        value = report["totals"].get(metric)
        before = None if baseline is None else baseline["totals"].get(metric)
        limits = given[metric]
        if limits is None:
            watched = baseline is not None and metric in WATCHED and metric not in covered and before is not None
            limits = (Limit("no growth", Fraction(0), True),) if watched else ()
        for limit in limits if value is not None else ():
            findings.append(_judge(key_of(report), metric, value, limit=limit, before=before))
    return findings


def _judge(key: str, metric: str, value: int, *, limit: Limit, before: int | None) -> Finding:
    bound = limit.bound(before)
    if bound is None:
        state = "new"
    elif value > bound:
        state = "over"
    else:
        state = "improved" if before is not None and value < before else "ok"
    return Finding(key, metric, value, limit.text, bound, before, state)


def check_reports(reports: Sequence[Report], budget: Budget | None, baseline: Mapping[str, Report] | None) -> list[Finding]:
    """check_report of all; a report without a counterpart in the baseline is compared with the absolute limits only."""
    found = []
    for report in reports:
        found += check_report(report, budget, None if baseline is None else baseline.get(key_of(report)))
    return found


# ---- the gate: what is over, what is not exact, and the exit code that follows


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
