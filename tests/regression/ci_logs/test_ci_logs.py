"""Names come from models and their files: in the log, the comment and the reports of a CI service none of them is a command."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from aot.cli.__main__ import run
from aot.cli.output import GuardedStream, Output
from aot.cli.verbs.report import progress
from aot.errors import Problem
from aot.report.measure.report import Job
from aot.report.render.blocks import cell
from aot.report.render.formats import junit
from aot.report.render.pages import report_markdown
from tests.models.golden import FOLDER

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = "a\n::error::owned ##[error]owned ##vso[task.setvariable x]y @user #12 GH-1 https://evil.example [/b] <b>|`"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def commands(log: str) -> list[str]:
    """What GitHub's runner (ActionCommand.cs) and Azure's agent would obey."""
    lines = re.split(r"[\n\r]", log)
    return [text for text in lines if re.match(r"\s*::\w+[^:]*::", text) or re.search(r"##(vso)?\[", text)]


def job(name: str) -> Job:
    return cast("Job", SimpleNamespace(model=SimpleNamespace(path=Path(f"{name}.tflite")), board="b"))


def test_the_line_of_each_model(monkeypatch: pytest.MonkeyPatch) -> None:
    err = io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    with progress(Output(), 2) as done:
        done(job("a\n::error::owned"), True)
    assert err.getvalue() == "1/2 a\\n::error::owned on b\n"


def test_the_bar_and_the_spinner_show_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """`[/b]` is rich's markup: it ended in MarkupError."""
    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)
    with progress(Output(), 2) as done:
        done(job("x[b]y[/i]\x1b[2J"), True)
    with Output().working("compiling x[/i]\x1b[2J"):
        pass
    assert "\x1b[2J" not in err.getvalue().replace("\x1b[2K", "")


@pytest.mark.parametrize("start", ["", "one\n", "  \n", "word "])
@pytest.mark.parametrize("name", ["GITHUB_ACTIONS", "TF_BUILD", "CI"])
def test_nothing_printed_is_a_command(monkeypatch: pytest.MonkeyPatch, start: str, name: str) -> None:
    monkeypatch.setenv(name, "true")
    inner = io.StringIO()
    stream = GuardedStream(inner)
    for text in (start, "::error::owned", "\n", "  ::warning file=a::owned\n\t::group::x", "\n", " ", "::debug::y\n"):
        stream.write(text)
    stream.write("names ##[error]x ##vso[task.y]z ##teamcity[b] and a::b C++'s std::vector # [1]\n")
    stream.write(str(Problem("E5001", "x\n::error::owned")) + "\n")
    assert commands(inner.getvalue()) == []
    assert "a::b C++'s std::vector # [1]" in inner.getvalue()


def test_json_stays_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    inner = io.StringIO()
    GuardedStream(inner).write(json.dumps({HOSTILE: HOSTILE}, indent=2))
    assert json.loads(inner.getvalue()) == {HOSTILE: HOSTILE}
    assert commands(inner.getvalue()) == []


def test_elsewhere_words_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "TF_BUILD", "TEAMCITY_VERSION"):
        monkeypatch.delenv(name, raising=False)
    inner = io.StringIO()
    GuardedStream(inner).write("::error:: ##[x]\n")
    assert inner.getvalue() == "::error:: ##[x]\n"


@pytest.mark.slow
def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CI", "true")
    names = ["x ##[error]owned.tflite", "y\n::error::owned.tflite", "::error::owned.tflite"]
    for name in names:
        (tmp_path / name).write_bytes((FOLDER / "add.tflite").read_bytes())
    monkeypatch.chdir(tmp_path)
    run(["report", "--board", "host", "--no-require-reference", "--format", "json,markdown,junit", *names])
    for name in (*names, "absent\n::error::owned", "##[error]absent"):
        run(["check", name])
        run(["info", name])
    shown = capsys.readouterr()
    assert commands(shown.out + "\n" + shown.err) == []
    assert "owned" in shown.out + shown.err


FAILURE: dict[str, Any] = {
    "model": HOSTILE, "board": HOSTILE, "problems": [{"code": "E1001", "message": HOSTILE, "where": HOSTILE}]
}  # fmt: skip


def test_junit_is_xml_with_the_name_in_it() -> None:
    for text in (HOSTILE, "]]>\x00\x1b\ud800\ufffe\x85\u2028</testcase>"):
        root = ElementTree.fromstring(junit([], [{**FAILURE, "model": text}], []))
        (case,) = root.iter("testcase")
        assert "\ufffe" not in case.attrib["classname"]
        if text == HOSTILE:
            assert case.attrib["classname"].startswith("a\n::error::owned")
            (error,) = case
            assert HOSTILE in error.attrib["message"]


def test_markdown_notifies_nobody_and_links_nowhere() -> None:
    text = cell(HOSTILE)
    assert "\n" not in text
    assert not re.search(r"(?<!\w)@\w|#\d|GH-\d|://|(?<!\\)[\[\]`|]|<", text)
    (row,) = [line for line in report_markdown([], [FAILURE], []).splitlines() if "owned" in line]
    assert len(re.findall(r"(?<!\\)\|", row)) == 4


def test_actions_are_pinned() -> None:
    """A tag can be moved; a commit cannot. The tag is in the comment."""
    found = []
    for path in (ROOT / "integrations/github/action.yml", ROOT / "docs/report.md", *(ROOT / ".github").rglob("*.yml")):
        found += re.findall(r"uses: +(\S+)(.*)", path.read_text(encoding="utf-8"))
    assert any(name.startswith("actions/") for name, _ in found)
    for name, rest in found:
        if not name.startswith(("./", "YOUR-")):
            assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}", name), name
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", rest), name
