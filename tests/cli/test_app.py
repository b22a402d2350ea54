"""What a compilation imports, counted: each module, and each class that compiles its methods, costs every user a moment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "models" / "net_kws_dscnn.tflite"

COUNT = """
import dataclasses, json, sys
made = []
process = dataclasses._process_class
dataclasses._process_class = lambda cls, *args: made.append(cls.__module__) or process(cls, *args)
from aot.cli.__main__ import run
code = run(sys.argv[1:])
print(json.dumps({"code": code, "modules": sorted(sys.modules), "standard": [m for m in made if m.startswith("aot.")]}))
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Of a compilation without the cache: the modules, and those of ours that made standard dataclasses."""
    out = tmp_path_factory.mktemp("compiled") / "out"
    command = [sys.executable, "-c", COUNT, "compile", str(MODEL), "-o", str(out), "--no-cache", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    assert found["code"] == 0
    return found


@pytest.mark.slow
def test_operators_are_those_of_the_model(imported: dict[str, list[str]]) -> None:
    """Of 160 files; those of layers that the model has, and what these lean on."""
    assert len([m for m in imported["modules"] if m.startswith("aot.op.")]) <= 65


def test_modules(imported: dict[str, list[str]]) -> None:
    assert len([m for m in imported["modules"] if m.split(".")[0] == "aot"]) <= 460


def test_heavy_libraries_stay_out(imported: dict[str, list[str]]) -> None:
    assert not {"jinja2", "rich", "importlib.metadata", "highspy", "scipy", "PIL", "elftools", "tflite"} & set(
        imported["modules"]
    )


def test_dataclasses_are_ours(imported: dict[str, list[str]]) -> None:
    """Standard ones compile all their methods when they are imported; two are the patterns of the decorator, a few do no harm."""
    assert len(imported["standard"]) <= 12, imported["standard"]
