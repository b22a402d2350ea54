"""External code generators: what the user requested, the passes that make their functions, and the library's files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from aot import byoc
from aot.errors import Problem, UsageError
from aot.ir.transform import PassContext, Sequential, changed_context
from aot.relay.transform.partition import get_pattern_table, partition_for
from aot.support.text import did_you_mean
from aot.target.target import Target

CMSIS_NN = "cmsis-nn"
"""The external code generator that aot includes; its files are imported on request."""

FOLDER = "byoc"
"""The folder of the library's files in an artifact."""

CMSIS_FOLDERS = ("BasicMath", "Convolution", "FullyConnected", "NNSupport", "Pooling", "Softmax")
"""The CMSIS-NN source folders that int8 networks use."""


def parse_byoc(text: str) -> tuple[str, tuple[str, ...] | None]:
    """(compiler, patterns) from `cmsis-nn` or `cmsis-nn=conv2d,add`; patterns is None for all."""
    name, given, patterns = text.partition("=")
    return name.strip(), tuple(p.strip() for p in patterns.split(",")) if given else None


def check_byoc(wanted: Sequence[str], path: Path | None) -> None:
    """Reject unknown compilers and patterns (E5121), and a path that is not a folder (E5122)."""
    if wanted:
        partitions(wanted)
    if path is not None and (not isinstance(path, Path) or not os.path.isdir(path)):
        raise UsageError(Problem("E5122", f"--byoc-path {path}: the folder does not exist"))


def partitions(wanted: Sequence[str], target: Target | None = None) -> tuple[Sequential, ...]:
    """The passes that give layers to the external code generators, in the order in which the user named the generators."""
    if wanted:
        byoc.load_all()
    steps: list[Sequential] = []
    for text in wanted:
        if not isinstance(text, str):
            raise UsageError(Problem("E5121", f"byoc takes names of external code generators, not {text!r}"))
        name, patterns = parse_byoc(text)
        if name not in byoc.external_codegens():
            known = byoc.external_codegens()
            near = did_you_mean(name, known)
            raise UsageError(
                Problem("E5121", f"there is no external code generator {name!r}{near}; there are {', '.join(known)}")
            )
        if name == CMSIS_NN and target is not None and target.has("mve"):
            patterns = _for_mve(patterns)
        steps.append(partition_for(name, only=patterns))
    return tuple(steps)


def _for_mve(patterns: tuple[str, ...] | None) -> tuple[str, ...]:
    """All patterns except dense: with MVE, the library's fully connected function needs precomputed sums of the weights."""
    if patterns is None:
        return tuple(c.name.removeprefix(f"{CMSIS_NN}.") for c in get_pattern_table(CMSIS_NN) if c.name != f"{CMSIS_NN}.dense")
    if "dense" in patterns:
        raise UsageError(Problem("E5121", f"{CMSIS_NN}: dense is not supported on cores with MVE"))
    return patterns


def with_partitions(wanted: Sequence[str], target: Target) -> AbstractContextManager[PassContext]:
    """The current context, which also gives layers to external code generators before the other layers are fused."""
    given = PassContext.current().add_pass
    return changed_context(add_pass=(*given, *(("dead_code", step) for step in partitions(wanted, target))))


def library_files(path: Path | None) -> dict[str, str]:
    """The library's headers and sources by path, below FOLDER; from CMSIS-NN, only the files that int8 networks need (E5122)."""
    if path is None:
        return {}
    sources = path / "Source"
    found = [*sorted((path / "Include").rglob("*.h")), *sorted(sources.rglob("*.c"))]
    kept = [p for p in found if p.suffix == ".h" or _is_needed(p, sources)]
    if not any(p.suffix == ".h" for p in kept) or not any(p.suffix == ".c" for p in kept):
        raise UsageError(Problem("E5122", f"--byoc-path {path}: must contain Include (headers) and Source (C files)"))
    try:
        return {f"{FOLDER}/{p.relative_to(path).as_posix()}": p.read_text(encoding="utf-8") for p in kept}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(Problem("E5122", f"--byoc-path {path}: cannot be read: {error}")) from None


def _is_needed(source: Path, sources: Path) -> bool:
    folder = source.relative_to(sources).parts[0]
    kind = folder.removesuffix("Functions")
    if kind == folder:
        return True
    # these call functions that are left out for int8 networks
    others = any(word in source.stem for word in ("lstm", "svdf", "_f32", "_f16", "_flt"))
    return kind in CMSIS_FOLDERS and (kind == "NNSupport" or "_s8" in source.name) and not others


__all__ = ["CMSIS_NN", "FOLDER", "check_byoc", "library_files", "parse_byoc", "partitions", "with_partitions"]
