"""Reports and differences as Markdown that fits a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aot.report.figures.size import over_time
from aot.report.gate.budget import Finding
from aot.report.gate.diff import change_text, total_rows
from aot.report.measure.divergence import fault_text
from aot.report.measure.report import Report, key_of
from aot.report.render.blocks import Block, Details, Heading, Items, Table, Text, number
from aot.report.render.formats import headline, outputs_word, short
from aot.report.render.sections import WATCHED, failure_blocks, off_text
from aot.support.text import does_of

COMMENT_LIMIT = 65_000
"""GitHub accepts 65,536 characters."""

_MAX_ROWS = 40


def cell(value: object) -> str:
    """A value for a text or a table: thousands grouped, `-` for None, without characters that end a cell or start markup."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return number(value)
    text = re.sub(r"([\\|`*\[\]])", r"\\\1", " ".join(str(value).split()))
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    # names come from the model: they must not notify anyone, refer to an issue, or become a link
    return re.sub(r"(?<!\w)@|#(?=\d)|(?i:\bGH-|\bwww\.|:(?=//))", lambda match: f"{match[0]}\u200b", text)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> list[str]:
    """A Markdown table; all columns after the first `left` are right-aligned."""
    rule = [":--" if i < left else "--:" for i in range(len(headers))]
    return [f"| {' | '.join(r)} |" for r in (headers, rule, *([cell(c) for c in row] for row in rows))]


def lines_of(blocks: Sequence[Block]) -> list[str]:
    """Blocks with an empty line between them."""
    lines: list[str] = []
    for i, block in enumerate(blocks):
        lines += ["", *_lines(block)] if i else _lines(block)
    return lines


def _lines(block: Block) -> list[str]:
    match block:
        case Heading(text=text, level=level):
            return [f"{'#' * level} {cell(text)}"]
        case Text(text=text):
            return [cell(text)]
        case Items(rows=rows):
            return [f"- **{cell(word)}**: {cell(text)}" if word else f"- {cell(text)}" for word, text in rows]
        case Table(headers=headers, rows=cells, left=left):
            return table(headers, cells, left=left) if cells else []
        case Details(summary=summary, blocks=inner):
            return ["<details>", f"<summary>{cell(summary)}</summary>", "", *lines_of(inner), "", "</details>"]
    raise ValueError(f"a comment has no {type(block).__name__}")


def _fit(parts: Sequence[Sequence[Block]]) -> str:
    """As many parts, from the first, as fit a comment."""
    text = ""
    for i, part in enumerate(p for p in parts if p):
        more = "\n".join(lines_of(part)) + "\n"
        if i and len(text) + len(more) + 80 > COMMENT_LIMIT:
            return text + "\nThe rest is left out; report.html has everything.\n"
        text += ("\n" if i else "") + more
    return text


def report_markdown(
    reports: Sequence[Report],
    failures: Sequence[Mapping[str, Any]],
    findings: Sequence[Finding],
    changes: Mapping[str, Any] | None = None,
) -> str:
    """Verdict and totals of all models (with the change from the baseline, if there is one), then folded details."""
    pairs = {key_of(p): p for p in changes["pairs"]} if changes is not None else {}
    parts: list[Sequence[Block]] = [[Heading(headline(reports, failures, findings), 2)], _matrix(reports, pairs)]
    parts.append(failure_blocks(failures, level=3))
    parts += [_differences(r) for r in reports if r["verdict"]["divergence"] is not None]
    parts.append(_budget(findings))
    parts += [_changes(pairs[key_of(r)]) for r in reports if key_of(r) in pairs]
    parts += [_layers(r) for r in reports]
    return _fit(parts)


def _matrix(reports: Sequence[Report], pairs: Mapping[str, Any]) -> list[Block]:
    rows = []
    for report in reports:
        entry = pairs.get(key_of(report), {}).get("totals", {})
        figures = []
        for metric in WATCHED:
            change = change_text(entry[metric]) if metric in entry else "-"
            figures.append(number(report["totals"][metric]) + ("" if change in ("-", "=") else f" {change}"))
        verdict = report["verdict"]
        exact = outputs_word(verdict) if verdict["accepted"] else f"**{verdict['sets_exact']}/{verdict['sets']} sets**"
        rows.append((report["name"], report["board"], exact, *figures))
    units = [m if m == "instructions" else f"{m}, B" for m in WATCHED]
    return [Table(("model", "board", "outputs", *units), rows, left=2)] if rows else []


def _differences(report: Report) -> list[Block]:
    """The first layers that differ from the reference, and how far the outputs are off."""
    divergence = report["verdict"]["divergence"]
    rows = [(f"{x['layer']} {does_of(x)}", x["kernel"], x["count"], x["size"], x["max_abs"]) for x in divergence["layers"][:10]]
    fault = report["verdict"]["known_fault"]
    blocks: list[Block] = [Heading(f"{key_of(report)} differs")]
    blocks += [Text(fault_text(fault))] if fault is not None else []
    blocks.append(Table(("layer", "kernel", "values that differ", "of", "by at most"), rows, left=2))
    return blocks + ([Text(off)] if (off := off_text(divergence)) else [])


def _budget(findings: Sequence[Finding]) -> list[Block]:
    over = [f for f in findings if f.state == "over"]
    better = [f for f in findings if f.state == "improved"]
    new = sorted({f.key for f in findings if f.state == "new"})
    blocks: list[Block] = []
    if over:
        blocks += [Heading("Over budget"), Items([(f.key, f.text) for f in over[:_MAX_ROWS]])]
    if better:
        seen = list(dict.fromkeys((f.key, f.metric, f.baseline, f.value) for f in better))[:_MAX_ROWS]
        texts = [f"{k}: {m} {b:,} → {v:,} ({v - b:+,})" for k, m, b, v in seen if b is not None]
        blocks += [Heading("Improved"), Items([("", text) for text in texts])]
    return [*blocks, Text(f"Not in the baseline: {', '.join(new)}")] if new else blocks


def _changes(pair: Mapping[str, Any]) -> list[Block]:
    """Layers and symbols of one model that changed most, folded."""
    body = _movers(pair, top=10)
    return [Details(f"{pair['name']} on {pair['board']}: what changed", body)] if body else []


def _movers(pair: Mapping[str, Any], *, top: int) -> list[Block]:
    layers = [
        (f"{m['layer']} {does_of(m)} {m['name']}"[:80], change_text(m["instructions"]), change_text(m["bytes"]), _kernel(m))
        for m in pair["layers"][:top]
    ]
    symbols = [(s["name"], s["file"], change_text(s)) for s in pair["symbols"][:top]]
    blocks: list[Block] = [Table(("layer", "instructions", "flash", "kernel"), layers)] if layers else []
    return blocks + ([Table(("symbol", "file", "flash"), symbols, left=2)] if symbols else [])


def _kernel(mover: Mapping[str, Any]) -> str:
    before, after = mover["kernel"]["before"], mover["kernel"]["after"]
    if mover["status"] != "changed":
        return str(mover["status"])
    return str(after) if before == after else f"{before} → {after}"


def _layers(report: Report) -> list[Block]:
    rows = [
        (f"{x['index']} {does_of(x)}", x["kernel"], x["macs"], x["instructions"], x["instructions_per_mac"],
         None if x["code"] is None else x["code"] + x["weights"] + x["tables"], x["scratch"])
        for x in report["layers"][:_MAX_ROWS]
    ]  # fmt: skip
    count = len(report["layers"])
    title = f"{report['name']} on {report['board']}: {count} layer{'s' if count != 1 else ''}, "
    title += f"{short(report['totals']['macs'])} MAC"
    nominal = report["totals"]["macs_nominal"]
    title += f" ({short(nominal)} in the file)" if nominal not in (None, report["totals"]["macs"]) else ""
    headers = ("layer", "kernel", "MAC", "instructions", "per MAC", "flash, B", "scratch, B")
    texts = [f"report.html has {count - len(rows)} more layers."] if count > len(rows) else []
    if report["flash"] is not None:
        texts.append(f"Flash: {', '.join(f'{k} {v:,} B' for k, v in report['flash']['groups'].items() if v)}.")
    texts += [f"{word.capitalize()}: {text}." for word, text in over_time(report)]
    print_ = report["fingerprint"]
    builds = [print_["tool"], print_["compiler"], print_["emulator"] or "native", f"inputs {print_['inputs']['crc32']}"]
    return [Details(title, [Table(headers, rows, left=2), *map(Text, texts), Text(f"Made with {', '.join(builds)}.")])]


def diff_markdown(diff: Mapping[str, Any], *, top: int) -> str:
    """An `aot diff` as Markdown."""
    parts: list[Sequence[Block]] = []
    for pair in diff["pairs"]:
        items = [f"before: {pair['previous_name']}"] if pair["previous_name"] != pair["name"] else []
        items += [f"{f['field']} differs" for f in pair["fingerprint"]]
        if any(f["field"] == "model" for f in pair["fingerprint"]):
            items.append(f"{'the same' if pair['same_layers'] else 'different'} layers")
        items += ["the outputs changed for the same model and inputs"] if pair["outputs_changed"] else []
        totals = Table(("total", "before", "after", "change"), total_rows(pair))
        heading = Heading(f"{pair['name']} on {pair['board']}")
        parts.append([heading, Items([("", text) for text in items]), totals, *(_movers(pair, top=top) or [Items([])])])
    parts += [[Text(f"{word.capitalize()}: {', '.join(diff[word])}")] for word in ("added", "removed") if diff[word]]
    return _fit(parts) if parts else "Nothing to compare.\n"
