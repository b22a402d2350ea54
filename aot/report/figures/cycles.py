"""Estimated cycles: executions of every instruction, counted in QEMU, times the core's cycles for it."""

from __future__ import annotations

import dataclasses
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from aot.errors import Problem, ToolchainError
from aot.frontend.problems import Problems
from aot.frontend.tflite.view import parse
from aot.ir.op import Array
from aot.micro.build.project import Project
from aot.micro.build.toolchain import find_tool, run_tool
from aot.micro.run.qemu import command_line
from aot.report.figures.attribution import symbols_of
from aot.support.dataclass import dataclass
from aot.system.process import run_program
from aot.target.cpu import CORES, Timing

_LINE = re.compile(r"^ *([0-9a-f]+):\t([0-9a-f]{4})( [0-9a-f]{4})? *\t(\S+)(?:\t(.*))?$")


def read_disassembly(elf: Path) -> dict[int, Instruction]:
    """All instructions of an image by address."""
    done = run_tool([find_tool("arm-none-eabi-objdump").path, "-d", elf.name], elf.parent)
    if done.code != 0:
        raise ToolchainError(Problem("E3003", f"objdump failed on {elf.name}: {done.err.strip()[:200]}"))
    instructions = {}
    for line in done.out.splitlines():
        match = _LINE.match(line)
        if match:
            name = match.group(4).removesuffix(".w").removesuffix(".n")
            operands = (match.group(5) or "").partition("@")[0].strip()
            instructions[int(match.group(1), 16)] = Instruction(name, operands, 4 if match.group(3) else 2)
    return instructions


def build_plugin(folder: Path) -> Path | None:
    """The plugin as a shared object in `folder`; None if no host compiler builds it."""
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
    """One inference: instructions and estimated cycles by function, and (address, text, executions) of the instructions."""

    instructions: Mapping[str, int]
    cycles: Mapping[str, int]
    lines: Mapping[str, Sequence[tuple[int, str, int]]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.cycles.values())

    def of(self, functions: Iterable[str], instructions: int | None) -> int | None:
        """Estimated cycles of a layer that executes `instructions` in these functions, at their mean cycles per instruction."""
        counted = [f for f in functions if f in self.instructions]
        executed = sum(self.instructions[f] for f in counted)
        if instructions is None or not executed:
            return None
        return round(instructions * sum(self.cycles[f] for f in counted) / executed)


def profile_cycles(
    project: Project, elf: Path, inputs: Sequence[Array], *, functions: frozenset[str], timeout: float
) -> Profile | None:
    """Run one set in `elf` under the plugin; counts of `functions` are divided by the runs of the model's entry.

    None if the core has no timing model, or the plugin cannot be built or loaded.
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
    first = "feed_begin" if project.artifact.metadata.get("feed") else "run"  # called once per run
    entry = next((a for a, _, n in symbols_of(elf) if n == f"{project.artifact.name}_{first}"), None)
    if counts is None or entry is None or not counts.get(entry, (0, 0))[0]:
        return None
    runs, code = counts[entry][0], read_disassembly(elf)
    spent, executed = estimate(code, counts, timing), {x: count for x, (count, _) in counts.items()}

    def lines(first: int, end: int) -> list[tuple[int, str, int]]:
        here = ((x, code[x]) for x in sorted(code) if first <= x < end)
        return [(x, f"{i.mnemonic} {i.operands}".rstrip(), executed.get(x, 0) // runs) for x, i in here]

    def per_run(numbers: Mapping[int, int]) -> dict[str, int]:
        return {n: sum(number for x, number in numbers.items() if a <= x < b) // runs for a, b, n in spans}

    return Profile(per_run(executed), per_run(spent), {n: lines(a, b) for a, b, n in spans})


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


# ---- cycles of instructions by the core's timings (aot/target/cpu.py), and the influence of neighbours; no wait states


def timing_of(cpu: str) -> Timing | None:
    """The timings of a core, with or without modifiers (`cortex-m33+nodsp`); None if there are none."""
    core = CORES.get(cpu.partition("+")[0])
    return None if core is None else core.timing


def estimate_text(cpu: str, cycles: str | None) -> str:
    """`1,234 cycles, estimated`, with the core that was assumed if it is another one; or that there are no timings.

    `cycles` is the number as text.  Empty if there are timings, but the cycles could not be estimated for another reason.
    """
    timing = timing_of(cpu)
    if cycles is not None:
        other = timing.timed_as if timing is not None else ""
        return f"{cycles} cycles, estimated" + (f" as on a {other.replace('cortex-m', 'Cortex-M')}" if other else "")
    plain = cpu.partition("+")[0]
    return "" if timing is not None else f"cycles are not estimated: no instruction timings for {plain}"


_CONDITIONS = r"(b(eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|hs|lo)|cbn?z|le|letp)"
_MULTIPLE = ("ldm", "stm", "push", "pop", "vldm", "vstm", "vpush", "vpop")
_JUMPS = frozenset({"b", "bx", "bl", "blx", "tbb", "tbh"})
_NO_RESULT = frozenset({"cmp", "cmn", "tst", "teq", "nop", "it", "vcmp.f32", "vcmpe.f32"})
_DSP = re.compile(
    r"^(s|u|q|sh|uh)(add|sub|asx|sax)(8|16)?$|^[su]xta?[bh]|^pkh|^[su]sat|^sml|^smu|^smm|^sel$|^rev|^[us]bfx$|^bfi$"
)
_VECTOR = re.compile(r"^(v.*\.[usifp]?(8|16|32|64)\b|v(and|orr|eor|bic|orn|mvn|psel|pnot|pst)|ldc|stc|cdp|mcr|mrc)")
_SHIFTED = re.compile(r"\b(lsl|lsr|asr|ror)\b")


def _named(pattern: str) -> cached_property[bool]:
    """A property of an instruction: whether its mnemonic begins so."""
    compiled = re.compile(pattern)
    return cached_property(lambda self: bool(compiled.match(self.mnemonic)))


@dataclasses.dataclass(frozen=True)  # without slots, which cached properties need
class Instruction:
    """One line of a disassembly; `mnemonic` without width suffix, `width` in bytes, `target` of a direct branch."""

    mnemonic: str
    operands: str
    width: int = 2

    is_load = _named(r"vldr|ldr(?!d)")  # a single one
    is_store = _named(r"vstr|str(?!d)")
    is_multiple = _named(r"v?(ldm|stm|push|pop)|ldrd|strd")  # moves several words
    is_branch = _named(rf"({_CONDITIONS}|b|bx|bl|blx|tbb|tbh)$")
    is_conditional_branch = _named(rf"{_CONDITIONS}$")
    is_multiply = _named(r"mul|mla|mls|sm(la|lal|ls|lsl|ul|us|ua|ml|mla|mls|mul)|um(ull|lal|aal)|smull|smlal")

    @cached_property
    def is_shifted(self) -> bool:
        """Uses the shifter or the DSP unit; a core has only one."""
        return bool(_DSP.match(self.mnemonic)) or (bool(_SHIFTED.search(self.operands)) and not (self.is_load or self.is_store))

    @cached_property
    def is_vector(self) -> bool:
        """An instruction on 128-bit vectors; old disassemblers show some as coprocessor instructions."""
        if not _VECTOR.match(self.mnemonic):
            return False
        return "q" in re.sub(r"[^a-z0-9]", " ", self.operands).replace("pq", "") or self.mnemonic[0] != "v"

    @cached_property
    def writes_back(self) -> bool:
        """Whether the access updates its base register."""
        return self.operands.endswith("!") or bool(re.search(r"\], ", self.operands))

    @cached_property
    def _registers(self) -> tuple[str, ...]:
        named = {"sb": "r9", "sl": "r10", "fp": "r11", "ip": "r12"}
        names = re.findall(r"\b(r\d+|s\d+|d\d+|q\d+|sp|lr|pc|sb|sl|fp|ip)\b", self.operands.partition(";")[0])
        return tuple(named.get(r, r) for r in names)

    @cached_property
    def writes(self) -> frozenset[str]:
        """The register of the result, and the base register of an access that updates it."""
        if self.is_branch or self.mnemonic in _NO_RESULT or not self._registers or self.is_store:
            return frozenset(self._registers[1:2]) if self.is_store and self.writes_back else frozenset()
        two = self.mnemonic.startswith(("smull", "umull", "smlal", "umlal", "umaal", "ldrd"))
        base = self._registers[1:2] if self.is_load and self.writes_back else ()
        return frozenset((*self._registers[: 2 if two else 1], *base))

    @cached_property
    def reads(self) -> frozenset[str]:
        """The registers that it reads, including its result if that is also an operand (`add r0, r1`, accumulators of SMLAL)."""
        if self.is_store or self.is_branch or self.mnemonic in _NO_RESULT:
            return frozenset(self._registers)
        both = len(self._registers) == 2 and not self.mnemonic.startswith(
            ("mov", "mvn", "ldr", "vmov", "sxt", "uxt", "rev", "clz")
        )
        both = both or self.mnemonic.startswith(("smlal", "umlal", "umaal", "bfi", "movt", "vmla", "vfma"))
        return frozenset(self._registers if both else self._registers[1:])

    @cached_property
    def address(self) -> frozenset[str]:
        """The registers of an access' address."""
        inside = self.operands.partition("[")[2].partition("]")[0]
        return frozenset(re.findall(r"\b(r\d+|sp|pc|sb|sl|fp|ip)\b", inside))

    @cached_property
    def words(self) -> int:
        """The number of words in the register list of a transfer."""
        registers = re.search(r"\{([^}]*)\}", self.operands)
        total = 0
        for item in registers.group(1).split(",") if registers else []:
            ends = [e for e in item.strip().split("-") if e]
            if len(ends) == 2 and ends[0][1:].isdigit() and ends[1][1:].isdigit():
                count = int(ends[1][1:]) - int(ends[0][1:]) + 1
            else:
                count = 1
            total += count * (2 if ends and ends[0].startswith("d") else 1)
        return total


def base_cycles(here: Instruction, previous: Instruction | None, timing: Timing) -> int:
    """Cycles of one execution after `previous`, without the refill after a taken conditional branch."""
    name, operands = here.mnemonic, here.operands
    if here.is_vector:
        return 1
    if name.startswith(_MULTIPLE):
        jump = timing.call if "pc" in operands and name.startswith(("pop", "ldm")) else 0
        return timing.transfer_start - (-here.words // timing.transfer) + jump
    if here.is_multiple:
        return timing.transfer_start + 2 // timing.transfer
    if here.is_load:
        return _load_cycles(here, previous, timing)
    if here.is_store:
        return _store_cycles(here, previous, timing)
    if here.is_conditional_branch:
        return 0 if name in ("le", "letp") else 1  # the end of a hardware loop costs nothing once the loop runs
    if name in ("bl", "blx"):
        return 1 + timing.call
    if name in _JUMPS:
        return 1 + timing.taken + (1 if name.startswith("tb") else 0)
    if name.startswith(("sdiv", "udiv")):
        return timing.divide
    if name.startswith(("vdiv", "vsqrt")):
        return 14
    if name.startswith(("vmla", "vmls", "vfma", "vfms", "vnmla")) and timing.pairing != "any":
        return 3
    if name in ("smull", "umull"):
        return timing.long_multiply
    if name in ("smlal", "umlal", "umaal"):
        return timing.long_accumulate
    return timing.multiply_add if name in ("mla", "mls") else 1


def _behind_a_load(here: Instruction, previous: Instruction | None) -> bool:
    """Whether the access can be pipelined: it follows a load and does not depend on the loaded value."""
    return previous is not None and previous.is_load and not previous.writes & here.address


def _load_cycles(here: Instruction, previous: Instruction | None, timing: Timing) -> int:
    if here.operands.startswith("pc"):
        return timing.load + timing.taken + 1
    if here.mnemonic.startswith("vldr") and re.match(r"d\d", here.operands):
        return timing.load + 1
    pipelined = _behind_a_load(here, previous) and not here.writes_back
    return timing.paired_load if pipelined else timing.load


def _store_cycles(here: Instruction, previous: Instruction | None, timing: Timing) -> int:
    if here.mnemonic.startswith("vstr"):
        return (2 if timing.load > 1 else 1) + (1 if re.match(r"d\d", here.operands) else 0)
    if re.search(r"\[[^,\]]+, [a-z]", here.operands):
        return timing.paired_store if _behind_a_load(here, previous) else timing.store_register
    return timing.store


def can_pair(first: Instruction, second: Instruction, timing: Timing) -> bool:
    """Whether two neighbours issue in the same cycle."""
    if not timing.pairing or first.is_branch or second.mnemonic in ("bl", "blx", "tbb", "tbh"):
        return False
    if any(x.is_multiple or x.is_vector or x.mnemonic.startswith(("sdiv", "udiv", "vdiv", "it")) for x in (first, second)):
        return False
    if first.writes & (second.reads | second.writes):
        return False
    accesses = [x for x in (first, second) if x.is_load or x.is_store]
    if timing.pairing == "narrow":
        return first.width == second.width == 2 and len(accesses) < 2 and not (first.is_multiply and second.is_multiply)
    if len(accesses) == 2 and not all(x.is_load for x in accesses):
        return False
    if first.is_multiply and second.is_multiply:
        return False
    return not second.is_shifted or (not first.is_shifted and not _DSP.match(second.mnemonic))


def _refill(here: Instruction, code: Mapping[int, Instruction], timing: Timing) -> int:
    """Extra cycles of a taken conditional branch."""
    if here.mnemonic in ("le", "letp"):
        return 0
    match = re.search(r"\b([0-9a-f]+) <", here.operands)  # the target of a direct branch
    goal = int(match[1], 16) if match else None
    across = goal is not None and goal % 4 == 2 and goal in code and code[goal].width == 4
    return timing.taken + (timing.wide_target if across else 0)


def estimate(code: Mapping[int, Instruction], counts: Mapping[int, tuple[int, int]], timing: Timing) -> dict[int, int]:
    """Cycles by address, from (executions, times that control did not fall through) by address."""
    result: dict[int, int] = {}
    previous: Instruction | None = None
    fell, single = 0, False
    for address in sorted(code):
        here = code[address]
        executed, taken = counts.get(address, (0, 0))
        if executed:
            spent = executed * base_cycles(here, previous, timing)
            spent += taken * _refill(here, code, timing) if here.is_conditional_branch else 0
            together = min(fell, executed)
            if here.is_vector:  # two beats; the second overlaps the first beat of a next vector instruction in the other unit
                overlaps = previous is not None and previous.is_vector and _unit(previous) != _unit(here)
                spent += executed - (together if overlaps else 0)
            elif previous is not None and previous.is_load and previous.writes & here.reads:
                spent += timing.load_use * together
            paired = previous is not None and together > 0 and single and can_pair(previous, here, timing)
            if paired:
                spent -= together
            result[address] = spent
            single = not paired
        previous, fell = here, executed - taken if executed else 0
    return result


def _unit(here: Instruction) -> str:
    """The half of the vector pipeline: memory or arithmetic."""
    return "memory" if here.mnemonic.startswith(("vld", "vst", "ldc", "stc")) else "arithmetic"


# ---- what a layer runs: the C of its functions, their instructions with counts, its operators in the file
# These texts are for the page only; report.json and baselines omit them (aot.report.measure.report.bundle).


MAX_LINES = 400
"""Maximum number of lines of C, and of instructions, shown per function."""

_FUNCTION = re.compile(r"^[A-Za-z_][^;{}()\n]*?\b(\w+)\([^;{}]*\)\s*\{$", re.MULTILINE)


def c_functions(text: str) -> dict[str, str]:
    """The functions of a generated C file by name, each with the comment before it."""
    functions = {}
    for match in _FUNCTION.finditer(text):
        end = text.find("\n}\n", match.end())
        start = match.start()
        before = text.rfind("\n\n", 0, start) + 2
        if text.startswith("/*", before) and text[before:start].rstrip().endswith("*/"):
            start = before
        functions[match[1]] = _cut(text[start : end + 2].splitlines(), "lines")
    return functions


def _cut(lines: Sequence[str], what: str) -> str:
    more = len(lines) - MAX_LINES
    return "\n".join([*lines[:MAX_LINES]] + ([f"… {more:,} more {what}"] if more > 0 else []))


def blocks(lines: Sequence[tuple[int, str, int]]) -> list[dict[str, Any]]:
    """The instructions (address, text, executions per run) as runs of equal count; the runs that execute most come first."""
    runs = [(count, list(group)) for count, group in groupby(lines, key=lambda line: line[2])]
    total = sum(count * len(group) for count, group in runs)
    hot = sorted((run for run in runs if run[0]), key=lambda run: -run[0] * len(run[1]))
    kept, room = [], MAX_LINES
    for count, group in hot:
        if room > 0:
            shown = [f"{address:x}  {text}" for address, text, _ in group[:room]]
            kept.append({"count": count, "lines": shown, "share": count * len(group) / total})
            room -= len(group)
    return kept


def operators_of(model: bytes) -> list[str]:
    """`CONV_2D "block1/conv"` of each operator of the first graph."""
    view = parse(model, Problems())
    return [] if view is None or not view.subgraphs else [op.where for op in view.subgraphs[0].operators]


def listings(model: bytes, project: Project, profile: Profile | None) -> dict[str, Any]:
    """`functions`: name -> its C and its blocks of instructions; `operators` of the file; `candidates` of each layer."""
    name = project.artifact.name
    source = project.artifact.files.get(f"{name}_kernels.c", "")
    functions: dict[str, dict[str, Any]] = {key: {"c": text, "blocks": []} for key, text in c_functions(source).items()}
    for key, lines in ({} if profile is None else profile.lines).items():
        functions.setdefault(key, {"c": "", "blocks": []})["blocks"] = blocks(lines)
    return {"functions": functions, "operators": operators_of(model), "candidates": _candidates(project.artifact.metadata)}


def _candidates(metadata: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """The candidate kernels of each layer by estimated instructions; at most eight."""
    rows = []
    for layer in metadata["layers"]:
        sorted_ = sorted(layer.get("candidates", ()), key=lambda c: (c["instructions"], c["kernel"]))
        kept = [c for i, c in enumerate(sorted_) if i < 8 or c["kernel"] == layer["kernel"]]
        rows.append([{**c, "chosen": c["kernel"] == layer["kernel"]} for c in kept])
    return rows
