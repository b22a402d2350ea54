"""LSTM and UNIDIRECTIONAL_SEQUENCE_LSTM: what is refused. Arithmetic: test_lstm_basic.py, _float.py, _integer.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aot.errors import AotError
from tests.op._differential import main_of
from tests.op._lstm_models import Lstm, lstm_model


def test_eight_bits_between_products_and_sum_are_refused() -> None:
    """Twelve intermediate tensors say so; read as five they would give other bytes."""
    for extra, code in ((7, "E1261"), (0, "")):
        model = lstm_model(Lstm("LSTM", intermediates=extra))
        if not code:
            main_of(model)
            continue
        with pytest.raises(AotError, match=code):
            main_of(model)


@pytest.mark.parametrize(
    ("change", "oracle", "code"),
    [
        ({"cifg": True}, "tflm", "E1203"),
        ({"activation": "RELU"}, "tflm", "E1203"),
        ({"cell_power": -30}, "litert", "E1226"),
        ({"dtype": "int16", "peephole": True}, "litert", "E1203"),
        ({"op": "LSTM", "dtype": "int16"}, "litert", "E1202"),
        ({"dtype": "float32", "batch": 2}, "litert", "E1203"),
        ({"dtype": "float32", "activation": "SIGN_BIT"}, "litert", "E1203"),
    ],
)
def test_refused(change: dict[str, Any], oracle: str, code: str) -> None:
    with pytest.raises(AotError, match=code):
        main_of(lstm_model(replace(Lstm(), **change)), oracle=oracle)
