"""Every generated file states its licence, and so does every file of the runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

import aot
from aot.micro.new.generate import project_kinds
from aot.target.codegen_c import GENERATED, PARAMETERS
from tests.micro.projects import DIGITS, ROOT, new, snapshot

_SOURCES = {".c", ".h", ".hpp", ".cpp", ".ino", ".mk", ".cmake", ".sh", ".ini", ".conf", ".ld", ".rs", ".toml", ".yml", ".pdsc"}
_FOREIGN = {"board.toml"}  # copied as it is
_NAMES = {"Makefile", "CMakeLists.txt"}


def stated(text: str) -> str:
    """The licence of a file by its first two lines (in a script the second one); empty when there is none."""
    lines = [line for line in text.splitlines()[:2] if "SPDX-License-Identifier: " in line]
    return lines[0].partition(": ")[2].removesuffix("*/").removesuffix("-->").strip() if lines else ""


def is_source(name: str) -> bool:
    return Path(name).suffix in _SOURCES or Path(name).name in _NAMES


def test_files_of_a_model() -> None:
    artifact = aot.build(DIGITS, target="cortex-m4")
    licences = {name: stated(text) for name, text in artifact.files.items() if is_source(name)}
    assert len(licences) == 5
    assert licences.pop("digits_params.c") == PARAMETERS, "a model's numbers are not ours to license"
    assert set(licences.values()) == {GENERATED}


@pytest.mark.parametrize("kind", sorted(project_kinds()))
def test_files_of_a_project(kind: str, tmp_path: Path) -> None:
    new(tmp_path / "p", DIGITS, "--kind", kind)
    runtime = {p.name for p in (ROOT / "crt").rglob("*.[ch]*")}
    for path, data in snapshot(tmp_path / "p").items():
        if is_source(path):
            name = Path(path).name
            if name in _FOREIGN:
                continue
            wanted = PARAMETERS if name == "digits_params.c" else "Apache-2.0" if name in runtime else GENERATED
            assert stated(data.decode()) == wanted, path


def test_files_of_the_runtime() -> None:
    files = [p for folder in ("crt", "zephyr") for p in (ROOT / folder).rglob("*") if is_source(p.name)]
    assert len(files) > 20
    assert {stated(p.read_text()) for p in files} == {"Apache-2.0"}
