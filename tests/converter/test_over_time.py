"""Recurrent, stateful, branching and signal networks of TensorFlow's converter and networks of PyTorch's, over steps of time."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import build, compile_model
from aot.driver.options import Options
from aot.errors import UnsupportedError
from aot.frontend.formats import Choice
from aot.frontend.problems import Problems
from aot.frontend.tflite.view import parse
from aot.runtime.module import load
from aot.testing import HAVE_LITERT
from tests.converter.judge import Step, by_reference, compiled, judge, same, steps_for, table
from tests.converter.models import ARCHIVE_OVER_TIME, ARCHIVE_PYTORCH, ARCHIVES, KINDS_OVER_TIME, KINDS_PYTORCH, names, read
from tests.scale import cases

SIZE_LIMIT = 1 << 20
NOT_EXACT = {
    "pre_emphasis.int8": "known fault",
    "pre_emphasis.int8_float_io": "known fault",
    "cond.int8": "known fault",
    "cond.int8_float_io": "known fault",
    "switch.int8": "known fault",
    "switch.int8_float_io": "known fault",
    "overlap_add.int16x8": "known fault",
    "learned.int16x8": "not by the reference",
}
"""SUM of int8 and int16, which the reference gets wrong; a model that it does not run."""
pytestmark = [
    pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
]


def test_the_archives() -> None:
    """Every class in some kinds, every kind of some classes."""
    both = ((ARCHIVE_OVER_TIME, KINDS_OVER_TIME, 8), (ARCHIVE_PYTORCH, KINDS_PYTORCH, 30))
    for archive, kinds, least in both:
        found = Counter(name.split(".")[1] for name in names(archive))
        assert set(found) == set(kinds)
        assert min(found.values()) >= least
    assert sum(archive.stat().st_size for archive, *_ in both) <= SIZE_LIMIT


QUICK = (
    (ARCHIVE_OVER_TIME, "streaming_convolution.int8"),
    (ARCHIVE_OVER_TIME, "streaming_lstm.float32"),
    (ARCHIVE_PYTORCH, "gpt.dynamic"),
)


@pytest.mark.parametrize(("archive", "name"), QUICK, ids=[name for _, name in QUICK])
def test_quick(archive: Path, name: str) -> None:
    assert judge(read(f"{name}.tflite", archive)) == "exact"


@pytest.mark.parametrize("name", ["shift", "cond", "loop"])
def test_state_begins_anew(name: str) -> None:
    """Twelve steps, a reset, and the same twelve."""
    model = read(f"{name}.float32.tflite", ARCHIVE_OVER_TIME)
    steps = steps_for(model, 12)
    host, wanted = load(build(model, target="host")), by_reference(model, steps)
    for _ in range(2):
        assert same([host.run(s.inputs) for s in steps], wanted)
        host.reset()


def test_a_signature_that_resets() -> None:
    model = read("ring.float32.tflite", ARCHIVE_OVER_TIME)
    rng = np.random.default_rng(1)
    steps = [Step("step", [rng.standard_normal((1, 1, 4)).astype(np.float32)]) for _ in range(5)]
    found = compiled(model, [*steps, Step("reset", []), *steps])
    assert same(found[:5], found[6:])
    assert same(found, by_reference(model, [*steps, Step("reset", []), *steps]))


def test_a_difference_is_seen() -> None:
    model = read("streaming_lstm.float32.tflite", ARCHIVE_OVER_TIME)
    steps = steps_for(model)
    assert not same(compiled(model, steps), by_reference(model, steps[::-1])[::-1]), "the order of steps matters"


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    table({"int8": Counter({"exact": 3, "refused": 1, "not by the reference": 2})})
    assert "| all | 6 | 3 | 2 | 1 | 3 of 4 (75.0 %) |" in capsys.readouterr().out


def sampled(archive: Path) -> list[str]:
    """All models with AOT_FULL=1, else every tenth."""
    everything = names(archive)
    return list(everything[:: len(everything) // cases(len(everything))])


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(ARCHIVE_OVER_TIME))
def test_over_time(name: str) -> None:
    assert judge(read(name, ARCHIVE_OVER_TIME)).startswith(NOT_EXACT.get(name.removesuffix(".tflite"), "exact"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(ARCHIVE_PYTORCH))
def test_from_pytorch(name: str) -> None:
    assert judge(read(name, ARCHIVE_PYTORCH)) == "exact"


def bytes_of_state(model: bytes) -> tuple[float, int]:
    """Of all signatures that keep something: what a step copies of its state, in kernels too, and what is new in it."""
    view = parse(model, Problems())
    assert view is not None
    keys = [s.key for s in view.signatures] if len(view.signatures) > 1 else [None]
    moved, new = 0.0, 0
    for key in keys:
        with suppress(UnsupportedError):  # the training step of a network of 16 bits
            told = compile_model(model, options=Options(choice=Choice(signature=key))).artifact.metadata.get("state")
            moved, new = (moved, new) if told is None else (moved + told["bytes_moved"], new + told["bytes_new"])
    return moved, new


def stateful() -> list[tuple[Path, str]]:
    """The models whose file has variables, by what the archives' names say of their layers."""
    return [(archive, name) for archive in ARCHIVES for name in names(archive) if keeps_state(read(name, archive))]


def keeps_state(model: bytes) -> bool:
    view = parse(model, Problems())
    assert view is not None
    return any(op.opcode == "VAR_HANDLE" for graph in view.subgraphs for op in graph.operators) or any(
        tensor.is_variable for graph in view.subgraphs for tensor in graph.tensors
    )


MOST_MOVED = 1.2
"""Bytes that a step may copy of its state for each that it writes there."""


@pytest.mark.parametrize(
    "name", ["streaming_convolution.int8", "streaming_spectrum.int8", "while_stateful_lstm.float32", "delay.int8"]
)
def test_bytes_moved(name: str) -> None:
    moved, new = bytes_of_state(read(f"{name}.tflite", ARCHIVE_OVER_TIME))
    assert moved <= MOST_MOVED * new


@pytest.mark.slow
def test_bytes_moved_by_all() -> None:
    """Every model of the archives that keeps a state, each signature that is supported."""
    found = {name: read(name, archive) for archive, name in stateful()}
    assert len(found) >= 44
    told = {name: bytes_of_state(model) for name, model in found.items()}
    assert {name: row for name, row in told.items() if row[0] > MOST_MOVED * row[1]} == {}
    assert sum(new > 0 for _, new in told.values()) >= 44
