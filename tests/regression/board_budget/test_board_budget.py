"""What a board has free is a budget: `check --board` says what `build` does; Python keeps budgets as the command does."""

from __future__ import annotations

import random
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import aot
from aot.driver.options import OPTS
from aot.errors import AotError, Problem, TargetError
from aot.executor.artifact import Artifact
from aot.frontend.formats import Choice
from aot.memory.memory_pools import Pooling
from aot.micro.board import load_board
from aot.report.measure.fitting import fit
from aot.support.memory_pool import Pool
from tests.cli.boards import small_board
from tests.cli.helper import Cli

MODELS = Path(__file__).resolve().parents[2] / "models"
POOL = MODELS / "max_pool.tflite"
DIGITS = MODELS / "net_sww.tflite"
needs_gcc = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def test_python_keeps_a_budget() -> None:
    """It returned 126 bytes without a word."""
    for call in (aot.build, aot.load):
        with pytest.raises(AotError, match=r"E2021 .*takes 126 B, --ram-budget is 60 B"):
            call(POOL.read_bytes(), ram_budget=60)
    with pytest.raises(AotError, match="E2021"):
        aot.verify(POOL, board="host", ram_budget=60)
    with pytest.raises(AotError, match="E2021"):
        aot.report(POOL, board="host", ram_budget=60)
    assert [p.code for p in aot.check(POOL, ram_budget=60).problems] == ["E2021"]
    forced = aot.build(POOL, ram_budget=60, force_over_budget=True)
    assert isinstance(forced, Artifact)
    assert forced.metadata["workspace"]["size"] == 126


def test_verbs_that_run_keep_a_budget(cli: Cli) -> None:
    """They ran what was over it."""
    for verb in ("verify", "report"):
        done = cli(verb, POOL, "--board", "host", "--ram-budget", "60")
        assert (done.code, "E2021" in done.err) == (4, True), verb


PARITY: list[tuple[str, list[str], dict[str, Any]]] = [
    ("oracle", ["--oracle", "tflm"], {"oracle": "tflm"}),
    ("oracle", ["--oracle", "odd"], {"oracle": "odd"}),
    ("opt", ["--opt", "ram"], {"opt": "ram"}),
    ("io", ["--io", "user"], {"io": "user"}),
    ("kernels", ["--kernels", "generic"], {"kernels": "generic"}),
    ("flash_budget", ["--flash-budget", "1"], {"flash_budget": 1}),
    ("ram_budget", ["--ram-budget", "125"], {"ram_budget": 125}),
    ("ram_budget", ["--ram-budget", "126"], {"ram_budget": 126}),
    ("choice", ["--batch", "2"], {"choice": Choice(batch=2)}),
    ("choice", ["--signature", "odd"], {"choice": Choice(signature="odd")}),
    ("share_workspace", ["--share-workspace"], {"share_workspace": True}),
    ("pooling", ["--pool", "A=1K"], {"pooling": Pooling((Pool("A", 1024),))}),
    ("pooling", ["--pool", "A=16"], {"pooling": Pooling((Pool("A", 16),))}),
    ("feed_rows", ["--feed-rows"], {"feed_rows": True}),
    ("feed_rows", ["--feed-rows", "--io", "user"], {"feed_rows": True, "io": "user"}),
    ("byoc", ["--byoc", "odd"], {"byoc": ("odd",)}),
    ("byoc_path", ["--byoc-path", "/nowhere"], {"byoc_path": Path("/nowhere")}),
    ("max_iterations", ["--max-iterations", "7"], {"max_iterations": 7}),
    ("slide", ["--slide", "odd=2"], {"slide": {"odd": 2}}),
    ("slide_axis", ["--slide-axis", "2"], {"slide_axis": 2}),
    ("rings", ["--rings", "copy"], {"rings": "copy"}),
    ("float16", ["--float16", "fold"], {"float16": "fold"}),
    ("fast_float", ["--fast-float"], {"fast_float": True}),
    ("fast_float", ["--fast-float", "--kernels", "generic"], {"fast_float": True, "kernels": "generic"}),
    ("in_steps", ["--in-steps"], {"in_steps": True}),
    ("tuning", ["--tuning", "/nowhere"], {"tuning": "/nowhere"}),
    ("force_over_budget", ["--ram-budget", "60", "--force-over-budget"], {"ram_budget": 60, "force_over_budget": True}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "keywords"), [row[1:] for row in PARITY], ids=[" ".join(row[1]) for row in PARITY])
def test_an_option_does_the_same_in_python(cli: Cli, tmp_path: Path, words: list[str], keywords: dict[str, Any]) -> None:
    """The same files, or an error of the same kind; a file of records is the command's, Python has the records themselves."""
    done = cli("compile", POOL, *words, "-o", tmp_path / "out")
    if done.code:
        with pytest.raises(AotError) as caught:
            aot.build(POOL, **keywords)
        assert done.code == caught.value.exit_code
        assert "tuning" in keywords or done.err.partition(" ")[0] == caught.value.problems[0].code
        return
    built = aot.build(POOL, **keywords)
    assert isinstance(built, Artifact)
    assert {n: (tmp_path / "out" / n).read_text() for n in built.files} == dict(built.files)


def test_every_option_is_compared() -> None:
    assert {row[0] for row in PARITY} == {f.name for f in fields(aot.Options)}


def test_a_choice_is_of_a_file() -> None:
    """It was ignored with a module."""
    from aot.driver.front import module_of

    module = module_of(POOL.read_bytes(), options=aot.Options(), name="m")
    with pytest.raises(AotError, match="E5074 choice"):
        aot.build(module, choice=Choice(batch=2))


def test_a_plan_that_fits_stays_as_it_is(cli: Cli, tmp_path: Path) -> None:
    board = small_board(tmp_path, 126)
    assert cli("compile", POOL, "--board", board, "-o", tmp_path / "a").code == 0
    assert cli("compile", POOL, "-o", tmp_path / "b").code == 0
    for path in (tmp_path / "b").rglob("*.[ch*]"):
        assert path.read_bytes() == (tmp_path / "a" / path.relative_to(tmp_path / "b")).read_bytes()


@pytest.mark.slow
def test_what_is_free_is_the_budget(cli: Cli, tmp_path: Path) -> None:
    """The usual plan does not fit, and what fits is the C of that budget; a smaller budget of the user's wins."""
    usual = aot.build(DIGITS).metadata
    layers = len(usual["layers"])
    board = small_board(tmp_path, usual["workspace"]["size"] - 400, layers=layers)
    done = cli("compile", DIGITS, "--board", board, "-o", tmp_path / "a")
    assert done.code == 0, done.err
    assert "all that small has free: workspace " in done.out
    fit = cli("compile", DIGITS, "--board", board, "-o", tmp_path / "b", "--json").json["metadata"]["board_fit"]
    assert fit["options"].startswith("--ram-budget ")
    assert cli("compile", DIGITS, *fit["options"].split(), "-o", tmp_path / "c").code == 0
    for path in (tmp_path / "c").glob("*.[ch]"):
        assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes()
    assert cli("compile", DIGITS, "--board", board, "--ram-budget", "10", "-o", tmp_path / "d").err.startswith("E2021")


def test_a_budget_that_nothing_meets_is_tried_once(tmp_path: Path) -> None:
    """Five ever smaller budgets for flash followed, each with the same build."""
    made, asked = aot.build(DIGITS), list[int | None]()
    assert isinstance(made, Artifact)

    def compiled(options: aot.Options) -> Artifact:
        asked.append(options.flash_budget)
        return made

    def link(_: Artifact) -> None:
        raise TargetError(Problem("E2012", "region FLASH of small has 20,000 bytes; 70,000 are needed"))

    found = fit(aot.Options(), load_board(str(small_board(tmp_path, 1 << 20))), compiled, link)
    assert [p.code for p in found.problems] == ["E2012"]
    budgets = [b for b in asked if b is not None]
    assert (asked[0], len(set(budgets)), found.options.flash_budget) == (None, 1, budgets[0])


def test_what_is_reached_is_said(cli: Cli, tmp_path: Path) -> None:
    """E2010 promised bounds, which no mode reached."""
    done = cli("compile", POOL, "--board", small_board(tmp_path, 100))
    assert done.code == 4
    assert done.err.startswith("E2010 workspace of 126 bytes does not fit; free bytes: RAM 100")
    assert "the smallest workspace found in any mode has 126; --feed-rows fits, with 63" in done.err
    assert "reduces this towards" not in done.err


@needs_gcc
@pytest.mark.qemu
@pytest.mark.parametrize("seed", range(4))
def test_check_says_what_build_does(cli: Cli, tmp_path: Path, seed: int) -> None:
    """Drawn models, on boards a little smaller or larger than their plans, in every mode."""
    draw = random.Random(seed)
    model = draw.choice(sorted(MODELS.glob("[a-m]*.tflite")))
    try:
        usual = aot.build(model).metadata
    except AotError:
        pytest.skip("no model to compile")
    need = usual["workspace"]["size"] * draw.choice((30, 70, 95, 105)) // 100
    board = small_board(tmp_path, need, layers=len(usual["layers"]))
    for opt in OPTS:
        found = cli("check", model, "--board", board, "--opt", opt, "--json", "--no-modes")
        fits = (
            found.code == 0 and "--feed-rows" not in found.json["fit"]["options"] and "--opt" not in found.json["fit"]["options"]
        )
        built = cli("build", model, "--board", board, "--opt", opt, "-o", tmp_path / opt)
        assert (built.code == 0) == fits, (opt, found.err, built.err)
