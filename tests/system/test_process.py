"""Programs that misbehave: compilers and emulators that do not start, hang, print garbage or write nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aot.cli.__main__ import run
from aot.errors import ToolchainError, UsageError
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.build.toolchain import find_tool, have_tool
from aot.micro.run.runner import run as run_board
from aot.runtime.module import load
from aot.system import process
from aot.system.process import require_output, run_program, version_of
from tests.micro import fake

MODEL = Path(__file__).parents[1] / "models" / "add.tflite"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program to be written; it stands for gcc, the cross compiler and the emulator, and nothing is cached."""
    path = tmp_path / "tool"
    for name in ("AOT_GCC", "AOT_ARM_NONE_EABI_GCC", "AOT_QEMU_SYSTEM_ARM"):
        monkeypatch.setenv(name, str(path))
    monkeypatch.setenv("AOT_CACHE", str(tmp_path / "cache"))
    version_of.cache_clear()
    return path


def write(path: Path, text: str, *, mode: int = 0o755) -> None:
    path.write_text(text)
    path.chmod(mode)


def code_of(error: pytest.ExceptionInfo[ToolchainError]) -> str:
    return error.value.problems[0].code


def test_output_that_is_no_utf8() -> None:
    done = run_program([sys.executable, "-c", r"import os; os.write(1, b'\xff1'); os.write(2, b'\xfe2'); os._exit(3)"])
    assert (done.code, done.out, done.err) == (3, "\ufffd1", "\ufffd2")


def test_programs_that_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "empty").touch(mode=0o755)
    (tmp_path / "text").write_bytes(b"\x7fELF is not all it takes")
    (tmp_path / "text").chmod(0o755)
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    for name in ("text", "plain", "absent", "a\0b", "."):
        with pytest.raises(ToolchainError, match=r"E3004 .* cannot be started: "):
            run_program([str(tmp_path / name)])


def test_a_program_that_does_not_end() -> None:
    for limit in (0.05, 0.0):
        with pytest.raises(ToolchainError, match=r"E3005 .* did not end within"):
            run_program(["sleep", "60"], timeout=limit)


def test_output_files(tmp_path: Path) -> None:
    for name, data in (("absent", None), ("empty", b""), ("text", b"hello")):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(ToolchainError, match="E3006"):
            require_output(tmp_path / name, "cc", magic=b"\x7fELF")
    require_output(tmp_path / "text", "cc")


TOOLS = {
    "not executable": ("#!/bin/sh\n", 0o644, "E3004"),
    "no program": ("\x7fELF", 0o755, "E3004"),
    "no such interpreter": ("#!/no/such/file\n", 0o755, "E3004"),
    "writes nothing": ("#!/bin/sh\nexit 0\n", 0o755, "E3006"),
    "fails without a word": ("#!/bin/sh\nexit 7\n", 0o755, "E3002"),
    "fails in Latin-1": ("#!/bin/sh\nprintf 'caf\\351 error\\n' >&2; printf '\\351\\n'; exit 1\n", 0o755, "E3002"),
    "is killed": ("#!/bin/sh\nkill -9 $$\n", 0o755, "E3002"),
    "floods": ("#!/bin/sh\nhead -c 3000000 /dev/zero >&2; exit 1\n", 0o755, "E3002"),
}


@pytest.mark.parametrize("kind", TOOLS)
def test_compilers_that_misbehave(program: Path, tmp_path: Path, kind: str) -> None:
    text, mode, code = TOOLS[kind]
    write(program, text, mode=mode)
    for attempt in (
        lambda: prepare(fake.tiny(), load_board("host")).image(),
        lambda: prepare(fake.tiny(), load_board("mps2-an386")).image(),
        lambda: load(fake.tiny()),
    ):
        with pytest.raises(ToolchainError) as caught:
            attempt()
        assert code_of(caught) == code
        assert all(c.isprintable() or c == "\n" for c in str(caught.value))


def test_a_compiler_that_hangs(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(program, "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(process, "VERSION_SECONDS", 0.05)
    assert not have_tool("gcc")
    with pytest.raises(ToolchainError, match="E3005"):
        find_tool("gcc")
    with pytest.raises(ToolchainError, match="E3005"):
        load(fake.tiny())


def test_a_compiler_that_writes_something_else(program: Path) -> None:
    script = '#!/bin/sh\nwhile [ $# -gt 1 ]; do if [ "$1" = -o ]; then echo hello > "$2"; fi; shift; done\n'
    write(program, script)
    with pytest.raises(ToolchainError, match=r"E3006 .* something else"):
        prepare(fake.tiny(), load_board("mps2-an386")).image()
    with pytest.raises(ToolchainError, match="E3004"):
        run_board(prepare(fake.tiny(), load_board("host")), fake.input_sets(1))


def test_a_program_that_leaves_no_outputs(program: Path, tmp_path: Path) -> None:
    result = '{"aot": 1, "status": 0, "sets": 1, "units": 0}'
    script = '#!/bin/sh\nwhile [ $# -gt 1 ]; do if [ "$1" = -o ]; then out=$2; fi; shift; done\n'
    script += f"cat >\"$out\" <<'END'\n#!/bin/sh\necho '{result}'\nEND\nchmod 755 \"$out\"\n"
    write(program, script)
    with pytest.raises(ToolchainError, match=r"E3011 .* left no outputs\.bin"):
        run_board(prepare(fake.tiny(), load_board("host")), fake.input_sets(1))


def test_a_cache_that_cannot_be_written(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "main.c").mkdir()
    with pytest.raises(UsageError, match="E5007"):
        prepare(fake.tiny(), load_board("host"), folder=folder)
    with pytest.raises(UsageError, match="E5007"):
        prepare(fake.tiny(), load_board("host"), folder=folder / "x" / ("y" * 300))


def test_doctor_says_what_is_wrong(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(program, "#!/no/such/file\n")
    assert run(["doctor"]) == 6
    assert "E9001" not in capsys.readouterr().err


@pytest.mark.parametrize("home", ["/dev/null", "/proc/none"])
def test_verbs_work_without_a_home(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not have_tool("gcc"):
        pytest.skip("gcc is not installed")
    for name in ("AOT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", home)
    assert run(["verify", str(MODEL), "--board", "host", "--random", "1", "-q", "-o", str(tmp_path)]) == 0
