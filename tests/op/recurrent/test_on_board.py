"""Recurrent layers of float32 and hybrid on an emulated board, byte by byte with LiteRT over several runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.cli.__main__ import run
from tests.op._lstm_models import Lstm, bidirectional_model, lstm_model
from tests.op._rnn_models import Rnn, rnn_model

REAL = Lstm(dtype="float32", steps=3, depth=9, cells=7, projection=True, outputs=5, peephole=True, seed=3)
HYBRID = Lstm(dtype="hybrid", steps=3, depth=9, cells=7, asymmetric=True, norm=True, seed=4)
BOTH = Lstm(dtype="hybrid", steps=3, depth=9, cells=7, seed=5)
MODELS = {
    "lstm_float": lstm_model(REAL),
    "lstm_hybrid": lstm_model(HYBRID),
    "bidirectional_float": bidirectional_model(Lstm(dtype="float32", steps=3, depth=9, cells=7, seed=6), merged=True),
    "bidirectional_hybrid": bidirectional_model(BOTH, merged=True, auxiliary=4, weighted=True),
    "rnn_hybrid": rnn_model(Rnn("UNIDIRECTIONAL_SEQUENCE_RNN", hybrid=True, asymmetric=True, steps=3, depth=9, units=7)),
    "bidirectional_rnn": rnn_model(Rnn("BIDIRECTIONAL_SEQUENCE_RNN", steps=3, depth=9, units=7)),
}


@pytest.mark.qemu
@pytest.mark.parametrize("name", MODELS)
def test_exact(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(MODELS[name])
    code = run(["verify", str(path), "--board", "mps2-an386"])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "4/4 sets bit-exact, reference: ai-edge-litert" in printed
