"""How often Python looks for cycles during a compilation."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from aot.system.gc_tuning import OBJECTS_BETWEEN, rare_collections


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(("first", "inside"), [(700, OBJECTS_BETWEEN), (0, 0), (2 * OBJECTS_BETWEEN, 2 * OBJECTS_BETWEEN)])
def test_only_while_it_compiles_and_never_more_often(first: int, inside: int) -> None:
    gc.set_threshold(first, 11, 12)
    with rare_collections():
        assert gc.get_threshold() == (inside, 11, 12)
    assert gc.get_threshold() == (first, 11, 12)


def test_the_threshold_comes_back_after_an_error() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), rare_collections():
        raise KeyError
    assert gc.get_threshold() == before
