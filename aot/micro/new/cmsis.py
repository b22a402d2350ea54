"""`aot new --kind cmsis`: a CMSIS pack of the models, and a solution for CMSIS-Toolbox and Keil that uses them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from aot.micro.new.registry import ProjectFiles, Spec, Text, common_values, project_kind, project_name, render
from aot.micro.new.source_tree import source_tree

_DEVICES = {
    "cortex-m0": "ARMCM0", "cortex-m0plus": "ARMCM0P", "cortex-m3": "ARMCM3", "cortex-m4": "ARMCM4", "cortex-m7": "ARMCM7",
    "cortex-m23": "ARMCM23", "cortex-m33": "ARMCM33", "cortex-m35p": "ARMCM35P", "cortex-m52": "ARMCM52",
    "cortex-m55": "ARMCM55", "cortex-m85": "ARMCM85",
}  # fmt: skip
"""Core -> the generic device of the pack ARM::Cortex_DFP."""

_CORES = {
    "cortex-m0": "Cortex-M0", "cortex-m0plus": "Cortex-M0+", "cortex-m3": "Cortex-M3", "cortex-m4": "Cortex-M4",
    "cortex-m7": "Cortex-M7", "cortex-m23": "Cortex-M23", "cortex-m33": "Cortex-M33", "cortex-m35p": "Cortex-M35P",
    "cortex-m52": "Cortex-M52", "cortex-m55": "Cortex-M55", "cortex-m85": "Cortex-M85",
}  # fmt: skip
"""Core -> its Dcore in a pack description."""

_NO_TRACE = ("cortex-m0", "cortex-m0plus", "cortex-m23")
"""Cores without an instrumentation trace (ITM) to print through."""
_LONGEST = 27


@project_kind("cmsis")
def cmsis_project(spec: Spec) -> ProjectFiles:
    """The solution, the project and src/ are the user's; the pack's description and the layer of the models are generated."""
    tree, metas = source_tree(spec), [p.artifact.metadata for p in spec.parts]
    project = project_name(spec.title)
    common = common_values(spec)
    values: dict[str, Any] = {
        **common, "project": project, "cpu": metas[0]["target"]["cpu"], "fast": tree.fast, "small": tree.small,
        "device": _DEVICES.get(spec.board.cpu, "ARMCM3"), "core": _CORES.get(spec.board.cpu, "Cortex-M3"),
        "processor": processor(spec.board.flags), "itm": spec.board.cpu not in _NO_TRACE,
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


def short(name: str) -> str:
    """A name for a component, as PACK.xsd wants it: a letter first, two characters, and with " test" behind it at most 32."""
    word = name if len(name) > 1 and name[0] != "_" else f"model_{name}"
    return word if len(word) <= _LONGEST else f"{word[: _LONGEST - 7]}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def processor(flags: Sequence[str]) -> dict[str, str]:
    """The attributes of a csolution's `processor:` that say what these flags of the compiler say."""
    fpu = next((f.partition("=")[2] for f in flags if f.startswith("-mfpu=")), "")
    cpu = next((f.partition("=")[2] for f in flags if f.startswith("-mcpu=")), "")
    found = {"fpu": "sp" if "sp" in fpu else "dp"} if fpu else {}
    if "-mfloat-abi=soft" in flags and not cpu.startswith(("cortex-m0", "cortex-m23", "cortex-m3")):
        found["fpu"] = "off"
    if "+nomve" in cpu:
        found["mve"] = "off" if "+nomve.fp" not in cpu else "int"
    if cpu.startswith(("cortex-m23", "cortex-m33", "cortex-m35p", "cortex-m5", "cortex-m85")):
        found["trustzone"] = "off"
    return found


def _component(name: str, files: Sequence[str]) -> dict[str, Any]:
    """The files of one model, and of its test vector."""
    own = [
        n
        for n in files
        if n.startswith(f"aot/models/{name}.") or n in (f"aot/models/{name}_{w}.c" for w in ("kernels", "params"))
    ]
    return {"name": name, "short": short(name), "files": own, "test": [f"aot/models/{name}_test.h", f"aot/models/{name}_test.c"]}
