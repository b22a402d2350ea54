"""Budgets: limits for the totals of reports, absolute or relative to a baseline.

A rule maps a total (measure/report.py) to an absolute limit, `"24 KiB"` or `4_000_000`, or to an allowed growth over the
baseline, `"+0.5 %"` or `"+128"`; a list holds several limits.  Top-level rules apply to all models, rules in a table `[kws]`,
`["@mps2-an386"]` or `["kws@mps2-an386"]` to some; the most specific rule wins.  With a baseline, totals without a rule must not
grow at all.  `options` are command-line options with which a model is compiled.
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
"""Totals that must not grow over a baseline unless a rule allows it."""

_COVERED = {"flash": ("code", "constants"), "ram": ("workspace", "stack", "stack_bound")}
"""A rule for the sum removes its parts from WATCHED."""

_UNITS = {"": 1, "B": 1, "k": 1000, "M": 10**6, "G": 10**9, "kB": 1000, "MB": 10**6, "KiB": 1 << 10, "MiB": 1 << 20}
_VALUE = re.compile(r"(\+?)\s*(\d[\d_, ]*(?:\.\d+)?)\s*(%|[A-Za-z]*)")
DEFAULT_BASELINE = "aot-baseline.json"


@dataclass(frozen=True, slots=True)
class Limit:
    """`amount` in the total's unit, or in percent of the baseline; a `relative` limit allows growth, others are maxima."""

    text: str
    amount: Fraction
    relative: bool = False
    percent: bool = False

    def bound(self, baseline: int | None) -> int | None:
        """The largest allowed value; None for a relative limit without a baseline."""
        if not self.relative:
            return int(self.amount)
        if baseline is None:
            return None
        return baseline + int(baseline * self.amount / 100 if self.percent else self.amount)


@dataclass(frozen=True, slots=True)
class Budget:
    """`rules[scope][total]`: limits; the scope "" is the top level.  `baseline`: path of the accepted reports.

    `options[scope]`: command-line options; `file`: the file that the budget was read from.
    """

    rules: Mapping[str, Mapping[str, tuple[Limit, ...]]]
    baseline: Path | None = None
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    file: Path = Path()

    def limits(self, report: Report, metric: str) -> tuple[Limit, ...] | None:
        """The most specific rule for a total of a report; None if there is none."""
        for scope in (key_of(report), report["name"], f"@{report['board']}", ""):
            limits = self.rules.get(scope, {}).get(metric)
            if limits is not None:
                return limits
        return None

    def options_of(self, name: str, board: str) -> tuple[str, ...]:
        """The options for a model on a board; those of the most specific table come last, so they win."""
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
        """`instructions 101 is more than 100 (no growth, +1 from the baseline)`."""
        if self.state == "new":
            return f"{self.metric} {self.value:,}: not in the baseline"
        change = ""
        if self.baseline is not None:
            change = ", unchanged" if self.value == self.baseline else f", {self.value - self.baseline:+,}"
            change += " from the baseline"
        if self.state == "over":
            return f"{self.metric} {self.value:,} is more than {self.bound:,} ({self.limit}{change})"
        return f"{self.metric} {self.value:,} of {self.bound:,} ({self.limit}{change})"


_LONGEST = 40
"""Maximum number of characters of a number."""


def parse_limit(value: object, where: str) -> Limit:
    """One limit of a budget file (E5052)."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Limit(f"{value:,}", Fraction(value))
    match = _VALUE.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = match.group(3) if match else None
    if match is None or (unit != "%" and unit not in _UNITS) or (unit == "%" and not match.group(1)):
        form = '"24 KiB", 4000000, "+0.5 %" or "+128"'
        raise UsageError(Problem("E5052", f"{value!r} is not a valid limit; examples: {form}", where))
    if len(match.group(2)) > _LONGEST:
        raise UsageError(Problem("E5052", f"the limit has {len(match.group(2)):,} digits, at most {_LONGEST} are allowed", where))
    number = Fraction(re.sub(r"[_, ]", "", match.group(2)))
    assert isinstance(value, str)
    factor = 1 if unit == "%" else _UNITS[unit or ""]
    return Limit(value.strip(), number * factor, bool(match.group(1)), unit == "%")


def _limits(value: object, where: str) -> tuple[Limit, ...]:
    if value is False:
        return ()
    return tuple(parse_limit(v, where) for v in (value if isinstance(value, list) else [value]))


def _words(value: object, where: str) -> tuple[str, ...]:
    """Options as a text, split as a shell does (but not expanded), or as a list of words (E5052)."""
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    try:
        return tuple(shlex.split(value)) if isinstance(value, str) else _no_words(value, where)
    except ValueError as error:
        raise UsageError(Problem("E5052", f"{value!r}: {error}", where)) from None


def _no_words(value: object, where: str) -> NoReturn:
    raise UsageError(Problem("E5052", f'{value!r} is not a list of options; write "--opt ram --feed-rows"', where))


def parse_budget(table: Mapping[str, Any], file: Path) -> Budget:
    """The content of budget.toml or of [tool.aot.budget]; reports all its errors at once (E5052)."""
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
            text = f"unknown total{did_you_mean(metric, METRICS)}; choose one of {', '.join(METRICS)}"
            problems.append(Problem("E5052", text, where))
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
            raise UsageError(Problem("E5052", "there is no table [tool.aot.budget]", str(file)))
    return None


def _table(data: Mapping[str, Any], file: Path) -> Mapping[str, Any] | None:
    """The budget's table: the whole file, unless the file is a pyproject.toml or has [tool.aot.budget]."""
    inner: Any = data
    for key in ("tool", "aot", "budget"):
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    if isinstance(inner, Mapping):
        return inner
    return None if file.name == "pyproject.toml" else data


def check_report(report: Report, budget: Budget | None, baseline: Report | None) -> list[Finding]:
    """Findings for every total of a report that has a rule or, with a baseline, is watched."""
    rules = {m: budget.limits(report, m) for m in METRICS} if budget is not None else dict.fromkeys(METRICS)
    covered = {part for whole, parts in _COVERED.items() if rules[whole] is not None for part in parts}
    findings = []
    for metric in METRICS:
        value = report["totals"].get(metric)
        before = None if baseline is None else baseline["totals"].get(metric)
        limits = rules[metric]
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
    """`check_report` for all; a report that is not in the baseline is checked against the absolute limits only."""
    findings = []
    for report in reports:
        findings += check_report(report, budget, None if baseline is None else baseline.get(key_of(report)))
    return findings


# ---- the gate: which limits are exceeded, which outputs are not exact, and the resulting exit code


@dataclass(frozen=True, slots=True)
class Gate:
    """What reports are checked against: a budget, and the baseline at `path`, if it exists."""

    budget: Budget | None
    path: Path
    baseline: Mapping[str, Report] | None
    allow: frozenset[str]


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of a check; `refused` says why the baseline is not comparable."""

    findings: Sequence[Finding]
    changes: Mapping[str, Any] | None
    refused: UsageError | None


def allowed_parts(allow: Sequence[str] | None) -> frozenset[str]:
    """The parts of a fingerprint that are allowed to differ, by name (E5009)."""
    for part in allow or ():
        if part not in FIELDS:
            raise UsageError(Problem("E5009", f"--allow {part}{did_you_mean(part, FIELDS)}: choose one of {', '.join(FIELDS)}"))
    return frozenset(allow or ())


def open_gate(budget_file: Path | None, baseline: Path | None, *, accept: bool, allow: Sequence[str] | None) -> Gate:
    """Read budget and baseline before the expensive work (E5001, E5050, E5052)."""
    budget = load_budget(budget_file, Path())
    named = baseline or (budget.baseline if budget is not None else None)
    path = named or Path(DEFAULT_BASELINE)
    reports = load_reports(path) if os.path.exists(path) else None
    relative = budget is not None and any(
        limit.relative for rules in budget.rules.values() for limits in rules.values() for limit in limits
    )
    if reports is None and not accept and (named is not None or relative):
        raise UsageError(Problem("E5052", f"there is no baseline '{path}'; create it with aot report --accept"))
    return Gate(budget, path, reports, allowed_parts(allow) | {"tool", "model"})


def judge(reports: Sequence[Report], gate: Gate) -> Judged:
    """Check the reports against budget and baseline; if the baseline is not comparable, against absolute limits only."""
    baseline = gate.baseline
    if baseline is None:
        return Judged(check_reports(reports, gate.budget, None), None, None)
    by_key = {key_of(r): r for r in reports}
    before = {k: baseline[k] for k in baseline if k in by_key}
    try:
        check_comparable(before, by_key, allow=gate.allow)
    except UsageError as error:
        return Judged(check_reports(reports, gate.budget, None), None, error)
    return Judged(check_reports(reports, gate.budget, before), diff_reports(before, by_key, allow=gate.allow), None)


def judge_absolute(reports: Sequence[Report], gate: Gate) -> Judged:
    """Check the limits that a new baseline must respect too: those that are not relative to a baseline."""
    return Judged([f for f in check_reports(reports, gate.budget, None) if f.state != "new"], None, None)


def new_baseline(reports: Sequence[Report], gate: Gate) -> tuple[str, int]:
    """The text of the baseline with `reports`, and how many reports of other models and boards it keeps."""
    fresh = {key_of(r) for r in reports}
    kept = [r for k, r in (gate.baseline or {}).items() if k not in fresh]
    return baseline_text([*kept, *reports]), len(kept)


def exit_code(bundle: Mapping[str, Any], judged: Judged) -> int:
    """The first failure's code; else 5 for outputs that are not accepted, 2 for an incomparable baseline, 4 over a limit."""
    if bundle["failures"]:
        return int(bundle["failures"][0]["exit_code"])
    if not all(r["verdict"]["accepted"] for r in bundle["reports"]):
        return EXIT_VERIFICATION
    if judged.refused is not None:
        return judged.refused.exit_code
    return EXIT_DOES_NOT_FIT if any(f.state == "over" for f in judged.findings) else 0


def complaints(bundle: Mapping[str, Any], judged: Judged) -> list[Problem]:
    """All problems: failures, outputs that are not accepted (E4001), an incomparable baseline (E5051), limits (E2020)."""
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
    """Where the outputs first differ, and with which inputs."""
    divergence = verdict["divergence"]
    if divergence is None:
        return "run aot verify to find the first layer that differs"
    place = "every layer matches the reference's tensors"
    if divergence["layers"]:
        x = divergence["layers"][0]
        where = f'layer {x["layer"]} {does_of(x)} "{x["name"]}", kernel {x["kernel"]}'
        place = f"first at {where}: {x['count']} of {x['size']} values"
    return f"{place}; inputs in {divergence['reproducer']}" if divergence["reproducer"] else place
