"""Rules of the code base that no linter knows: imports point one way, nothing grows too long, every test is found by its name."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.op import _drawn_count
from tests.sample import drawn
from tests.scripts import script

ROOT = Path(__file__).resolve().parent.parent
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 900


@cache
def tracked() -> tuple[Path, ...]:
    """Files of the repository, as git lists them; without git, all that are not hidden."""
    try:
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return tuple(p for p in sorted(ROOT.rglob("*")) if p.is_file() and not any(x.startswith(".") for x in p.parts))
    return tuple(p for name in sorted(listing.split("\0")) if name and (p := ROOT / name).is_file())


def sources(*folders: str) -> list[Path]:
    return [p for p in tracked() if p.suffix == ".py" and p.relative_to(ROOT).parts[0] in folders]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """The nodes of a file that one of the rules looks at: one walk for all rules."""
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.Call, ast.Constant)
    return tuple(node for node in ast.walk(tree(path)) if isinstance(node, kinds))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_test_is_collected() -> None:
    """No folder of tests has a name that pytest passes over."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert settings["testpaths"] == ["tests"]
    tests = [p.relative_to(ROOT) for p in sources("tests") if p.name.startswith("test_")]
    assert not [str(p) for p in tests for folder in p.parts[:-1] if any(fnmatch(folder, n) for n in settings["norecursedirs"])]


# Imports.

_CORE = "ir errors support"
_KERNELS = f"op numerics te tir target.base relay {_CORE} version"
_LAYERS: tuple[tuple[str, str], ...] = (
    ("errors", "support"),
    ("ir", "errors support"),
    ("relay", _CORE),
    ("target.base", _CORE),
    ("tir", _CORE),
    ("numerics", f"tir {_CORE}"),
    ("te", f"numerics tir {_CORE}"),
    ("op", f"numerics te tir target.base relay {_CORE}"),
    ("topi", _KERNELS),
    ("topi.generic", f"topi {_KERNELS}"),
    ("topi.special", f"topi topi.generic {_KERNELS}"),
    ("frontend", f"op numerics relay {_CORE} version"),
    ("byoc", f"topi topi.generic {_KERNELS}"),
    ("memory", f"tir {_CORE}"),
    ("target.codegen_c", f"tir te target.base {_CORE} version"),
    ("executor", f"system target.codegen_c memory topi {_KERNELS}"),
    ("executor.artifact", _CORE),
    ("driver", f"system byoc executor memory target.codegen_c frontend topi {_KERNELS}"),
    ("system", "errors support"),
    ("runtime", f"system driver executor memory target.codegen_c target.base tir {_CORE} version"),
    ("api", f"runtime driver executor frontend target.codegen_c te {_KERNELS}"),
    ("micro", "target.base executor.artifact driver system errors support version"),
    ("tune", f"micro system driver executor executor.artifact memory system {_KERNELS} version"),
)
"""Part of the package -> parts that it may import beside itself. `report`, `testing`, which asks the references as `report` does,
`cli` and the package itself may import all below."""

_ALLOWED = {name: frozenset(below.split()) for name, below in _LAYERS}
_TOP = ("report", "testing", "cli", "")
_BASE_OF_TOPI = frozenset({"kernel_index", "loading", "prose", "strategy", "intrin", "layer"})
_BASE_OF_TARGET = frozenset({"target", "cpu"})


def part_of(module: str) -> str:
    """The part of the package, as named in `_LAYERS`, that a module belongs to."""
    names = module.split(".")[1:]
    if not names or names[0] == "__main__":
        return ""
    if names[0] == "target":
        return "target.codegen_c" if len(names) > 1 and names[1] not in _BASE_OF_TARGET else "target.base"
    if names[0] == "topi" and len(names) > 1 and names[1] not in _BASE_OF_TOPI:
        return "topi.generic" if names[1] == "generic" else "topi.special"
    if names[:2] == ["executor", "artifact"]:
        return "executor.artifact"
    return names[0]


@cache
def _is_module(root: Path, name: str) -> bool:
    path = root.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module of this package) of every import anywhere in the file: also in functions and under TYPE_CHECKING."""
    here = module_name(path)
    package = here if path.name == "__init__.py" else here.rpartition(".")[0]
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package.split(".")[: len(package.split(".")) - node.level + 1], *([base] if base else [])])
            found = [f"{base}.{a.name}" if _is_module(ROOT, f"{base}.{a.name}") else base for a in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in found if name == "aot" or name.startswith("aot."))


def imports_by_name(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module of this package) of every `import_module("aot...")`."""
    for node in nodes(path):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            yield from ((node.lineno, name) for name in names if name.startswith("aot."))


def may_import(importer: str, imported: str) -> bool:
    if importer == imported or importer in ("cli", ""):
        return True
    if importer in ("report", "testing"):
        return imported not in ("cli", "testing", "")
    if imported == "" or imported in _TOP:
        return False
    allowed = _ALLOWED.get(importer, frozenset())
    return imported in allowed or (imported == "executor.artifact" and "executor" in allowed | {importer})


@pytest.mark.slow
def test_imports_point_one_way() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {part_of(module_name(path))} may not import {name}"
        for path in sources("aot")
        for line, name in (*imports(path), *imports_by_name(path))
        if not may_import(part_of(module_name(path)), part_of(name))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("aot.relay.expr", "aot.ir.op", True),
        ("aot.relay.expr", "aot.tir.expr", False),
        ("aot.tir.expr", "aot.relay.expr", False),
        ("aot.support.text", "aot.errors", False),
        ("aot.op.nn.conv", "aot.frontend.tflite.view", False),
        ("aot.op.nn.conv", "aot.frontend.tflite.conv", False),
        ("aot.frontend.tflite.conv", "aot.op.nn.conv", True),
        ("aot.topi.generic.layers", "aot.topi.strategy", True),
        ("aot.topi.strategy", "aot.topi.generic.layers", False),
        ("aot.topi.generic.layers", "aot.topi.arm_dsp.elementwise", False),
        ("aot.topi.layer.requant", "aot.topi.arm_dsp.elementwise", False),
        ("aot.memory.planner", "aot.relay.expr", False),
        ("aot.target.codegen_c", "aot.topi.strategy", False),
        ("aot.target.target", "aot.target.codegen_c", False),
        ("aot.micro.board", "aot.executor.artifact", True),
        ("aot.micro.board", "aot.tir.expr", False),
        ("aot.driver.build", "aot.micro.board", False),
        ("aot.report.figures.size", "aot.cli.app", False),
        ("aot.cli.app", "aot.report.figures.size", True),
        ("aot.testing.reference", "aot.report.measure.reference", True),
        ("aot.report.measure.reference", "aot.testing.reference", False),
    ],
)
def test_the_table_says_what_design_says(importer: str, imported: str, allowed: bool) -> None:
    assert may_import(part_of(importer), part_of(imported)) is allowed


_ONE_ROOM = (
    frozenset(f"aot.tir.{name}" for name in ("arith", "buffer", "expr", "function", "intrin", "stmt")),  # docs/adr/0016
    frozenset({"aot.target.cpu", "aot.target.target"}),
)
"""Files that may import each other."""


def file_graph() -> dict[str, set[str]]:
    """Module -> modules of the package that it imports, anywhere in the file."""
    known = {module_name(path): path for path in sources("aot")}
    return {name: {other for _, other in imports(path) if other in known} - {name} for name, path in known.items()}


def cycles(graph: dict[str, set[str]]) -> list[frozenset[str]]:
    """The strongly connected parts of more than one module (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in number:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == number[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.append(frozenset(part))

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return found


@pytest.mark.slow  # reads every file of the package as a tree
def test_no_files_import_each_other() -> None:
    wrong = [" ".join(sorted(part)) for part in cycles(file_graph()) if not any(part <= room for room in _ONE_ROOM)]
    assert not wrong, "\n".join(wrong)


def folder_graph() -> dict[str, set[str]]:
    """Folder -> folders that its files import; the package itself, which offers names of all rooms, is left out."""
    graph: dict[str, set[str]] = {}
    folder = {module_name(path): str(path.parent.relative_to(ROOT)) for path in sources("aot")}
    for name, others in file_graph().items():
        graph.setdefault(folder[name], set()).update({folder[other] for other in others} - {folder[name], "aot"})
    return graph


def test_no_folders_import_each_other() -> None:
    wrong = [" ".join(sorted(part)) for part in cycles(folder_graph())]
    assert not wrong, "\n".join(wrong)


def test_cycles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f"}, "f": {"g"}, "g": {"e"}}
    assert sorted(map(sorted, cycles(graph))) == [["b", "c"], ["e", "f", "g"]]


def test_the_picture_of_the_rooms_is_that_of_the_imports() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = script("rooms")
    assert rooms.with_picture(page) == page, "python scripts/rooms.py --write draws it anew"


def test_imports_sees_hidden_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from aot.tir import expr\n\ndef f():\n    import aot.cli\n"
    path = tmp_path / "aot" / "ir" / "new.py"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (tmp_path / "aot" / "tir").mkdir()
    (tmp_path / "aot" / "tir" / "expr.py").write_text("")
    monkeypatch.setattr("tests.test_repository.ROOT", tmp_path)
    assert [name for _, name in imports(path)] == ["aot.tir.expr", "aot.cli"]


# Length.


@pytest.mark.slow  # reads every file of the tests as a tree
def test_functions_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has {(node.end_lineno or 0) - node.lineno + 1} lines"
        for path in sources("aot", "tests", "examples")
        if "; written by scripts/" not in (ast.get_docstring(tree(path)) or "")
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_files_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)} has {n} lines"
        for path in sources("aot", "tests", "examples")
        if (n := len(path.read_text(encoding="utf-8").splitlines())) > MAX_FILE_LINES
    ]
    assert not long, "\n".join(long)


# Contents.

_MACHINE = re.compile(r"(?<![\w.])/(?:work|root|tmp/bash_jobs|home/(?!you\b|user\b)\w+|Users/\w+)\b(?!\.)")


def test_no_path_of_one_machine() -> None:
    found = []
    for path in tracked():
        data = path.read_bytes()
        if b"\0" in data[:4096]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if _MACHINE.search(line) and path != Path(__file__).resolve():
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found, "\n".join(found)


_CLOCKS = re.compile(
    r"\b(?:perf_counter|process_time|thread_time|default_timer|timeit|ru_[us]time)(?:_ns)?\b|\btime\.time|\bos\.times"
    r"|(?<!\w)= (?:time\.)?monotonic(?:_ns)?\(\)(?! \+)|\bmonotonic(?:_ns)?\(\) -"  # as a deadline it may be given
    r"|\bassert\b.*\bseconds\b[^=]*[<>]|\bdeadline="
)


def measured(path: Path) -> Iterator[str]:
    """Lines of a test that read a clock, compare seconds, or give hypothesis a deadline."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if _CLOCKS.search(line):
            yield f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"


def test_no_test_asserts_a_time() -> None:
    """How busy a machine is says nothing of a change: count work (tests/work.py), or measure in scripts/speed.py."""
    others = (Path(__file__).resolve(), ROOT / "tests" / "conftest.py")
    found = [line for path in sources("tests") if path not in others for line in measured(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("start = time.perf_counter()", True),
        ("from time import process_time_ns", True),
        ("spent = resource.getrusage(resource.RUSAGE_SELF).ru_utime", True),
        ("assert large['seconds'] < 20 * small['seconds']", True),
        ("@settings(max_examples=3, deadline=None)", True),
        ("start = time.monotonic()", True),
        ("took = time.monotonic() - start", True),
        ("port.end = time.monotonic() + 5.0", False),
        ("time.sleep(0.02)", False),
        ("subprocess.run(command, check=True, timeout=600)", False),
        ("assert done.json['seconds'] == 3", False),
    ],
)
def test_clocks_are_seen(text: str, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_repository.ROOT", tmp_path)
    (tmp_path / "test_x.py").write_text(text)
    assert bool(list(measured(tmp_path / "test_x.py"))) is known


def test_only_the_command_line_prints() -> None:
    printing = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources("aot")
        if part_of(module_name(path)) not in ("cli", "")
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not printing, "\n".join(printing)


# The functions of an operator or a kernel that are registered under a protocol; the protocol documents them.
_BY_PROTOCOL = re.compile(r"(infer|evaluate|element|te|convert|accepts|lower)(_\w+)?")


def _undocumented(path: Path) -> Iterator[str]:
    """Public functions and classes without a docstring; a function of one statement may speak for itself."""
    for node in tree(path).body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_") or ast.get_docstring(node):
            continue
        if isinstance(node, ast.ClassDef) or (len(node.body) > 1 and not _BY_PROTOCOL.fullmatch(node.name)):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has no docstring"


def test_modules_have_docstrings() -> None:
    missing = [str(p.relative_to(ROOT)) for p in sources("aot") if tree(p).body and not ast.get_docstring(tree(p))]
    assert not missing, "\n".join(missing)


def test_public_functions_have_docstrings() -> None:
    missing = [m for p in sources("aot") for m in _undocumented(p)]
    assert not missing, "\n".join(missing)


def test_every_code_that_is_raised_is_explained() -> None:
    from aot.errors.explanations import codes

    known = set(codes())
    raised = {
        (node.value, f"{path.relative_to(ROOT)}:{node.lineno}")
        for path in sources("aot")
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"E[1-59]\d{3}", node.value)
    }
    missing = sorted(f"{where}: {code} has no page in aot/errors/codes" for code, where in raised if code not in known)
    assert not missing, "\n".join(missing)


# Tests by name: the test of aot/a/b/foo.py is tests/a/b/test_foo.py, or tests/a/b/test_foo_*.py, or tests/a/b/foo/test_*.py. Two
# shorter ways lead there if files are parts of one thing: a family of kernels, aot/topi/SET/FAMILY, may have one test file,
# tests/topi/SET/test_FAMILY.py, and a generic kernel is tested by the test of the operator that has its name.

_REGISTERS = ("register", "_register", "from_tflite", "operator")
"""How the functions begin that make an operator, a converter or a kernel known; those that end in `_pass` make a pass."""

_FOLDERS = ("relay/transform", "tir/analysis", "tir/transform", "memory", "executor")
"""Folders, or single files, of analyses, passes and planners: every file counts."""

_ROOMS = (*_FOLDERS, "op", "topi")
"""Where what is registered counts too."""

_FAMILIES = ("topi/arm_",)
"""Packages below here are one design each: tests/topi/arm_dsp/test_depthwise.py tests all of aot/topi/arm_dsp/depthwise."""

_TESTED_BY: dict[str, str] = {
    "executor/artifact.py": "tests/test_api.py",  # what aot.build returns
    "executor/cascade_nest.py": "tests/executor/test_cascade_search.py",  # a cascade is found, laid out, and emitted
    "executor/lowered.py": "tests/executor/test_emit.py",  # lowered by hand, checked, emitted
    "topi/generic/data_dependent.py": "tests/op/reduce/test_topk.py",  # five kernels, each with its operator: topk, cumsum, ...
    "topi/generic/recurrent.py": "tests/op/recurrent/test_lstm_float.py",  # the kernels of the float ones of op/recurrent
    "topi/generic/signal.py": "tests/op/signal/test_window.py",  # the kernels of all files of op/signal
    "topi/generic/vision.py": "tests/op/vision/test_detection.py",  # the kernels of all files of op/vision
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
            if name.startswith(_REGISTERS) or name.endswith("_pass"):
                return True
    return False


def wanted() -> Iterator[PurePosixPath]:
    """Files below aot/ that must have a test by name; those that begin with _ are parts of others."""
    for path in sources("aot"):
        place = PurePosixPath(path.relative_to(ROOT / "aot").as_posix())
        is_folder = place.with_suffix("").as_posix() in _FOLDERS
        if place.name.startswith("_") or not (is_folder or place.as_posix().startswith(tuple(f"{room}/" for room in _ROOMS))):
            continue
        if place.as_posix().startswith(tuple(f"{folder}/" for folder in _FOLDERS)) or is_folder or registers(tree(path).body):
            yield place


def by_name(place: PurePosixPath, tests: set[str]) -> bool:
    """Whether a test file is found by the name of aot/`place`."""
    stem = place.with_suffix("")
    parts = (f"tests/{stem}/test_", f"tests/{place.parent}/test_{stem.name}_")
    candidates = {f"tests/{place.parent}/test_{place.name}"} | {t for t in tests if t.startswith(parts)}
    if str(place.parent).startswith(_FAMILIES):
        candidates.add(f"tests/{place.parent.parent}/test_{place.parent.name}.py")
    if place.parts[:2] == ("topi", "generic"):
        candidates |= {t for t in tests if t.startswith("tests/op/") and t.endswith(f"/test_{place.name}")}
    return bool(candidates & tests)


def test_everything_has_a_test_by_its_name() -> None:
    tests = {path.relative_to(ROOT).as_posix() for path in sources("tests")}
    missing = [
        f"aot/{p} has no tests/{p.parent}/test_{p.name}" for p in wanted() if not by_name(p, tests) | (str(p) in _TESTED_BY)
    ]
    assert not missing, "\n".join([*missing, "CONTRIBUTING.md says where tests are"])


def test_the_list_of_others_is_short_and_true() -> None:
    tests, places = {path.relative_to(ROOT).as_posix() for path in sources("tests")}, {str(p): p for p in wanted()}
    for name, test in _TESTED_BY.items():
        assert name in places, f"{name} needs no test by name, or is gone"
        assert not by_name(places[name], tests), f"{name} has a test by its name now"
        assert test in tests, f"{test} is gone"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("register_op('nn.x', 1)", True),
        ("for name in NAMES:\n    op.register_impl(name)", True),
        ("@from_tflite('X', '', '')\ndef convert(): ...", True),
        ("@operator('nn.x', '', [])\nclass XAttrs: ...", True),
        ("@function_pass(opt_level=1)\ndef fold(func): ...", True),
        ("def later():\n    register_op('nn.x', 1)", False),
        ("TABLE = make_table(3)", False),
    ],
)
def test_what_registers_is_seen(text: str, known: bool) -> None:
    assert registers(ast.parse(text).body) is known


def test_names_lead_to_tests() -> None:
    tests = {"tests/topi/arm_dsp/test_depthwise.py", "tests/op/qnn/test_softmax.py", "tests/tir/transform/test_simplify.py"}
    assert by_name(PurePosixPath("topi/arm_dsp/depthwise/planes.py"), tests)
    assert by_name(PurePosixPath("topi/generic/softmax.py"), tests)
    assert by_name(PurePosixPath("tir/transform/simplify.py"), tests)
    assert by_name(PurePosixPath("tir/transform.py"), tests)
    assert not by_name(PurePosixPath("topi/arm_dsp/softmax.py"), tests)
    assert not by_name(PurePosixPath("tir/transform/unroll_loop.py"), tests)


def test_a_sample_is_drawn_by_name() -> None:
    """The share that is asked for, the same in every process, and every test in some sample."""
    names = [f"tests/a/test_{i}.py::test_{i % 7}" for i in range(1000)]
    samples = [{n for n in names if drawn(n, percent=20, seed=str(seed))} for seed in range(60)]
    assert all(140 < len(s) < 260 for s in samples)
    assert samples[0] != samples[1]
    assert set().union(*samples) == set(names)


@pytest.mark.parametrize(("percent", "whole"), [(100, True), (20, False)])
def test_only_all_slow_tests_are_asked_for_every_operator(monkeypatch: pytest.MonkeyPatch, percent: int, whole: bool) -> None:
    """A sample in which an operator has no drawn case is no failure; the whole suite without one is."""
    monkeypatch.delenv("AOT_FULL", raising=False)
    monkeypatch.setattr(_drawn_count, "HAVE_LITERT", True)
    monkeypatch.setattr(_drawn_count, "HAVE_TFLM", True)
    option = SimpleNamespace(markexpr="slow", collectonly=False)
    config: Any = SimpleNamespace(option=option, args=["tests"], getoption={"--sample": percent}.get)
    assert _drawn_count.DrawnCases(config).whole == whole
    monkeypatch.setenv("AOT_FULL", "1")
    assert _drawn_count.DrawnCases(config).whole
