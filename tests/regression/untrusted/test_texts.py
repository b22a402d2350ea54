"""Texts from anywhere: chains, tuning records, text of both IRs, plug-ins and names in a page end in codes, in time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aot.driver.model_file import read_chain
from aot.driver.plugins import load_file
from aot.errors import AotError, UsageError
from aot.frontend.tflite import from_tflite
from aot.ir.module import HEAD
from aot.relay import parser as relay_parser
from aot.report.explore import explore_page
from aot.support.untrusted import parse_json, parse_toml
from aot.tir import parser as tir_parser
from aot.tune.record import Record, parse_line
from tests.models.golden import FOLDER
from tests.regression.untrusted.mutate import mutants

TIR = f"prim_func @f(x: int32[4], y: int32[4]) -> y {{\n  for i in 0..4 {{\n    y[i] = (x[i] + 1)\n  }}\n}}\n{HEAD}{{}}\n"
RECORD = Record("w", "k", "cortex-m4", "b", "gcc", "cycles", 3, 4, "text")
CHAIN = b'rate = 16000\n[[stage]]\nmodel = "a.tflite"\nslide = 1\n'


@pytest.mark.parametrize(
    "text",
    [b"x = " + b"[" * 5000, b"x = " + b"9" * 5000, b"a." * 20_000 + b"a = 1", b"\xff", b"x = " + b"{a=" * 5000, b"[[stage]]"],
)
def test_chains(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "c.toml").write_bytes(text)
    with pytest.raises(UsageError, match="E1300"):
        read_chain(tmp_path / "c.toml")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"v":' * 5000, "9" * 5000, "\ud800", RECORD.line().replace("text", "\\ud800")])
def test_records(text: str) -> None:
    with pytest.raises(UsageError, match="E550[12]"):  # noqa: RUF043
        parse_line(text, "here")


@pytest.mark.parametrize(
    "value",
    ["(" * 100_000, "(" * 300 + "1" + ")" * 300, "9" * 5000, "x[" * 5000, "float32(" * 5000, "1e999", " " * 100_000 + "²"],
)
def test_loop_nests(value: str) -> None:
    with pytest.raises(UsageError, match="E513"):
        tir_parser.parse_module(TIR.replace("(x[i] + 1)", value), "m")


def test_nested_statements() -> None:
    loops = "".join(f"for i{n} in 0..1 {{\n" for n in range(3000))
    with pytest.raises(UsageError, match="E5130"):
        tir_parser.parse_module(TIR.replace("  for i", f"{loops}  for i"), "m")


def graph() -> str:
    return relay_parser.print_module(from_tflite((FOLDER / "add.tflite").read_bytes()))


@pytest.mark.parametrize("value", ["(" * 100_000, "9" * 5000, "()" * 50_000, "%0." + "9" * 5000])
def test_graphs(value: str) -> None:
    text = graph()
    line = next(one for one in text.splitlines() if " = " in one)
    for changed in (text.replace(line, f"  %0 = add({value})"), text.replace("def @main", f"def @{value}")):
        with pytest.raises(AotError):
            relay_parser.parse_module(changed, "m")


@pytest.mark.parametrize(
    "end", ["import sys\nsys.exit(0)", "raise SystemExit", "raise GeneratorExit", "class X(BaseException): pass\nraise X"]
)
def test_plugins_do_not_end_the_command(tmp_path: Path, end: str) -> None:
    (tmp_path / "p.py").write_text(end)
    with pytest.raises(UsageError, match="E5110"):
        load_file(tmp_path / "p.py")


def test_words_of_the_page_in_a_name() -> None:
    text = explore_page("@DATA@ @POLICY@", [{"name": "@TITLE@ @DATA@"}], {})
    assert "<title>@DATA@ @POLICY@" in text
    assert text.count('"@TITLE@ @DATA@"') == 1


def examine(door: str, changed: bytes, folder: Path) -> None:
    text = changed.decode("utf-8", "replace")
    try:
        if door == "tir":
            tir_parser.parse_module(text, "m")
        elif door == "relay":
            relay_parser.parse_module(text, "m")
        elif door == "record":
            parse_line(changed.decode("utf-8", "surrogatepass" if b"\xff" not in changed else "replace"), "here").line().encode()
        else:
            (folder / "c.toml").write_bytes(changed)
            read_chain(folder / "c.toml")
    except (AotError, UnicodeDecodeError):
        return


DOORS = {"tir": TIR.encode, "relay": lambda: graph().encode(), "record": RECORD.line().encode, "chain": lambda: CHAIN}


@pytest.mark.parametrize("door", DOORS)
def test_mutations(tmp_path: Path, door: str) -> None:
    for changed in mutants(DOORS[door](), count=150, seed=19):
        examine(door, changed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_many_mutations(tmp_path: Path, door: str) -> None:
    for changed in mutants(DOORS[door](), count=5_000, seed=20):
        examine(door, changed, tmp_path)


def test_values_are_shallow() -> None:
    assert parse_json(json.dumps([[1], {"a": 2}])) == [[1], {"a": 2}]
    assert parse_toml(b"a.b = 1") == {"a": {"b": 1}}
    for text in ("[" * 65 + "]" * 65, "[" * 3000 + "]" * 3000):
        with pytest.raises(ValueError, match="nested"):
            parse_json(text)
