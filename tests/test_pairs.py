"""The campaign over pairs of options: every option of `aot compile` takes part, and a refusal is traced to what it is about."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.scripts import script

MODEL = Path("model.tflite")


@pytest.fixture(scope="module")
def pairs() -> ModuleType:
    return script("pairs")


def test_every_option_takes_part(pairs: ModuleType) -> None:
    """An option without known values ends the script; those that take no part exist, and say why."""
    options = pairs.all_options()
    known = set(pairs.parameters("compile"))
    assert known == {name for values in options.values() for name, _ in values} | (set(pairs.LEFT_OUT) & known)
    assert set(pairs.VALUES) <= known


def campaign(pairs: ModuleType) -> object:
    facts = pairs.Facts(MODEL, (("input", (1, 8, 8, 1)),), "layer", "serve", 100, 50, 1000, 64)
    options = {name: [(name, "on")] for name in ("plan", "pool", "sbom", "json", "quiet")}
    pairs_of = pairs.Campaign({}, [facts], random.Random(1))
    pairs_of.options = options
    pairs_of.pending = {frozenset((x[0], y[0])) for x in options.values() for y in options.values() if x < y}
    return pairs_of


@pytest.mark.parametrize(("code", "refused"), [("E5017", 1), ("", 0)])
def test_a_row_is_reduced_to_what_is_wrong(
    pairs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, refused: int
) -> None:
    bad = frozenset({("plan", "on"), ("pool", "on")})

    def run_row(row: frozenset[tuple[str, str]], *_: object, **__: object) -> object:
        return pairs.Outcome(not bad <= row, code if bad <= row else "", "why", "aot compile")

    monkeypatch.setattr(pairs, "run_row", run_row)
    state = campaign(pairs)
    facts = state.models[0]  # type: ignore[attr-defined]
    row = frozenset((name, "on") for name in state.options)  # type: ignore[attr-defined]
    state.learn(facts, state.explore(row, facts, tmp_path))  # type: ignore[attr-defined]
    assert (bad in state.refused, len(state.failures)) == (bool(refused), 1 - refused)  # type: ignore[attr-defined]
    assert not state.allowed(row, facts)  # type: ignore[attr-defined]
    rest = row - {("plan", "on")}
    state.learn(facts, state.explore(rest, facts, tmp_path))  # type: ignore[attr-defined]
    assert all(("plan", "on") in pair for pair in state.pending)  # type: ignore[attr-defined]


def test_a_campaign_goes_on_where_it_was_left(pairs: ModuleType, tmp_path: Path) -> None:
    state: Any = campaign(pairs)
    done = min(state.pending, key=sorted)
    state.pending -= {done}
    bad = frozenset({("plan", "on"), ("pool", "on")})
    state.refused[bad], state.rows = "E5017 (net)", 3
    state.barred[state.models[0].path].add(bad)
    state.save(tmp_path / "state.json")
    again: Any = campaign(pairs)
    again.load(tmp_path / "state.json")
    assert (again.pending, again.refused, again.rows) == (state.pending, state.refused, 3)
    assert not again.allowed(bad | {("sbom", "on")}, again.models[0])


def test_more_room_must_not_be_worse(pairs: ModuleType) -> None:
    def figures(total: int, size: int, time: float = 0.0) -> dict[str, object]:
        return {
            "selection": {"minimised": "instructions", "total": total},
            "workspace": {"size": size, "pool_choice": {"total": time}},
        }

    def worse(less: dict[str, object], more: dict[str, object], *, pool: bool = True, pinned: bool = False) -> str:
        return str(pairs.worse(less, more, pool=pool, pinned=pinned))

    assert not worse(figures(10, 40), figures(10, 40))
    assert "11 instructions" in worse(figures(10, 40), figures(11, 30))
    assert "41 B" in worse(figures(10, 40), figures(9, 41))
    assert not worse(figures(10, 40), figures(9, 41), pool=False)
    assert "41 B" in worse(figures(10, 40, 3.0), figures(9, 41, 3.0), pinned=True)
    assert "41 B" in worse(figures(10, 40, 3.0), figures(9, 41, 2.0))
    assert not worse(figures(10, 40, 3.0), figures(9, 41, 2.0), pinned=True)
