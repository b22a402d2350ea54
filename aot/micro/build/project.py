"""Builds a folder and an ELF from an Artifact and a Board.

The folder contains all sources of the ELF: the model's sources, the runtime (`crt/`), `main.c` and `board.ld`.  Compilers run
inside it with relative names, so that no path of the machine gets into an object.  The names of objects and images contain the
hash of everything that they depend on: an existing file is up to date, and an identical build costs nothing.

Only our own objects and libgcc are linked (`-nostdlib`); memcpy, memset and memmove are in crt/src/memory.c.  Float models may
also use members of libm (and members of newlib-nano that libm needs); aot.micro.build.image checks that integer models do not.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from aot.errors import Problem, TargetError, ToolchainError
from aot.executor.artifact import LARGEST, Artifact, layer_text, peak_of
from aot.micro.board import Board, Memory
from aot.micro.build.poison import areas, dead_intervals, within_areas
from aot.micro.build.toolchain import Tool, find_tool, run_tool
from aot.support.dataclass import dataclass
from aot.support.text import FILTERS, printable
from aot.system.disk_cache import cache_folder
from aot.system.files import data_folder, write_error
from aot.system.process import require_output

WARNINGS = (
    "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wundef", "-Wvla", "-Wcast-align=strict",
    "-Wdouble-promotion", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Werror",
)  # fmt: skip
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
MODES = {"measure": 0, "profile": 1, "trace": 2, "poison": 3}
HOST_ONLY = frozenset({"hosted.c"})
OF_THE_USER = frozenset({"layer_profile.c"})
"""crt files for the user's programs (`aot compile --profiler`), which our images do not use"""
BOARD_ONLY = frozenset({"startup.c", "semihosting.c", "systick.c", "dwt.c", "counter.c", "memory.c", "stack_guard.c"})
HARNESS = frozenset({"startup.c", "semihosting.c", "systick.c", "dwt.c", "counter.c", "harness.c", "hosted.c"})
"""crt files for measurements, which a product would not link"""

_HARNESS_RAM = 256
"""bytes of the harness's variables, rounded up, without its one reading per layer"""
_MOST_OF_A_LINE = 500
_FAST = re.compile(r"(_kernels|^memory)\.c$")


@dataclass(frozen=True, slots=True)
class Places:
    """The name of the region for each kind of section."""

    code: str
    constants: str
    data: str
    workspace: str


@dataclass(frozen=True, slots=True)
class Project:
    """A build folder.  `image(mode)` compiles missing objects and returns the ELF (on the host, the program)."""

    artifact: Artifact
    board: Board
    folder: Path
    places: Places | None
    files: tuple[str, ...]
    """all files that were written; other files in the folder are ignored"""
    sanitize: bool = False
    extra_flags: tuple[str, ...] = ()
    defines: Mapping[str, str] = field(default_factory=dict)
    """extra -D for the harness; for tests"""

    def image(self, mode: str = "measure") -> Path:
        """The program that runs the model in `mode`: measure, profile, trace or poison.

        Raises ToolchainError E3001 (missing), E3002 (compiler), E3003 (linker); TargetError E2012 (does not fit).
        """
        return _link_image(self, mode)

    def model_image(self) -> Path:
        """An ELF of the model only: everything reachable from its interface, without start-up code and harness (boards only)."""
        return _link_model(self)

    def objects(self, mode: str = "measure") -> dict[str, Path]:
        """Source path -> object file, relative to the folder."""
        return _compile(self, mode)

    def flags(self, source: str) -> list[str]:
        """The compiler's arguments for one source in the mode "measure"."""
        return _flags(self, source, "measure")


def prepare(
    artifact: Artifact, board: Board, *, folder: Path | None = None, sanitize: bool = False, extra_flags: Sequence[str] = ()
) -> Project:
    """Write the build folder of `artifact` for `board` (default: one in the cache, named by content).

    `sanitize` (host only) adds ASan and UBSan.  `extra_flags` come last on every compiler line.
    Raises TargetError E2010 or E2011 if the sizes in the metadata exceed the board's memory, UsageError E5006, E5007 or E5061 if
    the folder cannot be written.
    """
    places = None if board.is_host else choose_places(board, artifact.metadata)
    files = _project_files(artifact, board, places)
    if folder is None:
        digest = _digest(*(part for item in sorted(files.items()) for part in item))
        folder = cache_folder("build") / f"{artifact.name}-{board.name}-{digest}"
    try:
        for name, text in files.items():
            _write_if_changed(folder / name, text)
        (folder / "obj").mkdir(exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from None
    return Project(artifact, board, folder, places, tuple(sorted(files)), sanitize and board.is_host, tuple(extra_flags))


def choose_places(board: Board, metadata: Mapping[str, Any]) -> Places:
    """The first region in each list with enough room for the model, by the sizes in the metadata.

    Raises TargetError with all problems: E2010 (workspace) and E2011 (constants) with the bytes needed and available, E2014 and
    E2015 for pools with an impossible address.
    """
    problems = pool_problems(board, metadata)
    free = {m.name: m.size for m in board.memory}
    fixed, kept = fixed_ram(board, metadata), _state_bytes(metadata)
    if fixed > free[board.data]:
        stack = f"the stack is {board.stack:,} of these ([run] stack in board.toml)" + (f", the state {kept:,}" if kept else "")
        problems.append(_too_large("E2010", "stack, I/O buffers and harness", fixed, [board.region(board.data)], stack))
    free[board.data] -= fixed
    workspace = _place(_unplaced(metadata["workspace"]), board.workspace, free)
    if workspace is None:
        regions, advice = _free(board.workspace, free), workspace_advice(metadata, board, free)
        problems.append(_too_large("E2010", "workspace", _unplaced(metadata["workspace"]), regions, advice))
    constants = _place(_unplaced_constants(metadata["constants"]), board.constants, free)
    if constants is None:
        regions, advice = _free(board.constants, free), constants_advice(metadata, board, free)
        problems.append(_too_large("E2011", "constants", _unplaced_constants(metadata["constants"]), regions, advice))
    if problems or workspace is None or constants is None:
        raise TargetError(*problems)
    return Places(board.code, constants, board.data, workspace)


def overflow(problem: Problem) -> tuple[str, int]:
    """The region in a problem E2012, and the bytes that it lacks."""
    match = re.match(r"region (\w+) of .* has ([\d,]+) bytes; ([\d,]+) are needed", problem.message)
    assert match is not None, "the message of _link_error"
    return match[1], int(match[3].replace(",", "")) - int(match[2].replace(",", ""))


def fixed_ram(board: Board, metadata: Mapping[str, Any]) -> int:
    """Upper bound of an image's data memory without the workspace: stack, I/O buffers, state, and the harness, in bytes."""
    tensors = [*metadata["inputs"], *metadata["outputs"]] if metadata.get("io") == "user" else []
    sizes = [int(t["size"]) for t in tensors] + ([int(metadata["feed"]["row_size"])] if metadata.get("feed") else [])
    buffers = sum(-(-size // 16) * 16 for size in sizes)
    return board.stack + buffers + _HARNESS_RAM + 8 * len(metadata["layers"]) + _state_bytes(metadata)


def _state_bytes(metadata: Mapping[str, Any]) -> int:
    """Bytes of the state; 0 if it is in a pool."""
    state = metadata.get("state", {})
    return 0 if state.get("pool") else -(-int(state.get("size", 0)) // 16) * 16


def _unplaced(workspace: Mapping[str, Any]) -> int:
    """Bytes of the workspace without a fixed address."""
    pools = workspace.get("pools")
    return sum(-(-p["used"] // 16) * 16 for p in pools if p["address"] is None) if pools else int(workspace["size"])


def _unplaced_constants(constants: Mapping[str, Any]) -> int:
    """Bytes of constants without a fixed address."""
    return int(constants["size"]) - sum(int(p["used"]) for p in constants.get("pools") or () if p["address"] is not None)


def _place(size: int, regions: Sequence[str], free: dict[str, int]) -> str | None:
    """The first region with enough room, which is subtracted from `free`; None if there is none."""
    for name in regions:
        if size <= free[name]:
            free[name] -= size
            return name
    return None


def _free(regions: Sequence[str], free: Mapping[str, int]) -> list[Memory]:
    return [Memory(name, "", 0, max(0, free[name])) for name in regions]


def _too_large(code: str, what: str, size: int, regions: Sequence[Memory], advice: str) -> Problem:
    room = ", ".join(f"{m.name} {m.size:,}" for m in regions)
    needed = f"{what} of {size:,} bytes {'do' if what.endswith('s') else 'does'} not fit; free bytes: {room}"
    return Problem(code, f"{needed}; {advice}" if advice else needed)


def _digest(*parts: str) -> str:
    state = hashlib.sha256()
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()[:16]


def _write_if_changed(path: Path, text: str) -> None:
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(path)


def templates(folder: str = "", **settings: Any) -> jinja2.Environment:
    """The templates of whole files in aot/template/<folder>; an unknown name in one is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).resolve().parents[2] / "template" / folder),
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False, **settings,
    )  # fmt: skip
    environment.filters.update(FILTERS)
    return environment


def render(template: str, **values: Any) -> str:
    """A whole file from aot/template/<template>."""
    return templates().get_template(template).render(**values)


def linker_script(board: Board, places: Places, pools: Sequence[Row]) -> str:
    """The text of board.ld; `pools` come from `pool_regions`.

    Pools with an address must come first, because their patterns of input sections are the most specific.  Then the first section
    of each region needs an explicit start, because it would follow the pool otherwise.
    """
    fixed = []
    for p in pools:
        if p["address"]:
            prefix = "pool" if p["kind"] == "bss" else "constants"
            copied = p["kind"] == "rodata" and copied_to(board, p["region"])
            names = {"section": f".{prefix}_{p['name']}", "input": f".{p['kind']}.aot_pool_{p['name']}"}
            fixed.append({**p, **names, "copied": copied})
    order = (("text", places.code), ("rodata", places.constants), ("stack", places.data), ("workspace", places.workspace))
    first = {region: section for section, region in reversed(order)}
    at = {section: f" ORIGIN({region})" if fixed and first[region] == section else "" for section, region in order}
    return render("board.ld.j2", board=board, place=places, pools=pools, fixed=fixed, at=at)


def _project_files(artifact: Artifact, board: Board, places: Places | None) -> dict[str, str]:
    meta = artifact.metadata
    files = dict(artifact.files)
    arrays = areas(artifact.name, meta["workspace"])
    dead = dead_intervals(meta["workspace"], len(meta["layers"]), meta.get("control", ()))
    files["main.c"] = render(
        "harness_main.c.j2", name=artifact.name, inputs=meta["inputs"], outputs=meta["outputs"], layers=len(meta["layers"]),
        areas=arrays, io=meta.get("io", "arena"), stateful=bool(meta.get("stateful", False)), feed=meta.get("feed"),
        dead=[within_areas(layer, arrays) for layer in dead],
    )  # fmt: skip
    crt = data_folder("crt")
    for path in sorted(crt.glob("include/aot/*.h")):
        if f"{path.stem}.c" in OF_THE_USER:
            continue
        files[f"crt/include/aot/{path.name}"] = path.read_text(encoding="utf-8")
    by_dwt = board.gdb is not None and board.gdb.counter == "dwt"
    skip = OF_THE_USER | (BOARD_ONLY if board.is_host else HOST_ONLY | {"systick.c" if by_dwt else "dwt.c"})
    for path in sorted(crt.glob("src/*.c")):
        if path.name not in skip:
            files[f"crt/src/{path.name}"] = path.read_text(encoding="utf-8")
    if places is not None:
        files["board.ld"] = linker_script(board, places, pool_regions(board, meta))
    return files


def compiler(board: Board) -> Tool:
    """The C compiler of a board."""
    return find_tool("gcc" if board.is_host else "arm-none-eabi-gcc")


def _flags(project: Project, source: str, mode: str) -> list[str]:
    """The compiler's arguments for one source; only those that can change its object, so that modes share objects."""
    name = Path(source).name
    foreign = source.startswith("byoc/")
    level = "-O2" if foreign or _FAST.search(name) else "-Os"
    flags = ["-std=gnu99", "-w"] if foreign else ["-std=c99", "-pedantic", *WARNINGS]
    flags += [level, "-ffunction-sections", "-fdata-sections", "-fno-common", *project.board.flags, "-I.", "-Icrt/include"]
    if any(n.startswith("byoc/") for n in project.files):
        flags += ["-isystem", "byoc/Include"]
    if project.board.is_host:
        flags += SANITIZE if project.sanitize else []
    else:
        # not freestanding for a library: it reads words with memcpy, which would become calls
        flags += ["-fcallgraph-info=su,da"] if foreign else ["-ffreestanding", "-fcallgraph-info=su,da"]
    if name == "memory.c":
        flags += ["-fno-tree-loop-distribute-patterns"]
    if name == "harness.c":
        flags += [f"-DAOT_MODE={MODES[mode]}", *(f"-D{k}={v}" for k, v in sorted(project.defines.items()))]
    if name == "main.c" and any(f.startswith(("-O", "-f")) for f in (*project.board.flags, *project.extra_flags)):
        flags += ["-DAOT_OWN_FLAGS=1"]
    if name == "main.c" and mode == "poison":
        flags += ["-DAOT_POISON=1"]
    if name in ("harness.c", f"{project.artifact.name}.c") and mode != "measure":
        flags += ["-DAOT_HOOKS=1"]
    if name == "startup.c" and project.board.caches:
        flags += [f"-DAOT_CACHES={project.board.cache_bits}"]
    if name == "systick.c" and project.board.tick is not None:
        flags += [f"-DAOT_TICK_NUM={project.board.tick.numerator}u", f"-DAOT_TICK_DEN={project.board.tick.denominator}u"]
    if source in project.artifact.files and not project.board.is_host:
        flags += register_flags(compiler(project.board), [*project.board.flags, *project.extra_flags])
    return [*flags, *project.extra_flags]


def _compile(project: Project, mode: str) -> dict[str, Path]:
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}")
    tool = compiler(project.board)
    headers = [n for n in project.files if n.endswith(".h")]
    common = _digest(tool.version, *(n + "\n" + (project.folder / n).read_text(encoding="utf-8") for n in headers))

    def one(source: str) -> tuple[str, Path]:
        flags = _flags(project, source, mode)
        key = _digest(common, *flags, (project.folder / source).read_text(encoding="utf-8"))
        target = Path("obj") / f"{Path(source).stem}-{key}.o"
        if not (project.folder / target).is_file():
            _compile_one(project.folder, [tool.path, *flags, "-c", source], source, target)
        return source, target

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return dict(pool.map(one, [n for n in project.files if n.endswith(".c")]))


def _compile_one(folder: Path, command: list[str], source: str, target: Path) -> None:
    partial = target.with_name(f"{target.stem}.{os.getpid()}.o")
    done = run_tool([*command, "-o", str(partial)], folder)
    if done.code != 0:
        reason = _first_lines(done.err, ("error",)) or f"exit code {done.code}"
        raise ToolchainError(Problem("E3002", f"the compiler rejected {source}: {reason}"))
    require_output(folder / partial, command[0])
    if (folder / partial).with_suffix(".ci").is_file():
        (folder / partial).with_suffix(".ci").replace((folder / target).with_suffix(".ci"))
    (folder / partial).replace(folder / target)


def _first_lines(text: str, keywords: Sequence[str]) -> str:
    """The first lines of a tool's output that contain a keyword, or else the first lines; each truncated."""
    lines = text.splitlines()
    chosen = [line for line in lines if any(word in line for word in keywords)] or lines
    return "; ".join(printable(line, limit=_MOST_OF_A_LINE) for line in chosen[:3])


def _link_image(project: Project, mode: str) -> Path:
    objects = [str(path) for path in _compile(project, mode).values()]
    name = f"{project.artifact.name}-{mode}"
    if project.board.is_host:
        return _link(project, name, [*(SANITIZE if project.sanitize else ()), "-Wl,--gc-sections", *objects, "-lm"])
    return _link(project, name, [*_board_link_flags(project), *objects, *_LIBRARIES])


_LIBRARIES = ("-Wl,--start-group", "-lm", "-lc_nano", "-lgcc", "-Wl,--end-group")


def _board_link_flags(project: Project) -> list[str]:
    return [*project.board.flags, "-nostdlib", "-Wl,--gc-sections", "-Wl,--build-id=none", "-Tboard.ld"]


def interface_symbols(artifact: Artifact) -> list[str]:
    """The functions of the model's interface, which are the roots of the model's own image."""
    name, meta = artifact.name, artifact.metadata
    symbols = [f"{name}_run"]
    if meta.get("io", "arena") != "user":
        symbols += [f"{name}_input_{t['index']}" for t in meta["inputs"] if not meta.get("feed")]
        symbols += [f"{name}_output_{t['index']}" for t in meta["outputs"]]
    symbols += [f"{name}_feed_{step}" for step in ("begin", "row", "end")] if meta.get("feed") else []
    if meta.get("stateful", False):
        symbols.append(f"{name}_reset")
    return symbols


def _link_model(project: Project) -> Path:
    if project.board.is_host:
        raise ValueError("a model image is for boards")
    objects = {s: o for s, o in _compile(project, "measure").items() if s != "main.c" and Path(s).name not in HARNESS}
    symbols = interface_symbols(project.artifact)
    roots = [f"-Wl,-e,{symbols[0]}", *(f"-Wl,-u,{s}" for s in symbols)]
    arguments = [*_board_link_flags(project), *roots, *map(str, objects.values()), *_LIBRARIES]
    return _link(project, f"{project.artifact.name}-model", arguments)


def _link(project: Project, name: str, arguments: list[str]) -> Path:
    tool = compiler(project.board)
    script = project.folder / "board.ld"
    key = _digest(tool.version, *arguments, script.read_text(encoding="utf-8") if script.is_file() else "")
    target = project.folder / f"{name}-{key}.elf"
    if target.is_file():
        return target
    partial = f".{name}-{os.getpid()}.elf"
    done = run_tool([tool.path, *arguments, f"-Wl,-Map={target.stem}.map", "-o", partial], project.folder)
    if done.code != 0:
        raise _link_error(project, done.err or f"exit code {done.code}")
    require_output(project.folder / partial, tool.path, magic=b"" if project.board.is_host else b"\x7fELF")
    (project.folder / partial).replace(target)
    return target


def _link_error(project: Project, text: str) -> TargetError | ToolchainError:
    overlaps = sorted(set(re.findall(r"aot: (pool [^\n]*)", text)))
    if overlaps:
        return TargetError(*(Problem("E2015", f"{what}; give it another address") for what in overlaps))
    overflows = re.findall(r"region `(\w+)' overflowed by (\d+) bytes", text)
    if overflows:
        return TargetError(
            *(
                Problem("E2012", f"region {r} of {project.board.name} has {size:,} bytes; {size + int(n):,} are needed")
                for r, n in overflows
                for size in [project.board.region(r).size]
            )
        )
    return ToolchainError(Problem("E3003", f"the linker failed: {_first_lines(text, ('undefined reference', 'error'))}"))


# ---- advice for a model that does not fit a board: what fills its memory, and what would help


def workspace_advice(metadata: Mapping[str, Any], board: Board, free: Mapping[str, int]) -> str:
    """The buffers at the peak, options for several models, and regions with room.  (`board_fit` tries other modes.)"""
    workspace = metadata["workspace"]
    size, tried = int(workspace["size"]), board.workspace
    helps = []
    if len(metadata.get("models", ())) > 1 and not workspace.get("shared"):
        helps.append("--share-workspace lets the models share it")
    if len(tried) > 1 and sum(max(0, free[name]) for name in tried) >= size and not workspace.get("pools"):
        helps.append(f"{' and '.join(tried)} together have enough room: spread it with --pool")
    others = [m.name for m in board.memory if m.access == "rw" and m.name not in tried]
    return "; ".join([*peak_of(metadata), *helps, *_room(others, free, size, "--pool")])


def constants_advice(metadata: Mapping[str, Any], board: Board, free: Mapping[str, int]) -> str:
    """The layers with the most constants, the size with the smallest kernels, and regions with room or external flash."""
    size, layers = int(metadata["constants"]["size"]), metadata["layers"]
    largest = sorted(layers, key=lambda row: (-row.get("constants", 0), row.get("index", 0)))[:LARGEST]
    named = ", ".join(f"{layer_text(row)} {row.get('constants', 0):,}" for row in largest)
    texts = [f"the largest are in {named}"] if named else []
    least = size - sum(row["constants"] - min(_constants(row)) for row in layers if row.get("constants"))
    if least < size and metadata.get("opt") != "size":
        texts.append(f"--opt size reduces this towards {least:,}" + _too_much(least, (free[name] for name in board.constants)))
    others = [m.name for m in board.memory if m.name not in board.constants]
    there = _room(others, free, size, "--const-pool")
    return "; ".join([*texts, *(there or ["external flash could hold them: --const-pool NAME=SIZE@ADDRESS"])])


def _too_much(need: int, free: Iterable[int]) -> str:
    return ", still too much" if need > max(free) else ""


def _constants(layer: Mapping[str, Any]) -> list[int]:
    """Bytes of constants of each candidate kernel of a layer; of the chosen one if there are no candidates."""
    return [int(c["constants"]) for c in layer.get("candidates", ())] or [int(layer["constants"])]


def _room(names: Sequence[str], free: Mapping[str, int], size: int, option: str) -> list[str]:
    """Advice about regions that board.toml does not offer for this purpose, but that have room."""
    return [f"{name} has {free[name]:,} free: {option} {name}=SIZE@ADDRESS" for name in names if free[name] >= size]


# ---- pools with an address: their region, and overlaps


_VECTORS = 64
"""Bytes of the vector table of crt/src/startup.c; code follows it."""

Row = dict[str, Any]


def pool_rows(metadata: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], str]]:
    """The pools that a model uses, as in the metadata, with their kind: bss or rodata."""
    workspace, constants = metadata["workspace"].get("pools") or (), metadata["constants"].get("pools") or ()
    state = metadata.get("state", {})
    state_pool = state.get("pool")
    if state_pool is not None:  # it may also contain buffers of the workspace
        used = -(-int(state["size"]) // 16) * 16
        inside = [p for p in workspace if p["name"] == state_pool["name"]]
        whole = {**state_pool, "used": used + sum(int(p["used"]) for p in inside)}
        workspace = [*(p for p in workspace if p not in inside), whole]
    return [(p, "bss") for p in workspace] + [(p, "rodata") for p in constants]


def pool_problems(board: Board, metadata: Mapping[str, Any]) -> list[Problem]:
    """Pools whose address is not in a memory of the board (E2014), or that overlap something fixed (E2015).

    All other overlaps are found when the image is linked: board.ld asserts that no pool overlaps anything.
    """
    problems = []
    taken = list(_certain(board))
    for p, kind in pool_rows(metadata):
        if p["address"] is None:
            continue
        start, end = p["address"], p["address"] + p["used"]
        if not _region(board, start, end, kind):
            what = "writable memory" if kind == "bss" else "memory"
            problems.append(Problem("E2014", f"pool {p['name']} at {start:#x}: {board.name} has no {what} there"))
        for what, low, high in taken:
            if start < high and low < end:
                shared = f"pool {p['name']}, {start:#x} to {end:#x}, overlaps {what} of {board.name}, {low:#x} to {high:#x}"
                problems.append(Problem("E2015", f"{shared}; give it another address"))
    return problems


def _certain(board: Board) -> Iterator[tuple[str, int, int]]:
    """(name, first byte, byte after the last) of everything whose place does not depend on the model."""
    code = board.region(board.code).origin
    yield "the vector table", code, code + _VECTORS
    if board.data not in (board.code, *board.constants):
        bottom = board.region(board.data).origin
        yield "the stack", bottom, bottom + board.stack


def _region(board: Board, start: int, end: int, kind: str) -> str:
    """The name of the region that contains these bytes; "" if there is none."""
    fitting = [m for m in board.memory if m.access == "rw" or kind == "rodata"]
    return next((m.name for m in fitting if m.origin <= start and end <= m.origin + m.size), "")


def copied_to(board: Board, region: str) -> bool:
    """Whether the start-up code must copy constants in `region` there from flash.

    It must not if the board has its constants in that memory anyway, or if a debugger loads the whole image into RAM.
    """
    loaded = board.gdb is not None and board.gdb.load == "ram"
    return board.region(region).access == "rw" and region not in (board.code, *board.constants) and not loaded


def pool_regions(board: Board, metadata: Mapping[str, Any]) -> list[Row]:
    """The pools for the linker script: name, kind, size, address as text ("" if it has none), and region (E2014, E2015)."""
    problems = pool_problems(board, metadata)
    if problems:
        raise TargetError(*problems)
    rows = []
    for p, kind in pool_rows(metadata):
        address = p["address"]
        row = {"name": p["name"], "kind": kind, "size": p["size"], "address": "", "region": ""}
        if address is not None:
            row |= {"address": f"{address:#010x}", "region": _region(board, address, address + p["used"], kind)}
        rows.append(row)
    return rows


# ---- flags that reserve core registers which blocks of inline assembly need
# -ffixed-r9 reserves a register, and unlike for position-independent code, no predefined macro says so.  -DAOT_REGISTERS=0
# (aot/kernel.h) selects the C form of all blocks.  Whether a build needs it is found by a trial compilation, because the flag may
# also come from a specs file or from a compiler-specific option.


NO_BLOCKS = "-DAOT_REGISTERS=0"
_PLAIN = re.compile(r"-(?:mcpu=|march=|mthumb|mfloat-abi=|mfpu=|[OgDUWI])")
"""Flags that reserve no register."""
_PROBE = """
void probe(void);
__attribute__((optimize("omit-frame-pointer"))) void probe(void) {
  unsigned a, b, c, d, e, f, g, h, i, j, k, l, m;
#ifdef __thumb2__
  unsigned n;
#define LAST , "=&h"(n)
#else
#define LAST
#endif
  __asm volatile("" : "=&l"(a), "=&l"(b), "=&l"(c), "=&l"(d), "=&l"(e), "=&l"(f), "=&l"(g), "=&l"(h),
                 "=&h"(i), "=&h"(j), "=&h"(k), "=&h"(l), "=&h"(m) LAST);
}
"""
"""All registers that a block can get if GCC optimises: r0 to r12 and, except on Armv6-M, lr."""


def register_flags(tool: Tool, flags: Sequence[str]) -> list[str]:
    """Extra flags for compiling kernels: NO_BLOCKS if `flags` reserve a register, else none.

    None as well for a flag that GCC does not know: the compilation itself will report it.
    """
    if any(f.startswith("-DAOT_REGISTERS=") for f in flags) or all(map(_PLAIN.match, flags)):
        return []
    return [NO_BLOCKS] if _lacks_registers(tool.path, tuple(flags)) else []


def named_register_flags(flags: Sequence[str]) -> list[str]:
    """Like `register_flags`, but by the names of the flags, as no compiler may be installed."""
    is_set = any(f.startswith("-DAOT_REGISTERS=") for f in flags)
    return [NO_BLOCKS] if not is_set and any(f.startswith("-ffixed-") for f in flags) else []


@lru_cache(maxsize=64)
def _lacks_registers(path: str, flags: tuple[str, ...]) -> bool:
    with tempfile.TemporaryDirectory(prefix="aot-registers-") as name:
        (Path(name) / "probe.c").write_text(_PROBE, encoding="utf-8")
        # at -O2, because kernel.h itself handles the registers of other levels
        command = [path, *flags, "-O2", "-fomit-frame-pointer", "-w", "-c", "probe.c", "-o", "probe.o"]
        done = run_tool(command, Path(name))
        return done.code != 0 and "impossible constraints" in done.err
