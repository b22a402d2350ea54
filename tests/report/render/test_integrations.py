"""The pieces for CI services call the command line as it is, with what the user's inputs say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.helper import Cli

ROOT = Path(__file__).resolve().parent.parent.parent.parent
GITHUB = ROOT / "integrations" / "github"
GITLAB = ROOT / "integrations" / "gitlab" / "aot.gitlab-ci.yml"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")

FAKE_AOT = '#!/bin/sh\nprintf "%s\\n" "$@" >calls\nmkdir -p "$3"\necho "the table" >"$3/report.md"\nexit "${FAKE_CODE:-0}"\n'
FAKE_GH = """#!/bin/sh
printf "%s\\n" "$@" >>calls
case "$*" in
  *--jq*) printf "%s" "$FAKE_OLD" ;;
  *) for last; do :; done; cat "${last#body=@}" >body; exit "${FAKE_CODE:-0}" ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's repository with two models, and stand-ins for aot and gh that note how they are called."""
    for name, text in (("aot", FAKE_AOT), ("gh", FAKE_GH)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    for name in ("models/a.tflite", "models/deep/b c.tflite"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **variables}
    return subprocess.run(
        ["bash", str(GITHUB / script)], cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_report_passes_the_inputs_on(folder: Path) -> None:
    done = run(
        "report.sh", folder, AOT_MODELS="models/**/*.tflite", AOT_BOARDS="microbit,host", AOT_BASELINE="ci/base.json",
        AOT_ALLOW="compiler emulator", AOT_OPT="size", GITHUB_STEP_SUMMARY=str(folder / "summary"), FAKE_CODE="4",
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert calls(folder) == [
        "report", "--output", "aot-report", "--jobs", "2", "--board", "microbit,host", "--opt", "size", "--baseline",
        "ci/base.json", "--allow", "compiler", "--allow", "emulator", "--", "models/a.tflite", "models/deep/b c.tflite",
    ]  # fmt: skip
    assert (folder / "summary").read_text() == "the table\n"


def test_options_are_those_of_the_command_line(folder: Path) -> None:
    run("report.sh", folder, AOT_MODELS="models/a.tflite", AOT_OPTIONS="--ram-budget 20KiB\n--feed-rows")
    assert calls(folder)[5:-2] == ["--ram-budget", "20KiB", "--feed-rows"]


def test_inputs_are_words_and_no_commands(folder: Path) -> None:
    wild = "$(touch bad) *"
    run("report.sh", folder, AOT_MODELS="models/a.tflite $(touch bad) ;", AOT_BOARDS="$(touch bad)", AOT_OPTIONS=wild)
    assert "*" in calls(folder)
    assert not (folder / "bad").exists()
    assert "$(touch bad)" in calls(folder)


def test_report_without_models_fails(folder: Path) -> None:
    done = run("report.sh", folder, AOT_MODELS="none/*.tflite")
    assert done.returncode == 2
    assert "none/*.tflite" in done.stderr
    assert not (folder / "calls").exists()


@pytest.mark.parametrize("old", ["", "4711\n"])
def test_the_comment_is_made_once_and_then_replaced(folder: Path, old: str) -> None:
    (folder / "aot-report").mkdir()
    (folder / "aot-report" / "report.md").write_text("the table\n")
    names = {"GITHUB_REPOSITORY": "me/models", "PULL_REQUEST": "7", "FAKE_OLD": old}
    assert run("comment.sh", folder, **names).returncode == 0
    place = "repos/me/models/issues/comments/4711" if old else "repos/me/models/issues/7/comments"
    assert calls(folder)[-3] == place
    assert calls(folder)[-4] == ("PATCH" if old else "POST")
    assert (folder / "body").read_text() == "<!-- aot report -->\nthe table\n"
    refused = run("comment.sh", folder, **names, FAKE_CODE="1")
    assert refused.returncode == 0
    assert refused.stdout.startswith("::warning::")


def test_jobs_of_a_matrix_have_comments_of_their_own(folder: Path) -> None:
    """By the mark a comment is found again; an artifact of the same name is refused."""
    (folder / "aot-report").mkdir()
    (folder / "aot-report" / "report.md").write_text("the table\n")
    names = {"GITHUB_REPOSITORY": "me/models", "PULL_REQUEST": "7", "FAKE_OLD": ""}
    for job, mark in (("aot-report-1", "aot-report-1"), ('a"b', "a_b")):
        assert run("comment.sh", folder, **names, AOT_NAME=job).returncode == 0
        assert (folder / "body").read_text() == f"<!-- aot report: {mark} -->\nthe table\n"
    action = (GITHUB / "action.yml").read_text(encoding="utf-8")
    assert action.count("format('aot-report-{0}', strategy.job-index)") == 2


def test_every_option_that_is_used_exists(capsys: pytest.CaptureFixture[str]) -> None:
    known = set(re.findall(r"--[a-z-]+", Cli(capsys)("report", "--help").out))
    script = (GITHUB / "report.sh").read_text()
    used = set(re.findall(r"--[a-z][a-z-]+", re.sub(r"(?m)^\s*#.*$", "", script)))
    used |= set(re.findall(r"--[a-z][a-z-]+", next(line for line in GITLAB.read_text().splitlines() if "aot report --" in line)))
    assert {"--output", "--board", "--baseline"} <= used <= known


def test_the_files_are_yaml_and_hand_every_input_on() -> None:
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((GITHUB / "action.yml").read_text())
    text = (GITHUB / "action.yml").read_text()
    for name in action["inputs"]:
        assert f"inputs.{name}" in text, name
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", ""), "inputs go through the environment, never into a script's text"
    variables = {k for step in action["runs"]["steps"] for k in step.get("env", {})}
    assert set(re.findall(r"AOT_[A-Z]+", (GITHUB / "report.sh").read_text())) <= variables
    job = yaml.safe_load(GITLAB.read_text())[".aot-report"]
    assert job["artifacts"]["reports"]["junit"] == "aot-report/junit.xml"


def test_packages_are_installed_from_what_was_kept(folder: Path) -> None:
    for name in ("apt-get", "sudo", "chown"):
        tool = folder / "bin" / name
        tool.write_text('#!/bin/sh\n[ "${0##*/}" = sudo ] && exec "$@"\nprintf "%s " "${0##*/}" "$@" >>calls; echo >>calls\n')
        tool.chmod(0o755)
    done = run("../github/tools.sh", folder)
    assert done.returncode == 1, "without a folder"
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    kept = folder / "kept"
    command = ["bash", str(GITHUB / "tools.sh"), str(kept)]
    assert subprocess.run(command, cwd=folder, env=environment, check=False).returncode == 0
    update, install, own = calls(folder)
    assert update.startswith("apt-get update")
    assert f"Dir::Cache::archives={kept} " in install
    assert install.endswith("gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm ")
    assert own.startswith("chown -R ")
    assert (kept / "partial").is_dir()


def test_gitlab_keeps_the_same(folder: Path) -> None:
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load(GITLAB.read_text())[".aot-report"]
    kept = job["cache"]["paths"][0]
    assert all(kept.strip("/") in job["variables"][name] for name in ("AOT_CACHE", "PIP_CACHE_DIR"))
    assert any(f'Dir::Cache::archives="$PWD/{kept}apt"' in line for line in job["before_script"])
