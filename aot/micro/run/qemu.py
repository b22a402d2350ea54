"""Runs an image (in the emulator, or the program itself on the host), always with a time limit, and reads its report."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from bisect import bisect_right
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from aot.errors import AotError, Problem, ToolchainError, VerificationError
from aot.micro.board import MAX_TIMEOUT, Board
from aot.micro.build.image import elf_symbols, symbol_addresses
from aot.micro.build.toolchain import find_tool
from aot.support.dataclass import dataclass
from aot.support.text import printable
from aot.system.process import Bounds, OutputError, run_bounded

STKOF = 1 << 20
"""CFSR: the stack pointer went below its limit (Armv8-M)"""
NO_ACCESS = 0x92
"""CFSR: an access, or the stacking of a frame, that the memory protection unit forbids"""


_LINE = 300
"""Maximum length of a printed line in a message, in characters."""
_ADDRESS, _UNDEFINED = "ERROR: AddressSanitizer", "runtime error: "
"""What the compiler's sanitizers print."""
MOST_TEXT = 1 << 22
"""Maximum output of a program in bytes: four of the longest reports."""
_HOST = 1 << 40
"""Maximum memory of a program on the host, in bytes."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The exit code and the output of a program."""

    code: int
    output: str


def command_line(board: Board, elf: Path) -> list[str]:
    """The command that starts `elf`; with -icount shift=0, an instruction takes one nanosecond of virtual time."""
    if board.is_host:
        return [str(elf.resolve())]
    return [
        find_tool("qemu-system-arm").path, "-M", board.machine, "-cpu", board.qemu_cpu, "-icount", "shift=0,sleep=off",
        "-semihosting-config", "enable=on,target=native", "-nographic", "-monitor", "none", "-serial", "none",
        "-kernel", str(elf.resolve()),
    ]  # fmt: skip


def execute(board: Board, elf: Path, *, cwd: Path, timeout: float) -> Finished:
    """Run `elf` in `cwd`.

    Raises ToolchainError E3010 after `timeout` seconds, E3011 if it prints too much, E3004 if it cannot be started.
    """
    command = command_line(board, elf)
    try:
        done = run_bounded(command, Bounds(min(timeout, MAX_TIMEOUT), MOST_TEXT), cwd=cwd, one=True)
    except subprocess.TimeoutExpired:
        raise ToolchainError(Problem("E3010", f"{board.name} did not finish within {timeout:g} s")) from None
    except OutputError:
        raise ToolchainError(Problem("E3011", f"{board.name}: the program prints more than {MOST_TEXT >> 20} MiB")) from None
    except OSError as error:
        raise ToolchainError(Problem("E3004", f"{command[0]} cannot be started: {error.strerror}")) from None
    return Finished(done.returncode, done.stdout.decode("utf-8", "replace"))


def result_of(board: Board, elf: Path, done: Finished) -> Report:
    """The harness's report of a successful run.

    Raises VerificationError E4020 (the program faulted), E4021 (lockup, abort or sanitizer report), E4022 (the model returned
    a status), ToolchainError E3011 (no result, or an invalid one).
    """
    line = next((text for text in done.output.splitlines() if text.startswith('{"aot": 1')), None)
    if line is None:
        raise _no_result(board, elf, done)
    try:
        report = read_report(line, memory=_HOST if board.is_host else sum(m.size for m in board.memory))
    except ValueError as error:
        if "Lockup: " in done.output:  # another fault interrupted the report of the first
            raise _no_result(board, elf, done) from None
        message = f"{board.name}: the result is not valid: {error}: {printable(line, limit=200)}"
        raise ToolchainError(Problem("E3011", message)) from None
    if report.fault is not None:
        raise _fault(board, elf, report.fault)
    if report.error:
        raise ToolchainError(Problem("E3011", f"{board.name}: the harness reports: {report.error}"))
    if report.status:
        raise VerificationError(Problem("E4022", f"the model returned status {report.status} on set {report.set}"))
    if done.code != 0:
        raise _no_result(board, elf, done)
    return report


def _fault(board: Board, elf: Path, fault: Mapping[str, str]) -> AotError:
    pc, status = _number(fault.get("pc")), _number(fault.get("cfsr", "0"))
    sp = fault.get("sp", "?")
    below = bool(status and status & NO_ACCESS) and _beyond_stack(elf, _number(sp) or 0)
    if not pc or status is None or status & STKOF or below:  # pc 0: no frame was stacked; None: no stack was left for the report
        return VerificationError(
            Problem("E4020", f"{board.name}: stack overflow: sp {sp}, stack of {board.stack} bytes ([run] stack in board.toml)")
        )
    detail = f", cfsr {fault['cfsr']}" if "cfsr" in fault else ""
    place = f"pc {fault['pc']} in {function_at(elf, pc)}, called from {function_at(elf, _number(fault.get('lr')) or 0)}"
    return VerificationError(Problem("E4020", f"{board.name}: fault at {place}{detail}"))


def _number(text: str | None) -> int | None:
    """A word printed by startup.c; None if it is garbled."""
    return int(text, 16) if text and re.fullmatch(r"(0x)?[0-9a-f]{1,8}", text) else None


def _no_result(board: Board, elf: Path, done: Finished) -> AotError:
    lockup = re.search(r"Lockup: .*", done.output)
    if lockup:
        sp = re.search(r"R13=([0-9a-f]{8})", done.output)
        if sp and _beyond_stack(elf, int(sp[1], 16)):
            text = f"{board.name}: stack overflow: sp 0x{sp[1]}, stack of {board.stack} bytes ([run] stack in board.toml)"
            return VerificationError(Problem("E4020", text))
        where = ", ".join(_registers(elf, done.output))
        return VerificationError(Problem("E4021", f"{board.name}: {printable(lockup.group(0))}: {where}"))
    report = next((text for text in done.output.splitlines() if _ADDRESS in text or _UNDEFINED in text), None)
    if report is not None:
        text = report[max(0, report.find(_ADDRESS)) :]
        return VerificationError(Problem("E4021", f"{board.name}: {printable(text, limit=_LINE)}"))
    if done.code < 0:
        return VerificationError(Problem("E4021", f"{board.name}: killed by {_signal(-done.code)}"))
    last = " / ".join(printable(text, limit=_LINE) for text in done.output.strip().splitlines()[-3:]) or "no output"
    return ToolchainError(Problem("E3011", f"{board.name}: no result (exit code {done.code}): {last}"))


def _signal(number: int) -> str:
    """The name of a signal; real-time signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _beyond_stack(elf: Path, sp: int) -> bool:
    """Whether the stack pointer, or an exception frame (104 bytes) pushed there, is below the stack."""
    bottom = symbol_addresses(elf).get("aot_stack_bottom")
    return bottom is not None and sp < bottom + 104


def _registers(elf: Path, output: str) -> list[str]:
    """pc, lr and sp from the emulator's register dump, with function names."""
    dump = dict(re.findall(r"R(13|14|15)=([0-9a-f]{8})", output))
    named = [f"{n} 0x{dump[k]} in {function_at(elf, int(dump[k], 16))}" for k, n in (("15", "pc"), ("14", "lr")) if k in dump]
    return [*named, *([f"sp 0x{dump['13']}"] if "13" in dump else [])]


def function_at(elf: Path, address: int) -> str:
    """The name of the function that contains `address`; `?` if there is none."""
    address &= ~1
    functions = sorted((s.address & ~1, s.size, s.name) for s in elf_symbols(elf) if s.kind == "STT_FUNC")
    at = bisect_right(functions, (address, 1 << 40, "")) - 1
    if at < 0 or address >= functions[at][0] + max(functions[at][1], 2):
        return "?"
    return functions[at][2]


# ---- the line of JSON that an image prints as its report
# crt/src/harness.c and startup.c write it, but a board, an emulator or a GDB server may send anything, so all of it is checked.


LONGEST = 1 << 20
"""Maximum length of the line in characters: the counts of 50,000 layers."""
_BRACKETS = 4
"""Maximum number of brackets: a report is an object that contains at most one list or object."""
_WORD = 1 << 32
_COUNT = 1 << 60
"""Maximum count: a run of a year."""


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a run; None for figures that its mode does not measure.

    `status` is the model's status (0 or negative) for input set `set`; `error` comes from the harness.  `fault`: register name
    (pc, lr, sp, cfsr) -> text.  Counts are in units of the board's counter, sizes in bytes.
    """

    status: int = 0
    sets: int = 0
    set: int = 0
    error: str = ""
    fault: dict[str, str] | None = None
    units: int | None = None
    all: int | None = None
    most: int | None = None
    loop: int | None = None
    stack: int | None = None
    touched: int | None = None
    extent: int | None = None
    layers: tuple[int, ...] | None = None


def read_report(line: str, *, memory: int) -> Report:
    """The report in a line, from a machine with `memory` bytes (ValueError if it is not valid)."""
    if len(line) > LONGEST or line.count("{") + line.count("[") > _BRACKETS:
        raise ValueError("it does not have the harness's format")
    try:
        data = json.loads(line)
    except ValueError:
        raise ValueError("it is not JSON") from None
    if not isinstance(data, dict):
        raise ValueError("it is not an object")
    if "fault" in data:
        return Report(fault=_words(data["fault"]))
    if "error" in data:
        return Report(error=printable(str(data["error"])))
    status = _count(data, "status", -_WORD, 1)
    if status:
        return Report(status=status, set=_count(data, "set", 0, _WORD))
    count = partial(_optional, data, limit=_COUNT)
    size = partial(_optional, data, limit=memory + 1)
    report = Report(
        sets=_count(data, "sets", 1, _WORD), units=count("units"), all=count("all"), most=count("most"), loop=count("loop"),
        stack=size("stack"), touched=size("touched"), extent=size("extent"),
        layers=_counts(data["layers"]) if "layers" in data else None,
    )  # fmt: skip
    _check_order(report)
    return report


def _count(data: dict[str, Any], key: str, least: int, limit: int) -> int:
    value = data.get(key)
    if type(value) is not int or not least <= value < limit:
        shown = "missing" if value is None else printable(json.dumps(value), limit=40)
        raise ValueError(f"{key} is {shown}")
    return value


def _optional(data: dict[str, Any], key: str, *, limit: int) -> int | None:
    return _count(data, key, 0, limit) if key in data else None


def _counts(values: object) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(v) is int and 0 <= v < _COUNT for v in values):
        raise ValueError("layers is not a list of counts")
    return tuple(values)


def _words(fault: object) -> dict[str, str]:
    """The registers as printed; "?" for values that are not text."""
    if not isinstance(fault, dict):
        raise ValueError("fault is not an object")
    return {key: printable(text) if isinstance(text, str) else "?" for key, text in fault.items() if isinstance(key, str)}


def _check_order(report: Report) -> None:
    """Raise ValueError for counts that contradict each other."""
    units, most, total = report.units, report.most, report.all
    if most is not None and ((units or 0) > most or (total is not None and total < most)):
        raise ValueError("units, most and all contradict each other")
    if report.touched is not None and report.extent is not None and report.touched > report.extent:
        raise ValueError("touched is more than extent")
