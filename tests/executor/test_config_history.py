"""Counts in the place of estimates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aot.executor.candidates import scaled_cycles, with_history
from aot.executor.config import ApplyHistoryBest, History
from aot.executor.selection import Candidate


def candidate(kernel: str, instructions: int) -> Candidate:
    lowered: Any = SimpleNamespace()
    return Candidate(kernel, lowered, kernel, instructions, 0, 0, 0)


def told(found: list[Candidate]) -> dict[str, int]:
    return {c.kernel: c.instructions for c in found}


def test_counts_of_a_core() -> None:
    history = History((("cortex-m3", "w", "a", 9), ("cortex-m4", "w", "a", 5), ("cortex-m4", "w", "b", 7)))
    assert history.counts("cortex-m4", "w") == {"a": 5, "b": 7}
    assert history.counts("cortex-m4", "v") == {}
    assert history.counts("cortex-m4", None) == {}
    assert history.digest != History(history.rows, ("cortex-m4",)).digest
    assert History().digest == ""


def test_what_was_not_measured_is_scaled_like_the_rest() -> None:
    found = [candidate("a", 100), candidate("b", 200), candidate("c", 300), candidate("d", 0)]
    assert told(with_history(found, {"a": 150, "b": 300})) == {"a": 150, "b": 300, "c": 450, "d": 1}
    assert with_history(found, {"x": 1}) == found


def test_cycles_come_in_instructions() -> None:
    found = [candidate("a", 100), candidate("b", 90)]
    assert scaled_cycles(found, {"a": 500, "b": 1000}) == {"a": 100, "b": 200}
    assert scaled_cycles(found, {}) == {}


def test_the_innermost_context_counts() -> None:
    outer, inner = History((("t", "w", "k", 1),)), History((("t", "w", "k", 2),))
    with ApplyHistoryBest(outer):
        with ApplyHistoryBest(inner) as current:
            assert History.current() is inner is current
        assert History.current() is outer
    assert History.current() == History()


def test_a_context_ends_with_an_error() -> None:
    with pytest.raises(KeyError), ApplyHistoryBest(History((("t", "w", "k", 1),))):
        raise KeyError
    assert History.current() == History()
