"""docs/glossary.md beside the code: names and options do not use the words of its last column."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from scripts.pairs import parameters

ROOT = Path(__file__).resolve().parents[2]
VERBS = ("build", "check", "compile", "dump", "explore", "new", "report", "run", "tune", "verify")

OTHER_MEANINGS = {
    "code": "object code, codes of errors and operators, exit codes",
    "constant of the model": "several words",
    "fields": "of dataclasses and of files",
    "layout": "of memory maps and of linker scripts",
    "lower bound": "several words",
    "options": "of command lines and of TFLite's operators",
    "output": "of operators and models",
    "rest": "what remains of a text or a list",
    "ring": "circular buffers of states (`--rings`)",
    "root": "of paths, squares and pages",
    "schedule": "TVM's schedules of loops",
    "state": "persistent tensors",
    "step": "strides, and steps of a run",
    "te.Tensor": "TVM's name, no word",
    "timeout": "of boards, in seconds",
}
"""Words that are wrong for one thing and right for another, which a program cannot tell apart."""

RIGHT = {
    "take": {"take", "TakeAttrs", "_take"},  # relay's operator, a reader's method, and the row that a model is fed
    "tail": {"tail", "_tail", "Tail"},  # the end of a text, of erf's argument and of a split loop
    "rescale": {"rescale", "_rescale", "Rescale"},  # TFLite's two-step comparison of quantised numbers
    "pipeline": {"pipeline", "PipelineModel", "graph_pipeline"},  # of passes, and TVM's class of several models
    "arena": set[str](),
}
"""Names with a checked word that mean something else."""


@cache
def wrong_words() -> tuple[str, ...]:
    """The words of the last column that are checked."""
    rows = re.findall(r"^\| .+ \| .+ \| (.*?) \|$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    words = {word.strip() for row in rows for word in row.split(",") if word.strip() not in ("", "not", "---")}
    return tuple(sorted(words - set(OTHER_MEANINGS)))


def names_of(tree: ast.Module) -> Iterator[str]:
    """The names that a file gives to classes, functions, parameters and variables."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def test_some_words_are_checked() -> None:
    assert {"proposal", "patch", "tail", "arena", "pipeline"} <= set(wrong_words())
    assert set(RIGHT) <= set(wrong_words())


@pytest.mark.parametrize("word", wrong_words())
def test_no_name_uses_it(word: str) -> None:
    files = [p for p in (ROOT / "aot").rglob("*.py") if word in p.read_text(encoding="utf-8").lower()]
    names = {(p.name, name) for p in files for name in names_of(ast.parse(p.read_text(encoding="utf-8")))}
    assert [n for n in sorted(names) if word in words_of(n[1]) and n[1] not in RIGHT.get(word, ())] == []


@pytest.mark.parametrize("verb", VERBS)
def test_no_option_is_called_so(verb: str) -> None:
    flags = [flag for p in parameters(verb).values() for flag in p.opts]
    assert [f for f in flags if words_of(f) & set(wrong_words())] == []
