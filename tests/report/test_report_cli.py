"""aot report and aot diff as a user runs them: files, baselines, budgets, exit codes."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from aot.errors import Problem, TargetError
from aot.report.figures.schema import load_schema
from aot.report.measure.gate import load_reports
from aot.report.measure.report import Job
from tests.cli.helper import Cli
from tests.report.sample_report import FAULT, sample

ROOT = Path(__file__).resolve().parent.parent.parent
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
FILES = ["badge.json", "benchmark.json", "junit.xml", "report.html", "report.json", "report.md"]


class Bench:
    """A stand-in for compiler and boards: makes samples, changed as a test wishes."""

    def __init__(self) -> None:
        self.changes: dict[str, int] = {}
        self.fingerprint: dict[str, Any] = {}
        self.exact = True
        self.fault = False
        self.refused: set[str] = set()

    def work(self, job: Job) -> dict[str, Any]:
        if job.model.path.stem in self.refused:
            raise TargetError(Problem("E2010", "planted"))
        report = copy.deepcopy(sample(job.model.path.stem, job.board))
        for total, change in self.changes.items():
            report["totals"][total] += change
        report["fingerprint"] |= self.fingerprint
        if not self.exact:
            report["verdict"] |= {"exact": False, "accepted": self.fault, "sets_exact": 1, "max_abs_diff": 1.0}
            report["verdict"]["known_fault"] = FAULT if self.fault else None
        return report


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    """In a folder with the models a.tflite and b.tflite."""
    made = Bench()
    monkeypatch.setattr("aot.cli.verbs.report.work", made.work)
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.tflite").write_bytes(b"x")
    return made


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_a_model_on_the_host(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("report", DIGITS, "--board", "host", "--random", "1", "--json")
    assert done.code == 0, done.err
    jsonschema.Draft202012Validator(load_schema()).validate(done.json)
    assert sorted(p.name for p in Path("out/report").iterdir()) == FILES
    assert json.loads(Path("out/report/report.json").read_text()) == done.json
    assert str(tmp_path) not in done.out
    assert str(ROOT) not in "".join(p.read_text() for p in Path("out/report").iterdir())


def test_a_matrix(cli: Cli, bench: Bench) -> None:
    done = cli("report", "a.tflite", "b.tflite", "a.tflite", "--board", "mps2-an386, host", "-o", "here", "--format", "json,html")
    assert done.code == 0, done.err
    assert sorted(p.name for p in Path("here").iterdir()) == ["report.html", "report.json"]
    assert list(load_reports(Path("here"))) == ["a@host", "a@mps2-an386", "b@host", "b@mps2-an386"]
    assert done.out.count("exact") == 4
    assert "4/4 b on host" in done.err
    again = Path("here/report.json").read_bytes()
    assert cli("report", "b.tflite", "a.tflite", "--board", "host,mps2-an386", "-o", "here", "-q").out == ""
    assert Path("here/report.json").read_bytes() == again


def test_a_failure_is_kept_beside_the_rest(cli: Cli, bench: Bench) -> None:
    bench.refused = {"a"}
    done = cli("report", "a.tflite", "b.tflite")
    assert done.code == 4
    assert done.err.splitlines()[-1] == "E2010 a.tflite@mps2-an386: planted (aot explain E2010)"
    data = json.loads(Path("out/report/report.json").read_text())
    assert [r["name"] for r in data["reports"]] == ["b"]
    assert data["failures"][0]["exit_code"] == 4
    assert not Path("aot-baseline.json").exists()
    assert cli("report", "a.tflite", "b.tflite", "--accept").code == 4
    assert not Path("aot-baseline.json").exists()


def test_outputs_that_differ_exit_5(cli: Cli, bench: Bench) -> None:
    bench.exact = False
    done = cli("report", "a.tflite", "--accept")
    assert done.code == 5
    assert done.err.startswith("E4001 a@mps2-an386: 1 of 2 sets differ")
    assert not Path("aot-baseline.json").exists()


def test_a_known_fault_of_the_reference_passes_the_gate(cli: Cli, bench: Bench) -> None:
    bench.exact, bench.fault = False, True
    done = cli("report", "a.tflite", "b.tflite", "--accept")
    assert (done.code, done.err.count("E4001")) == (0, 0)
    assert done.out.count("known fault") == 2
    texts = {p.name: p.read_text() for p in Path("out/report").iterdir()}
    jsonschema.Draft202012Validator(load_schema()).validate(json.loads(texts["report.json"]))
    assert "0/2 bit-exact, 2 off by a known fault of the reference" in texts["report.md"]
    assert "<failure" not in texts["junit.xml"]
    assert FAULT["what"] in texts["report.html"]
    assert json.loads(texts["badge.json"])["color"] == "brightgreen"
    one = cli("report", "a.tflite")
    assert (one.code, FAULT["example"] in " ".join(one.out.split())) == (0, True)


@pytest.mark.parametrize("total", ["instructions", "code", "constants", "workspace", "stack", "stack_bound"])
def test_one_more_than_the_baseline_exits_4(cli: Cli, bench: Bench, total: str) -> None:
    assert cli("report", "a.tflite", "--accept").code == 0
    assert cli("report", "a.tflite").code == 0
    bench.changes = {total: 1}
    done = cli("report", "a.tflite")
    assert done.code == 4
    (line,) = done.err.splitlines()
    assert line.startswith(f"E2020 a@mps2-an386: {total} ")
    assert "+1 from the baseline" in line
    bench.changes = {total: -1}
    done = cli("report", "a.tflite")
    assert done.code == 0
    assert " improved" in done.out
    assert cli("report", "a.tflite", "--accept").code == 0
    bench.changes = {}
    assert cli("report", "a.tflite").code == 4


def test_accept_keeps_other_models(cli: Cli, bench: Bench) -> None:
    assert cli("report", "a.tflite", "--accept", "--baseline", "ci/base.json").code == 0
    bench.changes = {"instructions": 5}
    assert cli("report", "b.tflite", "--accept", "--baseline", "ci/base.json").code == 0
    known = load_reports(Path("ci/base.json"))
    assert {k: r["totals"]["instructions"] for k, r in known.items()} == {"a@mps2-an386": 1000, "b@mps2-an386": 1005}


def test_a_model_that_the_baseline_lacks_is_new(cli: Cli, bench: Bench) -> None:
    cli("report", "a.tflite", "--accept")
    Path("budget.toml").write_text('instructions = "+1 %"\n')
    done = cli("report", "a.tflite", "b.tflite")
    assert done.code == 0, done.err
    assert "not in the baseline: b@mps2-an386" in done.out


def test_budget_of_pyproject(cli: Cli, bench: Bench) -> None:
    Path("pyproject.toml").write_text('[tool.aot.budget]\na.workspace = "63 B"\nb.workspace = "64 B"\n')
    done = cli("report", "a.tflite", "b.tflite")
    assert done.code == 4
    assert [line for line in done.err.splitlines() if line.startswith("E")] == [
        "E2020 a@mps2-an386: workspace 64 is more than 63 (63 B) (aot explain E2020)"
    ]


def test_accept_keeps_absolute_limits(cli: Cli, bench: Bench) -> None:
    """A new baseline moves relative limits only."""
    assert cli("report", "a.tflite", "--accept").code == 0
    before = Path("aot-baseline.json").read_bytes()
    Path("budget.toml").write_text('workspace = ["63 B", "+0 %"]\n')
    done = cli("report", "a.tflite", "--accept")
    assert done.code == 4
    assert done.err.startswith("E2020 a@mps2-an386: workspace 64 is more than 63 (63 B)")
    assert " accept" not in done.out
    assert Path("aot-baseline.json").read_bytes() == before
    Path("budget.toml").write_text('workspace = "64 B"\ninstructions = "+0"\n')
    bench.changes = {"instructions": 5}
    assert cli("report", "a.tflite", "--accept").code == 0
    assert Path("aot-baseline.json").read_bytes() != before


def test_a_baseline_that_is_named_must_exist(cli: Cli, bench: Bench) -> None:
    for arguments in (["--baseline", "none.json"], ["--budget", "relative.toml"]):
        Path("relative.toml").write_text('stack = "+1 %"\n')
        done = cli("report", "a.tflite", *arguments)
        assert done.code == 2
        assert done.err.startswith("E5052 ")


def test_a_baseline_of_another_compiler_is_no_measure(cli: Cli, bench: Bench) -> None:
    cli("report", "a.tflite", "--accept")
    bench.fingerprint = {"compiler": "gcc 13"}
    done = cli("report", "a.tflite")
    assert done.code == 2
    assert done.err.startswith("E5051 a@mps2-an386: compiler differs: gcc 12.2.1 before, gcc 13 now")
    assert load_reports(Path("out/report"))["a@mps2-an386"]["fingerprint"]["compiler"] == "gcc 13"
    assert cli("report", "a.tflite", "--allow", "compiler").code == 0
    bench.fingerprint = {"model": {"sha256": "cd" * 32, "file": "a.tflite"}, "tool": "aot 0.2"}
    assert cli("report", "a.tflite").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "pdf"],
        ["--allow", "colour"],
        ["--board", "none"],
        ["missing.tflite"],
        ["other/a.tflite"],
        ["--budget", "none.toml"],
    ],
)
def test_wrong_usage_exits_2_before_the_work(cli: Cli, bench: Bench, arguments: list[str]) -> None:
    Path("other").mkdir()
    Path("other/a.tflite").write_bytes(b"x")
    done = cli("report", "a.tflite", *arguments)
    assert done.code == 2, done.err
    assert done.err.startswith("E5")
    assert not Path("out").exists()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_diff_of_two_revisions(cli: Cli, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *arguments], check=True, capture_output=True)

    def work(job: Job) -> dict[str, Any]:
        bench.changes = {"instructions": len(job.model.data)}
        return bench.work(job)

    monkeypatch.setattr("aot.cli.verbs.report.work", work)
    git("init", "-q", "-b", "main")
    git("add", "a.tflite")
    git("commit", "-q", "-m", "one")
    Path("a.tflite").write_bytes(b"xyz")
    git("commit", "-q", "-a", "-m", "two")
    Path("a.tflite").write_bytes(b"wxyz")
    found = cli("diff", "HEAD~1", "main", "--model", "a.tflite", "--model", "b.tflite", "--json").json
    assert [(p["name"], p["totals"]["instructions"]["change"]) for p in found["pairs"]] == [("a", 2)]
    found = cli("diff", "main", ".", "--model", "a.tflite", "--model", "b.tflite", "--json").json
    assert found["pairs"][0]["totals"]["instructions"]["change"] == 1
    assert found["added"] == ["b@mps2-an386"]
    bench.refused = {"a"}
    refused = cli("diff", "main", ".", "--model", "a.tflite")
    assert refused.code == 4
    assert "E2010 main a.tflite@mps2-an386: planted (aot explain E2010)" in refused.err
    assert cli("diff", "main", ".", "--model", "none.tflite").err.startswith("E5001 neither 'main' nor '.' has none.tflite")
    done = cli("diff", "main", ".", "--model", "a.tflite", "--model", "other/a.tflite")
    assert (done.code, done.err.splitlines()[0]) == (
        2, "E5023 'a.tflite' and 'other/a.tflite' would both be called a (aot explain E5023)",
    )  # fmt: skip
    for revision in ("nowhere", "--all", "-p"):
        done = cli("diff", "--model", "a.tflite", "--", revision, ".")
        assert (done.code, done.err[:6]) == (2, "E5053 ")


def test_diff(cli: Cli, bench: Bench) -> None:
    cli("report", "a.tflite", "-o", "before")
    bench.changes = {"instructions": 10}
    bench.fingerprint = {"tool": "aot 0.2"}
    cli("report", "a.tflite", "b.tflite", "-o", "after")
    assert cli("diff", "before", "after").code == 2
    done = cli("diff", "before", "after/report.json", "--allow", "tool")
    assert done.code == 0
    assert "+10 (+1.00 %)" in done.out
    assert "b@mps2-an386" in done.out
    found = cli("diff", "before", "after", "--force", "--json").json
    assert found["pairs"][0]["totals"]["instructions"]["change"] == 10
    assert found["added"] == ["b@mps2-an386"]
    assert "| instructions | 1,000 | 1,010 | +10 (+1.00 %) |" in cli("diff", "before", "after", "--force", "--markdown").out
    assert cli("diff", "before", "nowhere").code == 2


def test_diff_of_different_models(cli: Cli, bench: Bench) -> None:
    """Reports of two models, and the models themselves; what else differs is still refused."""
    for name in ("a", "b"):
        bench.fingerprint = {"model": {"sha256": name * 64, "file": f"{name}.tflite"}}
        assert cli("report", f"{name}.tflite", "-o", f"of_{name}").code == 0
    for before, after in (("of_a", "of_b"), ("a.tflite", "b.tflite")):
        done = cli("diff", before, after)
        assert done.code == 0, done.err
        assert "b@mps2-an386, before a" in done.out
    assert " b@mps2-an386, before a: other model, same layers: no total changed" in cli("diff", "of_a", "of_b").out
    assert cli("diff", "a.tflite", "none.tflite").err.startswith("E5001 there is no file 'none.tflite'")
    bench.fingerprint |= {"compiler": "gcc 13"}
    assert cli("report", "b.tflite", "-o", "of_b").code == 0
    refused = cli("diff", "of_a", "of_b")
    assert refused.code == 2
    assert refused.err.startswith("E5051 b@mps2-an386: compiler differs")
