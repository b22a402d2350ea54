"""Which kernel a layer got, and what the next faster one would cost: from the candidates in the metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aot.support.text import commas, does_of


def next_faster(layer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The slowest of the candidates that are estimated to be faster than the chosen kernel, and what it costs.

    `instructions`, `flash` and `scratch` are its estimates minus the chosen one's; None if the chosen one is the fastest.
    """
    known = {c["kernel"]: c for c in layer.get("candidates", ())}
    chosen = known.get(layer["kernel"])
    if chosen is None:
        return None
    faster = [c for c in known.values() if c["instructions"] < chosen["instructions"]]
    if not faster:
        return None
    best = max(faster, key=lambda c: (c["instructions"], c["kernel"]))
    flash = best["constants"] + best["code"] - chosen["constants"] - chosen["code"]
    return {
        "kernel": best["kernel"],
        "instructions": best["instructions"] - chosen["instructions"],
        "flash": flash,
        "scratch": best["scratch"] - chosen["scratch"],
    }


def next_text(step: Mapping[str, Any] | None) -> str:
    """`arm_dsp.conv2d_winograd_f4: -79,200 instructions, +20,480 B flash, +6,144 B scratch`; empty if there is none."""
    if step is None:
        return ""
    cost = f"{step['flash']:+,} B flash, {step['scratch']:+,} B scratch"
    return f"{step['kernel']}: {step['instructions']:+,} instructions, {cost}"


CHOICE_HEADERS = ("layer", "operator", "kernel", "MAC", "estimate", "constants", "scratch", "output", "next faster")


def choice_rows(layers: Sequence[Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """Rows of the table of a compilation: what each layer runs, its estimated instructions, bytes, and `next_text`."""
    rows: list[tuple[object, ...]] = []
    for layer in layers:
        estimates = [c["instructions"] for c in layer["candidates"] if c["kernel"] == layer["kernel"]]
        shape = "x".join(map(str, layer["output"]["shape"]))
        sizes = (layer["macs"], estimates[0] if estimates else None, layer["constants"], layer["scratch"], shape)
        rows.append((layer["index"], does_of(layer), layer["kernel"], *sizes, next_text(next_faster(layer))))
    return rows


def next_lines(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each layer that could be faster: `L4 CONV_2D 358,533: arm_dsp...`; of layers of a report."""
    lines = []
    for layer in layers:
        if layer["next_faster"] is not None:
            now = "" if layer["instructions"] is None else f" {commas(layer['instructions'])} instructions"
            lines.append(f"L{layer['index']} {does_of(layer)}{now}: {next_text(layer['next_faster'])}")
    return lines
