"""`aot new --kind zephyr`, `arduino`, `platformio`, `cmsis` and `pico`: projects for other build systems."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from aot.errors import Problem, UsageError
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
from aot.support.dataclass import dataclass
from aot.target.cpu import architecture_of, find_core


@dataclass(frozen=True, slots=True)
class SourceTree:
    """`files` by path in the project; `fast` and `small`: sources relative to aot/ to compile for speed and for size."""

    files: dict[str, Text]
    fast: list[str]
    small: list[str]


def source_tree(spec: Spec) -> SourceTree:
    """The C sources of all models, each with a test vector, without start-up code, which the build system provides."""
    texts = model_files(spec, sources="models/", headers="models/")
    files = {f"aot/{name}": text for name, text in texts.items()}
    files.update({f"aot/include/{name}": text for name, text in runtime_headers(texts).items()})
    sources = sorted(n for n in texts if n.endswith(".c"))
    fast = [n for n in sources if n.endswith("_kernels.c")]
    return SourceTree(files, fast, [n for n in sources if n not in fast])


ZEPHYR_BOARDS = {
    "mps2-an385": ("mps2_an385", "mps2/an385"),
    "mps2-an386": ("mps2/an386",),
    "mps2-an500": ("mps2/an500",),
    "mps2-an505": ("mps2_an521", "mps2/an521/cpu0"),
    "mps3-an547": ("mps3_an547", "mps3/corstone300/an547"),
    "microbit": ("bbc_microbit",),
}
"""aot board -> the closest Zephyr board: its old name, and its name since Zephyr 3.7."""

ARDUINO_ARCHITECTURES = {
    "cortex-m0plus": ("samd", "mbed_rp2040", "rp2040", "stm32"),
    "cortex-m3": ("sam", "stm32"),
    "cortex-m4": ("mbed_nano", "mbed_nicla", "renesas_uno", "nrf52", "stm32"),
    "cortex-m7": ("mbed_portenta", "mbed_giga", "mbed_opta", "stm32"),
    "cortex-m33": ("renesas_portenta", "rp2040", "stm32"),
}
"""Core -> the architectures (for library.properties) with such boards; projects for other cores are not restricted."""

ARDUINO_BOARDS = {"nano33ble": "arduino:mbed_nano:nano33ble", "rpi-pico": "rp2040:rp2040:rpipico"}
PLATFORMIO_BOARDS = {
    "nano33ble": ("nordicnrf52", "nano33ble"), "rpi-pico": ("raspberrypi", "pico"), "nrf52840dk": ("nordicnrf52", "nrf52840_dk"),
    "nucleo-f446re": ("ststm32", "nucleo_f446re"), "nucleo-h743zi2": ("ststm32", "nucleo_h743zi"),
}  # fmt: skip
"""aot board -> arduino-cli's board; PlatformIO's platform and board."""


def target_of(kind: str, cpu: str) -> str:
    """The target for a kind of project on a board with this core.

    Zephyr disables floating point registers without CONFIG_FPU, and may disable the DSP instructions of an Armv8-M core.
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
    """A library with an example; everything is generated, because sketches are elsewhere."""
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
        if name.endswith("_kernels.c"):  # these build systems cannot set flags for a single file
            licence, _, body = str(text).partition("\n")
            texts[name] = f'{licence}\n#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC optimize("O2")\n#endif\n{body}'
    texts[values["header"]] = render("library/all.h.j2", **values)
    return {folder + name: text for name, text in texts.items()}


# ---- cmsis: a CMSIS pack of the models, and a solution that uses it, for CMSIS-Toolbox and Keil


_LONGEST = 27
_NO_FPU = ("Armv6-M", "Armv7-M", "Armv8-M Baseline")
"""Architectures without an FPU, so that a project need not disable it."""


@project_kind("cmsis")
def cmsis_project(spec: Spec) -> ProjectFiles:
    """The solution, the project and src/ are the user's; the pack's description and the models' layer are generated."""
    tree, metas = source_tree(spec), [p.artifact.metadata for p in spec.parts]
    project = project_name(spec.title)
    common = common_values(spec)
    arm = arm_name(spec.board.cpu)
    values: dict[str, Any] = {
        **common, "project": project, "cpu": metas[0]["target"]["cpu"], "fast": tree.fast, "small": tree.small,
        "device": f"ARMC{arm}".replace("+", "P"), "core": f"Cortex-{arm}",
        "processor": processor(spec.board.flags), "itm": find_core(spec.board.cpu).has_trace,
        "group": short(project), "components": [_component(m["name"], list(tree.files)) for m in common["models"]],
        "shared": [n for n in tree.files if n.rpartition("/")[2].startswith("aot_workspace.")],
    }  # fmt: skip
    files = dict(tree.files)
    files["aot/aot.clayer.yml"] = render("cmsis/layer.yml.j2", **values)
    files[f"aot.{project}.pdsc"] = render("cmsis/pack.pdsc.j2", **values)
    files["README.md"] = render("cmsis/README.md.j2", **values)
    once: dict[str, Text] = {
        f"{project}.csolution.yml": render("cmsis/csolution.yml.j2", **values),
        f"{project}.cproject.yml": render("cmsis/cproject.yml.j2", **values),
        "src/main.c": render("cmsis/main.c.j2", **values), "src/stdout.c": render("cmsis/stdout.c.j2", **values),
    }  # fmt: skip
    return ProjectFiles(files, once)


def arm_name(cpu: str) -> str:
    """The core's name in packs, such as `M0+`; for a plug-in's core `M3`, whose code runs on others."""
    plain = cpu.partition("+")[0]
    return plain.removeprefix("cortex-").upper().replace("PLUS", "+") if plain.startswith("cortex-m") else "M3"


def short(name: str) -> str:
    """A component name that PACK.xsd accepts: a letter first, at least 2 characters, at most 32 with " test" appended."""
    word = name if len(name) > 1 and name[0] != "_" else f"model_{name}"
    return word if len(word) <= _LONGEST else f"{word[: _LONGEST - 7]}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def processor(flags: Sequence[str]) -> dict[str, str]:
    """The attributes of a csolution's `processor:` that are equivalent to these compiler flags."""
    fpu = next((f.partition("=")[2] for f in flags if f.startswith("-mfpu=")), "")
    cpu = next((f.partition("=")[2] for f in flags if f.startswith("-mcpu=")), "")
    attributes = {"fpu": "sp" if "sp" in fpu else "dp"} if fpu else {}
    architecture = architecture_of(cpu)
    if "-mfloat-abi=soft" in flags and architecture not in _NO_FPU:
        attributes["fpu"] = "off"
    if "+nomve" in cpu:
        attributes["mve"] = "off" if "+nomve.fp" not in cpu else "int"
    if architecture.startswith("Armv8"):
        attributes["trustzone"] = "off"
    return attributes


def _component(name: str, files: Sequence[str]) -> dict[str, Any]:
    """The files of one model, and of its test vector."""
    sources = [
        n
        for n in files
        if n.startswith(f"aot/models/{name}.") or n in (f"aot/models/{name}_{w}.c" for w in ("kernels", "params"))
    ]
    return {
        "name": name,
        "short": short(name),
        "files": sources,
        "test": [f"aot/models/{name}_test.h", f"aot/models/{name}_test.c"],
    }


# ---- pico: a program for Raspberry Pi Pico boards, built with the Pico SDK


PICO_BOARDS = {"cortex-m0plus": "pico", "cortex-m0": "pico", "cortex-m33": "pico2"}
"""Core -> the SDK's board (RP2040 or RP2350)."""


@project_kind("pico", board="rpi-pico")
def pico_project(spec: Spec) -> ProjectFiles:
    """CMakeLists.txt and src/main.c are the user's; aot/project.cmake names the sources.

    Raises UsageError E5400 for a board with another core than RP2040's or RP2350's.
    """
    if spec.board.cpu not in PICO_BOARDS:
        message = f"the Pico SDK has boards with {', '.join(PICO_BOARDS)}; {spec.board.name} has a {spec.board.cpu}"
        raise UsageError(Problem("E5400", f"--kind pico: {message}"))
    tree = source_tree(spec)
    values = {
        **common_values(spec), "project": project_name(spec.title), "pico_board": PICO_BOARDS[spec.board.cpu],
        "cpu": spec.parts[0].artifact.metadata["target"]["cpu"], "fast": tree.fast, "small": tree.small,
    }  # fmt: skip
    files = dict(tree.files)
    files["aot/project.cmake"] = render("pico/project.cmake.j2", **values)
    files["README.md"] = render("pico/README.md.j2", **values)
    once: dict[str, Text] = {"CMakeLists.txt": render("pico/CMakeLists.txt.j2", **values)}
    return ProjectFiles(files, {**once, "src/main.c": render("pico/main.c.j2", **values)})
