"""What counts as a drawn case."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.frontend.tflite.convert import SUPPORT, load_all
from aot.frontend.tflite.specialize import STATEFUL
from tests.op import _drawn_count
from tests.op._differential import FAST, check
from tests.op._drawn_count import Row, kinds, short, table
from tests.op._forms import FORMS, LAYERS
from tests.op._one_op import Spec, one_op

load_all()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[Row, set[bytes]]:
    found: dict[Row, set[bytes]] = {}
    monkeypatch.setattr(_drawn_count, "SEEN", found)
    return found


def test_drawn_cases_are_counted_once(seen: dict[Row, set[bytes]]) -> None:
    models = [one_op(name, [Spec((2,), "int32")], [Spec((2,), "int32")]) for name in ("NEG", "ABS")]
    data = [np.array([1, 2], np.int32), np.array([3, 4], np.int32)]
    check(models[0], [data[0]])
    assert not seen, "that was not drawn"

    @given(st.sampled_from([(models[0], 0), (models[0], 1), (models[1], 0)]))
    @settings(FAST, max_examples=20)
    def draw(case: tuple[bytes, int]) -> None:
        check(case[0], [data[case[1]]])
        check(case[0], [data[case[1]]], oracle="tflm")

    draw()
    assert {row: len(cases) for row, cases in seen.items()} == {
        ("NEG", "int32", True): 2,
        ("NEG", "int32", False): 2,
        ("ABS", "int32", True): 1,
        ("ABS", "int32", False): 1,
    }


def test_types_are_those_of_the_table() -> None:
    for name in sorted({*FORMS, *LAYERS} - {"RANGE"}):
        types = SUPPORT[name].types[-1]
        model = FORMS[name](types) if name in FORMS else LAYERS[name](*types.split("*"))
        if name in STATEFUL or name in ("IF", "WHILE"):  # handles have no type, and other operators are needed beside these
            assert name in {kind for kind, _ in kinds(model)}
        else:
            inside = ("STABLEHLO_SCATTER", "STABLEHLO_REDUCE_WINDOW")  # have a subgraph of another operator
            assert {k for k in kinds(model) if name not in inside or k[0] == name} == {(name, types)}


def test_what_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {name: SUPPORT[name] for name in ("POW", "SQUARE")}
    monkeypatch.setattr(_drawn_count, "SUPPORT", some)
    enough = {bytes([i // 256, i % 256]) for i in range(300)}
    seen: dict[Row, set[bytes]] = {("SQUARE", "float32", True): enough, ("POW", "int32", True): enough}
    assert short(seen, full=True) == ["POW: no case of float32"]
    seen["POW", "int32", True] = {b"0"}
    seen["POW", "float32", False] = enough
    assert short(seen, full=True) == ["POW: 1 drawn cases of 300"]
    assert short(seen, full=False) == []
    assert next(line.split() for line in table(seen)) == ["POW", "1", "float32:(300)", "int32:1"]
    del seen["POW", "int32", True]
    assert short(seen, full=False) == ["POW: 0 drawn cases of 300"]
