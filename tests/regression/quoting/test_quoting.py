"""Whatever a name, a title or a flag holds: in a shell, Make, CMake, a linker script and C it is a value."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aot.cli.options import CompileOptions, words_of
from aot.cli.verbs.run import reproducer_text
from aot.errors import ToolchainError
from aot.micro.board import load_board
from aot.micro.build.project import Places, linker_script
from aot.micro.new.registry import render
from aot.micro.run.zephyr import run_on_zephyr
from aot.support.text import cmake, comment, make, shell

HOSTILE = [
    "$(touch X)",
    "`touch X`",
    "a b",
    "'",
    '"',
    "a;touch X",
    "#x",
    "$$",
    "${X}",
    "\\",
    "a\\",
    "*",
    "-x",
    "|touch X",
    "&",
    "=%@",
]


def make_prints(words: list[str], folder: Path) -> list[str]:
    """What a recipe passes to a program, for words that were quoted for Make."""
    text = "WORDS := " + " ".join(map(make, words)) + "\nall:\n\t@printf '%s\\n' $(WORDS)\n"
    (folder / "Makefile").write_text(text)
    done = subprocess.run(["make", "-s", "-f", "Makefile"], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_words_of_a_makefile(tmp_path: Path) -> None:
    assert make_prints(HOSTILE, tmp_path) == HOSTILE
    assert not (tmp_path / "X").exists()


@pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed")
def test_arguments_of_cmake(tmp_path: Path) -> None:
    """As one value, and as an element of a list, where a backslash at the end cannot be (CMake has no way to write it)."""
    words = [w for w in HOSTILE if ";" not in w]
    lines = [f'set(WORD {cmake(word)})\nmessage(STATUS "[${{WORD}}]")' for word in words]
    elements = [w for w in HOSTILE if not w.endswith("\\")]
    lines += [f"set(WORDS {' '.join(map(cmake, elements))})", 'foreach(WORD ${WORDS})\nmessage(STATUS "[${WORD}]")\nendforeach()']
    (tmp_path / "x.cmake").write_text("\n".join(lines) + "\n")
    done = subprocess.run(["cmake", "-P", "x.cmake"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"-- [{word}]" for word in (*words, *elements)]


def test_words_of_a_shell(tmp_path: Path) -> None:
    text = "printf '%s\\n' " + " ".join(map(shell, HOSTILE))
    done = subprocess.run(["sh", "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == HOSTILE
    assert not (tmp_path / "X").exists()


@given(st.text(max_size=30) | st.text(alphabet="*/\\\n\r?'\"", max_size=12))
def test_no_comment_ends_or_goes_on(text: str) -> None:
    line = comment(text)
    assert len(f"/* {line} */".splitlines()) == 1
    assert re.findall(r"/\*|\*/", f"/* {line} */") == ["/*", "*/"]
    assert not line.endswith("\\")
    assert "??/" not in line


def test_plain_words_stay_as_they_are() -> None:
    for word in ("-mcpu=cortex-m4", "AOT_TICK_NUM=40u", "enable=on,target=native", "./board/nucleo", "-mthumb"):
        assert {shell(word), make(word), cmake(word), comment(word)} == {word}


def test_the_linker_script_of_a_hostile_title() -> None:
    """Such a title does not pass the reader of board.toml; a board may be made without it."""
    board = replace(load_board("mps2-an386"), title="*/ MEMORY {} /*\n x")
    text = linker_script(board, Places("SSRAM1", "SSRAM1", "SSRAM23", "SSRAM23"), [])
    first = text.splitlines()[1]
    assert first.startswith("/* mps2-an386: ")
    assert first.count("*/") == 1
    assert first.endswith("*/")


def test_regenerate_of_a_hostile_title(tmp_path: Path) -> None:
    class Spec:
        """What the template asks for."""

        board_argument = "./board/b$(touch X)"
        options = words_of(CompileOptions(pin=["$(touch X)=P"], feed_rows=True))

    text = render(
        "regenerate.sh.j2",
        note="n",
        models=[{"file": "$(touch X).tflite"}],
        kind="make;touch X",
        title="`touch X`",
        spec=Spec(),
        share=False,
    )
    (tmp_path / "regenerate.sh").write_text(text)
    done = subprocess.run(
        ["sh", "regenerate.sh"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={"AOT": "echo", "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.split()[:4] == ["new", ".", "models/$(touch", "X).tflite"]
    assert "--feed-rows --title" in done.stdout
    assert not (tmp_path / "X").exists()


def test_commands_to_copy_are_quoted() -> None:
    found = {"reproducer": "r$(x).npz", "one_layer": {"model": "m;x.tflite", "inputs": "i x.npz"}}
    lines = reproducer_text(found, Path("out dir"), model=Path("a b.tflite"), board="./b c/d", options=CompileOptions())
    assert lines == [
        "aot verify 'a b.tflite' --board './b c/d' --inputs 'out dir/r$(x).npz'",
        "aot verify 'out dir/m;x.tflite' --board './b c/d' --inputs 'out dir/i x.npz'",
    ]


def test_names_of_zephyr_boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aot.micro.run.zephyr.zephyr_base", lambda: tmp_path)
    for name in ("a;b", "$(x)", "-DX=1", "a b", "", "x" * 200, "a\n"):
        with pytest.raises(ToolchainError, match="E3022"):
            run_on_zephyr(name, [], metadata={}, compile_for=lambda cpu: None, folder=tmp_path)  # type: ignore[arg-type,return-value]
