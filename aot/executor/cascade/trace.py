"""Which parts of a cascade's memory may lie over each other, from a run of its order over row numbers.

The counterpart of `tir.analysis.overlap` at the granularity of rows: no byte of the result or of a window is written before the
last read of a byte that it lies over.  In a block everything is taken to be written before it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from aot.executor.cascade.nest import Nest
from aot.support.dataclass import dataclass

OUT, WINDOWS = "out", "windows"


def external_name(index: int) -> str:
    return f"external_{index}"


@dataclass(slots=True)
class _Log:
    """`windows[n]`: first and last instant; `reads[e]`: (instant, first byte); `writes`: (instant, end) of the result."""

    windows: dict[int, tuple[int, int]] = field(default_factory=dict)
    reads: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    writes: list[tuple[int, int]] = field(default_factory=list)

    def touch(self, n: int, time: int) -> None:
        first, _ = self.windows.get(n, (time, time))
        self.windows[n] = first, time

    def live_from(self, external: int, time: int) -> int | None:
        """The least byte of an external tensor that is read at `time` or later; None if there is none."""
        return min((start for t, start in self.reads.get(external, ()) if t >= time), default=None)


def _run(nest: Nest) -> _Log:
    log = _Log()
    last = len(nest.nodes) - 1
    for time, (n, first) in enumerate(nest.events(-nest.lead, nest.steps)):
        low, high = nest.guards[n]
        node = nest.nodes[n]
        if not low <= first <= high:
            continue
        if n != last:
            log.touch(n, time)
        if not 0 <= first < node.height:
            continue
        for link in node.links:
            if link.node is not None:
                log.touch(link.node, time)
            else:
                log.reads.setdefault(link.external, []).append((time, link.rows.first(first) * link.row_bytes))
        if n == last:
            log.writes.append((time, (first + node.rows) * node.row_bytes))
    return log


def distances(nest: Nest, externals: Sequence[int], windows: Sequence[tuple[int, int]]) -> dict[tuple[str, str], int]:
    """(a, b) -> d: start(b) - start(a) >= d is safe, for pairs of the result, the windows and external tensors.

    `externals`: bytes of each; `windows`: (offset, bytes) of each node's window in the buffer of all windows.
    """
    log = _run(nest)
    total = max((o + s for o, s in windows), default=0)
    out_bytes = nest.nodes[-1].height * nest.nodes[-1].row_bytes
    found: dict[tuple[str, str], int] = {}
    for e, size in enumerate(externals):
        d = -size
        for time, end in log.writes:
            start = log.live_from(e, time)
            d = max(d, -size if start is None else end - start)
        found[OUT, external_name(e)] = min(d, out_bytes)
        if total:
            found[WINDOWS, external_name(e)] = min(total, _behind_windows(log, e, size, windows))
    if total:
        d = -total
        for n, (_, last) in log.windows.items():
            done = max((end for time, end in log.writes if time <= last), default=0)
            if done and windows[n][1]:
                d = max(d, done - windows[n][0])
        found[OUT, WINDOWS] = min(d, out_bytes)
    return found


def _behind_windows(log: _Log, external: int, size: int, windows: Sequence[tuple[int, int]]) -> int:
    """start(external) - start(windows): no window begins to be used before what it lies over is dead."""
    d = -size
    for n, (first, _) in log.windows.items():
        start = log.live_from(external, first)
        if start is not None and windows[n][1]:
            d = max(d, sum(windows[n]) - start)
    return d
