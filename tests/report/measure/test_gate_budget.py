"""Limits: their forms, which one counts, and what the gate finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aot.cli.common import options_for
from aot.cli.options import CompileOptions
from aot.errors import UsageError
from aot.report.measure.gate import WATCHED, Budget, check_report, check_reports, load_budget, parse_budget, parse_limit
from tests.report.sample_report import host_sample, sample


def budget(**table: Any) -> Budget:
    return parse_budget(table, Path("budget.toml"))


@pytest.mark.parametrize(
    ("value", "baseline", "bound"),
    [
        (4096, None, 4096),
        ("24 KiB", None, 24576),
        ("24KiB", 1, 24576),
        ("1.5 MiB", None, 1572864),
        ("10 kB", None, 10000),
        ("2.5 M", None, 2500000),
        ("1_000", None, 1000),
        ("64 B", None, 64),
        ("+0.5 %", 1000, 1005),
        ("+0.5%", 199, 199),
        ("+128", 1000, 1128),
        ("+1 KiB", 1000, 2024),
        ("+0", 7, 7),
        ("+10 %", None, None),
    ],
)
def test_limits(value: object, baseline: int | None, bound: int | None) -> None:
    assert parse_limit(value, "here").bound(baseline) == bound


@pytest.mark.parametrize("value", ["", "many", "5 %", "24 KB/s", "-3", -3, 1.5, True, None, "+", "1e3", "3 Ki"])
def test_what_is_no_limit(value: object) -> None:
    with pytest.raises(UsageError) as caught:
        parse_limit(value, "here")
    assert caught.value.problems[0].code == "E5052"


def test_the_closest_rule_counts() -> None:
    rules = budget(**{
        "workspace": "1 B", "@mps2-an386": {"workspace": "2 B"}, "net": {"workspace": "3 B"}, "net@host": {"workspace": "4 B"},
    })  # fmt: skip
    bounds = {}
    for name, board in (("net", "host"), ("net", "mps2-an386"), ("other", "mps2-an386"), ("other", "host")):
        found = rules.limits(sample(name, board), "workspace")
        assert found is not None
        bounds[name, board] = found[0].bound(None)
    assert list(bounds.values()) == [4, 3, 2, 1]


def test_without_rules_nothing_may_grow_over_a_baseline() -> None:
    assert all(f.state == "ok" for f in check_report(sample(), None, sample()))
    for metric in WATCHED:
        worse = sample()
        worse["totals"][metric] += 1
        (over,) = [f for f in check_report(worse, None, sample()) if f.state == "over"]
        assert (over.key, over.metric, over.value - over.bound) == ("net@mps2-an386", metric, 1)
        assert "+1 from the baseline" in over.text
        better = sample()
        better["totals"][metric] -= 1
        assert [f.metric for f in check_report(better, None, sample()) if f.state == "improved"] == [metric]


def test_a_rule_replaces_the_ban_on_growth() -> None:
    worse = sample()
    worse["totals"]["instructions"] = 1005
    assert not [f for f in check_report(worse, budget(instructions="+0.5 %"), sample()) if f.state == "over"]
    assert not [f for f in check_report(worse, budget(instructions="2 k"), sample()) if f.state == "over"]
    assert not [f for f in check_report(worse, budget(instructions=False), sample()) if f.state == "over"]
    worse["totals"]["instructions"] = 1006
    (over,) = [f for f in check_report(worse, budget(instructions=["2 k", "+0.5 %"]), sample()) if f.state == "over"]
    assert (over.limit, over.bound) == ("+0.5 %", 1005)


def test_a_rule_for_a_sum_covers_its_parts() -> None:
    worse = sample()
    worse["totals"] |= {"code": 130, "flash": 250}
    assert [f.metric for f in check_report(worse, None, sample()) if f.state == "over"] == ["code"]
    assert [f.metric for f in check_report(worse, budget(flash="+9"), sample()) if f.state == "over"] == ["flash"]
    assert not [f for f in check_report(worse, budget(flash="+10"), sample()) if f.state == "over"]


def test_absolute_limits_need_no_baseline_and_relative_ones_say_so() -> None:
    found = check_reports([sample()], budget(workspace="63 B", instructions="+1 %"), None)
    assert [(f.metric, f.state) for f in found] == [("instructions", "new"), ("workspace", "over")]
    assert "not in the baseline" in found[0].text
    assert check_reports([sample("other")], None, {"net@mps2-an386": sample()}) == []


def test_figures_that_a_board_cannot_tell_are_not_judged() -> None:
    found = check_report(host_sample(), budget(instructions="1 B", workspace="1 KiB"), None)
    assert [(f.metric, f.state) for f in found] == [("workspace", "ok")]


def test_all_that_is_wrong_with_a_file_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "budget.toml"
    path.write_text('speed = "1 KiB"\nbaseline = 3\n[net]\nworkspace = "many"\n')
    with pytest.raises(UsageError) as caught:
        load_budget(path, tmp_path)
    assert [p.code for p in caught.value.problems] == ["E5052"] * 3


def test_where_budgets_are_found(tmp_path: Path) -> None:
    assert load_budget(None, tmp_path) is None
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\nname = "x"\n')
    assert load_budget(None, tmp_path) is None
    project.write_text('[tool.aot.budget]\nbaseline = "ci/base.json"\nkws.workspace = "24 KiB"\ninstructions = "+0.5 %"\n')
    found = load_budget(None, tmp_path)
    assert found is not None
    assert found.baseline == tmp_path / "ci" / "base.json"
    assert set(found.rules) == {"", "kws"}
    (tmp_path / "budget.toml").write_text("stack = 512\n")
    found = load_budget(None, tmp_path)
    assert found is not None
    assert set(found.rules[""]) == {"stack"}
    with pytest.raises(UsageError):
        load_budget(tmp_path / "none.toml", tmp_path)
    (tmp_path / "bad.toml").write_text("= 3")
    with pytest.raises(UsageError):
        load_budget(tmp_path / "bad.toml", tmp_path)


def test_options_of_a_model() -> None:
    """The closest table stands last, where its words count; the command line's stand before all of them."""
    found = budget(**{
        "options": "--opt size", "@microbit": {"options": ["--ram-budget", "8 KiB"]}, "net": {"options": "--opt ram --feed-rows"},
        "net@host": {"options": "--opt speed --shape 'x y=1,2'"},
    })  # fmt: skip
    given = CompileOptions(kernels="generic", opt="balanced", shape=["a=1,3"])

    def chosen(name: str, board: str) -> CompileOptions:
        return options_for(given, found, name=name, board=board)

    assert chosen("other", "host") == replace(given, opt="size")
    assert chosen("net", "microbit") == replace(given, opt="ram", feed_rows=True, ram_budget="8 KiB")
    assert chosen("net", "host") == replace(given, opt="speed", feed_rows=True, shape=["a=1,3", "x y=1,2"])
    assert options_for(given, None, name="net", board="host") is given
    assert check_reports([sample()], found, None) == []


@pytest.mark.parametrize("value", [7, ["--opt", 3], "--opt 'ram"])
def test_what_are_no_options(value: object) -> None:
    with pytest.raises(UsageError) as caught:
        budget(net={"options": value})
    assert [(p.code, p.where) for p in caught.value.problems] == [("E5052", "budget.toml: net.options")]


@pytest.mark.parametrize("words", ["--optt ram", "more", "--batch x", "--opt"])
def test_options_that_there_are_not(words: str) -> None:
    with pytest.raises(UsageError) as caught:
        options_for(CompileOptions(), budget(options=words), name="net", board="host")
    assert [(p.code, p.where) for p in caught.value.problems] == [("E5052", "budget.toml: options of net@host")]
