"""Where two lists of tensors differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """The first element of a tensor that differs; `max_abs` is over the whole tensor, None if a value is not finite.

    Numbers that JSON lacks are text: "nan", "inf", "-inf".
    """

    element: int
    expected: float | int | str
    actual: float | int | str
    count: int
    size: int
    max_abs: float | None


def difference(expected: Array, actual: Array) -> Difference | None:
    """None if both hold the same bytes; the shape does not matter, size and type do (ValueError).

    A NaN is equal to every NaN: IEEE 754 leaves its sign and payload to the processor.  -0 is not 0.
    """
    if expected.size != actual.size or expected.dtype != actual.dtype:
        raise ValueError(f"{expected.dtype}[{expected.size}] cannot be compared with {actual.dtype}[{actual.size}]")
    e, a = np.ascontiguousarray(expected).reshape(-1), np.ascontiguousarray(actual).reshape(-1)
    if e.dtype.kind == "c":  # each part by itself
        e, a = e.view(np.float32), a.view(np.float32)
    raw = np.dtype(f"u{e.dtype.itemsize}")
    wrong = e.view(raw) != a.view(raw)
    if e.dtype.kind == "f":
        wrong &= ~(np.isnan(e) & np.isnan(a))
    bad = np.flatnonzero(wrong)
    if not bad.size:
        return None
    wide: Any = np.float64 if e.dtype.kind == "f" else np.int64
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.max(np.abs(e[bad].astype(wide) - a[bad].astype(wide))))
    first = int(bad[0])
    finite = largest if np.isfinite(largest) else None
    return Difference(first, _plain(e[first]), _plain(a[first]), int(bad.size), int(e.size), finite)


def _plain(value: np.generic) -> float | int | str:
    number: float | int = value.item()
    return number if np.isfinite(number) else str(number)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`sets` were compared, `bad_sets` of them differ; `max_abs` over all (0 where all is exact, None if not finite)."""

    sets: int
    bad_sets: tuple[int, ...]
    max_abs: float | None
    first: tuple[int, int, Difference] | None
    """(set, output, difference)"""

    @property
    def exact(self) -> bool:
        return not self.bad_sets


def compare_sets(expected: Sequence[Sequence[Array]], actual: Sequence[Sequence[Array]]) -> Comparison:
    """All outputs of all sets."""
    found = [
        (s, o, d)
        for s, (want, got) in enumerate(zip(expected, actual, strict=True))
        for o, (w, g) in enumerate(zip(want, got, strict=True))
        if (d := difference(w, g)) is not None
    ]
    sizes = [d.max_abs for _, _, d in found]
    finite = [m for m in sizes if m is not None]
    largest = None if len(finite) < len(sizes) else max(finite, default=0.0)
    return Comparison(len(expected), tuple(sorted({s for s, _, _ in found})), largest, found[0] if found else None)
