"""Libraries for Arduino and PlatformIO: built as those tools build them, with a stand-in for the framework, and run here."""

from __future__ import annotations

import importlib.util
import json
import sys
import tarfile
from pathlib import Path

import pytest

from aot.micro.new.library import target_of
from tests.micro.projects import DIGITS, ROOT, TWO_IO, arduino_header, need, new, sh, snapshot

FED = ROOT / "tests" / "models" / "depthwise_multiplier8.tflite"
WARNINGS = "-Wall -Wextra -Werror"


def test_targets() -> None:
    assert target_of("zephyr", "cortex-m4") == "cortex-m4+nofpu"
    assert target_of("zephyr", "cortex-m0") == "cortex-m0"
    assert target_of("make", "cortex-m4") == "cortex-m4"


@pytest.mark.slow
def test_platformio_itself_reads_the_layout(tmp_path: Path) -> None:
    """What PlatformIO does without its registry: check platformio.ini, and pack the library by its library.json."""
    if importlib.util.find_spec("platformio") is None:
        pytest.skip("platformio is not installed (pip install platformio)")
    new(tmp_path / "p", DIGITS, TWO_IO, "--kind", "platformio")
    environment = f"export PLATFORMIO_CORE_DIR={tmp_path}/core PLATFORMIO_SETTING_ENABLE_TELEMETRY=0 PYTHONSAFEPATH=1"
    tool = f"{environment}\n{sys.executable} -m platformio"
    found = sh(f"{tool} project config --lint --json-output", cwd=tmp_path / "p")
    assert found.strip().replace("'", '"') == '{"errors": [], "warnings": []}'
    sh(f"{tool} pkg pack lib/p -o {tmp_path}/p.tar.gz", cwd=tmp_path / "p")
    with tarfile.open(tmp_path / "p.tar.gz") as archive:
        assert {"library.json", "src/digits.c", "src/p_models.h"} <= set(archive.getnames())


def test_architectures_are_those_with_the_core(tmp_path: Path) -> None:
    new(tmp_path / "nano", DIGITS, "--kind", "arduino")
    properties = (tmp_path / "nano" / "library.properties").read_text()
    assert "architectures=mbed_nano,mbed_nicla,renesas_uno,nrf52,stm32\n" in properties
    assert "--fqbn arduino:mbed_nano:nano33ble " in (tmp_path / "nano" / "README.md").read_text()
    new(tmp_path / "pio", DIGITS, "--kind", "platformio", "--board", "rpi-pico")
    assert (tmp_path / "pio" / "lib" / "pio" / "examples" / "pio" / "pio.ino").is_file()
    assert "; board = pico\n" in (tmp_path / "pio" / "platformio.ini").read_text()


@pytest.mark.slow
def test_arduino_library(tmp_path: Path) -> None:
    need("gcc", "g++")
    new(tmp_path / "my-demo", DIGITS, TWO_IO, "--kind", "arduino")
    library = tmp_path / "my-demo"
    properties = dict(line.split("=", 1) for line in (library / "library.properties").read_text().splitlines())
    wanted = {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url", "architectures", "includes"}
    assert set(properties) == wanted
    assert (library / "src" / properties["includes"]).is_file()
    sketch = next(library.glob("examples/*/*.ino"))
    assert sketch.stem == sketch.parent.name == "my_demo"
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "Arduino.h").write_text(arduino_header("host"))
    # the Arduino builder puts the include and a main around a sketch, and compiles src/ with no other include folder
    main = "int main() { setup(); for (;;) loop(); }\n"
    (tmp_path / "o" / "sketch.cpp").write_text(f"#include <Arduino.h>\n{sketch.read_text()}\n{main}")
    sh(f"gcc -Os {WARNINGS} -I{library}/src -c {library}/src/*.c", cwd=tmp_path / "o")
    text = sh(f"g++ -std=c++17 {WARNINGS} -I. -I{library}/src sketch.cpp *.o -o s && ./s", cwd=tmp_path / "o")
    assert text.count("PASS") == 2
    assert "FAIL" not in text


@pytest.mark.slow
def test_platformio_project(tmp_path: Path) -> None:
    need("gcc", "g++")
    new(tmp_path / "p", DIGITS, "--kind", "platformio", "--board", "mps3-an547")
    names = set(snapshot(tmp_path / "p"))
    assert {"platformio.ini", "src/main.cpp", "lib/p/library.json", "lib/p/src/digits.c"} <= names
    assert json.loads((tmp_path / "p/lib/p/library.json").read_text())["name"] == "p"
    listed = json.loads((tmp_path / "p/aot-project.json").read_text())["generated"]
    assert "src/main.cpp" not in listed
    sh(f"gcc {WARNINGS} -Ilib/p/src -c lib/p/src/*.c", cwd=tmp_path / "p")
    command = f"g++ -std=c++17 {WARNINGS} -Ilib/p/src src/main.cpp *.o -o demo && ./demo"
    assert sh(command, cwd=tmp_path / "p") == "PASS digits: 0 outputs differ\n"


@pytest.mark.slow
def test_a_library_that_is_fed_by_rows(tmp_path: Path) -> None:
    need("gcc", "g++")
    new(tmp_path / "p", FED, "--kind", "platformio", "--board", "mps2-an385", "--feed-rows", "--name", "fed")
    (tmp_path / "p" / "Arduino.h").write_text(arduino_header("host"))
    sh(f"gcc {WARNINGS} -Ilib/p/src -c lib/p/src/*.c", cwd=tmp_path / "p")
    command = f"g++ -std=c++17 {WARNINGS} -I. -Ilib/p/src src/main.cpp *.o -o demo && ./demo"
    assert sh(command, cwd=tmp_path / "p") == "PASS fed: 0 outputs differ\n"
