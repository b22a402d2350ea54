"""The benchmark of the compiler's own speed: what it measures runs, and what is above its bar is said.  No figure is judged."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.scripts import script


@pytest.fixture(scope="module")
def speed() -> ModuleType:
    return script("speed")


def test_the_slowest_part_counts(speed: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the case's unit, and beside a machine that is twice as slow."""
    ran: list[str] = []
    monkeypatch.setattr(speed, "slowness", lambda: 2.0)
    monkeypatch.setattr(speed, "seconds_of", lambda run: run())
    parts = [("a", lambda: ran.append("a") or 4.0), ("b", lambda: ran.append("b") or 10.0)]
    assert speed.measure(speed.Case("", 4.0, lambda: iter(parts), 2.0)) == ("b", 2.5)
    assert ran == ["a", "b", "b", "b"], "what is near its bar runs again"


@pytest.mark.parametrize(("figure", "code"), [(0.9, 0), (1.1, 1)])
def test_above_its_bar(
    speed: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], figure: float, code: int
) -> None:
    monkeypatch.setattr(speed, "CASES", {"one": speed.Case("what", 1.0, dict), "two": speed.Case("what", 0.0, dict)})
    monkeypatch.setattr(speed, "measure", lambda case: ("part", figure))
    monkeypatch.setenv("AOT_NO_CACHE", "1")
    assert speed.main(["one"]) == code
    out = capsys.readouterr().out
    assert out.startswith("one ")
    assert ("above its bar" in out) is bool(code)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["help", "compile", "new", "check", "channels", "plan", "print", "interpreter"])
def test_cases_can_be_run(speed: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part of each, on our own networks."""
    monkeypatch.setattr(speed, "SHARED", speed.ROOT / "none")
    _, run = next(iter(speed.CASES[name].parts()))
    run()


def test_unknown_cases_are_refused(speed: ModuleType) -> None:
    with pytest.raises(SystemExit):
        speed.main(["nonsense"])
