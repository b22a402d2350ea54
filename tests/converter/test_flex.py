"""Recurrent layers that were converted with SELECT_TF_OPS: exact, and equal to the same layers unrolled."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from aot.driver.build import build
from aot.driver.options import Options
from aot.frontend.formats import Choice
from aot.frontend.problems import Problems
from aot.frontend.tflite.specialize import specialize
from aot.frontend.tflite.tensor_lists import has_lists
from aot.frontend.tflite.view import parse
from aot.runtime.module import load
from aot.testing import HAVE_LITERT
from tests.converter.judge import by_reference, compiled, same, steps_for
from tests.converter.models import ARCHIVE_FLEX, names, read

SIZE_LIMIT = 120_000
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
LOOPS = [name for name in names(ARCHIVE_FLEX) if ".loop." in name]
TWINS = [name for name in LOOPS if name.replace(".loop.", ".unrolled.") in names(ARCHIVE_FLEX)]


def test_the_archive() -> None:
    """Loops over lists, as many as are unrolled, and kinds with other weights."""
    assert ARCHIVE_FLEX.stat().st_size <= SIZE_LIMIT
    assert len(TWINS) >= 9
    assert len(LOOPS) > len(TWINS)
    for name in names(ARCHIVE_FLEX):
        view = parse(read(name, ARCHIVE_FLEX), Problems())
        assert view is not None
        assert has_lists(view) == (".loop." in name)


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_as_unrolled(name: str) -> None:
    """The same weights, the same order of operations: the same bytes."""
    loop, unrolled = (read(n, ARCHIVE_FLEX) for n in (name, name.replace(".loop.", ".unrolled.")))
    steps = steps_for(unrolled, 3)
    assert same(compiled(loop, steps), compiled(unrolled, steps))


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
@pytest.mark.parametrize("name", LOOPS)
def test_by_the_reference(name: str) -> None:
    """LiteRT runs what the lists become: builtin operators."""
    model = specialize(read(name, ARCHIVE_FLEX))
    steps = steps_for(model, 3)
    assert same(compiled(read(name, ARCHIVE_FLEX), steps), by_reference(model, steps))


def test_an_open_batch_is_chosen() -> None:
    """--batch reaches what lists hold: each of three sequences as if alone."""
    model, rng = read("gru.loop.float32.tflite", ARCHIVE_FLEX), np.random.default_rng(1)
    x = rng.normal(0, 1, (3, 5, 3)).astype(np.float32)
    three = load(build(model, target="host", name="m", options=Options(choice=Choice(batch=3)))).run([x])[0].copy()
    one = load(build(model, target="host", name="m"))
    assert same([[three]], [[np.concatenate([one.run([x[i : i + 1]])[0].copy() for i in range(3)])]])
