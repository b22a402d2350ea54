"""The first screen of a report: does it fit, how fast is it, is it right, what changed, what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from aot.report.figures.cycles import estimate_text
from aot.report.figures.size import conditions_of, over_time, slowest_of
from aot.report.gate.budget import Finding
from aot.report.gate.diff import change_text
from aot.report.measure.divergence import fault_text
from aot.report.measure.fitting import advice_text
from aot.report.measure.report import Report
from aot.report.render.elements import middle, track
from aot.report.render.formats import kib, short

_WATCHED = ("instructions", "flash", "ram", "workspace", "stack")


def answers(report: Report, pair: Mapping[str, Any] | None, findings: Sequence[Finding]) -> str:
    """The five answers as a grid of cards."""
    cards = [_fits(report, findings), _fast(report), _right(report), _changed(report, pair)]
    return f'<div class="answers">{"".join(cards)}{_next(report)}</div>'


def _card(question: str, big: str, body: str, css: str = "") -> str:
    return f'<section class="answer {css}"><h3>{question}</h3><p class="big">{big}</p>{body}</section>'


def _fits(report: Report, findings: Sequence[Finding]) -> str:
    totals, ram = report["totals"], report["ram"]
    over = [f for f in findings if f.state == "over" and f.key == f"{report['name']}@{report['board']}"]
    if not report["memory"]:
        return _card("Does it fit?", f"{kib(totals['workspace'])} of RAM", "<p>The board tells no sizes of code.</p>")
    rows = []
    for m in report["memory"]:
        share = m["used"] / m["size"]
        text = f"{escape(m['region'])}: {kib(m['used'])} of {kib(m['size'])} ({100 * share:.1f}\N{NO-BREAK SPACE}%)"
        rows.append(f"<dt>{text}</dt><dd>{track(share, 'full' if share > 0.9 else 'c1')}</dd>")
    state = f", state {kib(ram['state'])}" if ram["state"] else ""
    state += f", copied constants {kib(ram['copied'])}" if ram.get("copied") else ""
    parts = f"<dt>flash {kib(totals['flash'])}: code {kib(totals['code'])}, constants {kib(totals['constants'])}</dt>"
    parts += f"<dt>RAM {kib(totals['ram'])}: workspace {kib(totals['workspace'])}, stack {kib(totals['stack_bound'])}{state}</dt>"
    limits = "".join(f'<dt class="bad">{escape(f.text)}</dt>' for f in over)
    big = '<span class="bad">Over budget</span>' if over else '<span class="ok">Yes</span>'
    return _card("Does it fit?", big, f"<dl>{limits}{''.join(rows)}{parts}</dl>")


def _fast(report: Report) -> str:
    totals = report["totals"]
    macs = f"{short(totals['macs'])} {macs_label(totals)}"
    if totals.get("cycles") is not None:
        return _card("How fast is it?", f"{short(totals['cycles'])} cycles", _list(_counted(report)))
    if totals["instructions"] is None:
        return _card("How fast is it?", "not measured", f"<p>{escape(macs)}</p><p>This board counts no instructions.</p>")
    lines = [macs]
    if totals["macs"]:
        lines.append(f"{totals['instructions'] / totals['macs']:.2f} instructions a MAC")
    lines += _estimate(report, "")
    lines.append(f"slowest: {slowest_of(report['layers'])}")
    word = "instructions a push" if "pushes" in report else "instructions"
    return _card("How fast is it?", f"{short(totals['instructions'])} {word}", _list(lines) + _over_time(report))


def _estimate(report: Report, condition: str) -> list[str]:
    """Estimated cycles, or that there is no estimate for this core."""
    cycles = report["totals"]["estimated_cycles"]
    text = estimate_text(report["cpu"], None if cycles is None else short(cycles))
    return [text + (condition if cycles is not None else "")] if text else []


def _over_time(report: Report) -> str:
    """What a push takes on average and at most, and the share of a core's time as a bar."""
    share = report.get("load", {}).get("highest")
    terms = "".join(f"<dt>{escape(word)}: {escape(text)}</dt>" for word, text in over_time(report))
    bar = "" if share is None else f"<dd>{track(min(share, 1.0), 'full' if share > 0.9 else 'c1')}</dd>"
    return f"<dl>{terms}{bar}</dl>" if terms else ""


def _counted(report: Report) -> list[str]:
    """What a board says that counts cycles: its clock, and what a model of the core estimates."""
    totals = report["totals"]
    hz = totals["clock_hz"]
    lines = [f"{1000 * totals['cycles'] / hz:.3g} ms at {hz / 1e6:g} MHz" if hz else "clock not given ([clock] hz)"]
    lines += [conditions_of(report["counted"])] if "counted" in report else []
    lines.append(f"{short(totals['macs'])} {macs_label(totals)}")
    lines += _estimate(report, " without wait states")
    if totals["instructions"] is not None:
        lines.append(f"{short(totals['instructions'])} instructions, {totals['cycles'] / totals['instructions']:.2f} cycles each")
    return lines


def macs_label(totals: Mapping[str, Any]) -> str:
    """`multiply-accumulates`, with the number that the file's shapes ask for where it is another one."""
    nominal = totals["macs_nominal"]
    return "multiply-accumulates" + (f", {short(nominal)} in the file" if nominal not in (None, totals["macs"]) else "")


def _right(report: Report) -> str:
    verdict = report["verdict"]
    lines = [f"against {verdict['reference']}", report["fingerprint"]["inputs"]["origin"]]
    if verdict["exact"]:
        big = f'<span class="ok">all {verdict["sets"]} sets bit-exact</span>'
    else:
        css = "ok" if verdict["accepted"] else "bad"
        big = f'<span class="{css}">{verdict["sets_exact"]} of {verdict["sets"]} sets exact</span>'
        if verdict["max_abs_diff"] is not None:
            lines.append(f"off by up to {verdict['max_abs_diff']:g}")
    if verdict["known_fault"] is not None:
        lines.append(fault_text(verdict["known_fault"]))
    return _card("Is it right?", big, _list(lines))


def _changed(report: Report, pair: Mapping[str, Any] | None) -> str:
    if pair is None:
        command = f"aot report {report['fingerprint']['model']['file']} --board {report['board']} --accept"
        text = f"<p>No baseline to compare with. This one becomes it with <code>{escape(command)}</code></p>"
        return _card("What changed since the baseline?", "no baseline yet", text)
    rows = []
    for metric in _WATCHED:
        entry = pair["totals"].get(metric)
        moved = "=" if entry is None else change_text(entry)
        if moved not in ("-", "="):
            css = "down" if moved.startswith(("-", "−")) else "up"
            rows.append(f'<li>{metric}: <span class="{css}">{escape(moved)}</span></li>')
    if pair["outputs_changed"]:
        rows.append('<li class="bad">The outputs changed for the same model and inputs.</li>')
    big = f"{len(rows)} figure{'s' if len(rows) != 1 else ''} moved" if rows else "nothing"
    body = f"<ul>{''.join(rows)}</ul>" if rows else "<p>All totals are those of the baseline.</p>"
    return _card("What changed since the baseline?", big, body)


def _next(report: Report) -> str:
    rows = [
        f"<li>{escape(advice_text(row))}<br><code>{escape(row['command'])}</code></li>"
        for row in report.get("extras", {}).get("advice", ())
    ]
    verdict = report["verdict"]
    if verdict["first_divergence"] is not None:
        file, board = report["fingerprint"]["model"]["file"], report["board"]
        again = f"aot verify {file} --inputs {report['name']}@{board}.npz --board {board}"
        rows.insert(0, f"<li>Find the difference again<br><code>{escape(again)}</code></li>")
    slow = sorted((x for x in report["layers"] if x["next_faster"]), key=lambda x: x["next_faster"]["instructions"])
    for x in slow[:2]:
        step = x["next_faster"]
        cost = f"{-step['instructions']:,} instructions fewer in layer {x['index']} for {step['flash']:+,} B flash"
        kernel = escape(middle(step["kernel"], 60))
        rows.append(f"<li>{escape(cost)}, {step['scratch']:+,} B scratch, by estimate: <code>{kernel}</code></li>")
    big = "Other ways" if rows else "Nothing obvious"
    if not rows:
        rows.append("<li>No other mode of the compiler makes RAM, flash or time better by 2 % or more.</li>")
    return _card("What to do next?", big, f"<ul>{''.join(rows)}</ul>", "wide")


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(x)}</li>' for x in lines if x)}</ul>"
