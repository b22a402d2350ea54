"""Estimated cycles: executions of every instruction, counted in QEMU, times the cycles that Arm's manuals give for it.

Cores without published timings or with caches and dual issue (M7, M33, M55) have no estimate.  Sources are the instruction
timings of the Technical Reference Manuals of Cortex-M4 and -M3 (data processing 1; LDR 2, but 1 directly behind another load or
store; STR 1, with a register offset 2; LDM and STM 1+N; DIV 2 to 12, taken as 6; taken branches 1+P, P taken as 2; VDIV and VSQRT
14; VMLA 3) and of Cortex-M0 and -M0+ (LDR and STR 2, LDM and STM 1+N, taken branches 3 and 2, BL 4 and 3).  Memory is taken
to have no wait states.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aot.errors import Problem, ToolchainError
from aot.ir.op import Array
from aot.micro.project import Project
from aot.micro.qemu import command_line
from aot.micro.toolchain import find_tool, run_tool
from aot.report.attribution import symbols_of


@dataclass(frozen=True, slots=True)
class Timing:
    """Cycles of a core: `load` and `store` alone, `paired_load` behind another access, `taken` on top of a taken branch's 1."""

    load: int
    paired_load: int
    store: int
    store_register: int
    taken: int
    call: int
    divide: int
    multiply_add: int
    long_multiply: int


_M4 = Timing(2, 1, 1, 2, 2, 2, 6, 1, 1)
_M3 = Timing(2, 1, 1, 2, 2, 2, 6, 2, 4)
TIMINGS: Mapping[str, Timing] = {
    "cortex-m0": Timing(2, 2, 2, 2, 2, 3, 1, 1, 1),
    "cortex-m0plus": Timing(2, 2, 2, 2, 1, 2, 1, 1, 1),
    "cortex-m3": _M3,
    "cortex-m4": _M4,
}
"""by target; the others have no estimate"""

_LINE = re.compile(r"^ *([0-9a-f]+):\t(\S+)(?:\t(.*))?$")
_CONDITIONAL = re.compile(r"^(b(eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|hs|lo)|cbn?z)$")
_ACCESS = re.compile(r"^(ldr|str|vldr|vstr)")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a disassembly; `mnemonic` without width suffix."""

    mnemonic: str
    operands: str

    @property
    def is_access(self) -> bool:
        return bool(_ACCESS.match(self.mnemonic)) and not self.mnemonic.startswith(("ldrd", "strd"))


def registers(operands: str) -> int:
    """How many words the register list of a transfer names."""
    found = re.search(r"\{([^}]*)\}", operands)
    total = 0
    for item in found.group(1).split(",") if found else []:
        ends = [e for e in item.strip().split("-") if e]
        if len(ends) == 2 and ends[0][1:].isdigit() and ends[1][1:].isdigit():
            count = int(ends[1][1:]) - int(ends[0][1:]) + 1
        else:
            count = 1
        total += count * (2 if ends and ends[0].startswith("d") else 1)
    return total


def base_cycles(instruction: Instruction, previous: Instruction | None, timing: Timing) -> int:
    """Cycles of one execution, the refill after a conditional branch that is taken left out."""
    name, operands = instruction.mnemonic, instruction.operands
    if name.startswith(("ldm", "stm", "push", "pop", "vldm", "vstm", "vpush", "vpop")):
        jump = timing.call if "pc" in operands and name.startswith(("pop", "ldm")) else 0
        return 1 + registers(operands) + jump
    if name.startswith(("ldrd", "strd")):
        return 3
    if instruction.is_access and name.startswith(("ldr", "vldr")):
        if operands.startswith("pc"):
            return timing.load + timing.taken
        alone = timing.load + (1 if operands.startswith("d") else 0)
        return timing.paired_load if previous is not None and previous.is_access else alone
    if name.startswith("vstr"):
        return 3 if operands.startswith("d") else 2
    if instruction.is_access:
        return timing.store_register if re.search(r"\[[^,\]]+, [a-z]", operands) else timing.store
    if _CONDITIONAL.match(name):
        return 1
    if name in ("bl", "blx"):
        return 1 + timing.call
    if name in ("b", "bx", "tbb", "tbh"):
        return 1 + timing.taken + (1 if name.startswith("tb") else 0)
    if name.startswith(("sdiv", "udiv")):
        return timing.divide
    if name.startswith(("vdiv", "vsqrt")):
        return 14
    if name.startswith(("vmla", "vmls", "vfma", "vfms", "vnmla")):
        return 3
    if name.startswith(("smull", "umull", "smlal", "umlal", "umaal")):
        return timing.long_multiply
    return timing.multiply_add if name in ("mla", "mls") else 1


def read_disassembly(elf: Path) -> dict[int, Instruction]:
    """All instructions of an image by address."""
    done = run_tool([find_tool("arm-none-eabi-objdump").path, "-d", "--no-show-raw-insn", elf.name], elf.parent)
    if done.returncode != 0:
        raise ToolchainError(Problem("E3003", f"objdump failed on {elf.name}: {done.stderr.strip()[:200]}"))
    found = {}
    for line in done.stdout.splitlines():
        match = _LINE.match(line)
        if match:
            name = match.group(2).removesuffix(".w").removesuffix(".n")
            found[int(match.group(1), 16)] = Instruction(name, match.group(3) or "")
    return found


def estimate(code: Mapping[int, Instruction], counts: Mapping[int, tuple[int, int]], timing: Timing) -> dict[int, int]:
    """Cycles by address, from (executions, times that control went elsewhere) by address."""
    result, previous = {}, None
    for address in sorted(code):
        here = code[address]
        executed, taken = counts.get(address, (0, 0))
        if executed:
            refill = taken * timing.taken if _CONDITIONAL.match(here.mnemonic) else 0
            result[address] = executed * base_cycles(here, previous, timing) + refill
        previous = here
    return result


def build_plugin(folder: Path) -> Path | None:
    """The plugin as a shared object in `folder`; None without a host compiler that builds it."""
    gcc = shutil.which("gcc") or shutil.which("cc")
    if gcc is None:
        return None
    target = folder / "report_cycles.so"
    source = Path(__file__).with_suffix(".c")
    done = subprocess.run(
        [gcc, "-std=c11", "-O2", "-shared", "-fPIC", "-o", str(target), str(source)],
        capture_output=True,
        check=False,
        timeout=120,
    )
    return target if done.returncode == 0 else None


@dataclass(frozen=True, slots=True)
class Profile:
    """Of one inference: instructions and estimated cycles by function."""

    instructions: Mapping[str, int]
    cycles: Mapping[str, int]

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

    None where the core has no timing, or the plugin cannot be built or loaded.
    """
    timing = TIMINGS.get(project.board.cpu)
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
    entry = next((a for a, _, n in symbols_of(elf) if n == f"{project.artifact.name}_run"), None)
    if counts is None or entry is None or not counts.get(entry, (0, 0))[0]:
        return None
    runs = counts[entry][0]
    spent = estimate(read_disassembly(elf), counts, timing)
    instructions = {n: sum(c for x, (c, _) in counts.items() if a <= x < b) // runs for a, b, n in spans}
    return Profile(instructions, {n: sum(c for x, c in spent.items() if a <= x < b) // runs for a, b, n in spans})


def _count(
    project: Project, elf: Path, folder: Path, plugin: Path, inputs: Sequence[Array], *, low: int, high: int, timeout: float
) -> dict[int, tuple[int, int]] | None:
    (folder / "inputs.bin").write_bytes(b"".join(a.tobytes() for a in inputs))
    out = folder / "counts.txt"
    command = [*command_line(project.board, elf), "-plugin", f"{plugin},lo={low:x},hi={high:x},out={out}"]
    try:
        subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None
    if not out.is_file():
        return None
    rows = (line.split() for line in out.read_text(encoding="utf-8").splitlines())
    return {int(a, 16): (int(n), int(t)) for a, n, t in rows}
