"""The pages of the error codes: their form, and their examples, which are run."""

from __future__ import annotations

import io
import multiprocessing
import os
import shlex
import shutil
import subprocess
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import aot
from aot.cli.__main__ import run as run_verb
from aot.errors import AotError
from aot.errors.explanations import Example, Explanation, codes, explanation, parse
from aot.testing.text_model import text_model

PAGES = [page for code in codes() if (page := explanation(code)) is not None]
MODEL = """
in x int8[1,8] scale=0.05 zero_point=0
out y int8[1,8] scale=0.05 zero_point=0
RELU x -> y
"""
"""What examples find as model.tflite."""


def test_every_page_is_of_its_code() -> None:
    assert [p.code for p in PAGES] == list(codes())
    assert explanation("E0000") is None
    assert explanation("../E1001") is None


def test_every_page_has_examples() -> None:
    """Without exception: what no file can show, a plug-in, a wrapper of a tool or a call of ours does."""
    assert [p.code for p in PAGES if p.fails is None or p.works is None] == []


@pytest.mark.parametrize("page", ["", "E1001: no mark", "# E1001: title\n", "# E1001: title\n\ntext\n\n## Fails\n\nno block\n"])
def test_a_page_out_of_form_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"a page begins|a section is"):
        parse(page)


def run(example: Example, folder: Path) -> str:
    """What is wrong, in a process of its own; "" where it ends well."""
    fork = multiprocessing.get_context("fork")  # all is imported already
    here, there = fork.Pipe(duplex=False)
    process = fork.Process(target=_child, args=(example, folder, there))
    process.start()
    there.close()
    try:
        return str(here.recv())
    except EOFError:
        return "the process ended"
    finally:
        process.join()


def _child(example: Example, folder: Path, there: Connection) -> None:
    os.chdir(folder)
    Path("model.tflite").write_bytes(text_model(MODEL))
    for name, text in example.files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
        Path(name).chmod(0o755 if text.startswith("#!") else 0o644)
    os.environ.update(NO_COLOR="1", PWD=str(folder), AOT_CACHE=str(folder / ".cache"))
    errors = io.StringIO()
    with redirect_stderr(errors), redirect_stdout(io.StringIO()):
        try:
            good = {"tflite": _model, "python": _python, "sh": _shell}[example.language](example.code, errors)
        except AotError as error:
            good, _ = False, errors.write(str(error))
        except BaseException:
            good, _ = False, errors.write(traceback.format_exc())
    there.send("" if good else errors.getvalue() or "no message")


def _model(text: str, _errors: io.StringIO) -> bool:
    aot.build(text_model(text))
    return True


def _python(code: str, _errors: io.StringIO) -> bool:
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})
    return True


def _shell(code: str, errors: io.StringIO) -> bool:
    """Line by line; `aot ...` runs here unless the line needs a shell."""
    for line in code.splitlines():
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            os.environ[name] = os.path.expandvars(value)
        elif line.startswith("aot ") and not set(line) & set("<>|$;&"):
            if run_verb(shlex.split(line)[1:]) != 0:
                return False
        else:
            interpreter = shlex.quote(sys.executable)
            own = f'aot() {{ {interpreter} -m aot "$@"; }}\npython() {{ {interpreter} "$@"; }}\n{line}'
            env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
            done = subprocess.run(["bash", "-e", "-c", own], env=env, capture_output=True, text=True, timeout=600, check=False)
            errors.write(done.stderr)
            if done.returncode:
                return False
    return True


@pytest.fixture(scope="module")
def loaded() -> None:
    """What a compilation imports, so that not each of the processes has to."""
    aot.build(text_model(MODEL), target="host")


def needed(page: Explanation) -> list[str]:
    """The programs and packages that are not installed, and that the examples of a page use."""
    text = "".join(e.code + "".join(t for _, t in e.files) for e in (page.fails, page.works) if e is not None)
    runs = ("aot verify", "aot run", "aot build", "aot report", "aot tune")
    on_arm = [line for line in text.splitlines() if line.startswith(runs) and "--board host" not in line]
    programs = (["arm-none-eabi-gcc", "qemu-system-arm"] if on_arm else []) + (["gcc"] if "--board host" in text else [])
    packages = {"E3032": "ai_edge_litert", "E4010": "ai_edge_litert"}
    missing = [name for name in programs if shutil.which(name) is None]
    return missing + [name for code, name in packages.items() if code == page.code and find_spec(name) is None]


@pytest.mark.slow
@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.code)
def test_examples(page: Explanation, tmp_path: Path) -> None:
    assert page.fails is not None
    assert page.works is not None
    if missing := needed(page):
        pytest.skip(f"not installed: {', '.join(missing)}")
    for name in ("fails", "works"):
        (tmp_path / name).mkdir()
    assert page.code in run(page.fails, tmp_path / "fails")
    assert run(page.works, tmp_path / "works") == ""
