"""`aot new`: whose file is whose, and projects that build without aot and give the right bytes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from aot.micro.new.generate import project_kinds
from aot.micro.new.registry import _literal
from aot.system.files import digest
from tests.micro.projects import DIGITS, ROOT, TWO_IO, need, new, sh, snapshot


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A make project of digits; tests that change it work on a copy."""
    folder = tmp_path_factory.mktemp("new") / "demo"
    new(folder, DIGITS)
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "demo"
    for name, data in snapshot(made).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def test_manifest_lists_what_is_generated(made: Path) -> None:
    manifest = json.loads((made / "aot-project.json").read_text())
    files = snapshot(made)
    yours = set(files) - set(manifest["generated"]) - {"aot-project.json"}
    assert yours == {"Makefile", "src/main.c", "src/console.c", "src/profile.c", "src/profile.h"}
    assert all(digest(files[name]) == value for name, value in manifest["generated"].items())
    assert files["models/digits.tflite"] == DIGITS.read_bytes()


def test_project_names_its_version_and_no_path_of_this_machine(made: Path) -> None:
    from aot.version import __version__

    assert f"aot {__version__}" in (made / "README.md").read_text()
    for name, data in snapshot(made).items():
        assert str(ROOT).encode() not in data, name
        assert str(made.parent).encode() not in data, name


def test_an_existing_folder_is_left_alone(project: Path) -> None:
    before = snapshot(project)
    new(project, DIGITS, code=2)
    assert snapshot(project) == before


def test_the_empty_folder_that_we_are_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    node = tmp_path.stat().st_ino
    new(Path("."), DIGITS, "--title", "here")
    assert tmp_path.stat().st_ino == node
    assert Path("Makefile").read_text().splitlines()[1].startswith("# here. ")
    assert Path("regenerate.sh").stat().st_mode & 0o100


def test_force_does_not_touch_what_is_no_project(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    new(tmp_path, DIGITS, "--force", code=2)
    assert snapshot(tmp_path) == {"notes.txt": b"mine"}


def test_regenerating_changes_generated_files_only(project: Path) -> None:
    before = snapshot(project)
    (project / "src" / "main.c").write_text("/* mine */\n")
    (project / "src" / "more.c").write_text("/* mine, too */\n")
    (project / "aot" / "models" / "digits.h").unlink()
    (project / "aot" / "board.ld").write_bytes(before["aot/board.ld"].replace(b"\n", b"\r\n"))
    new(project, project / "models" / "digits.tflite", "--force", "--opt", "size")
    after = snapshot(project)
    assert after["src/main.c"] == b"/* mine */\n"
    assert after["src/more.c"] == b"/* mine, too */\n"
    assert after["Makefile"] == before["Makefile"]
    assert after["aot/board.ld"] == before["aot/board.ld"]
    assert b"--opt size" in after["regenerate.sh"]
    assert "aot/models/digits.h" in after


@pytest.mark.slow
def test_regenerating_with_the_same_model_changes_nothing(project: Path) -> None:
    before = snapshot(project)
    sh(f"AOT='{sys.executable} -m aot' PYTHONPATH='{ROOT}' sh regenerate.sh", cwd=project)
    assert snapshot(project) == before


@pytest.mark.slow
def test_regenerating_repeats_the_options(tmp_path: Path) -> None:
    """One test for all options that `aot new` has: none may get lost."""
    new(tmp_path / "p", DIGITS, "--kernels", "generic", "--opt", "ram", "--ram-budget", "96 KiB", "--flash-budget", "1MiB")
    before = snapshot(tmp_path / "p")
    script = before["regenerate.sh"].decode()
    assert "--oracle litert --opt ram --kernels generic --flash-budget 1MiB --ram-budget '96 KiB'" in script
    sh(f"AOT='{sys.executable} -m aot' PYTHONPATH='{ROOT}' sh regenerate.sh", cwd=tmp_path / "p")
    assert snapshot(tmp_path / "p") == before


def test_a_generated_file_changed_by_hand_is_not_lost(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = project / "aot" / "models" / "digits.c"
    path.write_text(path.read_text() + "/* my fix */\n")
    before = snapshot(project)
    new(project, DIGITS, "--force", code=2)
    assert snapshot(project) == before
    assert "E5041" in capsys.readouterr().err


def test_a_model_that_left_takes_its_files_along(project: Path) -> None:
    new(project, TWO_IO, "--force", "--name", "pair")
    names = set(snapshot(project))
    assert not any("digits" in n for n in names)
    assert "aot/models/pair.c" in names


def test_a_manifest_cannot_name_files_outside(project: Path) -> None:
    outside = project.parent / "outside.txt"
    outside.write_text("stays")
    manifest = json.loads((project / "aot-project.json").read_text())
    manifest["generated"]["../outside.txt"] = digest(b"stays")
    (project / "aot-project.json").write_text(json.dumps(manifest))
    new(project, DIGITS, "--force", code=2)
    assert outside.read_text() == "stays"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([DIGITS, DIGITS], "E5043"),
        ([DIGITS, "--kind", "scons"], "E5042"),
        ([DIGITS, "--name", "a", "--name", "b"], "E5043"),
        ([DIGITS, "--board", "nowhere"], "E5020"),
    ],
)
def test_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[object], error: str) -> None:
    new(tmp_path / "p", *arguments, code=2)
    assert error in capsys.readouterr().err
    assert not (tmp_path / "p").exists()


@pytest.mark.slow
def test_a_board_of_ones_own_goes_along(tmp_path: Path) -> None:
    text = (ROOT / "boards" / "mps2-an386" / "board.toml").read_text()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "board.toml").write_text(text.replace('name = "mps2-an386"', 'name = "mine"'))
    new(tmp_path / "p", DIGITS, "--board", tmp_path / "mine")
    assert b"--board ./board/mine" in snapshot(tmp_path / "p")["regenerate.sh"]
    toml = tmp_path / "p" / "board" / "mine" / "board.toml"
    toml.write_text(toml.read_text().replace("stack = 32768", "stack = 16384"))
    sh(f"AOT='{sys.executable} -m aot' PYTHONPATH='{ROOT}' sh regenerate.sh", cwd=tmp_path / "p")
    assert b". += 16384;" in snapshot(tmp_path / "p")["aot/board.ld"]
    assert b"stack = 16384" in toml.read_bytes()


def test_kinds() -> None:
    assert {"make", "cmake", "mlperf-tiny"} <= set(project_kinds())


def test_literals_are_exact() -> None:
    assert _literal(np.int32(-(2**31)).item(), "int32") == "(-2147483647 - 1)"
    assert _literal(-(2**63), "int64") == "(-9223372036854775807ll - 1)"
    assert _literal(2**64 - 1, "uint64") == "18446744073709551615ull"
    assert _literal(0.1, "float32").endswith("f")
    assert float.fromhex(_literal(0.1, "float64")) == 0.1


_COUNT = re.compile(r"PASS (\w+): (?:(\d+) instructions, )?0 outputs differ")


def passes(text: str) -> dict[str, str]:
    """Models that passed -> instructions as text."""
    assert "FAIL" not in text
    return {m.group(1): m.group(2) or "" for m in _COUNT.finditer(text)}


@pytest.mark.qemu
def test_make_project_on_a_board(project: Path) -> None:
    need("arm-none-eabi-gcc", "qemu-system-arm", "make")
    counts = passes(sh("make -s -j2 WERROR=-Werror && make -s run", cwd=project))
    assert int(counts["digits"]) > 1000
    assert sh("make -s run", cwd=project).count("PASS") == 1
    assert counts == passes(sh("make -s run", cwd=project))


@pytest.mark.qemu
def test_a_wrong_byte_fails(project: Path) -> None:
    need("arm-none-eabi-gcc", "qemu-system-arm", "make")
    path = project / "aot" / "models" / "digits_test.c"
    head, mark, tail = path.read_text().partition("static const int8_t output_0[")
    path.write_text(head + mark + tail.replace("-128,", "-127,", 1))
    text = sh("make -s && make -s run || true", cwd=project)
    assert "FAIL digits" in text
    assert "1 outputs differ" in text


@pytest.mark.slow
def test_make_project_on_the_host(tmp_path: Path) -> None:
    need("gcc", "make")
    new(tmp_path / "p", DIGITS, TWO_IO, "--board", "host", "--share-workspace", "--kind", "make")
    text = sh("make -s -j2 WERROR=-Werror && make -s run", cwd=tmp_path / "p")
    assert set(passes(text)) == {"digits", "graph_two_inputs_two_outputs"}


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an385", "mps3-an547", "host"])
def test_cmake_project_with_two_models(tmp_path: Path, board: str) -> None:
    need("arm-none-eabi-gcc", "qemu-system-arm", "cmake")
    new(tmp_path / "p", DIGITS, TWO_IO, "--board", board, "--kind", "cmake", "--share-workspace", "--oracle", "tflm")
    command = "cmake -B build -DCMAKE_C_FLAGS=-Werror && cmake --build build -j2 && cmake --build build -t run"
    assert set(passes(sh(command, cwd=tmp_path / "p"))) == {"digits", "graph_two_inputs_two_outputs"}


@pytest.mark.qemu
@pytest.mark.parametrize("kind", ["make", "cmake"])
def test_readme_word_by_word(tmp_path: Path, kind: str) -> None:
    need("arm-none-eabi-gcc", "qemu-system-arm", "make", "cmake")
    new(tmp_path / "p", DIGITS, "--kind", kind)
    command = re.search(r"## Build and run\n\n```sh\n(.*?)```", (tmp_path / "p" / "README.md").read_text(), re.DOTALL)
    assert command is not None
    assert "digits" in passes(sh(command.group(1), cwd=tmp_path / "p"))
