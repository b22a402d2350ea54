"""The figures of a compilation as the summaries print them: code, constants, workspace, stack, instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    """`3,794,525 MAC (7,489,664 in the file)`: what is computed, and what the file's shapes ask for where that differs."""
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
        parts.append(f"over --ram-budget {_bytes(budget)}: nothing smaller was found")
    return " · ".join(parts)


def stopped_searches_of(metadata: Metadata) -> list[str]:
    """What the searches besides the plan's own say that stopped at their limit: order, bound of rows, cascades, pools."""
    texts = []
    order, rows, runs = (metadata["workspace"].get(key) for key in ("order", "rows", "cascades"))
    if order is not None:
        over = f"at most {_percent(order['peak'], order['lower_bound'])} above the least of any order"
        texts.append(f"order of execution: the search stopped at its limit, {_bytes(order['peak'])} of tensors, {over}")
    if rows is not None:
        for what, key in (("rows", "streaming"), ("rows, fed by rows", "fed")):
            bound, least = metadata["workspace"][f"{key}_bound"], rows[f"{key}_lower_bound"]
            if least < bound:
                texts.append(f"{what}: {row_search_of(bound, least)}")
    if runs is not None:
        tried = f"{commas(runs['tried'])} of {commas(runs['possible'])} runs of layers were tried"
        texts.append(f"cascades: the search left out long ones, {tried}")
    return texts + pool_choices_of(metadata)


def row_search_of(bound: int, least: int) -> str:
    """How far the bound of rows may be above the least, where the search for it stopped."""
    return f"the search stopped at its limit, {_bytes(bound)} are at most {_percent(bound, least)} above the best chains"


def pool_choices_of(metadata: Metadata) -> list[str]:
    """`pools: the search stopped at its limit, at most 1.2 % above the least time of accesses`, of --pool and of --const-pool."""
    texts = []
    for what, where in (("pools", "workspace"), ("const pools", "constants")):
        found = metadata.get(where, {}).get("pool_choice")
        if found is not None and not found["optimal"]:
            over = f"at most {_percent(found['total'], found['lower_bound'])} above the least time of accesses"
            texts.append(f"{what}: the search stopped at its limit, {over}")
    return texts


def _percent(value: float, bound: float) -> str:
    """How far a value may be above its bound."""
    return f"{100 * (value - bound) / (bound or 1):.1f} %"


def selection_of(metadata: Metadata) -> str:
    """`1,203,118 instructions estimated (the fewest within the budgets)`, or how far the choice of kernels may be from them."""
    found = metadata["selection"]
    total, own = found["total"], found["lower_bound"]
    if found["minimised"] == "flash":
        why = "nothing fits the budgets" if found["optimal"] else "nothing was found that fits the budgets"
        text, best = f"{_bytes(total)} of flash, as {why}", "the least"
    else:
        text, best = f"{commas(total)} instructions estimated", "the fewest within the budgets"
    if found["optimal"]:
        return f"{text} ({best})"
    return f"{text} (the search stopped at its limit: at most {_percent(total, own)} above {best})"


def _state(metadata: Metadata) -> list[str]:
    """`state 1,564 B`, and what a run moves of it, for models that have one."""
    if "state" not in metadata:
        return []
    state = metadata["state"]
    moved = f", {round(state['bytes_moved']):,} B moved for {_bytes(state['bytes_new'])} new" if state["bytes_moved"] else ""
    return [f"state {_bytes(state['size'])}{moved}"]


def state_figures(metadata: Metadata) -> dict[str, Any] | None:
    """Bytes of the state, of what is new in it after a run, and of what a run moves only to keep it; None where there is none."""
    if "state" not in metadata:
        return None
    state = metadata["state"]
    return {"bytes": state["size"]} | {k: state[k] for k in ("bytes_new", "bytes_moved", "bytes_moved_most")}


def flash_of(metadata: Metadata, *, code_bytes: int | None = None, constant_bytes: int | None = None) -> str:
    """`code … · constants …`, code where it is known, `constant_bytes` where they were measured; then a missed --flash-budget."""
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
    """`workspace … planned, … touched · state … · stack … measured, … bound · heap 0 B`; what is None is left out."""
    parts = [f"workspace {_bytes(metadata['workspace']['size'])} planned"]
    if touched is not None:
        parts[0] += f", {_bytes(touched)} touched"
    parts += _state(metadata)
    stack = [f"{_bytes(n)} {what}" for n, what in ((stack_bytes, "measured"), (stack_bound, "bound")) if n is not None]
    if stack:
        parts.append(f"stack {', '.join(stack)}")
    return " · ".join([*parts, "heap 0 B"])


def time_of(instructions: int, macs: int, nominal: int | None = None) -> str:
    """`11,402,118 instructions (2,656,768 MAC, 4.29 instr/MAC)`; `nominal` is added where the file asks for another number."""
    parts = [f"{commas(macs)} MAC"] + ([f"{instructions / macs:.2f} instr/MAC"] if macs else [])
    if nominal and nominal != macs:
        parts.append(f"{commas(nominal)} MAC in the file, {instructions / nominal:.2f} each")
    return f"{commas(instructions)} instructions ({', '.join(parts)})"


def cycles_of(cycles: int, macs: int, hz: int | None) -> str:
    """`1,203,118 cycles (2,656,768 MAC, 0.45 cycles/MAC), 75.2 ms at 16 MHz` by the core's own counter."""
    each = f", {cycles / macs:.2f} cycles/MAC" if macs else ""
    took = f", {1000 * cycles / hz:.3g} ms at {hz / 1e6:g} MHz" if hz else ", clock not given ([clock] hz)"
    return f"{commas(cycles)} cycles ({commas(macs)} MAC{each}){took}"


def conditions_of(counted: Mapping[str, Any]) -> str:
    """`counted by the board at 216 MHz, 7 flash wait states, caches: instruction, data`: what cycles depend on."""
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
    """`L5 DEPTHWISE_CONV_2D 31 % · …` of layers that have `instructions`; empty if none has."""
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
    """The content of report.json: what is known without a C compiler."""
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
