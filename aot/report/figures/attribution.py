"""Attribution of every byte of a linked image to a symbol, and of every symbol to the layers that use it.

The linker's map says where each input section of each object is; the ELF's symbol table splits the sections into functions
and constants.  A byte after a symbol (literal pool, alignment inside a section) belongs to the symbol before it.  Bytes in an
allocated section but in no input section are the linker's padding; `other` holds only these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from aot.micro.build.image import ImageReport, Piece, disassemble, elf_symbols, input_sections
from aot.micro.build.project import HARNESS, Project
from aot.support.dataclass import dataclass

GROUPS = ("kernels", "weights", "tables", "main", "runtime", "startup", "other")
"""Kinds of flash content.

kernels, weights (with biases and requantisation) and tables (of functions such as softmax) belong to layers; main: the model's
interface and its sequence of calls; runtime: crt and the members of libgcc and libm that the model links; startup: start-up code
and measuring harness of the image that runs; other: padding between sections.
"""

_HARNESS_FILES = HARNESS | {"main.c"}
_FUNCTION_TABLE = re.compile(r"(exps|positions)(_\d+)*$")
_ANY_TABLE = re.compile(r"table(_\d+)*$")
_TABLE_BYTES = frozenset({256, 512, 1024, 1028})
"""256 entries of 8 to 32 bits, or 513 of 16 bits with padding: distinguishes a function's table from a constant operand
"""

_SHF_WRITE, _SHF_ALLOC = 1, 2


@dataclass(frozen=True, slots=True)
class Section:
    """An allocated section of the image; `in_flash`: it has contents, so it occupies flash (.data occupies RAM as well)."""

    name: str
    address: int
    size: int
    in_flash: bool
    writable: bool


@dataclass(frozen=True, slots=True)
class Symbol:
    """`bytes` of flash under one name; `file`: a source of the project or a library member; `layers`: indices of its users."""

    name: str
    group: str
    bytes: int
    file: str
    layers: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "group": self.group, "bytes": self.bytes, "file": self.file, "layers": list(self.layers)}


def sections_of(elf: Path) -> list[Section]:
    """The allocated sections that are not empty."""
    with elf.open("rb") as stream:
        return [
            Section(s.name, int(s["sh_addr"]), int(s["sh_size"]), s["sh_type"] != "SHT_NOBITS", bool(s["sh_flags"] & _SHF_WRITE))
            for s in ELFFile(stream).iter_sections()
            if s["sh_flags"] & _SHF_ALLOC and s["sh_size"]
        ]


def berkeley(sections: Sequence[Section]) -> dict[str, int]:
    """`text`, `data`, `bss` as `size` prints them."""
    return {
        "text": sum(s.size for s in sections if s.in_flash and not s.writable),
        "data": sum(s.size for s in sections if s.in_flash and s.writable),
        "bss": sum(s.size for s in sections if not s.in_flash),
    }


def symbols_of(elf: Path) -> list[tuple[int, int, str]]:
    """(address, size, name) of all functions and objects, by address; Thumb bits removed."""
    return sorted(
        (s.address & (~1 if s.kind == "STT_FUNC" else ~0), s.size, s.name)
        for s in elf_symbols(elf)
        if s.kind in ("STT_FUNC", "STT_OBJECT") and s.section not in ("SHN_UNDEF", "SHN_ABS")
    )


_NOT_LOADED = (".debug", ".comment", ".ARM.attributes", ".note", ".stack_sizes")


def _pieces(map_file: Path) -> list[Piece]:
    loaded = (p for p in input_sections(map_file) if not p.name.startswith(_NOT_LOADED))
    return sorted(loaded, key=lambda p: p.address)


def split_sections(elf: Path, sections: Sequence[Section], sources: Mapping[str, str]) -> list[tuple[str, int, str]]:
    """(symbol, bytes, file) of everything in `sections`; `sources` maps objects to sources.  The bytes add up to the sections'.

    Bytes in no input section are listed under their section's name in brackets, without a file.
    """
    symbols = symbols_of(elf)
    pieces = _pieces(elf.with_suffix(".map"))
    rows: list[tuple[str, int, str]] = []
    for section in sections:
        at, end = section.address, section.address + section.size
        for piece in pieces:
            start, stop = max(piece.address, at), min(piece.address + piece.size, end)
            if start >= stop or piece.address < section.address:
                continue
            if start > at:
                rows.append((f"[{section.name}]", start - at, ""))
            rows += _split_piece(piece, start, stop, symbols=symbols, file=sources.get(piece.origin, piece.origin))
            at = stop
        if at < end:
            rows.append((f"[{section.name}]", end - at, ""))
    return rows


def _split_piece(
    piece: Piece, start: int, stop: int, *, symbols: Sequence[tuple[int, int, str]], file: str
) -> Iterator[tuple[str, int, str]]:
    inside: dict[int, str] = {}
    for address, _, name in symbols:
        if start <= address < stop:
            inside.setdefault(address, name)
    cuts = sorted(inside)
    if not cuts or cuts[0] > start:
        yield piece.name, (cuts[0] if cuts else stop) - start, file
    for i, address in enumerate(cuts):
        yield inside[address], (cuts[i + 1] if i + 1 < len(cuts) else stop) - address, file


def users_by_symbol(elf: Path, layers: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    """The layers that use each symbol: a layer uses its function, everything that this calls, and its constants."""
    functions = disassemble(elf)
    by_name = {f.name: f for f in functions.values()}
    users: dict[str, set[int]] = {}
    for layer in layers:
        index, waiting = layer["index"], [layer["function"]]
        for name in layer["arrays"]:
            users.setdefault(name, set()).add(index)
        reached: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in reached:
                continue
            reached.add(name)
            users.setdefault(name, set()).add(index)
            if name in by_name:
                waiting += [functions[a].name for a in by_name[name].calls if a in functions]
    return {name: tuple(sorted(indices)) for name, indices in users.items()}


def group_of(symbol: str, file: str, *, model: str, size: int) -> str:
    """The group of a symbol, one of GROUPS: by its source, and for constants by name and size in bytes."""
    base = file.rsplit("/", 1)[-1]
    if not file:
        return "other"
    if base == f"{model}_kernels.c":
        return "kernels"
    if base == f"{model}_params.c":
        name = symbol.removeprefix(f"{model}_")
        is_table = _FUNCTION_TABLE.match(name) or (_ANY_TABLE.match(name) and size in _TABLE_BYTES)
        return "tables" if is_table else "weights"
    if base == f"{model}.c":
        return "main"
    return "startup" if base in _HARNESS_FILES else "runtime"


def _sources(project: Project) -> dict[str, str]:
    return {str(path): source for source, path in project.objects("measure").items()}


def variables(project: Project, image: ImageReport) -> dict[str, int]:
    """Bytes of RAM besides workspace and copied constants: `state` of the model's sources, `runtime` the others.

    A state in a pool counts as state, padding of .data and .bss as runtime.
    """
    meta, elf = project.artifact.metadata, project.model_image()
    sections = [s for s in sections_of(elf) if s.name in (".data", ".bss")]
    rows = split_sections(elf, sections, _sources(project))
    state = sum(size for _, size, file in rows if file.startswith(project.artifact.name))
    if "state" in meta and meta["state"]["pool"] is not None:
        state += meta["state"]["size"]
    return {"state": state, "runtime": image.ram - sum(image.copied.values()) - meta["workspace"]["size"] - state}


def attribute(project: Project, elf: Path) -> list[Symbol]:
    """All flash of `elf` (the model's own image, or the image that runs), equal names merged, largest first."""
    meta = project.artifact.metadata
    layers = list(meta["layers"])
    if meta.get("feed"):  # feed_row runs the first layer; its function for the whole input is not linked
        layers[0] = {**layers[0], "function": f"{project.artifact.name}_feed_row"}
    users = users_by_symbol(elf, layers)
    merged: dict[tuple[str, str], int] = {}
    flash = [s for s in sections_of(elf) if s.in_flash]
    for name, size, file in split_sections(elf, flash, _sources(project)):
        merged[name, file] = merged.get((name, file), 0) + size
    symbols = [
        Symbol(name, group_of(name, file, model=project.artifact.name, size=size), size, file, users.get(name, ()))
        for (name, file), size in merged.items()
    ]
    return sorted((_with_users(s, symbols) for s in symbols), key=lambda s: (-s.bytes, s.name, s.file))


def _with_users(symbol: Symbol, symbols: Sequence[Symbol]) -> Symbol:
    """A constant of the kernels' helpers, such as exp's powers of two, belongs to the layers of all helpers in its source."""
    if symbol.group != "kernels" or symbol.layers:
        return symbol
    helpers = [s for s in symbols if s.file == symbol.file and s.name.startswith("aot_")]
    return replace(symbol, layers=tuple(sorted({i for s in helpers for i in s.layers})))


def shares(size: int, layers: Sequence[int]) -> dict[int, int]:
    """`size` bytes in equal parts for `layers`; the first ones get the remainder, so that the parts add up."""
    part, remainder = divmod(size, len(layers))
    return {layer: part + (1 if i < remainder else 0) for i, layer in enumerate(layers)}


def by_layer(symbols: Sequence[Symbol], layers: Sequence[Mapping[str, Any]]) -> list[dict[str, int]]:
    """Bytes of code, weights and tables per layer; a symbol with several users counts for each with its share.

    `shared` is the part of the sum that comes from such symbols.  Runtime functions are not split: they list their users.
    """
    rows = {layer["index"]: {"layer": layer["index"], "code": 0, "weights": 0, "tables": 0, "shared": 0} for layer in layers}
    column = {"kernels": "code", "weights": "weights", "tables": "tables"}
    for symbol in symbols:
        if symbol.group not in column or not symbol.layers:
            continue
        for layer, part in shares(symbol.bytes, symbol.layers).items():
            rows[layer][column[symbol.group]] += part
            rows[layer]["shared"] += part if len(symbol.layers) > 1 else 0
    return list(rows.values())


def group_sizes(symbols: Sequence[Symbol]) -> dict[str, int]:
    """Bytes of every group, in the order of GROUPS."""
    return {group: sum(s.bytes for s in symbols if s.group == group) for group in GROUPS}
