"""The memory of a model over time: the map, what lies in it at its fullest, its pools, and the state apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from aot.report.figures.size import stopped_searches_of
from aot.report.measure.report import Report
from aot.report.render.elements import html_table, scroll
from aot.report.render.plan_svg import memory_plan
from aot.report.render.svg import legend


def memory_section(report: Report) -> str:
    """All of it as HTML."""
    plan = report["plan"]
    used = {b["kind"] for b in plan["buffers"]}
    parts = ["<h3>Memory over time</h3>", _text(plan), key("plan", used)]
    parts.append(scroll(f"memory map of {report['name']}", memory_plan(plan), "bare map"))
    parts += [_peak(plan), _pools(plan), _state(report), _buffers(plan)]
    return "\n".join(p for p in parts if p)


def key(kind: str, used: set[str]) -> str:
    """What the colours of a drawing mean."""
    return '<p class="key">' + "".join(f'<i class="{css}"></i>{word}' for css, word in legend(kind) if word in used) + "</p>"


def _text(plan: Mapping[str, Any]) -> str:
    """What bounds the plan."""
    over = plan["size"] - plan["plan_lower_bound"]
    verdict = "which no plan can undercut" if plan["optimal"] else f"{over:,} B above the lower bound of any plan"
    rows = "" if plan["streaming_bound"] is None else f", rows {plan['streaming_bound']:,} B"
    verdict += f"; whole tensors need {plan['liveness_bound']:,} B{rows}"
    axes = "Layers run from left to right, addresses from top to bottom; what two buffers share is hatched."
    stopped = "".join(f" {escape(text)}." for text in stopped_searches_of({"workspace": plan}))
    return f'<p class="dim">{plan["size"]:,} B of workspace, {verdict}.{stopped} {axes}</p>'


def _peak(plan: Mapping[str, Any]) -> str:
    """What lies in the workspace at each of the first layers that set the peak."""
    steps = plan["peak"]["steps"]
    if not steps:
        return ""
    rows = []
    for step in steps[:3]:
        where = f"layer {step['step']}, {step['what']}" if 0 <= step["step"] < plan["layers"] else step["what"]
        live = [b for b in plan["buffers"] if b["first"] <= step["step"] <= b["last"]]
        for b in sorted(live, key=lambda b: (-b["size"], b["offset"])):
            made = (
                "made here"
                if b["first"] == step["step"]
                else f"since layer {b['first']}"
                if b["first"] >= 0
                else "since the start"
            )
            rows.append((where, b["name"].partition(";")[0], b["kind"], made, b["offset"], b["size"]))
            where = ""
    more = f" and {len(steps) - 3} more" if len(steps) > 3 else ""
    title = f"What sets the peak of {plan['peak']['bytes']:,} B ({len(steps[:3])} of the layers at it{more})"
    headers = ("at", "buffer", "kind", "lifetime", "offset", "bytes")
    return f"<h4>{escape(title)}</h4>\n{html_table(headers, rows, label='contents of the peak', left=4, css='peak')}"


def _pools(plan: Mapping[str, Any]) -> str:
    pools: Sequence[Mapping[str, Any]] = plan.get("pools", ())
    if not pools:
        return ""
    rows = [
        (
            p["name"], "the linker's" if p["address"] is None else f"{p['address']:#x}", p["speed"], p["used"], p["size"],
            f"{100 * p['used'] / p['size']:.1f} %",
        )
        for p in pools
    ]  # fmt: skip
    headers = ("memory", "address", "speed", "used, B", "size, B", "full")
    return f"<h4>Memories</h4>\n{html_table(headers, rows, label='memories', left=2)}"


def _state(report: Report) -> str:
    state = report.get("state")
    if state is None:
        return ""
    text = f"{state['bytes']:,} B are kept from run to run, apart from the workspace"
    if state["bytes_moved"]:
        text += f"; an average run moves {state['bytes_moved']:,.4g} B of it for {state['bytes_new']:,} B that are new"
    return f"<h4>State</h4>\n<p>{text}.</p>"


def _buffers(plan: Mapping[str, Any]) -> str:
    rows = [
        (b["name"].partition(";")[0], b["kind"], f"{b['first']} to {b['last']}", b["offset"], b["size"])
        for b in sorted(plan["buffers"], key=lambda b: (b["first"], b["offset"]))
    ]
    shown = html_table(("buffer", "kind", "layers", "offset", "bytes"), rows, label="buffers", left=3)
    return f"<details><summary>All {len(rows)} buffers</summary>\n{shown}\n</details>"
