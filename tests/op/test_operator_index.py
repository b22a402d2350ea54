"""The index of operators by name is what importing all of them enters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_is_current() -> None:
    done = subprocess.run([sys.executable, "scripts/operator_index.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def fresh(script: str) -> str:
    """What a script prints in a process that has imported nothing yet."""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


LOADED = "print(*sorted(m for m in __import__('sys').modules if m.startswith('aot.op.vision')))"


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("from aot.ir.op import Op; Op.get('image.resize_nearest')", "aot.op.vision"),
        ("from aot.ir.op import F_IS_VIEW; F_IS_VIEW.find('image.resize_nearest')", "aot.op.vision"),
        ("from aot.frontend.tflite.convert import converter_of; converter_of('RELU')", ""),
        ("from aot.ir.op import F_IS_VIEW; F_IS_VIEW.find('mine.own')", ""),
    ],
)
def test_the_file_of_an_operator_is_imported_when_it_is_asked_for(question: str, answer: str) -> None:
    assert fresh(f"{question}; {LOADED}") == answer


@pytest.mark.parametrize(
    "entry",
    [
        "from aot.ir.op import F_IS_VIEW; F_IS_VIEW.set('reshape', True)",
        "from aot.frontend.tflite.convert import from_tflite; from_tflite('RESHAPE', 'int8', 'reshape')(print)",
    ],
)
def test_what_is_there_already_is_refused_where_it_is_entered_again(entry: str) -> None:
    script = f"from aot.errors import UsageError\ntry:\n  {entry}\nexcept UsageError as error:\n  print(error.problems[0].code)"
    assert fresh(script) == "E5102"


def test_names_are_those_of_all() -> None:
    names = fresh("from aot.ir.op import Op; print(*Op.list_op_names())").split()
    assert "image.resize_nearest" in names
    assert len(names) > 150
