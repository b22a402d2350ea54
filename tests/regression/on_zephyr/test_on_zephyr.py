"""What went wrong with a real Zephyr 4.1: windows that move, names of boards, Helium, reasons that were not shown, FVPs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aot.cli.__main__ import run
from aot.micro.run.zephyr import HELIUM, telling_lines
from tests.micro.projects import DIGITS, ROOT
from tests.zephyr.test_verify import tree  # noqa: F401

KWS = ROOT / "tests" / "models" / "net_kws_dscnn.tflite"
CORE = """
config CPU_CORTEX_M55
\tdef_bool {m55}
\tselect ARMV8_1_M_MVEI
\tselect CPU_HAS_FPU

config ARMV8_1_M_MVEI
\tbool

config CPU_HAS_FPU
\tdef_bool {fpu}

config TIMING_FUNCTIONS
\tbool

config FPU
\tbool "floating point unit"
\tdepends on CPU_HAS_FPU
"""
KCONFIG = """\
warning: FPU (defined at arch/Kconfig:1070) was assigned the value 'y' but got the value 'n'. Check
these unsatisfied dependencies: CPU_HAS_FPU (=n). See the documentation of Kconfig
for more.

Parsing /z/Kconfig

error: Aborting due to Kconfig warnings

CMake Error at /z/cmake/modules/kconfig.cmake:396 (message):
  command failed with return code: 1
Call Stack (most recent call first):
"""
NO_TARGET = """\
-- Application: /tmp/a
Board qualifiers `` for board `mps2` not found. Please specify a valid board target.

Valid board targets for mps2 are:
mps2/an385
mps2/an386

CMake Error at /z/cmake/modules/boards.cmake:300 (message):
  Invalid board target.
"""


@pytest.mark.qemu
@pytest.mark.usefixtures("tree")
def test_windows_that_move(capsys: pytest.CaptureFixture[str]) -> None:
    """The application takes new rows only; the reference runs on the windows that they make."""
    assert run(["verify", str(KWS), "--board", "zephyr:any", "--json", "--random", "3", "--slide", "input=2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["exact"], found["sets_exact"]) == (True, 3)


@pytest.mark.parametrize("file", ["samples/digits/sample.yaml", "tests/zephyr/models/testcase.yaml"])
def test_scenarios_name_no_board_of_one_version_only(file: str) -> None:
    """Twister refuses a whole file for a board that its Zephyr does not know; qemu_cortex_m3 is one of all versions."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    document = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    for scenario in document["tests"].values():
        whole = {**document.get("common", {}), **scenario}
        named = [*whole.get("platform_allow", ()), *whole.get("integration_platforms", ())]
        assert set(named) <= {"qemu_cortex_m3"}
        assert whole["arch_allow"] == "arm"


def test_the_manifest_names_a_version_that_was_run() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (zephyr,) = yaml.safe_load((ROOT / "west.yml").read_text(encoding="utf-8"))["manifest"]["projects"]
    assert f"**Zephyr {zephyr['revision'].removeprefix('v')}**" in (ROOT / "docs/zephyr.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("own", ["module", "application"])
@pytest.mark.parametrize(
    ("core", "settings", "fpu"),
    [
        ({"m55": "y", "fpu": "n"}, "", "y"),
        ({"m55": "y", "fpu": "n"}, "CONFIG_FPU=n\n", "n"),
        ({"m55": "n", "fpu": "y"}, "", "n"),
        ({"m55": "n", "fpu": "y"}, "CONFIG_FPU=y\n", "y"),
        ({"m55": "n", "fpu": "n"}, "", "n"),
    ],
)
def test_helium_brings_the_fpu(tmp_path: Path, core: dict[str, str], settings: str, fpu: str, own: str) -> None:
    """By CONFIG_AOT, and in the applications of aot verify, unless the user says no; other cores stay as they are."""
    kconfiglib = pytest.importorskip("kconfiglib", reason="kconfiglib is not installed")
    module = (ROOT / "zephyr" / "Kconfig").read_text(encoding="utf-8")
    text = module if own == "module" else HELIUM.partition("source")[0]
    (tmp_path / "Kconfig").write_text(text + CORE.format(**core), encoding="utf-8")
    (tmp_path / "prj.conf").write_text(("CONFIG_AOT=y\n" if own == "module" else "") + settings, encoding="utf-8")
    os.environ["CONFIG_"] = "CONFIG_"
    found = kconfiglib.Kconfig(str(tmp_path / "Kconfig"))
    found.load_config(str(tmp_path / "prj.conf"))
    assert found.syms["FPU"].str_value == fpu


def test_kconfig_says_why() -> None:
    lines = telling_lines(KCONFIG)
    assert lines[1] == "these unsatisfied dependencies: CPU_HAS_FPU (=n). See the documentation of Kconfig"
    assert lines[2:4] == ["for more.", "error: Aborting due to Kconfig warnings"]
    assert not any("Parsing" in line for line in lines)


def test_targets_of_a_board_are_shown() -> None:
    lines = telling_lines(NO_TARGET)
    assert lines[1:4] == ["Valid board targets for mps2 are:", "mps2/an385", "mps2/an386"]
    assert lines[-1] == "  Invalid board target."


def test_a_script_says_why() -> None:
    said = 'Traceback (most recent call last):\n  File "x.py", line 1\nTypeError: a board has no soc\n-- Configuring incomplete\n'
    assert telling_lines(said) == ["TypeError: a board has no soc"]


@pytest.mark.qemu
@pytest.mark.parametrize(("program", "code"), [("/opt/FVP", 0), ("ARMFVP-NOTFOUND", 6)])
def test_boards_of_an_fvp(
    tree: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    program: str,
    code: int,
) -> None:
    """They are emulated; the emulator may be missing, which is something else."""
    package = tree / "ZephyrConfig.cmake"
    text = package.read_text(encoding="utf-8").replace("add_custom_target(run ", "add_custom_target(run_armfvp ")
    package.write_text(f'{text}set(ARMFVP {program} CACHE FILEPATH "")\n', encoding="utf-8")
    assert run(["verify", str(DIGITS), "--board", "zephyr:mps3/corstone300/fvp", "--random", "1"]) == code
    if code:
        assert "E3020 Zephyr runs mps3/corstone300/fvp in Arm's Fixed Virtual Platform" in capsys.readouterr().err
