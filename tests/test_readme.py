"""The set-up, the demo and the figures of README.md; tests/site runs its other commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aot.errors import ToolchainError
from aot.micro.build.toolchain import find_tool

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = dict(re.findall(r"<!-- run: (\w+) -->\n```sh\n(.*?)\n```", README, re.DOTALL))


def sh(command: str, *, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would."""
    return subprocess.run(["bash", "-euc", command], cwd=cwd, capture_output=True, text=True, check=False, timeout=900)


def shown_output(name: str) -> str:
    """The output that the README shows for a command."""
    match = re.search(rf"<!-- output: {name} -->\n```text\n(.*?)\n```", README, re.DOTALL)
    assert match, f"no output of {name} in the README; run scripts/figures.py"
    return match.group(1)


def with_this_python(command: str) -> str:
    """`.venv/bin/aot` as the package under test."""
    return command.replace(".venv/bin/aot", f"{sys.executable} -m aot")


def test_readme_has_its_three_commands() -> None:
    assert list(COMMANDS) == ["demo", "test", "verify"]


def test_links_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]:
        prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", prose):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.qemu
def test_verify_command_shows_what_the_readme_shows() -> None:
    done = sh(with_this_python(COMMANDS["verify"]))
    assert done.returncode == 0, done.stderr
    assert re.search(r"4/4 sets bit-exact", done.stdout)
    _same_where_the_compiler_is(done.stdout, shown_output("verify"))


def _same_where_the_compiler_is(output: str, shown: str) -> None:
    """Figures depend on the compiler: compare them only with the one that the README's were made with."""
    version = re.search(r"arm-none-eabi-gcc [\d.]+", shown_output("verify"))
    assert version
    try:
        mine = find_tool("arm-none-eabi-gcc").version
    except ToolchainError as error:
        pytest.skip(str(error))
    if version.group().split()[1] not in mine:
        pytest.skip(f"the README's figures are of {version.group()}, here is {mine}")
    keep = re.compile(r"^ (outputs|flash|RAM|time|slowest|sample|accuracy)", re.MULTILINE)
    pick = [line for line in output.splitlines() if keep.match(line) and "reference" not in line]
    assert pick == [line for line in shown.splitlines() if keep.match(line) and "reference" not in line], (
        "out of date: scripts/figures.py"
    )


@pytest.mark.slow
def test_first_command_in_a_fresh_clone(tmp_path: Path) -> None:
    """Sets up .venv and runs the example; a second time without installing anything."""
    _clone(tmp_path)
    first = sh(COMMANDS["demo"], cwd=tmp_path / "clone")
    assert first.returncode == 0, first.stderr
    accuracy = re.search(r"accuracy +(\d+)/(\d+)", first.stdout)
    assert accuracy
    assert int(accuracy.group(1)) >= 0.95 * int(accuracy.group(2))
    again = sh(COMMANDS["demo"], cwd=tmp_path / "clone")
    assert again.stdout == first.stdout
    assert "installing" not in again.stderr
    _same_where_the_compiler_is(first.stdout, shown_output("demo"))


@pytest.mark.slow
def test_second_command_finds_the_tests(tmp_path: Path) -> None:
    """The tests themselves are not run from within a test."""
    _clone(tmp_path)
    done = sh(COMMANDS["test"] + " --collect-only -q", cwd=tmp_path / "clone")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert re.search(r"tests/test_readme.py", done.stdout)


def _clone(folder: Path) -> None:
    """What is committed, as a user gets it."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    environment = {**os.environ, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder / "clone")], check=True, env=environment)
