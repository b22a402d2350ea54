"""--inputs of another type than the model takes: the same numbers are converted, others are coded errors, in every verb."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.cli import app
from aot.testing import HAVE_LITERT, ModelBuilder
from tests.cli.helper import Cli
from tests.report.measure.test_verify import needs_gcc

pytestmark = [needs_gcc, pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")]
VERBS = ("verify", "run", "report")
"""All that take --inputs."""


def double(dtype: str) -> bytes:
    b = ModelBuilder()
    quant = {"scale": 0.5, "zero_point": 0} if dtype == "int8" else {}
    x, y = (b.tensor(name, (1, 4), dtype, **quant) for name in "xy")  # type: ignore[arg-type]
    b.op("ADD", [x, x], [y])
    return b.build([x], [y])


def test_these_are_all_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert {name for name in app.VERBS if "--inputs" in Cli(capsys)(name, "--help").out} == set(VERBS)


GOOD = [("int32", np.int64, [1, 2, 3, 4]), ("int32", np.uint8, [1, 2, 3, 255]), ("int8", np.int64, [1, -2, 3, -128])]
BAD = [
    ("int32", np.int64, [1, 2, 3, 1 << 40], "E5014"),
    ("int8", np.int64, [1, 2, 3, 128], "E5014"),
    ("int32", np.float32, [1, 2, 3, np.nan], "E5"),
    ("int8", np.complex64, [1, 2, 3, 4], "E5"),
    ("int32", np.str_, ["a", "b", "c", "d"], "E5"),
    ("int32", object, [1, None, 3, 4], "E5"),
]


def given(verb: str, dtype: str, kind: object, values: list[object]) -> list[object]:
    """The command; golden files have their own names."""
    Path("m.tflite").write_bytes(double(dtype))
    array = np.array([values], kind)  # type: ignore[call-overload]
    np.savez("given.npz", **({"in0_0": array} if verb == "report" else {"x": array}))
    return [verb, "m.tflite", "--board", "host", "--inputs", "given.npz"]


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("dtype", "kind", "values"), GOOD)
def test_the_same_numbers(
    verb: str, dtype: str, kind: object, values: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    done = Cli(capsys)(*given(verb, dtype, kind, values))
    assert done.code == 0, done.err


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("dtype", "kind", "values", "code"), BAD)
def test_other_values(
    verb: str, dtype: str, kind: object, values: list[object], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    done = Cli(capsys)(*given(verb, dtype, kind, values))
    assert done.code == 2, done.err
    assert code in done.err
    assert "E9" not in done.err


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_real_numbers_for_bytes(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quantised where they are samples; a golden file holds the model's own type."""
    monkeypatch.chdir(tmp_path)
    done = Cli(capsys)(*given(verb, "int8", np.float32, [1.0, 2.5, -3.0, 0.1]))
    assert done.code == (2 if verb == "report" else 0), done.err
    assert "E9" not in done.err
