"""`aot new --kind zephyr`, `arduino` and `platformio`: the models in the layout of another build system."""

from __future__ import annotations

from typing import Any

from aot.micro.new.registry import (
    ProjectFiles,
    Spec,
    Text,
    common_values,
    model_files,
    project_kind,
    project_name,
    render,
    runtime_headers,
)
from aot.micro.new.source_tree import source_tree
from aot.target.cpu import find_core

ZEPHYR_BOARDS = {
    "mps2-an385": ("mps2_an385", "mps2/an385"),
    "mps2-an386": ("mps2/an386",),
    "mps2-an500": ("mps2/an500",),
    "mps2-an505": ("mps2_an521", "mps2/an521/cpu0"),
    "mps3-an547": ("mps3_an547", "mps3/corstone300/an547"),
    "microbit": ("bbc_microbit",),
}
"""Our board -> the nearest of Zephyr's: by its old name, and by that from 3.7 on."""

ARDUINO_ARCHITECTURES = {
    "cortex-m0plus": ("samd", "mbed_rp2040", "rp2040", "stm32"),
    "cortex-m3": ("sam", "stm32"),
    "cortex-m4": ("mbed_nano", "mbed_nicla", "renesas_uno", "nrf52", "stm32"),
    "cortex-m7": ("mbed_portenta", "mbed_giga", "mbed_opta", "stm32"),
    "cortex-m33": ("renesas_portenta", "rp2040", "stm32"),
}
"""Core -> the architectures (of library.properties) that have boards with it; a project for another core names no limits."""

ARDUINO_BOARDS = {"nano33ble": "arduino:mbed_nano:nano33ble", "rpi-pico": "rp2040:rp2040:rpipico"}
PLATFORMIO_BOARDS = {
    "nano33ble": ("nordicnrf52", "nano33ble"), "rpi-pico": ("raspberrypi", "pico"), "nrf52840dk": ("nordicnrf52", "nrf52840_dk"),
    "nucleo-f446re": ("ststm32", "nucleo_f446re"), "nucleo-h743zi2": ("ststm32", "nucleo_h743zi"),
}  # fmt: skip
"""Our board -> the one of arduino-cli; the platform and the board of PlatformIO."""


def target_of(kind: str, cpu: str) -> str:
    """The target that a kind of project compiles for on a board with this core.

    Zephyr gives no floating point registers without CONFIG_FPU, and may leave out the DSP instructions of an Armv8-M core.
    """
    core = find_core(cpu)
    if kind != "zephyr" or "vfp" not in core.features:
        return cpu
    return "cortex-m3" if core.architecture.startswith("Armv8") else f"{cpu}+nofpu"


@project_kind("zephyr")
def zephyr_project(spec: Spec) -> ProjectFiles:
    """CMakeLists.txt, prj.conf and src/main.c are the user's."""
    tree = source_tree(spec)
    files = dict(tree.files)
    boards = ZEPHYR_BOARDS.get(spec.board.name, ("BOARD",))
    values = {**_values(spec), "fast": tree.fast, "small": tree.small, "zephyr_boards": boards}
    files["aot/project.cmake"] = render("zephyr/project.cmake.j2", **values)
    files["README.md"] = render("zephyr/README.md.j2", **values)
    once: dict[str, Text] = {n: render(f"zephyr/{n}.j2", **values) for n in ("CMakeLists.txt", "prj.conf")}
    return ProjectFiles(files, {**once, "src/main.c": render("zephyr/main.c.j2", **values)})


@project_kind("arduino", board="nano33ble")
def arduino_project(spec: Spec) -> ProjectFiles:
    """A library with an example; all of it generated, as sketches live elsewhere."""
    values = _values(spec)
    files = _library_sources(spec, "src/", values)
    files["library.properties"] = render("library/library.properties.j2", **values)
    files[f"examples/{values['project']}/{values['project']}.ino"] = render("library/example.ino.j2", **values)
    files["README.md"] = render("library/README.md.j2", **values)
    return ProjectFiles(files)


@project_kind("platformio")
def platformio_project(spec: Spec) -> ProjectFiles:
    """platformio.ini and src/main.cpp are the user's; the models are a library of the project."""
    values = _values(spec)
    folder = f"lib/{values['project']}/"
    files = _library_sources(spec, f"{folder}src/", values)
    files[f"{folder}examples/{values['project']}/{values['project']}.ino"] = render("library/example.ino.j2", **values)
    files[f"{folder}library.json"] = render("library/library.json.j2", **values)
    files["README.md"] = render("library/README.md.j2", **values)
    once: dict[str, Text] = {
        "platformio.ini": render("library/platformio.ini.j2", **values),
        "src/main.cpp": render("library/main.cpp.j2", **values),
    }
    return ProjectFiles(files, once)


def _values(spec: Spec) -> dict[str, Any]:
    project = project_name(spec.title)
    cpu = spec.parts[0].artifact.metadata["target"]["cpu"]
    names = {"project": project, "header": f"{project}_models.h", "guard": f"{project}_MODELS".upper()}
    architectures = ARDUINO_ARCHITECTURES.get(spec.board.cpu, ("*",))
    platform, board = PLATFORMIO_BOARDS.get(spec.board.name, ("ststm32", "nucleo_f446re"))
    return {
        **common_values(spec), **names, "cpu": cpu, "architectures": ",".join(architectures),
        "fqbn": ARDUINO_BOARDS.get(spec.board.name, "VENDOR:ARCH:BOARD"), "platform": platform, "platform_board": board,
    }  # fmt: skip


def _library_sources(spec: Spec, folder: str, values: dict[str, Any]) -> dict[str, Text]:
    """All sources and headers in one folder, with a header that includes all models."""
    texts = model_files(spec)
    texts.update(runtime_headers(texts, more=("model.hpp",)))
    for name, text in texts.items():
        if name.endswith("_kernels.c"):  # such build systems have no flags for a single file
            licence, _, rest = str(text).partition("\n")
            texts[name] = f'{licence}\n#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC optimize("O2")\n#endif\n{rest}'
    texts[values["header"]] = render("library/all.h.j2", **values)
    return {folder + name: text for name, text in texts.items()}
