"""docs/plugins.md names what there is, and `compile -v` says why a plug-in's kernel was not considered."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aot.driver import plugins
from aot.testing.text_model import text_model
from aot.topi import strategy
from tests.cli.helper import Cli

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
DOTTED = re.compile(r"(?<![\w/.-])aot(?:\.[A-Za-z_]\w*)+")
KERNELS = """
from aot.topi.strategy import OpImplementation, register_impl

def lower(group, target, name):
    raise AssertionError("not lowered")

for operator in ("mine.mirror", "tanh", "nn.dense", "nn.bias_add"):
    name = "mine." + operator.rpartition(".")[2]
    register_impl(OpImplementation(name, operator, lambda group, target: False, lower))
"""


def resolved(name: str) -> Any:
    """The thing of a dotted name; AttributeError if there is none."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:k]))
        except ImportError:
            continue
        for part in parts[k:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


def pages() -> Iterator[Path]:
    yield from (ROOT / "docs").rglob("*.md")
    yield from (ROOT / "aot" / "errors" / "codes").glob("*.md")
    yield from (ROOT / n for n in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"))


def test_every_dotted_name_in_a_page_is_there() -> None:
    found = {name: page.name for page in pages() for name in DOTTED.findall(page.read_text(encoding="utf-8"))}
    del found["aot.plugins"]  # a group of entry points
    assert len(found) > 80
    missing = []
    for name, page in sorted(found.items()):
        try:
            resolved(name)
        except AttributeError:
            missing.append(f"{page}: {name}")
    assert not missing


def calls() -> Iterator[tuple[str, ast.Call]]:
    """(home, call) of each call that the table of plugins.md shows."""
    for span in re.findall(r"`@?(aot\.[^`]*\))`", PAGE):
        tree = ast.parse(span.replace("=…", "=...").replace(", …", "").replace("…", "..."), mode="eval").body
        assert isinstance(tree, ast.Call)
        yield ast.unparse(tree.func).rpartition(".")[0], tree


@pytest.mark.parametrize(("home", "call"), [pytest.param(h, c, id=ast.unparse(c.func)) for h, c in calls()])
def test_calls_of_the_page_can_be_made(home: str, call: ast.Call) -> None:
    """Functions, classes among their arguments, and keywords of both."""
    for inner in (c for c in ast.walk(call) if isinstance(c, ast.Call)):
        name = ast.unparse(inner.func)
        found = resolved(
            name if name.startswith("aot.") else f"{home}.{name}" if hasattr(resolved(home), name) else f"pathlib.{name}"
        )
        inspect.signature(found).bind_partial(*inner.args, **{k.arg: k.value for k in inner.keywords if k.arg})


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that registers kernels, forgotten after the test."""
    monkeypatch.setattr(plugins, "_LOADED", {})
    path = tmp_path / "mine.py"
    path.write_text(KERNELS)
    yield path
    for kernels in strategy._IMPLS.values():  # what was imported meanwhile stays
        kernels[:] = [k for k in kernels if not k.name.startswith("mine.")]


FOLDED = """
in x int8[1,8] scale=0.1 zero_point=0
tensor f float32[1,8]
tensor t float32[1,8]
out y int8[1,8] scale=0.1 zero_point=0
DEQUANTIZE x -> f
TANH f -> t
QUANTIZE t -> y
"""


def said(capsys: pytest.CaptureFixture[str], model: Path, *words: object) -> list[str]:
    """What a compilation says of kernels of plug-ins."""
    done = Cli(capsys)("compile", model, "-o", model.parent / "out", "--force", *words)
    assert done.code == 0, done.err
    return [line.split(None, 1)[1] for line in done.out.splitlines() if line.startswith(" kernel ")]


@pytest.mark.slow
def test_compile_says_why_a_kernel_was_not_considered(plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "net.tflite"
    model.write_bytes((ROOT / "tests" / "models" / "net_kws_dscnn.tflite").read_bytes())
    assert said(capsys, model, "--plugin", plugin) == []
    assert said(capsys, model, "--plugin", plugin, "-v") == [
        "mine.bias_add for nn.bias_add: considered for 0 of 10; 5 are fused into nn.conv2d; 4 are fused into nn.depthwise_conv2d;"
        " 1 is fused into nn.dense",
        "mine.dense for nn.dense: considered for 0 of 1; not for 1: accepts(group, target) refuses them",
        "mine.mirror for mine.mirror: the graph has no such operator (aot dump MODEL --after infer_type)",
        "mine.tanh for tanh: the graph has no such operator (aot dump MODEL --after infer_type)",
    ]


def test_it_names_the_pass_that_rewrote_the_operator(plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "folded.tflite"
    model.write_bytes(text_model(FOLDED))
    assert "mine.tanh for tanh: considered for 0 of 1; fold_to_table rewrote 1" in said(capsys, model, "--plugin", plugin, "-v")
