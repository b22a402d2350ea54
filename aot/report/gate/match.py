"""Which layer of one report is which of another: by structure first, then by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Layer = Mapping[str, Any]

EXACT, OPERATOR = 3, 1
"""Worth of a pair of the same operator and shape, and of the same operator alone; equal names decide between equals."""


def match_layers(before: Sequence[Layer], after: Sequence[Layer]) -> list[tuple[int | None, int | None]]:
    """Places of the layers in both, in the order of `after`, and what only `before` has at the end.

    The pairs in order that have the most operators and shapes of their results in common, found by dynamic programming: a model
    that was trained again has all of them, whatever its tensors are called, and a layer that comes in between moves no other.  Of
    the rest, layers of the same operator and name are pairs, wherever they are.
    """
    found = _in_order(before, after)
    taken = set(found.values())
    named: dict[tuple[str, str], list[int]] = {}
    for i in reversed([i for i in range(len(before)) if i not in taken]):
        named.setdefault((before[i]["op"], before[i]["name"]), []).append(i)
    for j, y in enumerate(after):
        same = named.get((y["op"], y["name"]))
        if j not in found and same:
            found[j] = same.pop()
    taken = set(found.values())
    pairs: list[tuple[int | None, int | None]] = [(found.get(j), j) for j in range(len(after))]
    return pairs + [(i, None) for i in range(len(before)) if i not in taken]


def same_layers(before: Sequence[Layer], after: Sequence[Layer]) -> bool:
    """Whether both are the same operators on the same shapes in the same order."""
    return len(before) == len(after) and all(_worth(x, y) == EXACT for x, y in zip(before, after, strict=True))


def _worth(x: Layer, y: Layer) -> int:
    """A baseline knows no shapes; they count as the same as any."""
    if x["op"] != y["op"]:
        return 0
    shapes = x.get("output"), y.get("output")
    return EXACT if None in shapes or shapes[0] == shapes[1] else OPERATOR


def _in_order(before: Sequence[Layer], after: Sequence[Layer]) -> dict[int, int]:
    """The pairs in order of the highest worth: place in `after` -> place in `before`."""
    names = 1 + min(len(before), len(after))  # more than all equal names together are worth

    def worth(x: Layer, y: Layer) -> int:
        points = _worth(x, y)
        return points and names * points + (x["name"] == y["name"])

    rows = [[0] * (len(after) + 1)]
    for x in before:
        above, row = rows[-1], [0]
        for j, y in enumerate(after):
            row.append(max(above[j + 1], row[j], above[j] + worth(x, y)))
        rows.append(row)
    found: dict[int, int] = {}
    i, j = len(before), len(after)
    while i and j:
        points = worth(before[i - 1], after[j - 1])
        if points and rows[i][j] == rows[i - 1][j - 1] + points:
            i, j = i - 1, j - 1
            found[j] = i
        elif rows[i][j] == rows[i - 1][j]:
            i -= 1
        else:
            j -= 1
    return found
