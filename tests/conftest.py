"""Options and fixtures of the whole test suite."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from aot.cli import common
from aot.executor.artifact import Artifact
from aot.ir.transform import PassContext
from tests.op._drawn_count import DrawnCases
from tests.sample import add_options, leave_out

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # jsonschema would build its grammars: a second each time

settings.register_profile(
    "aot",
    deadline=None,  # a drawn case may take its time: nothing here measures the machine
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("AOT_FULL") != "1",  # the same cases in every run, others for a release
)
settings.load_profile("aot")

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing with them")
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(DrawnCases(config), "drawn-cases")
    os.environ.setdefault("AOT_NO_CACHE", "1")  # a test compiles what it tests, also in the processes that it starts


@pytest.hookimpl(trylast=True)  # after -m and -k, which choose what it is a sample of
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)


def pytest_collection_finish() -> None:
    """What was imported stays: collections of garbage need not look at it again and again, nor run often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)


def pytest_unconfigure() -> None:
    """Nothing is measured any more; hypothesis' callback prints a traceback if pytest-xdist interrupts a worker in it."""
    gc.callbacks[:] = [c for c in gc.callbacks if not str(getattr(c, "__module__", "")).startswith("hypothesis")]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(name, text)` compares text with `golden/name` beside the test file; a missing file fails.

    With --update-golden the file is written instead: look at the difference before committing it.
    """
    folder = Path(request.path).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        if not path.exists():
            pytest.fail(f"the golden file {path.name} is missing; run with --update-golden to accept:\n{text}")
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; --update-golden accepts the new text"

    return compare


@pytest.fixture(scope="session", autouse=True)
def _compile_once() -> Iterator[None]:
    """The verbs, when run in this process, take what an earlier test compiled from the same file with the same options.

    Most tests of verbs are about what comes after the compiler; those about the compiler start a process or give a name of
    their own.
    """
    known: dict[Any, Artifact] = {}
    compile_model = common.compile_model

    def remembered(wanted: common.Request) -> Artifact:
        if PassContext.current() != PassContext():
            return compile_model(wanted)
        key = (wanted.data, wanted.path.name, wanted.name, wanted.target, wanted.options)
        if key not in known:
            known[key] = compile_model(wanted)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "compile_model", remembered)
        yield
