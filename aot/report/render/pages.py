"""The contents of a report: the pages of `aot report` and `aot diff`, and comments that fit a pull request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from aot.report.figures.cycles import estimate_text
from aot.report.figures.size import conditions_of, next_text, over_time, slowest_of, stopped_searches_of
from aot.report.measure.divergence import fault_text
from aot.report.measure.fitting import advice_text
from aot.report.measure.gate import Finding, change_text, total_rows
from aot.report.measure.report import Report, key_of
from aot.report.render.blocks import (
    Block,
    Card,
    Cards,
    Columns,
    Details,
    Drawing,
    Heading,
    Items,
    Key,
    Layers,
    Line,
    Table,
    Text,
    Zoom,
    lines_of,
    number,
    page,
)
from aot.report.render.drawings import flash_map, legend, memory_plan, middle
from aot.report.render.formats import Failures, headline, kib, outputs_word, short
from aot.support.text import does_of

Changes = Mapping[str, Any] | None
"""What moved since the baseline (aot.report.measure.gate); None without a baseline."""

# ---- the pages: verdicts and totals of all models, then a chapter for each


def report_html(reports: Sequence[Report], failures: Failures, findings: Sequence[Finding], changes: Changes = None) -> str:
    """The page of reports, with their `changes`."""
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
    rows = [(r["name"], r["board"], outputs_word(r["verdict"]), *_figures(r, pairs, gap="  ")) for r in reports]
    headers = ("model", "board", "outputs", "instructions", "flash, B", "RAM, B", "workspace, B", "stack, B")
    return [Table(headers, rows, "all models", left=3)] if rows else []


def _figures(report: Report, pairs: Mapping[str, Any], *, gap: str) -> list[str]:
    """The watched totals, each with its change since the baseline."""
    change = {m: change_text(entry) for m, entry in pairs.get(key_of(report), {}).get("totals", {}).items()}
    moved = {m: gap + text for m, text in change.items() if text not in ("-", "=")}
    return [number(report["totals"][m]) + moved.get(m, "") for m in WATCHED]


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
    """The page of a difference (aot.report.measure.gate); `before` and `after` are the reports by key."""
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
    rows = [
        (x["index"], does_of(x), x["kernel"], x["instructions"], sum(sizes) if None not in sizes else None)
        for x in report["layers"]
        for sizes in [(x["code"], x["weights"])]
    ]
    headers = ("no.", "operator", "kernel", "instructions", "flash, B")
    return [
        Heading(f"{word.capitalize()}: {report['name']}, {report['fingerprint']['tool']}"),
        Text(f"{outputs_word(report['verdict'])}, workspace {plan['size']:,} B", "dim"),
        Drawing(f"memory map {word}", memory_plan(plan)),
        Table(headers, rows, f"layers {word}", left=3, cut=34),
    ]


# ---- the chapters of a model: does it fit, memory over time, layers, flash, fingerprint


WATCHED = ("instructions", "flash", "ram", "workspace", "stack")
"""Totals on the first screen and in the table of all models."""

Usual = Mapping[str, float]


# ---- the first screen: does it fit, how fast is it, is it right, what changed, what to do next


def answers(report: Report, pair: Mapping[str, Any] | None, findings: Sequence[Finding]) -> Cards:
    """The five answers; `pair` is the change since the baseline, if there is one."""
    return Cards((_fits(report, findings), _fast(report), _right(report), _changed(report, pair), _next(report)))


def _fits(report: Report, findings: Sequence[Finding]) -> Card:
    totals, ram = report["totals"], report["ram"]
    over = [f for f in findings if f.state == "over" and f.key == key_of(report)]
    question = "Does it fit?"
    if not report["memory"]:
        return Card(question, f"{kib(totals['workspace'])} of RAM", texts=[Line("Code size is not measured on this board.")])
    rows = [Line(f.text, "bad") for f in over]
    for m in report["memory"]:
        share = m["used"] / m["size"]
        text = f"{m['region']}: {kib(m['used'])} of {kib(m['size'])} ({100 * share:.1f}\N{NO-BREAK SPACE}%)"
        rows.append(Line(text, share=share))
    state = f", state {kib(ram['state'])}" if ram["state"] else ""
    state += f", copied constants {kib(ram['copied'])}" if ram.get("copied") else ""
    rows.append(Line(f"flash {kib(totals['flash'])}: code {kib(totals['code'])}, constants {kib(totals['constants'])}"))
    parts = f"workspace {kib(totals['workspace'])}, stack {kib(totals['stack_bound'])}{state}"
    rows.append(Line(f"RAM {kib(totals['ram'])}: {parts}"))
    return Card(question, "Over budget" if over else "Yes", "bad" if over else "ok", terms=rows)


def _fast(report: Report) -> Card:
    totals = report["totals"]
    question, nominal = "How fast is it?", totals["macs_nominal"]
    macs = f"{short(totals['macs'])} multiply-accumulates"
    macs += f", {short(nominal)} in the file" if nominal not in (None, totals["macs"]) else ""
    if totals.get("cycles") is not None:
        return Card(question, f"{short(totals['cycles'])} cycles", items=_lines(_counted(report, macs)))
    if totals["instructions"] is None:
        return Card(question, "not measured", texts=_lines([macs, "This board does not count instructions."]))
    lines = [macs]
    if totals["macs"]:
        lines.append(f"{totals['instructions'] / totals['macs']:.2f} instructions per MAC")
    lines += _estimate(report, "")
    lines.append(f"slowest: {slowest_of(report['layers'])}")
    word = "instructions per push" if "pushes" in report else "instructions"
    load, share = _lines([f"{word}: {text}" for word, text in over_time(report)]), report.get("load", {}).get("highest")
    if load and share is not None:  # of a core's time, as a bar
        load.append(Line("", share=share))
    return Card(question, f"{short(totals['instructions'])} {word}", items=_lines(lines), terms=load)


def _lines(texts: Sequence[str]) -> list[Line]:
    return [Line(text) for text in texts if text]


def _estimate(report: Report, condition: str) -> list[str]:
    """Estimated cycles, or a note that there is no estimate for this core."""
    cycles = report["totals"]["estimated_cycles"]
    text = estimate_text(report["cpu"], None if cycles is None else short(cycles))
    return [text + (condition if cycles is not None else "")] if text else []


def _counted(report: Report, macs: str) -> list[str]:
    """Figures of a board that counts cycles: its clock, conditions, and the estimate by the core's timings."""
    totals = report["totals"]
    hz = totals["clock_hz"]
    lines = [f"{1000 * totals['cycles'] / hz:.3g} ms at {hz / 1e6:g} MHz" if hz else "clock not given ([clock] hz)"]
    lines += [conditions_of(report["counted"])] if "counted" in report else []
    lines += [macs, *_estimate(report, " without wait states")]
    if totals["instructions"] is not None:
        lines.append(f"{short(totals['instructions'])} instructions, {totals['cycles'] / totals['instructions']:.2f} cycles each")
    return lines


def _right(report: Report) -> Card:
    verdict = report["verdict"]
    lines = [f"against {verdict['reference']}", report["fingerprint"]["inputs"]["origin"]]
    big = f"{verdict['sets_exact']} of {verdict['sets']} sets exact"
    if verdict["exact"]:
        big = f"all {verdict['sets']} sets bit-exact"
    elif verdict["max_abs_diff"] is not None:
        lines.append(f"off by up to {verdict['max_abs_diff']:g}")
    if verdict["known_fault"] is not None:
        lines.append(fault_text(verdict["known_fault"]))
    state = "ok" if verdict["exact"] or verdict["accepted"] else "bad"
    return Card("Is it right?", big, state, items=_lines(lines))


def _changed(report: Report, pair: Mapping[str, Any] | None) -> Card:
    question = "What changed since the baseline?"
    if pair is None:
        command = f"aot report {report['fingerprint']['model']['file']} --board {report['board']} --accept"
        text = "No baseline to compare with. Accept this run as the baseline: "
        return Card(question, "no baseline yet", texts=[Line(text, code=command)])
    rows = []
    for metric in WATCHED:
        entry = pair["totals"].get(metric)
        moved = "=" if entry is None else change_text(entry)
        if moved not in ("-", "="):
            rows.append(Line(f"{metric}: ", "down" if moved.startswith(("-", "−")) else "up", moved=moved))
    if pair["outputs_changed"]:
        rows.append(Line("The outputs changed for the same model and inputs.", "bad"))
    if not rows:
        return Card(question, "nothing", texts=[Line("All totals equal the baseline's.")])
    return Card(question, f"{len(rows)} figure{'s' if len(rows) != 1 else ''} changed", items=rows)


def _next(report: Report) -> Card:
    rows = [Line(advice_text(row), code=row["command"], below=True) for row in report.get("extras", {}).get("advice", ())]
    if report["verdict"]["first_divergence"] is not None:
        file, board = report["fingerprint"]["model"]["file"], report["board"]
        again = f"aot verify {file} --inputs {key_of(report)}.npz --board {board}"
        rows.insert(0, Line("Reproduce the difference", code=again, below=True))
    slow = sorted((x for x in report["layers"] if x["next_faster"]), key=lambda x: x["next_faster"]["instructions"])
    for x in slow[:2]:
        step = x["next_faster"]
        cost = f"{-step['instructions']:,} fewer instructions in layer {x['index']} for {step['flash']:+,} B flash"
        rows.append(Line(f"{cost}, {step['scratch']:+,} B scratch (estimated): ", code=middle(step["kernel"], 60)))
    big = "Alternatives" if rows else "Nothing obvious"
    nothing = Line("No other compiler mode improves RAM, flash or time by 2 % or more.")
    return Card("What to do next?", big, items=rows or [nothing], wide=True)


# ---- memory over time: the map, the contents at the peak, the pools, and the state


def memory_section(report: Report) -> list[Block]:
    """The chapter on memory."""
    plan = report["plan"]
    drawing = Drawing(f"memory map of {report['name']}", memory_plan(plan))
    parts: list[Block] = [Heading("Memory over time"), Text(_bounds(plan), "dim"), plan_key([plan]), drawing, *_peak(plan)]
    return [*parts, *_pools(plan), *_state(report), _buffers(plan)]


def plan_key(plans: Sequence[Mapping[str, Any]]) -> Key:
    """The legend of memory maps."""
    used = {b["kind"] for plan in plans for b in plan["buffers"]}
    return Key([(css, word) for css, word in legend("plan") if word in used])


def _bounds(plan: Mapping[str, Any]) -> str:
    """The plan's size and its bounds in words."""
    over = plan["size"] - plan["plan_lower_bound"]
    verdict = "proven minimal" if plan["optimal"] else f"{over:,} B above the lower bound of any plan"
    rows = "" if plan["streaming_bound"] is None else f", rows {plan['streaming_bound']:,} B"
    verdict += f"; whole tensors need {plan['liveness_bound']:,} B{rows}"
    axes = "Layers run left to right, addresses top to bottom; hatching marks addresses that two buffers share."
    stopped = "".join(f" {text}." for text in stopped_searches_of({"workspace": plan}))
    return f"{plan['size']:,} B of workspace, {verdict}.{stopped} {axes}"


def _peak(plan: Mapping[str, Any]) -> list[Block]:
    """The contents of the workspace at the first layers that set the peak."""
    steps = plan["peak"]["steps"]
    if not steps:
        return []
    rows = []
    for step in steps[:3]:
        now = step["step"]
        where = f"layer {now}, {step['what']}" if 0 <= now < plan["layers"] else step["what"]
        live = [b for b in plan["buffers"] if b["first"] <= now <= b["last"]]
        for b in sorted(live, key=lambda b: (-b["size"], b["offset"])):
            since = f"since layer {b['first']}" if b["first"] >= 0 else "since the start"
            made = "written here" if b["first"] == now else since
            rows.append((where, b["name"].partition(";")[0], b["kind"], made, b["offset"], b["size"]))
            where = ""
    count = f"layers at it: {len(steps)}" if len(steps) <= 3 else f"the first 3 of {len(steps)} layers at it"
    title = f"Contents at the peak of {plan['peak']['bytes']:,} B ({count})"
    headers = ("at", "buffer", "kind", "lifetime", "offset", "bytes")
    return [Heading(title, 4), Table(headers, rows, "contents of the peak", left=4, css="peak")]


def _pools(plan: Mapping[str, Any]) -> list[Block]:
    pools: Sequence[Mapping[str, Any]] = plan.get("pools", ())
    rows = [
        (
            p["name"], "set by the linker" if p["address"] is None else f"{p['address']:#x}", p["speed"], p["used"], p["size"],
            f"{100 * p['used'] / p['size']:.1f} %",
        )
        for p in pools
    ]  # fmt: skip
    headers = ("memory", "address", "speed", "used, B", "size, B", "full")
    return [Heading("Memories", 4), Table(headers, rows, "memories", left=2)] if rows else []


def _state(report: Report) -> list[Block]:
    state = report.get("state")
    if state is None:
        return []
    text = f"{state['bytes']:,} B are kept between runs, outside the workspace"
    if state["bytes_moved"]:
        text += f"; an average run copies {state['bytes_moved']:,.4g} B of it to take in {state['bytes_new']:,} B"
    return [Heading("State", 4), Text(f"{text}.")]


def _buffers(plan: Mapping[str, Any]) -> Details:
    rows = [
        (b["name"].partition(";")[0], b["kind"], f"{b['first']} to {b['last']}", b["offset"], b["size"])
        for b in sorted(plan["buffers"], key=lambda b: (b["first"], b["offset"]))
    ]
    shown = Table(("buffer", "kind", "layers", "offset", "bytes"), rows, "buffers", left=3)
    return Details(f"All {len(rows)} buffers", [shown])


# ---- layers: shares as bars, instructions per MAC compared with the median, the kernel with its reason, and details

_COLUMNS = (
    ("", ""), ("operator", ""), ("result", ""), ("instructions", "n"), ("share", "n"), ("per MAC", "n"), ("kernel, and why", ""),
    ("MAC", "n"), ("cycles", "n"), ("cycles, est.", "n"), ("shape", ""), ("code", "n"), ("weights", "n"), ("tables", "n"),
    ("scratch", "n"),
)  # fmt: skip


def usual_per_mac(reports: Sequence[Report]) -> dict[str, float]:
    """The median of instructions per MAC of each operator on a core, over all layers of the page."""
    ratios: dict[str, list[float]] = {}
    for report in reports:
        for x in report["layers"]:
            if x["instructions_per_mac"] is not None:
                ratios.setdefault(f"{report['cpu']} {does_of(x)}", []).append(x["instructions_per_mac"])
    return {kind: median(values) for kind, values in ratios.items()}


def layers_section(report: Report, usual: Usual, *, prefix: str) -> list[Block]:
    """All layers in order of execution; `prefix` makes the ids of the page unique."""
    text = "Click a heading to sort. "
    if report.get("extras"):
        text += "Click a number in the first column for operators, candidate kernels, C code and instructions. "
    text += "Instructions per MAC are green below 0.75 times the operator's median on this page, amber above 1.5 times."
    total = sum(x["instructions"] or 0 for x in report["layers"])
    counts = any("cycles" in x for x in report["layers"])  # by the board's own counter
    columns = [c for c in _COLUMNS if counts or c[0] != "cycles"]
    rows = [_layer(x, report, usual, total, f"{prefix}-l{x['index']}") for x in report["layers"]]
    label = f"layers of {report['name']} on {report['board']}"
    return [Heading("Layers"), Text(text, "dim"), Layers(label, columns, rows)]


def _layer(x: Mapping[str, Any], report: Report, usual: Usual, total: int, mark: str) -> dict[str, Any]:
    """A row of `Layers`."""
    judged, words = _judged(x, usual.get(f"{report['cpu']} {does_of(x)}"))
    return {
        "mark": mark,
        "index": x["index"],
        "operator": does_of(x),
        "result": x["name"].partition(";")[0],
        "instructions": x["instructions"],
        "share": None if x["instructions"] is None or not total else x["instructions"] / total,
        "per_mac": x["instructions_per_mac"],
        "judged": judged,
        "usual": words,
        "kernel": x["kernel"],
        "reason": _reason(x, report),
        "figures": [x[k] for k in ("macs", "cycles", "estimated_cycles") if k != "cycles" or k in x],
        "shape": "×".join(map(str, x["output"]["shape"])),
        "sizes": [x[k] for k in ("code", "weights", "tables", "scratch")],
        "detail": _detail(x, report["extras"]) if report.get("extras") else None,
    }


def _judged(x: Mapping[str, Any], usual: float | None) -> tuple[str, str]:
    """Green below 0.75 times the operator's median, amber above 1.5 times."""
    if usual is None or not x["instructions_per_mac"]:
        return "", ""
    share = x["instructions_per_mac"] / usual
    words = f"median of {does_of(x)} on this page: {usual:.2f}"
    return ("good" if share < 0.75 else "poor" if share > 1.5 else "", words)


def _reason(x: Mapping[str, Any], report: Report) -> str:
    """Why there is no faster kernel, or its cost."""
    if x["next_faster"] is not None:
        return f"next faster, estimated: {next_text(x['next_faster'])}"
    candidates = report.get("extras", {}).get("candidates", ())
    count = len(candidates[x["index"]]) if x["index"] < len(candidates) else 0
    return "" if not count else "the only candidate" if count == 1 else f"fastest of {count} candidates by estimate"


def _detail(x: Mapping[str, Any], extras: Mapping[str, Any]) -> dict[str, Any]:
    """Details of a layer: operators of the file, candidate kernels, C, blocks of instructions, hottest first."""
    operators = extras["operators"]
    candidates = extras["candidates"][x["index"]] if x["index"] < len(extras["candidates"]) else []
    rows = [
        ("chosen" if c["chosen"] else "", c["kernel"], c["instructions"], c["code"] + c["constants"], c["scratch"])
        for c in candidates
    ]
    headers = ("", "kernel", "instructions, est.", "flash, B", "scratch, B")
    function = extras["functions"].get(x["function"], {})
    return {
        "operators": " · ".join(operators[i] if i < len(operators) else f"op {i}" for i in x["ops"]),
        "kernels": Table(headers, rows, "kernels", left=2, cut=70) if rows else None,
        "function": x["function"],
        "c": function.get("c"),
        "blocks": function.get("blocks"),
    }


# ---- flash: a tree map that zooms into its groups, its symbols, and the sections of the image


def flash_section(report: Report, *, prefix: str) -> list[Block]:
    """The chapter on flash; empty if the board links no image."""
    flash = report["flash"]
    if flash is None:
        return []
    used = [k for k, v in sorted(flash["groups"].items(), key=lambda g: (-g[1], g[0])) if v]
    maps = []
    for name in ("", *used):
        drawing = Drawing(f"flash of {report['name']}: {name or 'all groups'}", flash_map(flash, model=report["name"], only=name))
        maps.append((f"{name or 'all'} {flash['groups'].get(name, flash['bytes']):,} B", drawing))
    colours = Key([(css, word) for css, word in legend("flash") if word in used])
    rows = [(s["name"], s["group"], s["file"], " ".join(map(str, s["layers"])), s["bytes"]) for s in flash["symbols"]]
    symbols = Table(("symbol", "group", "file", "layers", "bytes"), rows, "symbols", left=4)
    regions = [(m["region"], ", ".join(m["sections"]), m["used"], m["size"]) for m in report["memory"]]
    sections = Table(("memory", "sections", "used, B", "size, B"), regions, "sections", left=2)
    size = ", ".join(f"{name} {flash['size'][name]:,} B" for name in ("text", "data", "bss"))
    return [
        Heading(f"Flash, {flash['bytes']:,} B"),
        colours,
        Zoom(f"{prefix}-f", maps),
        Details(f"All {len(rows)} symbols", [symbols]),
        Details("Sections", [Text(f"{size}.", "dim"), sections]),
    ]


# ---- failures, differences, fingerprint


def failure_blocks(failures: Failures, *, level: int) -> list[Block]:
    """Models that could not be reported, and why."""
    rows = [(f["model"], f["board"], "; ".join(f"{p['code']} {p['message']}" for p in f["problems"])) for f in failures]
    table = Table(("model", "board", "why"), rows, "not reported", left=3, cut=1000)
    return [Heading("Not reported", level, first=True), table] if rows else []


def off_text(divergence: Mapping[str, Any]) -> str:
    """The differences of the outputs of all sets, from the histogram; empty if unknown."""
    off = ", ".join(f"{h['difference']:+d}: {h['count']:,}" for h in divergence["histogram"])
    return off and f"Output differences (all sets): {off}"


def fingerprint_section(report: Report) -> Details:
    """All parts of the fingerprint."""
    f = report["fingerprint"]
    rows = [
        ("tool", f["tool"]),
        ("model", f"{f['model']['file']} {f['model']['sha256']}"),
        ("options", ", ".join(f"{k} {v}" for k, v in f["options"].items())),
        ("compiler", f["compiler"]),
        ("flags, kernels", " ".join(f["flags"]["kernels"])),
        ("flags, main", " ".join(f["flags"]["main"])),
        ("emulator", f["emulator"]),
        ("inputs", f"{f['inputs']['origin']}, CRC-32 {f['inputs']['crc32']}"),
        ("outputs", f"CRC-32 {f['outputs']['crc32']}"),
    ]
    return Details("Fingerprint", [Table(("part", "value"), rows, "fingerprint", left=2, cut=1000)])


# ---- comments: reports and differences as Markdown that fits a comment on a pull request


COMMENT_LIMIT = 65_000
"""GitHub accepts 65,536 characters."""

_MAX_ROWS = 40


def _fit(parts: Sequence[Sequence[Block]]) -> str:
    """As many parts, from the first, as fit a comment."""
    text = ""
    for i, part in enumerate(p for p in parts if p):
        more = "\n".join(lines_of(part)) + "\n"
        if i and len(text) + len(more) + 80 > COMMENT_LIMIT:
            return text + "\nThe rest is left out; report.html has everything.\n"
        text += ("\n" if i else "") + more
    return text


def report_markdown(reports: Sequence[Report], failures: Failures, findings: Sequence[Finding], changes: Changes = None) -> str:
    """Verdict and totals of all models, with their `changes`, then folded details."""
    pairs = {key_of(p): p for p in changes["pairs"]} if changes is not None else {}
    parts: list[Sequence[Block]] = [[Heading(headline(reports, failures, findings), 2)], _matrix(reports, pairs)]
    parts.append(failure_blocks(failures, level=3))
    parts += [_differing_layers(r) for r in reports if r["verdict"]["divergence"] is not None]
    parts.append(_budget(findings))
    changed = [(pairs[key_of(r)], _movers(pairs[key_of(r)], top=10)) for r in reports if key_of(r) in pairs]
    parts += [[Details(f"{pair['name']} on {pair['board']}: what changed", body)] for pair, body in changed if body]
    parts += [_layers(r) for r in reports]
    return _fit(parts)


def _matrix(reports: Sequence[Report], pairs: Mapping[str, Any]) -> list[Block]:
    rows = []
    for report in reports:
        verdict = report["verdict"]
        exact = outputs_word(verdict) if verdict["accepted"] else f"**{verdict['sets_exact']}/{verdict['sets']} sets**"
        rows.append((report["name"], report["board"], exact, *_figures(report, pairs, gap=" ")))
    units = [m if m == "instructions" else f"{m}, B" for m in WATCHED]
    return [Table(("model", "board", "outputs", *units), rows, left=2)] if rows else []


def _differing_layers(report: Report) -> list[Block]:
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
