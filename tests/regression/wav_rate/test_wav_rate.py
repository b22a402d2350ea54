"""A recording of another rate than the chain's is refused: it went in, and the answers were those to another sound."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.errors import UsageError
from aot.report.measure.inputs import Conversion, load_samples, sample_rate

INPUT = {"name": "x", "c_name": "x", "shape": [1, 4, 5], "dtype": "int16", "scale": None, "zero_point": None}


def recording(path: Path, rate: int) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.arange(60, dtype="<i2").tobytes())
    return path


def metadata(rate: float | None) -> dict[str, Any]:
    """A push takes 4 rows of 5 samples; `rate` is in rows."""
    return {"inputs": [INPUT], "chain": {"rate": rate, "hop": 4}}


def test_the_rate_of_a_chain_counts_elements_along_its_axis() -> None:
    assert sample_rate(metadata(3200)) == 16000
    assert sample_rate(metadata(None)) is None
    assert sample_rate({"inputs": [INPUT]}) is None


def test_another_rate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"E5055.*44,100 samples per second.*16,000"):
        load_samples([recording(tmp_path / "a.wav", 44100)], metadata(3200), Conversion())


@pytest.mark.parametrize("rate", [3200, 3200.0, None])
def test_the_same_rate_or_none_is_taken(tmp_path: Path, rate: float | None) -> None:
    assert len(load_samples([recording(tmp_path / "a.wav", 16000)], metadata(rate), Conversion()).sets) == 3
