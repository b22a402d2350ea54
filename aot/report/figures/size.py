"""The figures of a compilation for the summaries: code, constants, workspace, stack, instructions; the memory plan as data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aot.errors import Problem, UsageError
from aot.support.text import commas, does_of

Metadata = Mapping[str, Any]


def _bytes(number: int) -> str:
    return f"{commas(number)} B"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def operators_of(metadata: Metadata) -> str:
    """`12 layers in 7 functions, 2,656,768 MAC`."""
    layers = metadata["layers"]
    functions = len({layer["function"] for layer in layers})
    macs = macs_of(metadata["macs"], metadata["macs_nominal"])
    return f"{_number(len(layers), 'layer')} in {_number(functions, 'function')}, {macs}"


def macs_of(macs: int, nominal: int | None = None) -> str:
    """`3,794,525 MAC (7,489,664 in the file)`: computed MACs, and those of the shapes in the file if they differ."""
    return f"{commas(macs)} MAC" + (f" ({commas(nominal)} in the file)" if nominal is not None and nominal != macs else "")


def plan_of(metadata: Metadata) -> str:
    """`workspace 16,000 B (optimal) · whole tensors 16,000 B · rows 8,640 B`.

    The plan, and whether it is proven optimal or how far it may be above the optimum; the bounds of whole tensors and of
    rows (docs/memory.md).
    """
    workspace = metadata["workspace"]
    size, own = workspace["size"], workspace["plan_lower_bound"]
    verdict = "optimal" if workspace["optimal"] else f"at most {_percent(size, own)} above the optimum"
    parts = [f"workspace {_bytes(size)} ({verdict})", f"whole tensors {_bytes(workspace['liveness_bound'])}"]
    if workspace["streaming_bound"] is not None:
        parts.append(f"rows {_bytes(workspace['streaming_bound'])}")
    parts += _state(metadata)
    parts += stopped_searches_of(metadata)
    budget = metadata.get("options", {}).get("ram_budget")
    if budget is not None and size + metadata.get("state", {}).get("size", 0) > budget:
        parts.append(f"over --ram-budget {_bytes(budget)}; no smaller plan was found")
    return " · ".join(parts)


def stopped_searches_of(metadata: Metadata) -> list[str]:
    """Messages of the searches that stopped at their limit, besides the plan's own: order, bound of rows, cascades, pools."""
    texts = []
    order, rows, runs = (metadata["workspace"].get(key) for key in ("order", "rows", "cascades"))
    if order is not None:
        over = f"at most {_percent(order['peak'], order['lower_bound'])} above the best order"
        texts.append(f"order of execution: the search stopped at its limit with {_bytes(order['peak'])} of tensors, {over}")
    if rows is not None:
        for what, key in (("rows", "streaming"), ("rows, fed by rows", "fed")):
            bound, least = metadata["workspace"][f"{key}_bound"], rows[f"{key}_lower_bound"]
            if least < bound:
                texts.append(f"{what}: {row_search_of(bound, least)}")
    if runs is not None:
        tried = f"{commas(runs['tried'])} of {commas(runs['possible'])} runs of layers were tried"
        texts.append(f"cascades: the search skipped long runs, {tried}")
    for what, where in (("pools", "workspace"), ("const pools", "constants")):
        choice = metadata.get(where, {}).get("pool_choice")
        if choice is not None and not choice["optimal"]:
            over = f"at most {_percent(choice['total'], choice['lower_bound'])} above the minimum access time"
            texts.append(f"{what}: the search stopped at its limit, {over}")
    return texts


def row_search_of(bound: int, least: int) -> str:
    """How far the bound of rows may be above the minimum if the search for it stopped."""
    return f"the search stopped at its limit, {_bytes(bound)} is at most {_percent(bound, least)} above the minimum"


def _percent(value: float, bound: float) -> str:
    """How far a value may be above its bound."""
    return f"{100 * (value - bound) / (bound or 1):.1f} %"


def selection_of(metadata: Metadata) -> str:
    """`1,203,118 instructions estimated (the fewest within the budgets)`, or how far it may be from the optimum."""
    selection = metadata["selection"]
    total, own = selection["total"], selection["lower_bound"]
    if selection["minimised"] == "flash":
        why = "nothing fits the budgets" if selection["optimal"] else "nothing was found that fits the budgets"
        text, best = f"{_bytes(total)} of flash; {why}", "the minimum"
    else:
        text, best = f"{commas(total)} instructions estimated", "the fewest within the budgets"
    if selection["optimal"]:
        return f"{text} ({best})"
    return f"{text} (the search stopped at its limit: at most {_percent(total, own)} above {best})"


def _state(metadata: Metadata) -> list[str]:
    """`state 1,564 B`, and how much of it a run copies; empty for models without state."""
    if "state" not in metadata:
        return []
    state = metadata["state"]
    text = f"state {_bytes(state['size'])}"
    if state["bytes_moved"]:
        text += f", copies {round(state['bytes_moved']):,} B per run to take in {_bytes(state['bytes_new'])}"
    return [text]


def state_figures(metadata: Metadata) -> dict[str, Any] | None:
    """Bytes of the state, of what a run adds to it, and of what a run copies only to keep it; None without a state."""
    if "state" not in metadata:
        return None
    state = metadata["state"]
    return {"bytes": state["size"]} | {k: state[k] for k in ("bytes_new", "bytes_moved", "bytes_moved_most")}


def flash_of(metadata: Metadata, *, code_bytes: int | None = None, constant_bytes: int | None = None) -> str:
    """`code … · constants …`, measured sizes if given; then a missed --flash-budget."""
    constants = metadata["constants"]["size"] if constant_bytes is None else constant_bytes
    parts = [] if code_bytes is None else [f"code {_bytes(code_bytes)}"]
    parts.append(f"constants {_bytes(constants)}")
    budget = metadata.get("options", {}).get("flash_budget")
    if budget is not None and constants + (code_bytes or 0) > budget:
        parts.append(f"over --flash-budget {_bytes(budget)}")
    return " · ".join(parts)


def ram_of(
    metadata: Metadata, *, touched: int | None = None, stack_bytes: int | None = None, stack_bound: int | None = None
) -> str:
    """`workspace … planned, … touched · state … · stack … measured, … bound · heap 0 B`; None values are left out."""
    parts = [f"workspace {_bytes(metadata['workspace']['size'])} planned"]
    if touched is not None:
        parts[0] += f", {_bytes(touched)} touched"
    parts += _state(metadata)
    stack = [f"{_bytes(n)} {what}" for n, what in ((stack_bytes, "measured"), (stack_bound, "bound")) if n is not None]
    if stack:
        parts.append(f"stack {', '.join(stack)}")
    return " · ".join([*parts, "heap 0 B"])


def time_of(instructions: int, macs: int, nominal: int | None = None) -> str:
    """`11,402,118 instructions (2,656,768 MAC, 4.29 instr/MAC)`; `nominal` is added if the file has another number of MACs."""
    parts = [f"{commas(macs)} MAC"] + ([f"{instructions / macs:.2f} instr/MAC"] if macs else [])
    if nominal and nominal != macs:
        parts.append(f"{commas(nominal)} MAC in the file, {instructions / nominal:.2f} instr/MAC of the file")
    return f"{commas(instructions)} instructions ({', '.join(parts)})"


def cycles_of(cycles: int, macs: int, hz: int | None) -> str:
    """`1,203,118 cycles (2,656,768 MAC, 0.45 cycles/MAC), 75.2 ms at 16 MHz` by the core's own counter."""
    each = f", {cycles / macs:.2f} cycles/MAC" if macs else ""
    took = f", {1000 * cycles / hz:.3g} ms at {hz / 1e6:g} MHz" if hz else ", clock not given ([clock] hz)"
    return f"{commas(cycles)} cycles ({commas(macs)} MAC{each}){took}"


def conditions_of(counted: Mapping[str, Any]) -> str:
    """`counted by the board at 216 MHz, 7 flash wait states, caches: instruction, data`: the conditions that cycles depend on."""
    if counted["by"] == "firmware":
        runs = counted["runs"]
        who = f"in firmware, average of {runs:,} run{'s' if runs != 1 else ''}"
    else:
        who = "by the board"
    hz, waits, caches = counted["clock_hz"], counted["wait_states"], counted["caches"]
    parts = [f"counted {who}" + (f" at {hz / 1e6:g} MHz" if hz else ", clock not given")]
    parts.append(f"{waits} flash wait states" if waits is not None else "flash wait states not given")
    if caches is not None:
        parts.append(f"caches: {', '.join(caches)}" if caches else "caches not switched on")
    return ", ".join(parts)


def slowest_of(layers: Sequence[Mapping[str, Any]], *, count: int = 3) -> str:
    """`L5 DEPTHWISE_CONV_2D 31 % · …` for layers with `instructions`; empty if none has any."""
    timed = [layer for layer in layers if layer.get("instructions")]
    total = sum(layer["instructions"] for layer in timed)
    worst = sorted(timed, key=lambda layer: (-layer["instructions"], layer["index"]))[:count]
    return " · ".join(f"L{layer['index']} {does_of(layer)} {100 * layer['instructions'] / total:.0f} %" for layer in worst)


def layer_rows(layers: Sequence[Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """Rows of the per-layer table: index, operator, kernel, MACs, instructions, instructions per MAC, output."""
    rows: list[tuple[object, ...]] = []
    for layer in layers:
        instructions, macs = layer.get("instructions"), layer["macs"]
        ratio = round(instructions / macs, 2) if instructions and macs else None
        shape = "x".join(map(str, layer["output"]["shape"]))
        rows.append((layer["index"], does_of(layer), layer["kernel"], macs, instructions, ratio, shape))
    return rows


LAYER_HEADERS = ("layer", "operator", "kernel", "MAC", "instructions", "per MAC", "output")


def compile_report(metadata: Metadata) -> dict[str, Any]:
    """The content of report.json: figures that need no C compiler."""
    return {
        "schema": "aot-compile/1",
        "name": metadata["name"],
        "workspace_bytes": metadata["workspace"]["size"],
        "workspace_liveness_bound": metadata["workspace"]["liveness_bound"],
        **{f"state_{k}": v for k, v in (state_figures(metadata) or {}).items() if k != "bytes_moved_most"},
        "constant_bytes": metadata["constants"]["size"],
        "heap_bytes": 0,
        "macs": metadata["macs"],
        "macs_nominal": metadata["macs_nominal"],
        "layers": [
            {k: layer[k] for k in ("index", "op", "does", "name", "kernel", "macs", "constants", "scratch")}
            for layer in metadata["layers"]
        ],
    }


# ---- the cost of a chain over time: instructions per second of input, and the share of a core that its worst push needs


_HZ = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(Hz|kHz|MHz|GHz)?\s*", re.IGNORECASE)
_FACTOR = {"": 1, "hz": 1, "khz": 1_000, "mhz": 1_000_000, "ghz": 1_000_000_000}


def parse_clock(text: str | int | None) -> int | None:
    """`64MHz` or `64000000` as hertz (E5018)."""
    if text is None:
        return None
    match = _HZ.fullmatch(str(text))
    hertz = 0 if match is None else round(float(match[1]) * _FACTOR[(match[2] or "").lower()])
    if hertz < 1:
        raise UsageError(Problem("E5018", f"clock {text}: give a frequency such as 64MHz"))
    return hertz


def check_clock(metadata: Mapping[str, Any], clock: int | None) -> None:
    """Raise E1306 for a clock if the rate of the input is unknown."""
    if clock is not None and metadata.get("chain", {}).get("rate") is None:
        message = "--clock needs the `rate` of the input (elements per second) in the chain's file"
        raise UsageError(Problem("E1306", message))


def load_of(metadata: Mapping[str, Any], every: tuple[int, int] | None, clock: int | None) -> dict[str, Any] | None:
    """`pushes_per_second`, `instructions_per_second`, `clock_hz` and `highest`: the share of the time between two pushes that the
    worst push needs at that clock and one instruction per cycle (None without a clock).

    `every`: instructions of a push on average and at most.  None if the rate of the input or the instructions are unknown.
    """
    chain = metadata.get("chain", {})
    if chain.get("rate") is None or every is None:
        return None
    pushes = chain["rate"] / chain["hop"]
    return {
        "pushes_per_second": pushes,
        "instructions_per_second": round(every[0] * pushes),
        "clock_hz": clock,
        "highest": None if clock is None else every[1] * pushes / clock,
    }


def pushes_text(every: tuple[int, int], count: int) -> str:
    """`85,134 instructions on average, 87,095 at most, over 60`."""
    return f"{every[0]:,} instructions on average, {every[1]:,} at most, over {count:,}"


def load_text(load: Mapping[str, Any]) -> str:
    """`4,256,700 instructions per second of input (50 pushes); at 64 MHz and one instruction per cycle …`."""
    text = f"{load['instructions_per_second']:,} instructions per second of input ({load['pushes_per_second']:g} pushes)"
    if load["highest"] is None:
        return text
    clock = f"{load['clock_hz'] / 1e6:g} MHz"
    return f"{text}; at {clock} and one instruction per cycle the longest push needs {100 * load['highest']:.1f} % of its time"


def over_time(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """`pushes` and `load` of a report in words, if it has them."""
    rows = []
    if "pushes" in report:
        every = report["pushes"]["average"], report["pushes"]["most"]
        rows.append(("pushes", pushes_text(every, report["verdict"]["sets"])))
    return [*rows, ("load", load_text(report["load"]))] if "load" in report else rows


# ---- the kernel of a layer, and the cost of the next faster one: from the candidates in the metadata


def next_faster(layer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The slowest candidate that is estimated to be faster than the chosen kernel, and its cost.

    `instructions`, `flash` and `scratch` are differences from the chosen kernel's estimates; None if no candidate is faster.
    """
    candidates = {c["kernel"]: c for c in layer.get("candidates", ())}
    chosen = candidates.get(layer["kernel"])
    if chosen is None:
        return None
    faster = [c for c in candidates.values() if c["instructions"] < chosen["instructions"]]
    if not faster:
        return None
    best = max(faster, key=lambda c: (c["instructions"], c["kernel"]))
    more = {k: best[k] - chosen[k] for k in ("instructions", "constants", "code", "scratch")}
    flash = more["constants"] + more["code"]
    return {"kernel": best["kernel"], "instructions": more["instructions"], "flash": flash, "scratch": more["scratch"]}


def next_text(step: Mapping[str, Any] | None) -> str:
    """`arm_dsp.conv2d_winograd_f4: -79,200 instructions, +20,480 B flash, +6,144 B scratch`; empty if there is none."""
    if step is None:
        return ""
    cost = f"{step['flash']:+,} B flash, {step['scratch']:+,} B scratch"
    return f"{step['kernel']}: {step['instructions']:+,} instructions, {cost}"


CHOICE_HEADERS = ("layer", "operator", "kernel", "MAC", "estimate", "constants", "scratch", "output", "next faster")


def choice_rows(layers: Sequence[Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """Rows of the table of a compilation: each layer's kernel, estimated instructions, bytes, and `next_text`."""
    rows: list[tuple[object, ...]] = []
    for layer in layers:
        estimates = [c["instructions"] for c in layer["candidates"] if c["kernel"] == layer["kernel"]]
        shape = "x".join(map(str, layer["output"]["shape"]))
        sizes = (layer["macs"], estimates[0] if estimates else None, layer["constants"], layer["scratch"], shape)
        rows.append((layer["index"], does_of(layer), layer["kernel"], *sizes, next_text(next_faster(layer))))
    return rows


def next_lines(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line per layer that has a faster candidate: `L4 CONV_2D 358,533 instructions: arm_dsp...`; for layers of a report."""
    lines = []
    for layer in layers:
        if layer["next_faster"] is not None:
            now = "" if layer["instructions"] is None else f" {commas(layer['instructions'])} instructions"
            lines.append(f"L{layer['index']} {does_of(layer)}{now}: {next_text(layer['next_faster'])}")
    return lines


# ---- what a sliding window saves, and what keeps it from saving more


def slide_lines(metadata: Mapping[str, Any]) -> list[str]:
    """The savings, then each cause of work that is not for new rows; for a chain those of each stage.  Empty without a window."""
    chain, slide = metadata.get("chain"), metadata.get("slide")
    if chain is not None:
        often = {1: "once", 2: "twice"}
        runs = ", ".join(f"{s['name']} {often.get(s['runs'], str(s['runs']) + ' times')}" for s in chain["stages"])
        stages = [s for s in chain["stages"] if s["slide"] is not None]
        lines = [f"{s['name']}: {line}" for s in stages for line in slide_lines({"slide": s["slide"]})]
        return [f"a push consumes {chain['hop']} new rows and runs {runs}", *lines]
    if slide is None:
        return []
    layers = slide["layers"]
    macs, full = sum(row["macs"] for row in layers), slide["macs_window"]
    moves = ", ".join(f"{row['hop']} of {row['rows']} rows of {row['name']}" for row in slide["inputs"])
    part = f" ({macs / full:.2f})" if full else ""
    lines = [f"{moves} are new per run: {macs:,} of {full:,} MAC{part}, {slide['rows_bytes']:,} B of rows are kept"]
    lines += _padding(layers, macs, full)
    lines += [
        f"{row['op']} {row['name'][:40]} keeps {row['numbers']:,} running sums:"
        f" it reads {row['read']} rows instead of {row['rows']}"
        for row in slide["sums"]
    ]
    lines += _whole(slide)
    # plans for --ram-budget that keep fewer rows and recompute some, but still save at least a tenth of the MACs
    less = [way for way in slide.get("front", ())[1:] if full and way["macs"] <= 0.9 * full][:MOST_FEWER]
    plans = ", ".join(f"{way['rows_bytes']:,} B for {way['macs']:,} MAC ({way['macs'] / full:.2f})" for way in less)
    lines += [f"--ram-budget can keep fewer rows: {plans}"] if less else []
    if "search" in slide:
        tried, ways = slide["search"]["tried"], slide["search"]["ways"]
        lines.append(f"plans that keep fewer rows: the search stopped at its limit, {tried:,} of {ways:,} were tried")
    return lines


MOST_FEWER = 3
"""Maximum number of listed plans that keep fewer rows."""


def _padding(layers: list[dict[str, Any]], macs: int, full: int) -> list[str]:
    """Layers with padding recompute the rows that it reaches, and so does every later layer."""
    again = [row for row in layers if "rows" in row and row["computed"] > row["new"]]
    if not again:
        return []
    worst = max(again, key=lambda row: row["computed"])
    count = sum(row["padded"] for row in again)
    without = sum(row["macs_window"] * row["new"] // row["rows"] if row in again else row["macs"] for row in layers)
    where = f"{count} layer{'s' if count != 1 else ''}"
    return [
        f"padding in {where}: up to {worst['computed']} of {worst['rows']} rows are computed again"
        f" ({worst['op']} {worst['name'][:40]}); with VALID padding {worst['new']}, and about {without:,} MAC in total"
    ]


def _whole(slide: Mapping[str, Any]) -> list[str]:
    """Operators after which rows are no longer separate, and the cost of the layers after them."""
    whole_macs = sum(row["macs"] for row in slide["layers"] if "rows" not in row)
    lines = [f"{row['op']} {row['name'][:40]} {row['reason']}" for row in slide["whole"]]
    if not lines and whole_macs:
        return [f"layers after the rows run in full: {whole_macs:,} MAC"]
    if whole_macs:
        lines[-1] += f"; layers after such places run in full: {whole_macs:,} MAC"
    return lines


# ---- the memory plan as data: buffers, overlaps, the peak and the layers that set it


_FIELDS = ("size", "liveness_bound", "streaming_bound", "fed_bound", "plan_lower_bound", "optimal", "buffers")
_SEARCHES = ("order", "rows", "cascades", "pool_choice")
"""Results of other searches; the first three only if they stopped at their limit."""


def plan_data(workspace: Mapping[str, Any], layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The plan of metadata.json as the drawing needs it; sizes and addresses in bytes, steps are layers.

    `overlaps`: pairs of buffers that share addresses during a step.  `peak`: the steps in which a live buffer reaches the end of
    the workspace, with their layers and live buffers.
    """
    buffers, size = workspace["buffers"], workspace["size"]
    plan = {"layers": len(layers)} | {k: workspace[k] for k in _FIELDS}
    if workspace.get("pools"):
        plan["pools"] = [{k: p[k] for k in ("name", "base", "used", "size", "address", "speed")} for p in workspace["pools"]]
    plan |= {k: workspace[k] for k in _SEARCHES if k in workspace}
    return plan | {"overlaps": overlaps(buffers), "peak": peak(buffers, size=size, layers=layers)}


def overlaps(buffers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Pairs of buffers (`below` starts lower) that share the addresses `offset` to `offset + size` in the steps first to last."""
    shared = []
    for k, a in enumerate(buffers):
        for b in buffers[k + 1 :]:
            first, last = max(a["first"], b["first"]), min(a["last"], b["last"])
            start, end = max(a["offset"], b["offset"]), min(a["offset"] + a["size"], b["offset"] + b["size"])
            if first <= last and start < end:
                low, high = (a, b) if a["offset"] <= b["offset"] else (b, a)
                row = {"below": low["name"], "above": high["name"], "offset": start, "size": end - start}
                shared.append(row | {"first": first, "last": last})
    return shared


def peak(buffers: Sequence[Mapping[str, Any]], *, size: int, layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The steps in which a live buffer ends at the end of the workspace."""
    steps = sorted({s for b in buffers if b["offset"] + b["size"] == size for s in range(b["first"], b["last"] + 1)})
    rows = []
    for step in steps:
        layer = layers[step] if 0 <= step < len(layers) else None
        what = "inputs" if step < 0 else "outputs" if layer is None else f"{does_of(layer)} {layer['name']}"
        live = [b["name"] for b in buffers if b["first"] <= step <= b["last"]]
        rows.append({"step": step, "what": what, "live": live})
    return {"bytes": size, "steps": rows}
