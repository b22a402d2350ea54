"""`aot new --kind cmsis`: a CMSIS pack of the models, and a solution for CMSIS-Toolbox and Keil that uses them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from aot.micro.new.registry import ProjectFiles, Spec, Text, common_values, project_kind, project_name, render
from aot.micro.new.source_tree import source_tree
from aot.target.cpu import architecture_of, find_core

_LONGEST = 27
_NO_FPU = ("Armv6-M", "Armv7-M", "Armv8-M Baseline")
"""Architectures that have none, so that a project need not say so."""


@project_kind("cmsis")
def cmsis_project(spec: Spec) -> ProjectFiles:
    """The solution, the project and src/ are the user's; the pack's description and the layer of the models are generated."""
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
    """`M0+`: as packs write the core; `M3`, whose code runs on others, for a core of a plug-in."""
    plain = cpu.partition("+")[0]
    return plain.removeprefix("cortex-").upper().replace("PLUS", "+") if plain.startswith("cortex-m") else "M3"


def short(name: str) -> str:
    """A name for a component, as PACK.xsd wants it: a letter first, two characters, and with " test" behind it at most 32."""
    word = name if len(name) > 1 and name[0] != "_" else f"model_{name}"
    return word if len(word) <= _LONGEST else f"{word[: _LONGEST - 7]}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def processor(flags: Sequence[str]) -> dict[str, str]:
    """The attributes of a csolution's `processor:` that say what these flags of the compiler say."""
    fpu = next((f.partition("=")[2] for f in flags if f.startswith("-mfpu=")), "")
    cpu = next((f.partition("=")[2] for f in flags if f.startswith("-mcpu=")), "")
    found = {"fpu": "sp" if "sp" in fpu else "dp"} if fpu else {}
    architecture = architecture_of(cpu)
    if "-mfloat-abi=soft" in flags and architecture not in _NO_FPU:
        found["fpu"] = "off"
    if "+nomve" in cpu:
        found["mve"] = "off" if "+nomve.fp" not in cpu else "int"
    if architecture.startswith("Armv8"):
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
