"""`aot new --kind zephyr`, `arduino`, `platformio`, `cmsis`, `pico` and `rust`: projects for other build systems."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from aot.errors import Problem, UsageError
from aot.micro.new.registry import (
    ProjectFiles,
    Spec,
    Text,
    common_values,
    integer_only,
    model_files,
    project_files,
    project_kind,
    project_name,
    render,
    runtime_headers,
)
from aot.support.dtype import itemsize
from aot.target.cpu import architecture_of, find_core


def source_tree(spec: Spec) -> tuple[dict[str, Text], dict[str, Any]]:
    """The C sources of all models, each with a test vector, and the common values for the templates.

    There is no start-up code, which the build system provides.  `fast` and `small` are the sources, relative to aot/, to compile
    for speed and for size.
    """
    texts = model_files(spec, sources="models/", headers="models/")
    files = {f"aot/{name}": text for name, text in texts.items()}
    files.update({f"aot/include/{name}": text for name, text in runtime_headers(texts).items()})
    sources = sorted(n for n in texts if n.endswith(".c"))
    fast = [n for n in sources if n.endswith("_kernels.c")]
    return files, {**_values(spec), "fast": fast, "small": [n for n in sources if n not in fast]}


def _values(spec: Spec) -> dict[str, Any]:
    cpu = spec.parts[0].artifact.metadata["target"]["cpu"]
    return {**common_values(spec), "project": project_name(spec.title), "cpu": cpu}


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
    files, values = source_tree(spec)
    values["zephyr_boards"] = ZEPHYR_BOARDS.get(spec.board.name, ("BOARD",))
    return project_files(
        files, values, generated={"aot/project.cmake": "zephyr/project.cmake", "README.md": "zephyr/README.md"},
        once={"CMakeLists.txt": "zephyr/CMakeLists.txt", "prj.conf": "zephyr/prj.conf", "src/main.c": "zephyr/main.c"},
    )  # fmt: skip


@project_kind("arduino", board="nano33ble")
def arduino_project(spec: Spec) -> ProjectFiles:
    """A library with an example; everything is generated, because sketches are elsewhere."""
    return _library_project(spec, "", "library.properties")


@project_kind("platformio")
def platformio_project(spec: Spec) -> ProjectFiles:
    """platformio.ini and src/main.cpp are the user's; the models are a library of the project."""
    once = {"platformio.ini": "library/platformio.ini", "src/main.cpp": "library/main.cpp"}
    return _library_project(spec, f"lib/{project_name(spec.title)}/", "library.json", once=once)


def _library_project(spec: Spec, folder: str, description: str, *, once: Mapping[str, str] | None = None) -> ProjectFiles:
    """An Arduino library in `folder`, with the file that describes it and an example."""
    project = project_name(spec.title)
    architectures = ARDUINO_ARCHITECTURES.get(spec.board.cpu, ("*",))
    platform, board = PLATFORMIO_BOARDS.get(spec.board.name, ("ststm32", "nucleo_f446re"))
    values = {
        **_values(spec), "header": f"{project}_models.h", "guard": f"{project}_MODELS".upper(),
        "architectures": ",".join(architectures), "fqbn": ARDUINO_BOARDS.get(spec.board.name, "VENDOR:ARCH:BOARD"),
        "platform": platform, "platform_board": board,
    }  # fmt: skip
    generated = {
        f"{folder}{description}": f"library/{description}", "README.md": "library/README.md",
        f"{folder}examples/{project}/{project}.ino": "library/example.ino",
    }  # fmt: skip
    return project_files(_library_sources(spec, f"{folder}src/", values), values, generated=generated, once=once)


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
    files, values = source_tree(spec)
    project, arm = values["project"], arm_name(spec.board.cpu)
    values |= {
        "device": f"ARMC{arm}".replace("+", "P"), "core": f"Cortex-{arm}",
        "processor": processor(spec.board.flags), "itm": find_core(spec.board.cpu).has_trace,
        "group": short(project), "components": [_component(m["name"], list(files)) for m in values["models"]],
        "shared": [n for n in files if n.rpartition("/")[2].startswith("aot_workspace.")],
    }  # fmt: skip
    return project_files(
        files, values,
        generated={
            "aot/aot.clayer.yml": "cmsis/layer.yml", f"aot.{project}.pdsc": "cmsis/pack.pdsc", "README.md": "cmsis/README.md",
        },
        once={
            f"{project}.csolution.yml": "cmsis/csolution.yml", f"{project}.cproject.yml": "cmsis/cproject.yml",
            "src/main.c": "cmsis/main.c", "src/stdout.c": "cmsis/stdout.c",
        },
    )  # fmt: skip


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
    names = [f"aot/models/{name}_{w}.c" for w in ("kernels", "params")]
    sources = [n for n in files if n.startswith(f"aot/models/{name}.") or n in names]
    test = [f"aot/models/{name}_test.{end}" for end in ("h", "c")]
    return {"name": name, "short": short(name), "files": sources, "test": test}


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
    files, values = source_tree(spec)
    values["pico_board"] = PICO_BOARDS[spec.board.cpu]
    return project_files(
        files, values, generated={"aot/project.cmake": "pico/project.cmake", "README.md": "pico/README.md"},
        once={"CMakeLists.txt": "pico/CMakeLists.txt", "src/main.c": "pico/main.c"},
    )  # fmt: skip


# ---- rust: a `no_std` crate around the models; its build script compiles their C


_TYPES = {
    "bool": "bool", "int8_t": "i8", "uint8_t": "u8", "int16_t": "i16", "uint16_t": "u16", "int32_t": "i32", "uint32_t": "u32",
    "int64_t": "i64", "uint64_t": "u64", "float": "f32", "double": "f64",
}  # fmt: skip
"""C type of an element -> Rust type."""

_KEYWORDS = {
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else", "enum", "extern",
    "false", "final", "fn", "for", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override",
    "priv", "pub", "ref", "return", "static", "struct", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use",
    "virtual", "where", "while", "yield",
}  # fmt: skip
_NEVER = {"self", "super", "crate", "Self", "_"}
"""Names that Rust does not accept even as r#name."""
_CRATES = {"core", "std", "alloc", "test", "proc_macro"}


@project_kind("rust")
def rust_project(spec: Spec) -> ProjectFiles:
    """Cargo.toml, src/lib.rs and examples/run.rs are the user's; aot/ has the models, their interface and the build script."""
    files, values = source_tree(spec)
    flags = [f for f in spec.board.flags if not f.startswith("-mfloat-abi")]
    metas = [p.artifact.metadata for p in spec.parts]
    values |= {
        "crate": crate_name(spec.title), "flags": flags, "fpu": any(f.startswith("-mfpu") for f in flags),
        "models": [_model(m, meta) for m, meta in zip(values["models"], metas, strict=True)],
        "libm": not integer_only(spec), "rust_target": rust_target(spec.board.flags),
    }  # fmt: skip
    return project_files(
        files, values,
        generated={
            "aot/build.rs": "rust/build.rs", "aot/models.rs": "rust/models.rs", "tests/vectors.rs": "rust/vectors.rs",
            "README.md": "rust/README.md",
        },
        once={"Cargo.toml": "rust/Cargo.toml", "src/lib.rs": "rust/lib.rs", "examples/run.rs": "rust/run.rs"},
    )  # fmt: skip


def crate_name(title: str) -> str:
    """A crate name that Cargo accepts, derived from the project's title."""
    name = project_name(title).lower()
    return f"{name}_models" if name in _KEYWORDS | _NEVER | _CRATES else name


def rust_target(flags: tuple[str, ...]) -> str:
    """rustc's target for a core, from the compiler's flags for it; "" (the host) if they name no core."""
    cpu = next((f.partition("=")[2].partition("+")[0] for f in flags if f.startswith("-mcpu=")), "")
    hard = "hf" if "-mfloat-abi=hard" in flags else ""
    if not cpu:
        return ""
    names = {"Armv6-M": "v6m", "Armv7-M": "v7m", "Armv7E-M": "v7em", "Armv8-M Baseline": "v8m.base"}
    name = names.get(architecture_of(cpu), "v8m.main")
    return f"thumb{name}-none-eabi" + (hard if name in ("v7em", "v8m.main") else "")


def _model(model: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The values of one model for the templates; `module` is its name as a Rust identifier."""
    name = model["name"]
    module = f"{name}_" if name in _NEVER else f"r#{name}" if name in _KEYWORDS else name
    tensors = {k: [_tensor(t) for t in model[k]] for k in ("inputs", "outputs")}
    feed = metadata.get("feed")
    row = {"rows": feed["rows"], "row_elements": tensors["inputs"][0]["elements"] // feed["rows"]} if feed else None
    return {**model, **tensors, "module": module, "feed": row}


def _tensor(info: Mapping[str, Any]) -> dict[str, Any]:
    width = 4 if info["ctype"] == "float" else itemsize(info["dtype"])
    return {**info, "rust": _TYPES[info["ctype"]], "elements": info["size"] // width}
