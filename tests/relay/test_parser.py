"""Text of graphs is parsed back to the same graph: text, meaning and C."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aot
from aot import relay
from aot.errors import AotError, UsageError
from aot.frontend.tflite import from_tflite
from aot.ir import IRModule, parse
from aot.ir.instrument import random_inputs
from aot.relay.expr import Function
from aot.relay.transform import pipeline
from aot.relay.verify import verify

MODELS = Path(__file__).resolve().parents[1] / "models"
CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "models"


def check_round_trip(module: IRModule, *, run: bool = True) -> IRModule:
    """The text of what a text is parsed to is that text; it means the same."""
    text = module.astext(show_meta_data=True)
    back = parse(text, name=module.name)
    assert back.astext(show_meta_data=True) == text
    old, new = module["main"], back["main"]
    assert isinstance(old, Function)
    assert isinstance(new, Function)
    if run:
        verify(new)
        inputs = random_inputs([p.type for p in old.params])
        for a, b in zip(relay.evaluate(old, inputs), relay.evaluate(new, inputs), strict=True):
            assert a.tobytes() == b.tobytes()
    return back


def network() -> IRModule:
    x = relay.var("x", shape=(1, 4, 4, 2), dtype="int8")
    w = np.arange(54, dtype=np.int8).reshape(3, 3, 3, 2)
    y = relay.qnn.requantize(relay.nn.conv2d(x, w, np.arange(3, dtype=np.int32), padding=1), [0.001, 0.002, 1 / 3])
    return IRModule.from_expr(relay.make_tuple([relay.clip(y, -3, 9), relay.qnn.softmax(relay.reshape(x, (1, -1)), 0.1)]))


def test_network_before_and_after_the_passes() -> None:
    check_round_trip(network())
    back = check_round_trip(pipeline()(network()))
    assert "fn conv2d" in str(back)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(MODELS.glob("*.tflite")), ids=lambda p: p.stem)
def test_models(path: Path) -> None:
    try:
        module = from_tflite(path.read_bytes(), name=path.stem)
    except AotError as error:
        pytest.skip(str(error))
    check_round_trip(module, run=False)
    check_round_trip(pipeline()(module))


@pytest.mark.slow
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
def test_corpus() -> None:
    checked = 0
    for path in sorted(CORPUS.rglob("*.tflite")):
        if path.stat().st_size > 1 << 14 and os.environ.get("AOT_FULL") != "1":
            continue
        try:
            module = from_tflite(path.read_bytes(), name="model")
        except AotError:
            continue
        check_round_trip(module, run=False)
        checked += 1
    assert checked > 30


@pytest.mark.slow
def test_parsed_text_compiles_to_the_same_bytes() -> None:
    module = from_tflite((MODELS / "net_kws_dscnn.tflite").read_bytes(), name="kws")
    assert aot.build(parse(module.astext(show_meta_data=True)), name="kws").files == aot.build(module, name="kws").files


def test_a_constant_that_is_read_twice_stays_one() -> None:
    x = relay.var("x", shape=(1, 4), dtype="int32")
    c = relay.const(np.arange(4, dtype=np.int32).reshape(1, 4))
    check_round_trip(IRModule.from_expr(relay.add(relay.multiply(x, c), c)))


def test_edited_text_counts() -> None:
    text = network().astext(show_meta_data=True)
    assert "lo=-3, hi=9" in text
    edited = parse(text.replace("lo=-3, hi=9", "lo=-2, hi=8"))
    assert "clip(%2, lo=-2, hi=8)" in str(edited)


EDITS: list[tuple[Callable[[str], str], str]] = [
    (lambda t: "", "E5130"),
    (lambda t: t.partition("#[metadata]")[0], "E5131"),
    (lambda t: t.partition("#[metadata]")[0] + "#[metadata]\n{}", "E5131"),
    (lambda t: t.partition("#[metadata]")[0] + "#[metadata]\n[]", "E5131"),
    (lambda t: t.partition("#[metadata]")[0] + "#[metadata]\n{", "E5131"),
    (lambda t: "#[metadata]\n{}", "E5130"),
    (lambda t: t.replace("nn.conv2d", "nn.conv9d"), "E5101"),
    (lambda t: t.replace("%1 = nn.bias_add(%0", "%1 = nn.bias_add(%7"), "E5130"),
    (lambda t: t.replace("strides=(1, 1)", "strides=(0, 1)"), "E5130"),
    (lambda t: t.replace("strides=(1, 1)", "stride=(1, 1)"), "E5130"),
    (lambda t: t.replace("int8[1, 4, 4, 2]", "int9[1, 4, 4, 2]"), "E5104"),
    (lambda t: t.replace("int8[1, 4, 4, 2])", "what)"), "E5130"),
    (lambda t: t.replace("def @main", "fed @main"), "E5130"),
    (lambda t: t.replace("\n}", "\n", 1), "E5130"),
]


@pytest.mark.parametrize("index", range(len(EDITS)))
def test_damaged_texts(index: int) -> None:
    edit, code = EDITS[index]
    text = network().astext(show_meta_data=True)
    assert edit(text) != text
    with pytest.raises(UsageError, match=code):
        parse(edit(text))


def test_any_cut_or_changed_byte_is_refused_or_parsed() -> None:
    rng = np.random.default_rng(2)
    text = network().astext(show_meta_data=True)
    for _ in range(150):
        i = int(rng.integers(len(text)))
        changed = text[:i] + chr(int(rng.integers(32, 127))) + text[i + 1 :]
        for damaged in (changed, text[:i]):
            try:
                parse(damaged)
            except AotError as error:
                assert error.exit_code == 2, error  # noqa: PT017
