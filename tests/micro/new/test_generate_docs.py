"""The code and the tables of the pages on projects, archives and C++; tests/site runs the commands of all pages."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.micro.projects import DIGITS, ROOT, need, sh


def with_aot(folder: Path) -> str:
    """A PATH in whose first folder `aot` is this checkout's."""
    (folder / "bin").mkdir()
    script = folder / "bin" / "aot"
    script.write_text(f'#!/bin/sh\nexec env PYTHONPATH={ROOT} {sys.executable} -m aot "$@"\n')
    script.chmod(0o755)
    return f'PATH="{folder}/bin:$PATH"\n'


@pytest.mark.slow
def test_archive_in_model_library_format(tmp_path: Path) -> None:
    """The command of mlf.md, and a build with the two folders and the three sources that it names."""
    need("gcc", "tar")
    text = (ROOT / "docs" / "mlf.md").read_text()
    assert "`-Icodegen/host/include -Iruntime/include`" in text
    shutil.copy(DIGITS, tmp_path / "kws.tflite")
    command = re.findall(r"^aot .+$", text, re.MULTILINE)
    assert len(command) == 1
    build = "gcc -std=c99 -Icodegen/host/include -Iruntime/include -c codegen/host/src/kws_lib[012].c"
    sh(f"{with_aot(tmp_path)}{command[0]}\ntar xf kws.tar\n{build}", cwd=tmp_path)
    rows = [p for row in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE) for p in re.findall(r"`([^`]+)`", row)]
    for path in rows:
        full = path if "/" in path or path == "metadata.json" else f"{rows[rows.index(path) - 1].rsplit('/', 1)[0]}/{path}"
        if not path.startswith("_lib"):
            assert (tmp_path / full).exists(), path


@pytest.mark.slow
def test_code_of_the_cpp_page(tmp_path: Path) -> None:
    need("g++")
    code = re.search(r"```cpp\n(.*?)```", (ROOT / "docs" / "cpp.md").read_text(), re.DOTALL)
    assert code is not None
    includes, _, body = code.group(1).partition("\n\n")
    declared = "extern float features[64];\nvoid show(std::size_t best, float probability);\n"
    program = f"{includes}\n{declared}void recognise() {{\n{body}}}\n"
    (tmp_path / "main.cpp").write_text(program)
    shutil.copy(DIGITS, tmp_path / "kws.tflite")
    build = f"g++ -std=c++17 -Wall -Wextra -Werror -fno-exceptions -fno-rtti -Ikws -I{ROOT}/crt/include -c main.cpp"
    sh(f"{with_aot(tmp_path)}aot compile kws.tflite --target cortex-m4 -o kws\n{build}", cwd=tmp_path)


@pytest.mark.slow
def test_commands_of_the_projects_page(tmp_path: Path) -> None:
    """`aot new DIR MODEL... --kind KIND --board BOARD` for every kind of its tables, and `sh regenerate.sh`."""
    text = (ROOT / "docs" / "projects.md").read_text()
    assert "\naot new DIR MODEL... --kind KIND --board BOARD\n" in text
    from aot.micro.new.generate import project_kinds

    table = text[text.index("| kind |") :]
    kinds = re.findall(r"^\| `([a-z-]+)` \|", table[: table.index("\n\n")], re.MULTILINE)
    assert sorted(kinds) == project_kinds()
    path = with_aot(tmp_path)
    for kind in kinds:
        board = "rpi-pico2" if kind == "pico" else "mps2-an386"
        made = sh(f"{path}aot new {kind} {DIGITS} --kind {kind} --board {board} && cd {kind} && sh regenerate.sh", cwd=tmp_path)
        assert "0 of" in made.splitlines()[-1], made
