"""The result of a compilation: C sources as text, and what is known about them as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aot.errors import Problem, UsageError
from aot.support.dataclass import dataclass
from aot.support.text import commas, does_of

_FILE_ENDS = ("internal", "kernels", "params", "test")
"""Suffixes of a model's files and of a project's test vector, after the model's name."""

LARGEST = 3
"""Most buffers or layers that a text names."""


@dataclass(frozen=True, slots=True, repr=False)
class Artifact:
    """The result of `aot.build`.

    `files` maps file names (`kws.h`, `kws.c`, `kws_kernels.c`, `kws_params.c`) to their text. `metadata` is the content of
    `metadata.json` (docs/metadata.md): plain JSON values. `graph` is the model as a graph of kernel calls (docs/python.md), if it
    was built in this process.
    """

    name: str
    files: Mapping[str, str]
    metadata: Mapping[str, Any]
    graph: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Artifact({self._title()}: {self._figures()})"

    def _repr_html_(self) -> str:
        """A notebook's view: the figures, the memory plan, and the table of layers."""
        from aot.support.notebook import layer_table, plan_table, section  # few compilations are shown in a notebook

        parts = [f"<p>{self._figures()}</p>", plan_table(self.metadata), layer_table(self.metadata["layers"])]
        return section(self._title(), *parts)

    def _title(self) -> str:
        return f"{self.name} for {self.metadata['target']['cpu']}"

    def _figures(self) -> str:
        meta = self.metadata
        layers, size = len(meta["layers"]), meta["workspace"]["size"]
        state = [f"state {commas(meta['state']['size'])} B"] if "state" in meta else []
        parts = [f"{layers} layer{'s' * (layers != 1)}", f"{commas(meta['macs'])} MAC", f"workspace {commas(size)} B", *state]
        return ", ".join([*parts, f"constants {commas(meta['constants']['size'])} B"])

    def export(self, folder: str | Path) -> list[Path]:
        """Write all files to `folder`, which is created if necessary; return their paths.  OSError if writing fails."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, text in self.files.items():
            path = folder / name
            path.write_text(text, encoding="utf-8", newline="\n")
            written.append(path)
        return written


def check_names(names: Sequence[str]) -> None:
    """Raise E5043 for two models with the same name, or whose files would have the same names (`a_params` and `a`)."""
    if len(set(names)) != len(names):
        raise UsageError(Problem("E5043", f"models need different names; these are: {', '.join(sorted(names))}"))
    clashes = [(n, f"{n}_{end}") for n in names for end in _FILE_ENDS if f"{n}_{end}" in names]
    if clashes:
        raise UsageError(*(Problem("E5043", f"model {b}: {b} is also the name of files of model {a}") for a, b in clashes))


def over_budget(metadata: Mapping[str, Any], *, code_bytes: int = 0, constant_bytes: int | None = None) -> list[Problem]:
    """Where a compiled model exceeds its budgets (E2021, E2022).

    `code_bytes`: if the code size is known; `constant_bytes`: if it was measured.
    """
    options, name = metadata["options"], str(metadata["name"])
    problems = []
    state = int(metadata.get("state", {}).get("size", 0))
    size, most = int(metadata["workspace"]["size"]) + state, options.get("ram_budget")
    if most is not None and size > most:
        what = f"workspace and state ({state:,} B) take" if state else "the workspace takes"
        text = f"{what} {size:,} B, --ram-budget is {most:,} B: nothing smaller was found"
        problems.append(Problem("E2021", "; ".join([text, *peak_of(metadata)]), name))
    constants, most = metadata["constants"]["size"] if constant_bytes is None else constant_bytes, options.get("flash_budget")
    if most is not None and constants + code_bytes > most:
        parts = f"constants take {constants:,} B" + (f" and code {code_bytes:,} B" if code_bytes else "")
        problems.append(Problem("E2022", f"{parts}, --flash-budget is {most:,} B: nothing smaller was found", name))
    return problems


def peak_of(metadata: Mapping[str, Any]) -> list[str]:
    """The busiest step, with its largest buffers."""
    buffers = metadata["workspace"].get("buffers")
    if not buffers:
        return []
    live = {s: [b for b in buffers if b["first"] <= s <= b["last"]] for s in sorted({b["first"] for b in buffers})}
    step = max(live, key=lambda s: (sum(b["size"] for b in live[s]), -s))
    largest = sorted(live[step], key=lambda b: (-b["size"], b["name"]))[:LARGEST]
    layers = metadata["layers"]
    where = layer_text(layers[step]) if 0 <= step < len(layers) else "the inputs" if step < 0 else "the outputs"
    named = ", ".join(f"{b['name']} {b['size']:,}" for b in largest)
    return [f"the peak is at {where} with {named}"]


def layer_text(row: Mapping[str, Any]) -> str:
    """`layer 2 CONV_2D + ADD`."""
    return f"layer {row.get('index', '?')} {does_of(row)}".strip()
