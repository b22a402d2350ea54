"""The text of a draft board.toml from what was found."""

from __future__ import annotations

from aot.errors import Problem, UsageError
from aot.micro.board import Memory, parse_board
from aot.micro.draft.found import Found
from aot.micro.draft.machines import like_machine, qemu_core
from aot.target.cpu import CORES, find_core

_MOST_STACK, _STACK_SHARE = 8192, 16
_ALIGN = 128
"""Bytes to which the vector table must be aligned, with up to 16 interrupts; ours has none."""

_SERVERS = """\
# A server that is running; or one that aot starts and ends, in place of `connect`:
#   OpenOCD  server = ["openocd", "-f", "board/st_nucleo_f4.cfg", "-c", "gdb_port {port}"]
#   pyOCD    server = ["pyocd", "gdbserver", "--target", "nrf52840", "--no-wait", "--port", "{port}"]
#   J-Link   server = ["JLinkGDBServerCLExe", "-device", "STM32F446RE", "-if", "SWD", "-port", "{port}"], reset = ["reset"]
[gdb]
connect = "127.0.0.1:3333"
reset = ["reset halt"]
"""


def draft(found: Found, *, name: str, source: str, cpu: str = "") -> str:
    """A board.toml that loads: regions, placement, flags of the core, and an emulated machine of that map if there is one.

    `source` names the file that it comes from, in a comment; `cpu` replaces what was found.  Raises UsageError E5385 (no memory
    for code, or none for data) and E5386 (no core, or none that is known).
    """
    core = cpu or found.cpu
    plain = core.partition("+")[0]
    if not CORES.get(plain, CORES["host"]).gcc_flags:
        known = ", ".join(c.name for c in CORES.values() if c.gcc_flags)
        asked = f"{core!r} is not one of {known}" if core else f"{source} does not say which; give --cpu, one of {known}"
        raise UsageError(Problem("E5386", f"the board's core: {asked}"))
    code, data = _largest(found, "rx", found.code, source), _largest(found, "rw", found.data, source)
    constants = [code, *_others(found, "rx", code)]
    workspace = [data, *_others(found, "rw", data)]
    text = f"# A draft from {source}: compare the memory map, and the lines with a question mark, with the manual.\n"
    text += f'name = "{name}"\ntitle = "{name}, by {_title(source)}"\nkind = "gdb"\ncpu = "{core}"\n'
    text += f"flags = [{_quoted(_flags(core))}]  # what the FPU is like?\n\n{_SERVERS}\n"
    text += "# [clock]\n# hz = 16000000  # ? what the core runs at while it is measured\n\n"
    text += f'[cycles]\ncounter = "{"dwt" if CORES[plain].has_trace else "systick"}"\n\n'
    text += _emulated(core, found, (code.name, data.name), name)
    for m in found.memory:
        text += f'[[memory]]\nname = "{m.name}"\naccess = "{m.access}"\norigin = 0x{m.origin:08x}\nsize = 0x{m.size:08x}\n\n'
    text += f'[placement]\ncode = "{code.name}"\nconstants = [{_quoted([m.name for m in constants])}]\ndata = "{data.name}"\n'
    text += f"workspace = [{_quoted([m.name for m in workspace])}]\n\n"
    stack = min(_MOST_STACK, data.size // _STACK_SHARE // 8 * 8)
    text += f"[run]\nstack = {stack}\ntimeout_seconds = 120\n"
    parse_board(text, f"{name}/board.toml")
    return text


def _flags(core: str) -> list[str]:
    """Those of the core; for an FPU of single precision, as parts with a Cortex-M7 need not have the other."""
    return [f.replace("fpv5-d16", "fpv5-sp-d16") for f in find_core(core).gcc_flags]


def _largest(found: Found, access: str, chosen: str, source: str) -> Memory:
    """The chosen region, or the largest of that kind; on a vector table's boundary for code."""
    fitting = [m for m in found.memory if m.access == access and (access == "rw" or m.origin % _ALIGN == 0)]
    if not fitting:
        what = "of no memory for code (rx)" if access == "rx" else "of no memory for data (rw)"
        raise UsageError(Problem("E5385", f"{source} tells {what}"))
    return next((m for m in fitting if m.name == chosen), max(fitting, key=lambda m: m.size))


def _others(found: Found, access: str, first: Memory) -> list[Memory]:
    return sorted((m for m in found.memory if m.access == access and m != first), key=lambda m: -m.size)


def _emulated(core: str, found: Found, needed: tuple[str, str], name: str) -> str:
    machine = like_machine(core, found.memory, needed)
    if machine is None:
        return ""
    text = (
        f"# --board qemu:PATH/TO/{name}: the same images on an emulated machine, whose map has these regions and perhaps more.\n"
    )
    text += f'[qemu]\nmachine = "{machine.name}"\ncpu = "{qemu_core(core, machine)}"\n\n'
    return text + f"[systick]\ninstructions_per_tick = [{machine.tick[0]}, {machine.tick[1]}]\n\n"


def _quoted(words: list[str]) -> str:
    return ", ".join(f'"{w}"' for w in words)


def _title(source: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in source)[:80]
