"""Words that somebody may have meant, and the messages that say so."""

from __future__ import annotations

import pytest

from aot.support.text import did_you_mean, nearest
from tests.cli.conftest import cli  # noqa: F401 - a fixture
from tests.cli.helper import Cli

WORDS = ["speed", "balanced", "size", "ram", "mps2-an385", "mps2-an386", "CONV_2D"]


@pytest.mark.parametrize(
    ("word", "first"),
    [("sped", "speed"), ("SIZE", "size"), ("conv2d", "CONV_2D"), ("an385", "mps2-an385"), ("mps2_an386", "mps2-an386")],
)
def test_the_nearest_comes_first(word: str, first: str) -> None:
    assert nearest(word, WORDS)[0] == first


@pytest.mark.parametrize("word", ["", "x", "zephyr", "\x1b[31m"])
def test_nothing_is_near(word: str) -> None:
    assert nearest(word, WORDS) == []
    assert did_you_mean(word, WORDS) == ""


def test_the_text() -> None:
    assert did_you_mean("sped", WORDS) == " (did you mean speed?)"
    assert did_you_mean("an38", ["an38a", "an38b", "an38c"]) == " (did you mean an38a, an38b or an38c?)"
    assert did_you_mean("abcd", ["abc\x1b"]) == " (did you mean abc\\x1b?)"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("boards nrf52", "nrf52840dk"),
        ("compile M --target cortex-m44", "cortex-m4"),
        ("compile M --opt sped", "speed"),
        ("compile M --oracle tfml", "tflm"),
        ("explain E12O3", "E1203"),
        ("explain softmx", "SOFTMAX"),
        ("compile S --signature serving_defualt", "serving_default"),
        ("dump M --stop-after fuse_op", "fuse_ops"),
        ("report M --format htlm", "html"),
        ("report M --allow compilers", "compiler"),
        ("compile M --pin sate=FAST --pool FASTER=16K@0x10000000:2", "FASTER"),
        ("verfy M", "verify"),
        ("compile M --bord host", "--board"),
    ],
)
def test_messages(arguments: str, meant: str, cli: Cli, pytestconfig: pytest.Config) -> None:  # noqa: F811
    models = {"M": "examples/digits/digits.tflite", "S": "tests/models/graph_signature.tflite"}
    done = cli(*(pytestconfig.rootpath / models[w] if w in models else w for w in arguments.split()))
    assert done.code == 2
    assert meant in done.err
