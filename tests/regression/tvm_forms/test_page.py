"""docs/tvm.md is true: what works is there, what has another name has that name, what is refused says so by its code."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aot import relay, te
from aot.errors import AotError, UsageError
from aot.errors.tvm_index import NAMES
from aot.errors.tvm_names import TvmNameError
from tests.cli.helper import Cli
from tests.regression.tvm_forms.test_plugin_kernels import resolved
from tests.scripts import script

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "tvm.md"
SCRIPT = script("tvm_index")
ROWS: list[tuple[list[str], str, str]] = SCRIPT.rows()


def ids(rows: list[tuple[list[str], str, str]]) -> list[Any]:
    return [pytest.param(*row, id=" ".join(row[0][:1]) or row[2][:20]) for row in rows]


@pytest.mark.parametrize(("names", "state", "cell"), ids(ROWS))
def test_what_a_row_names_is_there(names: list[str], state: str, cell: str, capsys: pytest.CaptureFixture[str]) -> None:
    spans = re.findall(r"`([^`]+)`", cell)
    python = [s for s in spans if re.fullmatch(r"aot(\.\w+)+", s)]
    for name in python:
        resolved(name)
    verbs = [s.split() for s in spans if re.match(r"aot \w+", s)]
    for _, verb, *options in verbs:
        text = Cli(capsys)(verb, "--help").out
        assert all(o in text for o in options if o.startswith("--")), (verb, options)
    for link in re.findall(r"\]\(([^)#]+)", cell):
        assert (PAGE.parent / link).exists()
    assert python or verbs or state == "refused"


@pytest.mark.parametrize("name", [n for names, state, _ in ROWS if state == "works" for n in SCRIPT.dotted(names)])
def test_what_works_has_its_name(name: str) -> None:
    assert SCRIPT.lookup(name)[0] is not None


def made(name: str) -> Any:
    """What a name is, methods of a stage and a schedule on one of these."""
    x = te.placeholder((4,), "int32", name="x")
    y = te.compute((4,), lambda i: x[i] + 1, name="y")
    schedule = te.create_schedule(y.op)
    for prefix, value in (("te.Stage.", schedule[y]), ("te.Schedule.", schedule)):
        if name.startswith(prefix):
            return getattr(value, name.removeprefix(prefix))
    return walked(name)


def walked(name: str) -> Any:
    """As Python looks the name up, with the errors that it gives."""
    first, _, rest = name.partition(".")
    home = SCRIPT.HOMES.get(first) if rest else None
    found = resolved(f"aot.{home}") if home else resolved("aot")
    for part in (rest if home else name).split("."):
        found = getattr(found, part)
    return found


REFUSED = [(n, cell) for names, state, cell in ROWS if state == "refused" for n in SCRIPT.dotted(names)]


@pytest.mark.parametrize(("name", "cell"), REFUSED, ids=[n for n, _ in REFUSED])
def test_what_is_refused_says_why(name: str, cell: str) -> None:
    with pytest.raises(AotError) as caught:
        made(name)
    assert str(caught.value).startswith(cell[:5])
    assert "test_page.py" in str(caught.value)
    assert isinstance(caught.value, AttributeError), "hasattr works"


PROBES: dict[str, Callable[[], Any]] = {"relay.Any()": lambda: relay.var("x", shape=("n", 4))}
"""What refused rows say that is no name."""


def test_every_refused_row_is_asked_for() -> None:
    rest = {names[0]: cell for names, state, cell in ROWS if state == "refused" and not list(SCRIPT.dotted(names))}
    assert rest.keys() == PROBES.keys()
    for name, probe in PROBES.items():
        with pytest.raises(UsageError, match=rest[name][:5]):
            probe()


@pytest.mark.parametrize("name", NAMES)
def test_the_error_names_what_there_is(name: str) -> None:
    with pytest.raises(TvmNameError) as caught:
        made(name)
    assert NAMES[name] in str(caught.value)


@pytest.mark.slow
def test_the_index_is_current() -> None:
    done = subprocess.run([sys.executable, "scripts/tvm_index.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_other_names_are_plain_errors() -> None:
    import aot
    from aot import runtime

    for module in (aot, te, runtime):
        assert not hasattr(module, "no_such_name")
        with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
            module.no_such_name  # noqa: B018
    with pytest.raises(UsageError, match="E5101"):
        relay.no_such_name  # noqa: B018


def test_the_page_runs() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried
    assert not failed
