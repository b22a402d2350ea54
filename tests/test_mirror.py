"""Every operator, pass, kernel, analysis and planner has its test by name (CONTRIBUTING.md, "Tests").

The test of aot/a/b/foo.py is tests/a/b/test_foo.py. Two shorter ways lead there where files are parts of one thing: a family of
kernels, aot/topi/SET/FAMILY, may have one test file, tests/topi/SET/test_FAMILY.py, and a generic kernel is tested by the test
of the operator that has its name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import pytest

from tests.test_repository import ROOT, sources, tree

REGISTERS = ("register", "_register", "from_tflite")
"""How the functions begin that make an operator, a converter or a kernel known; those that end in `_pass` make a pass."""

FOLDERS = ("relay/analysis", "relay/transform", "tir/analysis", "tir/transform", "executor/cascade")
"""Folders of analyses, passes and planners: every file counts."""

ROOMS = (*FOLDERS, "op", "topi")
"""Where what is registered counts too."""

FAMILIES = ("topi/arm_", "executor/cascade")
"""Packages below here are one design each: tests/topi/arm_dsp/test_w8.py tests all of aot/topi/arm_dsp/w8."""

TESTED_BY: dict[str, str] = {
    "op/control_flow.py": "tests/executor/test_control_flow.py",  # branches and loops are whole programs
    "op/recurrent/rnn_convert.py": "tests/op/recurrent/test_rnn.py",  # the converter of rnn.py
    "op/recurrent/svdf_filter.py": "tests/op/recurrent/test_svdf.py",  # the operator behind svdf.py
    "topi/generic/data_dependent.py": "tests/op/reduce/test_topk.py",  # five kernels, each with its operator: topk, cumsum, ...
    "topi/generic/signal/frontend.py": "tests/op/signal/test_window.py",  # the kernels of all files of op/signal
    "topi/generic/te_group.py": "tests/op/test_graph.py",  # the generic path of every operator
    "topi/generic/vision/soft_nms.py": "tests/op/vision/test_non_max_suppression.py",  # its only operator
}
"""The others, each with a reason."""


def registers(body: Iterable[ast.stmt]) -> bool:
    """Whether importing this module makes something known: a call or a decorator outside of functions."""
    for stmt in body:
        if isinstance(stmt, ast.FunctionDef | ast.ClassDef):
            found: list[ast.AST] = list(stmt.decorator_list)
        else:
            found = [node.func for node in ast.walk(stmt) if isinstance(node, ast.Call)]
        for node in found:
            func = node.func if isinstance(node, ast.Call) else node
            name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
            if name.startswith(REGISTERS) or name.endswith("_pass"):
                return True
    return False


def wanted() -> Iterator[PurePosixPath]:
    """Files below aot/ that must have a test by name; those that begin with _ are parts of others."""
    for path in sources("aot"):
        place = PurePosixPath(path.relative_to(ROOT / "aot").as_posix())
        if place.name.startswith("_") or not place.as_posix().startswith(tuple(f"{room}/" for room in ROOMS)):
            continue
        if place.as_posix().startswith(tuple(f"{folder}/" for folder in FOLDERS)) or registers(tree(path).body):
            yield place


def by_name(place: PurePosixPath, tests: set[str]) -> bool:
    """Whether a test file is found by the name of aot/`place`."""
    candidates = {f"tests/{place.parent}/test_{place.name}"}
    if str(place.parent).startswith(FAMILIES):
        candidates.add(f"tests/{place.parent.parent}/test_{place.parent.name}.py")
    if place.parts[:2] == ("topi", "generic"):
        candidates |= {t for t in tests if t.startswith("tests/op/") and t.endswith(f"/test_{place.name}")}
    return bool(candidates & tests)


def test_everything_has_a_test_by_its_name() -> None:
    tests = {path.relative_to(ROOT).as_posix() for path in sources("tests")}
    missing = [
        f"aot/{p} has no tests/{p.parent}/test_{p.name}" for p in wanted() if not by_name(p, tests) | (str(p) in TESTED_BY)
    ]
    assert not missing, "\n".join([*missing, "CONTRIBUTING.md says where tests are"])


def test_the_list_of_others_is_short_and_true() -> None:
    tests, places = {path.relative_to(ROOT).as_posix() for path in sources("tests")}, {str(p): p for p in wanted()}
    for name, test in TESTED_BY.items():
        assert name in places, f"{name} needs no test by name, or is gone"
        assert not by_name(places[name], tests), f"{name} has a test by its name now"
        assert test in tests, f"{test} is gone"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("register_op('nn.x', 1)", True),
        ("for name in NAMES:\n    op.register_impl(name)", True),
        ("@from_tflite('X', '', '')\ndef convert(): ...", True),
        ("@function_pass(opt_level=1)\ndef fold(func): ...", True),
        ("def later():\n    register_op('nn.x', 1)", False),
        ("TABLE = make_table(3)", False),
    ],
)
def test_what_registers_is_seen(text: str, known: bool) -> None:
    assert registers(ast.parse(text).body) is known


def test_names_lead_to_tests() -> None:
    tests = {"tests/topi/arm_dsp/test_w8.py", "tests/op/qnn/test_softmax.py", "tests/tir/transform/test_simplify.py"}
    assert by_name(PurePosixPath("topi/arm_dsp/w8/dense.py"), tests)
    assert by_name(PurePosixPath("topi/generic/softmax.py"), tests)
    assert by_name(PurePosixPath("tir/transform/simplify.py"), tests)
    assert not by_name(PurePosixPath("topi/arm_dsp/softmax.py"), tests)
    assert not by_name(PurePosixPath("tir/transform/unroll_loop.py"), tests)
