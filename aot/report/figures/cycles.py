"""Estimated cycles: executions of every instruction, counted in QEMU, times the cycles of aot.report.figures.cycle_model."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from aot.errors import Problem, ToolchainError
from aot.ir.op import Array
from aot.micro.build.project import Project
from aot.micro.build.toolchain import find_tool, run_tool
from aot.micro.run.qemu import command_line
from aot.report.figures.attribution import symbols_of
from aot.report.figures.cycle_model import Instruction, estimate, timing_of
from aot.support.dataclass import dataclass
from aot.system.process import run_program

_LINE = re.compile(r"^ *([0-9a-f]+):\t([0-9a-f]{4})( [0-9a-f]{4})? *\t(\S+)(?:\t(.*))?$")


def read_disassembly(elf: Path) -> dict[int, Instruction]:
    """All instructions of an image by address."""
    done = run_tool([find_tool("arm-none-eabi-objdump").path, "-d", elf.name], elf.parent)
    if done.code != 0:
        raise ToolchainError(Problem("E3003", f"objdump failed on {elf.name}: {done.err.strip()[:200]}"))
    found = {}
    for line in done.out.splitlines():
        match = _LINE.match(line)
        if match:
            name = match.group(4).removesuffix(".w").removesuffix(".n")
            operands = (match.group(5) or "").partition("@")[0].strip()
            found[int(match.group(1), 16)] = Instruction(name, operands, 4 if match.group(3) else 2)
    return found


def build_plugin(folder: Path) -> Path | None:
    """The plugin as a shared object in `folder`; None without a host compiler that builds it."""
    gcc = shutil.which("gcc") or shutil.which("cc")
    if gcc is None:
        return None
    target = folder / "report_cycles.so"
    source = Path(__file__).with_suffix(".c")
    try:
        done = run_program([gcc, "-std=c11", "-O2", "-shared", "-fPIC", "-o", str(target), str(source)], timeout=120)
    except ToolchainError:
        return None
    return target if done.code == 0 and target.is_file() else None


@dataclass(frozen=True, slots=True)
class Profile:
    """Of one inference: instructions and estimated cycles by function, and (address, text, executions) of its instructions."""

    instructions: Mapping[str, int]
    cycles: Mapping[str, int]
    lines: Mapping[str, Sequence[tuple[int, str, int]]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.cycles.values())

    def of(self, functions: Iterable[str], instructions: int | None) -> int | None:
        """The share of a layer that executes so many instructions in these functions: at their mean cycles per instruction."""
        counted = [f for f in functions if f in self.instructions]
        executed = sum(self.instructions[f] for f in counted)
        if instructions is None or not executed:
            return None
        return round(instructions * sum(self.cycles[f] for f in counted) / executed)


def profile_cycles(
    project: Project, elf: Path, inputs: Sequence[Array], *, functions: frozenset[str], timeout: float
) -> Profile | None:
    """Run one set in `elf` under the plugin; `functions` are counted, and divided by the runs of the model's entry.

    None if the core has no model, or the plugin cannot be built or loaded.
    """
    timing = timing_of(project.board.cpu)
    spans = [(a, a + size, name) for a, size, name in symbols_of(elf) if name in functions and size]
    if timing is None or not spans:
        return None
    with tempfile.TemporaryDirectory(prefix="aot-cycles-") as name:
        folder = Path(name)
        plugin = build_plugin(folder)
        if plugin is None:
            return None
        counts = _count(
            project, elf, folder, plugin, inputs, low=min(s[0] for s in spans), high=max(s[1] for s in spans), timeout=timeout
        )
    first = "feed_begin" if project.artifact.metadata.get("feed") else "run"  # called once a run
    entry = next((a for a, _, n in symbols_of(elf) if n == f"{project.artifact.name}_{first}"), None)
    if counts is None or entry is None or not counts.get(entry, (0, 0))[0]:
        return None
    runs = counts[entry][0]
    code = read_disassembly(elf)
    spent = estimate(code, counts, timing)
    lines = {
        n: [
            (x, f"{i.mnemonic} {i.operands}".rstrip(), counts.get(x, (0, 0))[0] // runs)
            for x, i in sorted(code.items())
            if a <= x < b
        ]
        for a, b, n in spans
    }
    instructions = {n: sum(c for x, (c, _) in counts.items() if a <= x < b) // runs for a, b, n in spans}
    return Profile(instructions, {n: sum(c for x, c in spent.items() if a <= x < b) // runs for a, b, n in spans}, lines)


def _count(
    project: Project, elf: Path, folder: Path, plugin: Path, inputs: Sequence[Array], *, low: int, high: int, timeout: float
) -> dict[int, tuple[int, int]] | None:
    (folder / "inputs.bin").write_bytes(b"".join(a.tobytes() for a in inputs))
    out = folder / "counts.txt"
    command = [*command_line(project.board, elf), "-plugin", f"{plugin},lo={low:x},hi={high:x},out={out}"]
    try:
        run_program(command, cwd=folder, timeout=timeout)
    except ToolchainError:
        return None
    if not out.is_file():
        return None
    rows = (line.split() for line in out.read_text(encoding="utf-8").splitlines())
    return {int(a, 16): (int(n), int(t)) for a, n, t in rows}
