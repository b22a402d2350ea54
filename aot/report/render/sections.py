"""The chapters of a model on the page: does it fit, memory over time, layers, flash, fingerprint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from aot.report.figures.cycles import estimate_text
from aot.report.figures.size import conditions_of, next_text, over_time, slowest_of, stopped_searches_of
from aot.report.gate.budget import Finding
from aot.report.gate.diff import change_text
from aot.report.measure.divergence import fault_text
from aot.report.measure.fitting import advice_text
from aot.report.measure.report import Report, key_of
from aot.report.render.blocks import (
    Block,
    Card,
    Cards,
    Details,
    Drawing,
    Heading,
    Key,
    Layers,
    Line,
    Table,
    Text,
    Zoom,
    middle,
)  # fmt: skip
from aot.report.render.drawings import flash_map, legend, memory_plan
from aot.report.render.formats import kib, short
from aot.support.text import does_of

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
    question, macs = "How fast is it?", f"{short(totals['macs'])} {_macs_label(totals)}"
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
    return Card(question, f"{short(totals['instructions'])} {word}", items=_lines(lines), terms=_over_time(report))


def _lines(texts: Sequence[str]) -> list[Line]:
    return [Line(text) for text in texts if text]


def _estimate(report: Report, condition: str) -> list[str]:
    """Estimated cycles, or a note that there is no estimate for this core."""
    cycles = report["totals"]["estimated_cycles"]
    text = estimate_text(report["cpu"], None if cycles is None else short(cycles))
    return [text + (condition if cycles is not None else "")] if text else []


def _over_time(report: Report) -> list[Line]:
    """The load of a push on average and at most, and the share of a core's time as a bar."""
    terms = [Line(f"{word}: {text}") for word, text in over_time(report)]
    share = report.get("load", {}).get("highest")
    return [*terms, Line("", share=share)] if terms and share is not None else terms


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


def _macs_label(totals: Mapping[str, Any]) -> str:
    """`multiply-accumulates`, with the number of the file's shapes if it differs."""
    nominal = totals["macs_nominal"]
    return "multiply-accumulates" + (f", {short(nominal)} in the file" if nominal not in (None, totals["macs"]) else "")


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
    title = Heading(f"Flash, {flash['bytes']:,} B")
    return [title, colours, Zoom(f"{prefix}-f", maps), _symbols(flash), _image_sections(report)]


def _symbols(flash: Mapping[str, Any]) -> Details:
    rows = [(s["name"], s["group"], s["file"], " ".join(map(str, s["layers"])), s["bytes"]) for s in flash["symbols"]]
    shown = Table(("symbol", "group", "file", "layers", "bytes"), rows, "symbols", left=4)
    return Details(f"All {len(rows)} symbols", [shown])


def _image_sections(report: Report) -> Details:
    rows = [(m["region"], ", ".join(m["sections"]), m["used"], m["size"]) for m in report["memory"]]
    size = report["flash"]["size"]
    text = Text(f"text {size['text']:,} B, data {size['data']:,} B, bss {size['bss']:,} B.", "dim")
    return Details("Sections", [text, Table(("memory", "sections", "used, B", "size, B"), rows, "sections", left=2)])


# ---- failures, differences, fingerprint


def failure_blocks(failures: Sequence[Mapping[str, Any]], *, level: int) -> list[Block]:
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
