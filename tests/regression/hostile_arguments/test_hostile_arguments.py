"""Arguments that no one means: each ends in a coded error of the user's, never in E9001, and no device is read without end."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from aot.cli.__main__ import run

MODEL = str(Path(__file__).parents[2] / "models" / "add.tflite")
DIGITS = "9" * 5000
LONG = "x" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["diff", "/dev/full", "b.json"], marks=pytest.mark.slow),  # reads up to the limit
        ["diff", LONG, "b.json"],
        ["diff", "a\udce9", "b"],
        pytest.param(["report", MODEL, "--baseline", "/dev/zero"], marks=pytest.mark.slow),
        ["report", MODEL, "--baseline", LONG],
        ["report", MODEL, "--budget", "/dev/zero"],
        ["report", MODEL, "--budget", "nested.toml"],
        ["report", MODEL, "--budget", "digits.toml"],
        ["run", MODEL, "--inputs", "x.npy", "--labels", "/dev/zero"],
        ["run", MODEL, "--inputs", "x.npy", "--scale", "nan"],
        ["compile", MODEL, "--ram-budget", DIGITS],
        ["compile", MODEL, "--flash-budget", "\u0663"],
        ["compile", MODEL, "--shape", f"input={DIGITS}"],
        ["compile", MODEL, "--pool", f"P={DIGITS}"],
        ["compile", MODEL, "--const-pool", f"P=16@{DIGITS}"],
        ["compile", MODEL, "-o", LONG],
        ["compile", MODEL, "-o", LONG, "--format", "mlf"],
        ["compile", MODEL, "-n", "x" * 200],
        ["compile", MODEL, "--target", LONG],
        ["build", MODEL, "--board", LONG],
        ["build", MODEL, "--board", f"./{LONG}"],
        ["new", LONG, MODEL],
        ["dump", MODEL, "--all", LONG],
        ["verify", MODEL, "--timeout", "nan", "--board", "host"],
        ["verify", MODEL, "--timeout", "inf", "--board", "host"],
        ["verify", MODEL, "--board", "zephyr:a;b"],
    ],
)
def test_each_is_told(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ZEPHYR_BASE", raising=False)
    (tmp_path / "nested.toml").write_text(f"x = {'[' * 5000}")
    (tmp_path / "digits.toml").write_text(f"x = {DIGITS}")
    assert run(arguments) in (2, 6)
    text = capsys.readouterr().err
    assert re.match(r"E[35]\d\d\d ", text)
    assert "E9001" not in text


VALUES = [
    "",
    "-1",
    "nan",
    "1e300",
    DIGITS,
    "٣",
    "=",
    LONG,
    "../..",
    "/dev/full",
    "/",
    "\udce9",
    "\x1b[31m",
    "a\nb",
    "$(x)",
    "{}",
    "c",
    "1KB",
]


@pytest.mark.slow
def test_drawn_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Verbs that run nothing, each with drawn options and values."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(15)
    options = {}
    for verb in ("check", "compile", "dump", "diff", "new", "boards"):
        run([verb, "--help"])
        options[verb] = sorted(set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"})
    for _ in range(300):
        verb = draw.choice(sorted(options))
        line = [verb, *(draw.choice([MODEL, *VALUES]) for _ in range({"boards": 1, "new": 2, "diff": 2}.get(verb, 1)))]
        for option in draw.sample(options[verb], draw.randint(1, min(3, len(options[verb])))):
            line += [option, draw.choice(VALUES)]
        assert run(line) != 1, line
        assert "E9001" not in capsys.readouterr().err, line
