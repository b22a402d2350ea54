"""What a window that moves saves, and what keeps it from saving more, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def slide_lines(metadata: Mapping[str, Any]) -> list[str]:
    """The gain first, then each cause of work that is not for new rows; of a chain those of each
    stage.  Empty where nothing slides.
    """
    if metadata.get("chain") is not None:
        return _chain(metadata["chain"])
    slide = metadata.get("slide")
    if slide is None:
        return []
    layers = slide["layers"]
    macs, full = sum(row["macs"] for row in layers), slide["macs_window"]
    moves = ", ".join(f"{row['hop']} of {row['rows']} rows of {row['name']}" for row in slide["inputs"])
    part = f" ({macs / full:.2f})" if full else ""
    lines = [f"{moves} are new in a run: {macs:,} of {full:,} MAC{part}, {slide['rows_bytes']:,} B of rows are kept"]
    return lines + _padding(layers, macs, full) + _sums(slide) + _whole(slide) + _fewer(slide, full) + _stopped(slide)


def _chain(chain: Mapping[str, Any]) -> list[str]:
    """The stages and how often each runs; then what the windows of each save."""
    runs = ", ".join(f"{s['name']} {'once' if s['runs'] == 1 else 'twice' if s['runs'] == 2 else str(s['runs']) + ' times'}"
                     for s in chain["stages"])  # fmt: skip
    lines = [f"a push takes {chain['hop']} new rows and runs {runs}"]
    for stage in chain["stages"]:
        if stage["slide"] is not None:
            lines += [f"{stage['name']}: {line}" for line in slide_lines({"slide": stage["slide"]})]
    return lines


MOST_FEWER = 3
"""Ways to keep less that are told."""


def _fewer(slide: Mapping[str, Any], full: int) -> list[str]:
    """What --ram-budget may choose instead: fewer rows, some of them computed again; not where nearly nothing is gained then."""
    less = [way for way in slide.get("front", ())[1:] if full and way["macs"] <= 0.9 * full][:MOST_FEWER]
    if not less:
        return []
    ways = ", ".join(f"{way['rows_bytes']:,} B for {way['macs']:,} MAC ({way['macs'] / full:.2f})" for way in less)
    return [f"within --ram-budget fewer rows are kept where they do not fit: {ways}"]


def _stopped(slide: Mapping[str, Any]) -> list[str]:
    """That the search for ways to keep less stopped at its limit."""
    if "search" not in slide:
        return []
    tried, ways = slide["search"]["tried"], slide["search"]["ways"]
    return [f"ways to keep fewer rows: the search stopped at its limit, {tried:,} of {ways:,} were tried"]


def _padding(layers: list[dict[str, Any]], macs: int, full: int) -> list[str]:
    """Rows that padding reaches are computed again, in every later layer as well."""
    again = [row for row in layers if "rows" in row and row["computed"] > row["new"]]
    if not again:
        return []
    worst = max(again, key=lambda row: row["computed"])
    count = sum(row["padded"] for row in again)
    without = sum(row["macs_window"] * row["new"] // row["rows"] if row in again else row["macs"] for row in layers)
    where = f"{count} layer{'s' if count != 1 else ''}"
    return [
        f"padding in {where}: up to {worst['computed']} of {worst['rows']} rows are computed again"
        f" ({worst['op']} {worst['name'][:40]}); VALID padding would make it {worst['new']}, and all of it about {without:,} MAC"
    ]


def _sums(slide: Mapping[str, Any]) -> list[str]:
    """Reductions over all rows that are not computed anew."""
    return [
        f"{row['op']} {row['name'][:40]} is {row['numbers']:,} running sums:"
        f" {row['read']} rows are read in place of {row['rows']}"
        for row in slide["sums"]
    ]


def _whole(slide: Mapping[str, Any]) -> list[str]:
    """What ends the rows, and what the layers behind it cost."""
    rest = sum(row["macs"] for row in slide["layers"] if "rows" not in row)
    lines = [f"{row['op']} {row['name'][:40]} {row['reason']}" for row in slide["whole"]]
    if not lines and rest:
        return [f"layers behind all rows run as a whole: {rest:,} MAC"]
    if rest:
        lines[-1] += f"; layers behind such places run as a whole: {rest:,} MAC"
    return lines
