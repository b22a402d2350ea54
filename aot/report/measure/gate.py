"""Reports against a baseline and a budget: what changed, and which limits are exceeded."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from pathlib import Path
from typing import Any

from aot.driver.reading import read_limited
from aot.errors import EXIT_DOES_NOT_FIT, EXIT_VERIFICATION, Problem, UsageError
from aot.report.figures.schema import BASELINE, REPORT, find_fault, load_schema
from aot.report.measure.report import SCHEMA, Report, key_of
from aot.support.dataclass import dataclass
from aot.support.text import did_you_mean, does_of, printable
from aot.support.untrusted import parse_json, parse_toml

BASELINE_SCHEMA = "aot-baseline/1"
LAYER = ("index", "op", "name", "kernel", "instructions", "code", "weights", "tables", "scratch")
SYMBOL = ("name", "file", "bytes")


def keep(report: Report) -> dict[str, Any]:
    """The part of a report, or of a baseline's entry, that a baseline holds."""
    flash = report["flash"]
    return {
        "name": report["name"],
        "board": report["board"],
        "verdict": {"exact": report["verdict"]["exact"]},
        "fingerprint": report["fingerprint"],
        "totals": report["totals"],
        "layers": [{k: layer[k] for k in LAYER} for layer in report["layers"]],
        "flash": None if flash is None else {"symbols": [{k: symbol[k] for k in SYMBOL} for symbol in flash["symbols"]]},
    }


def baseline(reports: Iterable[Report]) -> dict[str, Any]:
    """The content of a baseline, in the order of names and boards."""
    return {"schema": BASELINE_SCHEMA, "reports": sorted(map(keep, reports), key=lambda r: (r["name"], r["board"]))}


def baseline_text(reports: Iterable[Report]) -> str:
    """`baseline` as the text of a file."""
    return _text(baseline(reports), "") + "\n"


def _text(value: Any, indent: str) -> str:
    """JSON with lists and objects of plain values on one line each."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    if not any(isinstance(v, Mapping | list) for v in inner):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    deeper = indent + " "
    parts = [_text(v, deeper) for v in inner]
    if isinstance(value, Mapping):
        parts = [f"{json.dumps(k, ensure_ascii=False)}: {text}" for k, text in zip(value, parts, strict=True)]
    begin, end = "{}" if isinstance(value, Mapping) else "[]"
    return f"{begin}\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{indent}{end}"


# ---- matching the layers of two reports: by structure first, then by name


Layer = Mapping[str, Any]

EXACT, OPERATOR = 3, 1
"""Score of a pair with the same operator and shape, and with the same operator only; equal names break ties."""


def match_layers(before: Sequence[Layer], after: Sequence[Layer]) -> list[tuple[int | None, int | None]]:
    """Pairs of layer indices (before, after) in the order of `after`, then the layers of `before` without a partner.

    Dynamic programming finds the order-preserving pairs with the most operators and result shapes in common.  A retrained model
    therefore matches completely, whatever its tensors are called, and an inserted layer does not shift the others.  The remaining
    layers are paired by operator and name, in any order.
    """
    matches = _in_order(before, after)
    matched = set(matches.values())
    named: dict[tuple[str, str], list[int]] = {}
    for i in reversed([i for i in range(len(before)) if i not in matched]):
        named.setdefault((before[i]["op"], before[i]["name"]), []).append(i)
    for j, y in enumerate(after):
        same = named.get((y["op"], y["name"]))
        if j not in matches and same:
            matches[j] = same.pop()
    matched = set(matches.values())
    pairs: list[tuple[int | None, int | None]] = [(matches.get(j), j) for j in range(len(after))]
    return pairs + [(i, None) for i in range(len(before)) if i not in matched]


def same_layers(before: Sequence[Layer], after: Sequence[Layer]) -> bool:
    """Whether both have the same operators on the same shapes in the same order."""
    return len(before) == len(after) and all(_worth(x, y) == EXACT for x, y in zip(before, after, strict=True))


def _worth(x: Layer, y: Layer) -> int:
    """Score of a pair.  A baseline has no shapes; there any shape matches."""
    if x["op"] != y["op"]:
        return 0
    shapes = x.get("output"), y.get("output")
    return EXACT if None in shapes or shapes[0] == shapes[1] else OPERATOR


def _in_order(before: Sequence[Layer], after: Sequence[Layer]) -> dict[int, int]:
    """The order-preserving pairs with the highest total score: index in `after` -> index in `before`."""
    names = 1 + min(len(before), len(after))  # outweighs all equal names together

    def worth(x: Layer, y: Layer) -> int:
        points = _worth(x, y)
        return points and names * points + (x["name"] == y["name"])

    rows = [[0] * (len(after) + 1)]
    for x in before:
        above, row = rows[-1], [0]
        for j, y in enumerate(after):
            row.append(max(above[j + 1], row[j], above[j] + worth(x, y)))
        rows.append(row)
    matches: dict[int, int] = {}
    i, j = len(before), len(after)
    while i and j:
        points = worth(before[i - 1], after[j - 1])
        if points and rows[i][j] == rows[i - 1][j - 1] + points:
            i, j = i - 1, j - 1
            matches[j] = i
        elif rows[i][j] == rows[i - 1][j]:
            i -= 1
        else:
            j -= 1
    return matches


FIELDS = ("tool", "model", "compiler", "flags", "emulator", "options", "inputs")
"""Parts of the fingerprint that must agree for figures to be comparable (the outputs' checksum is a result)."""

DIFF_SCHEMA = "aot-diff/1"
_MAX_BYTES = 1 << 28


def load_reports(path: Path) -> dict[str, Report]:
    """The reports, by key, of a report.json, a baseline, or the folder of a report.json (E5001, E5002, E5050)."""
    file = path / "report.json" if os.path.isdir(path) else path
    return parse_reports(read_limited(file, limit=_MAX_BYTES), str(file))


def check_whole(reports: Mapping[str, Report], file: str) -> None:
    """Raise UsageError E5050 if a report lacks data that the page needs; entries of a baseline never have it."""
    schema = load_schema()
    for key, report in reports.items():
        fault = find_fault(report, {**schema["$defs"]["report"], "$defs": schema["$defs"]}) if "plan" in report else ""
        if fault:
            raise UsageError(Problem("E5050", f"'{file}': {fault}; it is damaged or was written by another version of aot", key))


def parse_reports(content: bytes, file: str) -> dict[str, Report]:
    """`load_reports` for the content of `file` (E5050)."""
    try:
        data = parse_json(content)
    except ValueError as error:
        raise UsageError(Problem("E5050", f"'{file}' is not JSON: {error}")) from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema not in (SCHEMA, BASELINE_SCHEMA):
        expected = f"'{SCHEMA}' or '{BASELINE_SCHEMA}'"
        shown = printable(repr(schema))
        raise UsageError(Problem("E5050", f"'{file}' is not an aot report or baseline: its schema is {shown}, not {expected}"))
    fault = find_fault(data, load_schema(REPORT if schema == SCHEMA else BASELINE), whole=False)
    if fault:
        raise UsageError(Problem("E5050", f"'{file}' is damaged: {fault}"))
    try:
        reports = {key_of(r): r for r in data["reports"]}
        for report in reports.values():
            _check_form(report)
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(Problem("E5050", f"'{file}' is damaged: {error}")) from None
    return reports


def _check_form(report: Report) -> None:
    """Read every field that a comparison needs, so that a damaged file is rejected at once (KeyError, TypeError)."""
    fingerprint = report["fingerprint"]
    _ = [fingerprint[f] for f in FIELDS], fingerprint["model"]["sha256"], fingerprint["outputs"]["crc32"]
    _ = fingerprint["inputs"]["origin"], fingerprint["inputs"]["sets"], report["verdict"]["exact"]
    if not all(v is None or isinstance(v, int) for v in report["totals"].values()):
        raise TypeError("a total is not an integer")
    for layer in report["layers"]:
        _ = [layer[k] for k in ("index", "op", "name", "kernel", "instructions", "code", "weights", "tables", "scratch")]
    for symbol in report["flash"]["symbols"] if report["flash"] is not None else ():
        _ = symbol["name"], symbol["file"], symbol["bytes"] + 0


def changed_fields(a: Report, b: Report) -> list[dict[str, Any]]:
    """The parts of the fingerprint that differ: `field`, `before`, `after`.

    Inputs of different models may differ in shape, so their checksum counts only if the model is the same.  An unset option
    equals an option that an older version of the tool did not have.
    """
    same_model = a["fingerprint"]["model"]["sha256"] == b["fingerprint"]["model"]["sha256"]

    def value(report: Report, field: str) -> Any:
        content = report["fingerprint"][field]
        if field == "model":
            return content["sha256"]
        if field == "options":
            return {k: v for k, v in content.items() if not _is_unset(v)}
        if field == "inputs" and not same_model:
            return {k: content[k] for k in ("origin", "sets")}
        return content

    pairs = [(field, value(a, field), value(b, field)) for field in FIELDS]
    return [{"field": field, "before": x, "after": y} for field, x, y in pairs if x != y]


def _is_unset(value: Any) -> bool:
    """Whether a value is None, False or empty, or holds only such values."""
    if isinstance(value, Mapping):
        return all(_is_unset(v) for v in value.values())
    return value is None or value is False or value in ("", [])


def check_comparable(a: Mapping[str, Report], b: Mapping[str, Report], *, allow: Collection[str]) -> None:
    """Raise UsageError E5051 if reports with the same key differ in a part of the fingerprint that is not in `allow`."""
    problems = []
    for key in a:
        for change in changed_fields(a[key], b[key]) if key in b else ():
            if change["field"] not in allow:
                before, after = _texts(change["before"], change["after"])
                text = f"{change['field']} differs: {before} before, {after} now; use --allow {change['field']} to compare anyway"
                problems.append(Problem("E5051", text, key))
    if problems:
        raise UsageError(*problems)


def _texts(before: Any, after: Any) -> tuple[str, str]:
    """Both sides of a difference, without their common parts."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [k for k in {**before, **after} if before.get(k) != after.get(k)]
        pairs = {k: _texts(before.get(k), after.get(k)) for k in keys}
        x, y = (" ".join(f"{k} {v[side]}" for k, v in pairs.items()) for side in (0, 1))
    elif isinstance(before, list) and isinstance(after, list):
        x, y = (" ".join(str(v) for v in one if v not in other) for one, other in ((before, after), (after, before)))
    else:
        x, y = str(before), str(after)
    return _short(x or "nothing"), _short(y or "nothing")


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def compare(a: Report, b: Report) -> dict[str, Any]:
    """The change from `a` to `b`, largest movers first."""
    totals = {k: moved(a["totals"].get(k), b["totals"].get(k)) for k in b["totals"]}
    same_work = not {"model", "inputs"} & {c["field"] for c in changed_fields(a, b)}
    outputs = [r["fingerprint"]["outputs"]["crc32"] for r in (a, b)]
    return {
        "name": b["name"],
        "previous_name": a["name"],
        "board": b["board"],
        "same_layers": same_layers(a["layers"], b["layers"]),
        "fingerprint": changed_fields(a, b),
        "outputs_changed": same_work and outputs[0] != outputs[1],
        "exact": {"before": a["verdict"]["exact"], "after": b["verdict"]["exact"]},
        "totals": totals,
        "layers": _layer_movers(a, b),
        "symbols": _symbol_movers(a, b),
    }


def moved(before: int | None, after: int | None) -> dict[str, Any]:
    """`before`, `after`, `change` and `percent` (rounded to 0.01); the last two are None if either side is None."""
    if before is None or after is None:
        return {"before": before, "after": after, "change": None, "percent": None}
    percent = round(100 * (after - before) / before, 2) if before else None
    return {"before": before, "after": after, "change": after - before, "percent": percent}


def _layer_movers(a: Report, b: Report) -> list[dict[str, Any]]:
    """Layers whose instructions, bytes or kernel changed; the missing side of an added or removed layer counts as 0."""
    rows = []
    for i, j in match_layers(a["layers"], b["layers"]):
        x, y = (None if k is None else layers[k] for k, layers in ((i, a["layers"]), (j, b["layers"])))
        here = y if y is not None else x
        assert here is not None
        before, after = _figures(x, y), _figures(y, x)
        row = {
            "layer": here["index"],
            "op": here["op"],
            "does": does_of(here),
            "name": here["name"],
            "status": "added" if x is None else "removed" if y is None else "changed",
            "kernel": {"before": x and x["kernel"], "after": y and y["kernel"]},
            **{k: moved(before[k], after[k]) for k in before},
        }
        if row["kernel"]["before"] != row["kernel"]["after"] or any(row[k]["change"] for k in before):
            rows.append(row)
    return sorted(rows, key=lambda r: (-abs(r["instructions"]["change"] or 0), -abs(r["bytes"]["change"] or 0), r["layer"]))


def _figures(layer: Layer | None, other: Layer | None) -> dict[str, int | None]:
    """A layer's figures; for a layer that exists on the other side only, 0 for each figure that is known there."""
    if layer is None:
        return {} if other is None else {k: None if v is None else 0 for k, v in _figures(other, None).items()}
    parts = [layer[k] for k in ("code", "weights", "tables")]
    flash = None if None in parts else sum(parts)
    return {"instructions": layer["instructions"], "bytes": flash, "scratch": layer["scratch"]}


def _symbol_movers(a: Report, b: Report) -> list[dict[str, Any]]:
    if a["flash"] is None or b["flash"] is None:
        return []
    names = a["name"], b["name"]
    before, after = (
        {(_renamed(s["name"], *names), _renamed(s["file"], *names)): s["bytes"] for s in r["flash"]["symbols"]} for r in (a, b)
    )
    rows = [
        {"name": name, "file": file, **moved(before.get((name, file), 0), after.get((name, file), 0))}
        for name, file in sorted({*before, *after})
    ]
    return sorted((r for r in rows if r["change"]), key=lambda r: (-abs(r["change"]), r["name"], r["file"]))


def _renamed(text: str, before: str, after: str) -> str:
    """A symbol or file of the model `before` under the name it has in the model `after`."""
    return after + text[len(before) :] if text.startswith((f"{before}_", f"{before}.")) else text


def pair_keys(a: Mapping[str, Report], b: Mapping[str, Report]) -> list[tuple[str, str]]:
    """Equal keys; and, per board, the two reports of different models if each side has exactly one."""
    pairs = [(k, k) for k in a if k in b]
    for board in sorted({r["board"] for r in a.values()}):
        before, after = ([k for k, r in x.items() if r["board"] == board] for x in (a, b))
        if len(before) == len(after) == 1 and before != after:
            pairs.append((before[0], after[0]))
    return sorted(pairs, key=lambda p: p[1])


def diff_reports(a: Mapping[str, Report], b: Mapping[str, Report], *, allow: Collection[str] = ()) -> dict[str, Any]:
    """All pairs compared (E5051 if they are not comparable), and the keys that exist on one side only."""
    pairs = pair_keys(a, b)
    check_comparable({after: a[before] for before, after in pairs}, b, allow=allow)
    return {
        "schema": DIFF_SCHEMA,
        "pairs": [compare(a[before], b[after]) for before, after in pairs],
        "added": sorted(b.keys() - {after for _, after in pairs}),
        "removed": sorted(a.keys() - {before for before, _ in pairs}),
    }


def change_text(entry: Mapping[str, Any]) -> str:
    """`+128 (+0.5 %)`, `=`, or `-` if it is unknown."""
    if entry["change"] is None:
        return "-"
    if not entry["change"]:
        return "="
    percent = "" if entry["percent"] is None else f" ({entry['percent']:+.2f} %)"
    return f"{entry['change']:+,}{percent}"


def total_rows(pair: Mapping[str, Any], metrics: Sequence[str] | None = None) -> list[tuple[str, int | None, int | None, str]]:
    """(metric, before, after, change) of all totals that at least one side has."""
    rows = []
    for metric, entry in pair["totals"].items():
        if (metrics is None or metric in metrics) and (entry["before"] is not None or entry["after"] is not None):
            rows.append((metric, entry["before"], entry["after"], change_text(entry)))
    return rows


# ---- budgets: limits for the totals of reports, absolute or relative to a baseline
# A rule maps a total (measure/report.py) to an absolute limit, `"24 KiB"` or `4_000_000`, or to an allowed growth over the
# baseline, `"+0.5 %"` or `"+128"`; a list holds several limits.  Top-level rules apply to all models, rules in a table `[kws]`,
# `["@mps2-an386"]` or `["kws@mps2-an386"]` to some; the most specific rule wins.  With a baseline, totals without a rule must not
# grow at all.  `options` are command-line options with which a model is compiled.


METRICS = (
    "instructions", "macs", "flash", "code", "constants", "ram", "workspace", "stack", "stack_bound", "heap", "estimated_cycles",
)  # fmt: skip
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
    if not isinstance(value, str):
        raise UsageError(Problem("E5052", f'{value!r} is not a list of options; write "--opt ram --feed-rows"', where))
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise UsageError(Problem("E5052", f"{value!r}: {error}", where)) from None


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
        try:
            if metric == "options":
                options[scope] = _words(value, where)
            elif metric in METRICS:
                rules.setdefault(scope, {})[metric] = _limits(value, where)
            else:
                text = f"unknown total{did_you_mean(metric, METRICS)}; choose one of {', '.join(METRICS)}"
                problems.append(Problem("E5052", text, where))
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


_MOST_BUDGET = 1 << 24


def load_budget(path: Path | None, folder: Path) -> Budget | None:
    """The budget in `path`, else in budget.toml or pyproject.toml of `folder`; None if there is none (E5001, E5002, E5052)."""
    candidates = [path] if path is not None else [folder / "budget.toml", folder / "pyproject.toml"]
    for file in candidates:
        if path is None and not file.is_file():
            continue
        try:
            data = parse_toml(read_limited(file, limit=_MOST_BUDGET))
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
    for metric, limits in rules.items():
        value = report["totals"].get(metric)
        before = None if baseline is None else baseline["totals"].get(metric)
        if limits is None:
            watched = metric in WATCHED and metric not in covered and before is not None
            limits = (Limit("no growth", Fraction(0), True),) if watched else ()
        findings += [_judge(key_of(report), metric, value, limit=x, before=before) for x in limits if value is not None]
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
    return [f for r in reports for f in check_report(r, budget, (baseline or {}).get(key_of(r)))]


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
    if gate.baseline is None:
        return Judged(check_reports(reports, gate.budget, None), None, None)
    by_key = {key_of(r): r for r in reports}
    before = {key: report for key, report in gate.baseline.items() if key in by_key}
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
