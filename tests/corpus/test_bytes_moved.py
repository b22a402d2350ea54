"""Networks of the shared corpus that keep a state: what a step copies of it beside what it writes there."""

from __future__ import annotations

import pytest

from aot.driver.build import build
from aot.driver.options import Options
from tests.converter.test_over_time import MOST_MOVED, keeps_state
from tests.corpus.test_corpus import SHARED, entries, oracle_of


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not there")
def test_states_move_little() -> None:
    found = {}
    for entry in entries():
        data = (SHARED / entry["file"]).read_bytes()
        if keeps_state(data):
            state = build(data, target="cortex-m4", name="model", options=Options(oracle=oracle_of(entry))).metadata.get("state")
            if state is not None:
                found[entry["name"]] = state["bytes_moved"], state["bytes_new"]
    assert len(found) >= 10
    assert {name: row for name, row in found.items() if row[0] > MOST_MOVED * row[1]} == {}
