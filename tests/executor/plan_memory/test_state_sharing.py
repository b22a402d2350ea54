"""Windows of the state that share bytes: how much that saves, and that a layout in which they must not is found out."""

from __future__ import annotations

from dataclasses import replace

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.executor.emit import LoweredOutput
from aot.executor.lowered import TensorRef
from aot.executor.plan_memory import may_share, replay
from aot.executor.storage_map import Planned
from aot.memory.circular_state import Ring
from tests.stateful import Tcn, tcn

SMALL = Tcn(frames=60, features=8, channels=8, classes=3, dilations=(1, 2, 4))


def slid(opt: str = "balanced") -> LoweredOutput:
    return compile_model(tcn(SMALL), options=Options(slide=(("x", 1),), opt=opt))


def windows_of(made: LoweredOutput) -> tuple[Planned, dict[TensorRef, Ring]]:
    """The windows as they are laid out."""
    planned, rings = made.lowered, made.layout.rings
    assert isinstance(planned, Planned)
    assert rings is not None
    by_start = {p.offset: t for t, p in made.layout.places.items() if p.where == "state" and planned.root(t) is t}
    return planned, {by_start[w.start]: w for w in rings.windows}


def test_a_state_is_hardly_more_than_its_rows() -> None:
    for opt in ("balanced", "size", "ram"):
        meta = slid(opt).artifact.metadata
        kept, new = meta["slide"]["rows_bytes"], SMALL.channels
        assert meta["state"]["size"] <= 1.05 * kept + 2 * new, "room for one row of one window, not of each"


def test_each_byte_belongs_to_one_window_at_a_time() -> None:
    made = slid("speed")
    planned, windows = windows_of(made)
    turns = made.layout.rings.turns if made.layout.rings is not None else 0
    assert turns > 1
    assert replay(planned, made.layout, windows, turns) == []
    in_order = sorted(windows, key=lambda t: windows[t].start)
    below, above = in_order[0], in_order[1]
    assert windows[below].start + windows[below].size > windows[above].start, "they share bytes"
    unit = windows[below].align
    for root in (below, in_order[-1]):
        places = {**made.layout.places, root: replace(made.layout.places[root], offset=windows[root].start + unit)}
        moved = {t: replace(w, start=places[t].offset) for t, w in windows.items()}
        wrong = replace(made.layout, places=places, state_size=made.layout.state_size + unit)
        assert bool(replay(planned, wrong, moved, turns)) == (root is below), "nearer to the next one is too near"


def test_who_may_write_over_whom() -> None:
    planned, windows = windows_of(slid("speed"))
    first, second = sorted(windows, key=lambda t: -windows[t].start)[:2]
    gap = windows[second].kept
    assert may_share(planned, second, first, gap=gap)
    assert not may_share(planned, first, second, gap=gap), "rows of the input are there before anything is read"
