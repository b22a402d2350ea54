"""Checks a Zephyr module's module.yml and configuration; writes autoconf.h and CONFIG_ variables for CMake.

    python module.py MODULE PRJ_CONF OUTPUT_FOLDER

Stricter than Zephyr: keys that no version knows are refused, and every folder that is named must exist.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import kconfiglib
import yaml

_SETTINGS = {f"{name}_root": "folder" for name in ("board", "dts", "soc", "arch", "snippet", "module_ext", "sca")}
_BUILD: dict[str, Any] = {
    "cmake": "cmake", "kconfig": "file", "cmake-ext": "any", "kconfig-ext": "any", "sysbuild-cmake": "cmake",
    "sysbuild-kconfig": "file", "depends": "any", "settings": _SETTINGS,
}  # fmt: skip
_MODULE: dict[str, Any] = {
    "name": "any", "build": _BUILD, "tests": "folders", "samples": "folders", "boards": "folders", "blobs": "any",
    "runners": "any",
}  # fmt: skip


def check(table: Any, schema: dict[str, Any], root: Path, where: str) -> list[str]:
    """Every mistake in one table of module.yml."""
    if not isinstance(table, dict):
        return [f"{where}: a table is expected"]
    problems = []
    for key, value in table.items():
        rule = schema.get(key)
        place = f"{where}.{key}"
        if rule is None:
            problems.append(f"{place}: unknown key")
        elif isinstance(rule, dict):
            problems += check(value, rule, root, place)
        elif rule == "file" and not (root / str(value)).is_file():
            problems.append(f"{place}: there is no file {value}")
        elif rule == "cmake" and not (root / str(value) / "CMakeLists.txt").is_file():
            problems.append(f"{place}: there is no {value}/CMakeLists.txt")
        elif rule == "folder" and not (root / str(value)).is_dir():
            problems.append(f"{place}: there is no folder {value}")
        elif rule == "folders":
            problems += [f"{place}: there is no folder {v}" for v in value if not (root / str(v)).is_dir()]
    return problems


def configure(kconfig_file: Path, conf: list[Path]) -> tuple[kconfiglib.Kconfig, list[str]]:
    """The configuration, and what Zephyr would refuse in it."""
    os.environ["MODULE_KCONFIG"] = str(kconfig_file)
    os.environ["CONFIG_"] = "CONFIG_"
    kconfig = kconfiglib.Kconfig(str(Path(__file__).with_name("Kconfig")), warn_to_stderr=False)
    kconfig.warn_assign_undef = True
    for number, path in enumerate(conf):
        kconfig.load_config(str(path), replace=number == 0)
    problems = [w for w in kconfig.warnings if "undefined symbol" in w or "without a type" in w]
    for symbol in kconfig.unique_defined_syms:
        if symbol.user_value is not None and symbol.type in (kconfiglib.BOOL, kconfiglib.TRISTATE):
            wanted = kconfiglib.TRI_TO_STR[symbol.user_value]
            if symbol.str_value != wanted:
                problems.append(f"{symbol.name} was assigned {wanted} but got {symbol.str_value}: check its dependencies")
    return kconfig, problems


def main(module: Path, conf: list[Path], output: Path) -> list[str]:
    document = yaml.safe_load((module / "zephyr" / "module.yml").read_text(encoding="utf-8"))
    problems = check(document, _MODULE, module, "module.yml")
    if problems:
        return problems
    build = document["build"]
    kconfig, problems = configure(module / build["kconfig"], conf)
    kconfig.write_autoconf(str(output / "autoconf.h"))
    lines = [f'set(MODULE_CMAKE "{(module / build["cmake"]).as_posix()}")']
    for symbol in kconfig.unique_defined_syms:
        if symbol.str_value not in ("", "n"):
            lines.append(f'set(CONFIG_{symbol.name} "{symbol.str_value}")')
    (output / "config.cmake").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return problems


if __name__ == "__main__":
    found = main(Path(sys.argv[1]), [Path(p) for p in sys.argv[2].split(";")], Path(sys.argv[3]))
    for problem in found:
        print(f"module check: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)
