"""The Zephyr module.

Always: the module glue check, no Zephyr (see standin/README.md).  With ZEPHYR_BASE set: twister on the sample and the test.
Without, that part is skipped; AOT_REQUIRE_ZEPHYR=1 turns the skip into a failure.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aot.cli.__main__ import run
from aot.micro.board import load_board
from aot.micro.build.project import Places, linker_script
from aot.micro.run.zephyr import zephyr_version
from tests.micro.projects import DIGITS, need, new
from tests.zephyr.golden import HEADER, arrays, header

ROOT = Path(__file__).resolve().parent.parent.parent
STANDIN = ROOT / "tests" / "zephyr" / "standin"
BOARDS = ("mps2_an385", "qemu_cortex_m3", "mps2_an521", "mps3_an547")
BOARDS_V2 = ("mps2/an385", "qemu_cortex_m3", "mps2/an521/cpu0", "mps3/corstone300/an547")


def test_golden_header_is_what_the_reference_gives() -> None:
    assert HEADER.read_text() == header(arrays())


def test_west_manifest() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    manifest = yaml.safe_load((ROOT / "west.yml").read_text())["manifest"]
    assert set(manifest) == {"version", "remotes", "projects", "self"}
    assert isinstance(manifest["version"], str)
    assert {p["remote"] for p in manifest["projects"]} <= {r["name"] for r in manifest["remotes"]}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """digits as C, for the faults: so that they need no compiler of ours."""
    folder = tmp_path_factory.mktemp("compiled") / "digits"
    assert run(["compile", str(ROOT / "examples/digits/digits.tflite"), "--target", "cortex-m3", "-o", str(folder), "-q"]) == 0
    return folder


@pytest.fixture
def module(tmp_path: Path, compiled: Path) -> Path:
    """A copy of the module with the sample, which takes the compiled model."""
    copy = tmp_path / "module"
    for part in ("zephyr", "crt/include", "samples"):
        shutil.copytree(ROOT / part, copy / part)
    shutil.copytree(compiled, copy / "samples/digits/model")
    (copy / "tests/zephyr").mkdir(parents=True)
    lists = copy / "samples/digits/CMakeLists.txt"
    lists.write_text(lists.read_text().replace("../../examples/digits/digits.tflite", "model"))
    return copy


def build(application: Path, module: Path, folder: Path, *defines: str) -> subprocess.CompletedProcess[str]:
    """Configure and build with the stand-in; the first step that fails, or the last."""
    pytest.importorskip("kconfiglib", reason="kconfiglib is not installed")
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    need("cmake", "arm-none-eabi-gcc", "qemu-system-arm")
    folder.mkdir(exist_ok=True)
    board = load_board("mps2-an385")
    script = folder / "board.ld"
    script.write_text(linker_script(board, Places("SSRAM1", "SSRAM1", "SSRAM23", "SSRAM23"), []))
    settings = [
        f"-DZephyr_DIR={STANDIN}", f"-DEXTRA_ZEPHYR_MODULES={module}", f"-DSTANDIN_RUNTIME={ROOT / 'crt'}",
        f"-DSTANDIN_SCRIPT={script}", f"-DPython3_EXECUTABLE={sys.executable}", *defines,
    ]  # fmt: skip
    for command in (["cmake", "-S", application, "-B", folder / "b", *settings], ["cmake", "--build", folder / "b", "-j2"]):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            break
    return done


def execute(folder: Path) -> str:
    """What the image prints in QEMU."""
    command = [
        "qemu-system-arm", "-M", "mps2-an385", "-display", "none", "-monitor", "none", "-serial", "none", "-icount",
        "shift=0,sleep=off", "-semihosting-config", "enable=on,target=native", "-kernel", folder / "b/zephyr.elf",
    ]  # fmt: skip
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=600)
    return done.stdout + done.stderr


@pytest.mark.qemu
def test_glue_sample_with_compiled_model(module: Path, tmp_path: Path) -> None:
    done = build(module / "samples/digits", module, tmp_path / "o")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "digit 7, " in execute(tmp_path / "o")


@pytest.mark.qemu
@pytest.mark.parametrize("wrong", [False, True])
def test_glue_tests_with_models_compiled_at_build_time(tmp_path: Path, wrong: bool) -> None:
    done = build(ROOT / "tests/zephyr/models", ROOT, tmp_path / "o", f"-DAOT_TEST_WRONG={'ON' if wrong else 'OFF'}")
    assert done.returncode == 0, done.stdout + done.stderr
    text = execute(tmp_path / "o")
    assert f"PROJECT EXECUTION {'FAILED' if wrong else 'SUCCESSFUL'}" in text, text
    assert text.count("PASS - ") == (1 if wrong else 4)


@pytest.mark.qemu
def test_glue_generated_project(tmp_path: Path) -> None:
    pair = ROOT / "tests/models/graph_two_inputs_two_outputs.tflite"
    new(tmp_path / "p", ROOT / "examples/digits/digits.tflite", pair, "--kind", "zephyr", "--board", "mps2-an385")
    done = build(tmp_path / "p", ROOT, tmp_path / "o")
    assert done.returncode == 0, done.stdout + done.stderr
    text = execute(tmp_path / "o")
    assert re.search(r"PASS digits: [1-9]\d+ cycles, 0 outputs differ", text), text
    assert "PASS graph_two_inputs_two_outputs" in text


def _edit(path: str, old: str, new: str) -> Callable[[Path], None]:
    def apply(module: Path) -> None:
        file = module / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    return apply


def _append(path: str, text: str) -> Callable[[Path], None]:
    def apply(module: Path) -> None:
        (module / path).write_text((module / path).read_text() + text)

    return apply


_LISTS, _PRJ, _MAIN = "samples/digits/CMakeLists.txt", "samples/digits/prj.conf", "samples/digits/src/main.c"
_MODULE = "zephyr/module.yml"
FAULTS = {
    "library made in the application": (_append(_LISTS, "zephyr_library_named(late)\n"), "would never link it"),
    "unknown key": (_edit(_MODULE, "samples:", "sample:"), "module.yml.sample: unknown key"),
    "unknown key in build": (_edit(_MODULE, "  kconfig:", "  kconf:"), "build.kconf: unknown key"),
    "wrong kconfig path": (_edit(_MODULE, "zephyr/Kconfig", "zephyr/Konfig"), "no file zephyr/Konfig"),
    "wrong cmake path": (_edit(_MODULE, "cmake: zephyr", "cmake: cmake"), "no cmake/CMakeLists.txt"),
    "tests folder missing": (_edit(_MODULE, "tests/zephyr", "tests/zefir"), "no folder tests/zefir"),
    "undefined symbol": (_append(_PRJ, "CONFIG_AOT_MAGIC=y\n"), "AOT_MAGIC"),
    "unmet dependency": (_edit(_PRJ, "CONFIG_AOT=y", "CONFIG_AOT=n"), "AOT_TIMING was assigned y but got n"),
    "module not enabled": (lambda m: (m / _PRJ).write_text(""), "put CONFIG_AOT=y into prj.conf"),
    "missing source": (_edit(_LISTS, "src/main.c", "src/mein.c"), "mein.c"),
    "missing model": (_edit(_LISTS, "app model", "app modell"), "there is no"),
    "folder that is no model": (_edit(_LISTS, "app model", "app src"), "was not written by aot compile"),
    "wrong include folder": (_edit("zephyr/CMakeLists.txt", "/include)", "/inklude)"), "inklude"),
    "function that is not there": (_edit(_MAIN, "digits_run(&in", "digits_runn(&in"), "digits_runn"),
    "kernel function that is not there": (_edit(_MAIN, "  int best = 0;", "  k_nap(1);\n  int best = 0;"), "k_nap"),
    "warning": (_edit(_MAIN, "  int best = 0;", "  int unused;\n  int best = 0;"), "unused"),
    "unknown argument": (_edit(_LISTS, "app model", "app model FAST"), "unknown arguments: FAST"),
    "other name": (_edit(_LISTS, "app model", "app model NAME kws"), "holds digits, not kws"),
}


TEN = {
    "library made in the application", "unknown key", "wrong kconfig path", "wrong cmake path", "undefined symbol",
    "unmet dependency", "missing source", "wrong include folder", "kernel function that is not there", "tests folder missing",
}  # fmt: skip
"""What the check must notice at the least: faults that were seen in modules of others."""


def test_the_ten_faults_are_planted() -> None:
    assert set(FAULTS) >= TEN
    assert len(TEN) == 10


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_glue_check_notices(module: Path, tmp_path: Path, fault: str) -> None:
    plant, message = FAULTS[fault]
    plant(module)
    done = build(module / "samples/digits", module, tmp_path / "o")
    assert done.returncode != 0
    assert message in " ".join((done.stdout + done.stderr).split()), done.stdout + done.stderr


def _base() -> Path:
    """The Zephyr tree; without one the test is skipped, or fails where AOT_REQUIRE_ZEPHYR=1 says so."""
    base = os.environ.get("ZEPHYR_BASE", "")
    if not base:
        reason = "ZEPHYR_BASE is not set: the module was not built with Zephyr"
        pytest.fail(reason) if os.environ.get("AOT_REQUIRE_ZEPHYR") == "1" else pytest.skip(reason)
    return Path(base)


def _boards(base: Path) -> tuple[str, ...]:
    """The boards by the names that this version of Zephyr knows."""
    return BOARDS if zephyr_version(base) < (3, 7, 0) else BOARDS_V2


def _twister(base: Path, folder: Path, roots: list[Path], boards: tuple[str, ...], *defines: str) -> tuple[int, dict[str, str]]:
    """Exit code, and "board test" -> status of what was built; what is not for a board, twister filters."""
    modules = ";".join([*filter(None, [os.environ.get("ZEPHYR_MODULES", "")]), str(ROOT)])
    defines = (f"ZEPHYR_MODULES={modules}" if "ZEPHYR_MODULES" in os.environ else f"EXTRA_ZEPHYR_MODULES={ROOT}", *defines)
    python = shutil.which(os.environ.get("ZEPHYR_PYTHON", sys.executable)) or sys.executable
    command = [python, base / "scripts" / "twister", "--inline-logs", "-O", folder]
    command += [word for root in roots for word in ("-T", root)] + [word for board in boards for word in ("-p", board)]
    command += [word for define in defines for word in ("-x", define)]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=7200)
    report = folder / "twister.json"
    assert report.is_file(), done.stdout[-5000:] + done.stderr[-2000:]
    suites = json.loads(report.read_text())["testsuites"]
    built = [s for s in suites if s["status"] != "filtered"]
    return done.returncode, {f"{s['platform']} {s['name'].rsplit('/', 1)[-1]}": s["status"] for s in built}


@pytest.mark.slow
def test_real_zephyr(tmp_path: Path) -> None:
    """twister on samples/ and tests/zephyr, on every board."""
    base = _base()
    boards = _boards(base)
    code, status = _twister(base, tmp_path / "twister", [ROOT / "samples", ROOT / "tests/zephyr"], boards)
    wanted = {f"{b} {t}" for b in boards for t in ("aot.sample.digits", "aot.models")}
    no_fpu = f"{boards[-1]} aot.sample.digits.no_fpu"
    assert status == dict.fromkeys({*wanted, no_fpu}, "passed")
    assert code == 0


@pytest.mark.slow
def test_real_zephyr_notices_a_wrong_expectation(tmp_path: Path) -> None:
    base = _base()
    boards = _boards(base)[:2]
    code, status = _twister(base, tmp_path / "twister", [ROOT / "tests/zephyr"], boards, "AOT_TEST_WRONG=ON")
    assert status == {f"{b} aot.models": "failed" for b in boards}
    assert code != 0


@pytest.mark.slow
def test_real_zephyr_runs_verify_and_a_generated_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = _base()
    board = _boards(base)[0]
    assert run(["verify", str(DIGITS), "--board", f"zephyr:{board}", "--json", "--random", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["exact"]
    pair = ROOT / "tests/models/graph_two_inputs_two_outputs.tflite"
    new(tmp_path / "p", DIGITS, pair, "--kind", "zephyr", "--board", "mps2-an385")
    configure = ["cmake", "-S", tmp_path / "p", "-B", tmp_path / "b", "-GNinja", f"-DBOARD={board}"]
    modules = os.environ.get("ZEPHYR_MODULES", "")
    for command in ([*configure, f"-DZEPHYR_MODULES={modules}"] if modules else configure, ["ninja", "-C", tmp_path / "b"]):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=1800)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "warning:" not in done.stdout
    command = ["timeout", "20", "ninja", "-C", tmp_path / "b", "run"]  # QEMU does not end by itself
    text = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=60).stdout
    assert re.search(r"PASS digits: \d+ cycles, 0 outputs differ", text), text
    assert "PASS graph_two_inputs_two_outputs" in text
