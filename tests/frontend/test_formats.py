"""Input formats: a file goes to the one that reads it, and a format that is added needs no other change."""

from __future__ import annotations

from pathlib import Path

import pytest

import aot
from aot import relay
from aot.errors import ModelError, UsageError
from aot.frontend import formats
from aot.frontend.formats import Choice, Format, check_model, format_of, from_model, nominal_macs, specialize
from aot.ir.module import IRModule
from aot.relay.expr import Function

MODELS = Path(__file__).parents[1] / "models"


def test_the_bytes_decide() -> None:
    model = (MODELS / "net_kws_dscnn.tflite").read_bytes()
    assert format_of(model).name == "TensorFlow Lite"
    assert format_of(b"// by hand\n\ndef @main(%x: int8[1]) -> int8[1] {").name == "relay text"
    assert format_of(b"").name == "TensorFlow Lite"
    assert nominal_macs(model) == 2_656_768
    with pytest.raises(ModelError):
        from_model(b"define")


def test_a_format_is_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a format of models that negate so many numbers."""

    def module(model: bytes, oracle: str, name: str) -> IRModule:
        x = relay.var("x", shape=(int(model[4:]),), dtype="int8")
        return IRModule.from_expr(Function((x,), relay.negative(x)), name=name)

    form = Format(
        "negations", ".neg", lambda m: m.startswith(b"NEG "), module, lambda m, oracle: [], lambda m, choice: m, lambda m: 0,
        lambda m: 1,
    )  # fmt: skip
    packages = {"negations": form} | {p: formats._format(p) for p in formats._PACKAGES}
    monkeypatch.setattr(formats, "_PACKAGES", tuple(packages))
    monkeypatch.setattr(formats, "_format", packages.__getitem__)
    artifact = aot.build(b"NEG 5", target="host", name="n")
    assert artifact.metadata["inputs"][0]["shape"] == [5]
    assert check_model(b"NEG 5") == []


def test_a_choice_of_shapes_for_a_text() -> None:
    text = b"def @main(%x: int8[1]) -> int8[1] {\n  %0 = negative(%x)\n  %0\n}\n"
    assert specialize(text) is text
    with pytest.raises(UsageError, match="E5027"):
        specialize(text, Choice(batch=2))
