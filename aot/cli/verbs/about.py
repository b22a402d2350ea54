"""The verbs about aot itself: `aot explain`, `doctor`, `ops`, `targets`, `boards` and `man`."""

from __future__ import annotations

import platform
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli import completion
from aot.cli.files import check_usable, write_file, write_new_folder
from aot.cli.options import load_plugins, option, verb
from aot.cli.output import Output, paint
from aot.errors import EXIT_TOOLCHAIN, Problem, UsageError
from aot.support.dataclass import dataclass
from aot.support.text import did_you_mean, printable
from aot.version import DISTRIBUTION, __version__

if TYPE_CHECKING:
    from aot.micro.board import Board

VERBOSE = ("verbose",)
"""These verbs have nothing more to print."""


# ---- `aot explain CODE`: what an error means and how to fix it; for an operator, what is supported or missing


@verb(leave_out=VERBOSE)
def aot_explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            autocompletion=completion.explained,
            help="An error code (E1203) or an operator (WHILE); default: list all codes.",
        ),
    ] = None,
    *,
    out: Output,
) -> None:
    """Explain an error code or an operator, or list all error codes."""
    from aot.errors.explanations import codes, explanation

    if code is None:
        rows = [{"code": c, "title": page.title} for c in codes() if (page := explanation(c)) is not None]
        out.table(("code", "meaning"), [(r["code"], r["title"]) for r in rows])
        out.result({"codes": rows})
        return
    entry = _of_error(code.upper()) or _of_operator(code)
    if entry is None:
        hint = did_you_mean(code, [*codes(), *operator_names()])
        message = f"there is no error code or operator '{code}'{hint}; aot explain lists the codes, aot ops the operators"
        raise UsageError(Problem("E5008", message))
    title, text = entry
    code = code if ":" in code else code.upper()
    out.prose(f"{code}: {title}\n\n{text}")
    out.result({"code": code, "title": title, "text": text})


def _of_error(code: str) -> tuple[str, str] | None:
    """Title and text of an error's page, with its examples; None if there is no such code."""
    from aot.errors.explanations import explanation

    page = explanation(code)
    if page is None:
        return None
    text = page.text
    for word, example in (("Fails", page.fails), ("Works", page.works)):
        if example is not None:
            parts = [*((f"{word}, {name}", content) for name, content in example.files), (word, example.code)]
            text += "".join(f"\n\n{title}:\n\n" + indent(content.rstrip("\n"), "    ") for title, content in parts)
    return page.title, text


def _of_operator(name: str) -> tuple[str, str] | None:
    """Title and text about an operator; None if the name is unknown."""
    from aot.frontend.tflite.schema import needs_of

    operator = name if ":" in name else name.upper()
    row = next((r for r in operator_rows() if r["operator"] == operator), None)
    if row is None:
        needs = needs_of(operator)
        return None if needs is None else ("an operator that is not supported", needs.text)
    text = f"Types: {', '.join(row['types'])}.\nKernels: {', '.join(row['kernels'])}.\nOracle: {row['oracle']}."
    return "an operator that is supported", f"{text}\n{row['file']}: {row['doc']}"


# ---- `aot doctor`: what is installed, what is missing, and how to get it


@dataclass(frozen=True, slots=True)
class Finding:
    """A program or package: `version` is empty if it is missing; `get` is the command that installs it."""

    name: str
    purpose: str
    needed: bool
    version: str
    get: str

    @property
    def ok(self) -> bool:
        return bool(self.version)


_OPTIONAL = {
    "ai-edge-litert": "the reference of aot verify",
    "tflite-micro": "the reference of aot verify --oracle tflm",
    "pytest": "the tests",
}

_PURPOSES = {
    "arm-none-eabi-gcc": ("building firmware", True),
    "arm-none-eabi-objdump": ("checking the image", True),
    "qemu-system-arm": ("running firmware on this machine", True),
    "gcc": ("--board host", True),
    "clang": ("checking generated C with a second compiler", False),
}


def required_packages() -> list[str]:
    """The Python packages that aot depends on, from pyproject.toml in a checkout, else from the installed metadata."""
    from importlib.metadata import PackageNotFoundError, requires

    checkout = Path(__file__).resolve().parents[3] / "pyproject.toml"
    try:
        lines = _dependencies(checkout) if checkout.is_file() else requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines if "extra ==" not in line]


def _dependencies(file: Path) -> list[str]:
    import tomllib

    project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    return list(project["dependencies"]) if project.get("name") == DISTRIBUTION else []


def examine() -> list[Finding]:
    """Everything that aot can use, most important first; runs each program with --version."""
    from importlib.metadata import PackageNotFoundError, version

    from aot.errors import ToolchainError
    from aot.micro.build.toolchain import find_tool, how_to_get, known_tools

    def have(of: Callable[[str], str], name: str) -> str:
        try:
            return of(name)
        except (ToolchainError, PackageNotFoundError):
            return ""

    findings = [Finding("python", "the compiler", True, platform.python_version(), "apt-get install python3")]
    for name in known_tools():
        purpose, needed = _PURPOSES.get(name, ("tool chain", False))
        findings.append(Finding(name, purpose, needed, have(lambda n: find_tool(n).version, name), how_to_get(name)))
    required = [(name, "the compiler", True) for name in required_packages()]
    for name, purpose, needed in [*required, *((n, p, False) for n, p in _OPTIONAL.items())]:
        findings.append(Finding(name, purpose, needed, have(version, name), f"{sys.executable} -m pip install {name}"))
    return findings


def _show_findings(out: Output, findings: Sequence[Finding]) -> None:
    for f in findings:
        mark = paint("ok     ", "green") if f.ok else (paint("MISSING", "red") if f.needed else "absent ")
        out.line(f" {mark}  {f.name:<22} {f.version or f'for {f.purpose}; to install: {f.get}'}")
    missing = [f for f in findings if f.needed and not f.ok]
    out.line()
    cache = _cache()
    out.line(f"cached models: {cache['entries']}, {int(cache['bytes']) / (1 << 20):.1f} MiB, in {cache['folder']}")
    out.line(f"kernel and plan cache: {int(cache['facts_bytes']) / (1 << 20):.1f} MiB")
    records = _records()
    out.line(f"tuning records for --tuning tophub: {records['count']}")
    for note in records["notes"]:
        out.line(f"  {note}")
    out.line(f"{len(missing)} missing" if missing else "ready: check, compile, build, run and verify all work on this machine")


def _records() -> dict[str, Any]:
    """The package's tuning records: how many are valid for the current kernels, and notes on the ones left out."""
    from aot.tune.tophub import load_tophub

    records = load_tophub()
    return {"count": len(records.history.rows), "notes": list(records.notes)}


def _cache() -> dict[str, str | int]:
    from aot.driver.model_cache import LIMIT, usage
    from aot.system import disk_memo

    folder, count, size = usage()
    return {"folder": str(folder), "entries": count, "bytes": size, "limit": LIMIT, "facts_bytes": disk_memo.usage()[1]}


@verb(leave_out=VERBOSE)
def aot_doctor(*, out: Output) -> None:
    """Check that everything aot needs is installed; say how to get what is missing."""
    findings = examine()
    ok = all(f.ok for f in findings if f.needed)
    _show_findings(out, findings)
    out.result({"ok": ok, "findings": [{**asdict(f), "ok": f.ok} for f in findings], "cache": _cache(), "records": _records()})
    if not ok:
        raise typer.Exit(EXIT_TOOLCHAIN)


# ---- `aot ops`: the operators that this version supports, read from the registries


_OPERATORS_HEAD = """# Operators

The output of `aot ops`, generated from the registries (`aot ops --markdown`); a test fails if this page is out of date.

*Types* are the types of the data; `int8*int4` means int8 data with int4 weights; int16 data come with a bias of 32 or 64 bits.
Broadcasting is supported wherever TensorFlow Lite supports it. Axes, permutations, paddings, sizes and positions that decide a
shape must be known at compile time; indices of GATHER and the like may be computed at run time. *Kernels*: `arm_dsp` are kernels
for the DSP extension (Cortex-M4, M7, M33), `arm_fpu` for float32 on cores with an FPU, `arm_mve` for Helium (Cortex-M55, M85),
`generic` are hand-written portable loops, and `te` are loop nests from the operator's tensor expression; a `view` costs no
instruction, and `folded` operators are computed by the compiler. *Oracle*: the reference whose bytes are reproduced,
TensorFlow Lite's reference kernels (LiteRT) or TFLM; the file names the kernels. The interpreters have no kernel for the custom
operators of MediaPipe and Coral (libcoral): the tests contain independent implementations of their published algorithms, and
`aot verify` compares with our own graph interpreter.

"""

_MISSING_HEAD = """
## Not supported

"""

_RELAY_HEAD = """
## Operators of the graph IR

TensorFlow Lite operators are converted to these; `relay.nn.conv2d(...)` and the like build them ([relay.md](relay.md)). An
operand whose name ends with `?` is optional; one that begins with `*` may be repeated. For details: `help(relay.nn.conv2d)`.

"""


_NO_OPERATORS = {"CUSTOM", "PLACEHOLDER_FOR_GREATER_OP_CODES"}


def operator_names() -> list[str]:
    """The names of all TensorFlow Lite operators, supported or not."""
    from aot.frontend.tflite.convert import CONVERTERS, load_all
    from aot.frontend.tflite.schema import enums

    load_all()
    return sorted({*enums()["BuiltinOperator"], *CONVERTERS} - _NO_OPERATORS)


def operator_rows() -> list[dict[str, Any]]:
    """One entry per supported operator: name, types, classes of kernels, oracles, file and doc."""
    from aot import topi
    from aot.frontend.tflite.convert import CONVERTERS, SUPPORT, load_all

    load_all()
    topi.load_all()
    rows = []
    for name in sorted(CONVERTERS):
        module, support = CONVERTERS[name].__module__, SUPPORT[name]
        doc = (CONVERTERS[name].__doc__ or sys.modules[module].__doc__ or "").strip()
        rows.append({
            "operator": name, "types": list(support.types), "kernels": _kernel_classes(support.through),
            "oracles": list(support.oracles), "oracle": support.oracle, "file": module.replace(".", "/") + ".py",
            "doc": doc.splitlines()[0] if doc else "",
        })  # fmt: skip
    return rows


def missing_rows() -> list[dict[str, str]]:
    """One entry per unsupported builtin operator of TensorFlow Lite: name, class of the reason, reason."""
    from aot.frontend.tflite.convert import CONVERTERS, load_all
    from aot.frontend.tflite.schema import enums, needs_of

    load_all()
    names = set(enums()["BuiltinOperator"]) - _NO_OPERATORS - set(CONVERTERS)
    reasons = ((name, needs_of(name)) for name in sorted(names))
    return [{"operator": n, "class": r.kind, "reason": " ".join(r.text.split())} for n, r in reasons if r is not None]


def _kernel_classes(through: Sequence[str]) -> list[str]:
    """The classes of kernels for the relay operators (`through`) that an operator is converted to."""
    from aot.ir.op import F_IS_VIEW
    from aot.op.common.te_rule import F_TE
    from aot.topi.strategy import implementations

    if not through:
        return ["folded"]
    if all(F_IS_VIEW.find(n) for n in through):
        return ["view"]
    own = {i.name.partition(".")[0] for n in through for i in implementations(n) if i.anchor != "*" and not i.several}
    return [*sorted(own), *(["te"] if any(n in F_TE for n in through) else [])]


def to_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """docs/operators.md."""
    lines = ["| operator | types | kernels | oracle | file |", "|---|---|---|---|---|"]
    for r in rows:
        link = f"[{r['file'].rpartition('/')[2]}](../{r['file']})"
        types = ", ".join(r["types"]).replace("*", "×")
        lines.append(f"| {r['operator']} | {types} | {', '.join(r['kernels'])} | {r['oracle']} | {link} |")
    builtin = sum(not r["operator"].startswith("CUSTOM:") for r in rows)
    table = "\n".join(lines) + f"\n\n{builtin} builtin operators, {len(rows) - builtin} custom.\n"
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in missing_rows():
        reasons.setdefault((row["class"], row["reason"]), []).append(row["operator"])
    lines = ["| builtin operators without support | class | why |", "|---|---|---|"]
    without = "\n".join(
        [*lines, *(f"| {', '.join(names)} | {kind} ({len(names)}) | {r} |" for (kind, r), names in reasons.items())]
    )
    return _OPERATORS_HEAD + table + _MISSING_HEAD + without + "\n" + _RELAY_HEAD + "\n".join(relay_lines()) + "\n"


def relay_lines() -> list[str]:
    """The table of the graph IR's operators: operands with their types, attributes, and purpose."""
    from aot.ir.op import Op, op_info

    lines = ["| relay operator | operands | attributes | for |", "|---|---|---|---|"]
    for info in (op_info(name) for name in Op.list_op_names()):
        operands = "; ".join(f"`{a.name}`: {a.type}" for a in info.arguments)
        attrs = ", ".join(f.name for f in fields(info.attrs_type)) if info.attrs_type is not None else ""
        lines.append(f"| {info.name} | {operands} | {attrs} | {info.doc} |")
    return lines


@verb(leave_out=VERBOSE)
def aot_ops(
    *,
    markdown: Annotated[bool, option("--markdown", "Print the page docs/operators.md.")] = False,
    out: Output,
) -> None:
    """List the supported TensorFlow Lite operators, with their types."""
    load_plugins()
    rows = operator_rows()
    if markdown:
        out.line(to_markdown(rows).rstrip("\n"))
    else:
        table = [(r["operator"], ", ".join(r["kernels"]), ", ".join(r["oracles"]), ", ".join(r["types"])) for r in rows]
        out.table(("operator", "kernels", "exact to", "types"), table)
        counts = Counter(row["class"] for row in missing_rows())
        classes = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
        out.line(
            f"{len(rows)} operators; {counts.total()} builtin ones are not supported ({classes}): aot explain OPERATOR says why"
        )
    out.result({"operators": rows, "unsupported": missing_rows()})


# ---- `aot targets`: the cores that aot can generate code for


@verb(leave_out=VERBOSE)
def aot_targets(*, out: Output) -> None:
    """List the processor cores for --target."""
    from aot.target.cpu import CORES

    load_plugins()
    rows = [
        {"name": t.name, "description": t.description, "features": sorted(t.features), "gcc_flags": list(t.gcc_flags)}
        for t in CORES.values()
    ]
    out.table(("target", "features", "what"), [(r["name"], " ".join(r["features"]) or "-", r["description"]) for r in rows])
    out.result({"targets": rows})


# ---- `aot boards [NAME]`: the boards to build and run firmware for; `aot boards new --from FILE` drafts a new one


def describe(board: Board) -> dict[str, Any]:
    """A board as plain data; sizes in bytes."""
    tick = board.tick
    return {
        **{key: getattr(board, key) for key in ("name", "title", "kind", "cpu")},
        "flags": list(board.flags),
        "instructions_per_tick": None if tick is None else [tick.numerator, tick.denominator],
        "emulated_by": None if board.like is None else board.like.name,
        "memory": [{"name": m.name, "access": m.access, "origin": m.origin, "size": m.size} for m in board.memory],
        "constants": list(board.constants), "workspace": list(board.workspace), "stack": board.stack,
    }  # fmt: skip


def _show_board(out: Output, board: Board, called: str) -> None:
    """Print a board; `called` is the value of --board that selects it: a name or a folder."""
    out.line(f"{board.name}: {board.title}")
    out.row("core", f"{board.cpu}  {' '.join(board.flags)}")
    for m in board.memory:
        uses = [use for use, names in (("code", (board.code,)), ("constants", board.constants), ("data", (board.data,)),
                                       ("workspace", board.workspace)) if m.name in names]  # fmt: skip
        out.row(m.name, f"0x{m.origin:08x}  {m.size:>10,} B  {m.access}  {', '.join(uses)}")
    if not board.is_host:
        out.row("stack", f"{board.stack:,} B")
    for pool in board.pools:
        where = "placed by the linker" if pool.address is None else f"0x{pool.address:08x}"
        out.row("pool", f"{pool.name}  {where}  {pool.size:,} B  speed {pool.speed:g}")
    if board.gdb is not None:
        out.row("reached", " ".join(board.gdb.server) or board.gdb.connect)
        out.row("cycles", board.gdb.counter + (f" at {board.gdb.hz / 1e6:g} MHz" if board.gdb.hz else ""))
    if board.like is not None:
        out.row("emulated", f"--board qemu:{called}: QEMU's {board.like.name}")


@verb(leave_out=VERBOSE)
def aot_boards(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", autocompletion=completion.boards, help="Show this board in full.", show_default=False),
    ] = None,
    *,
    search: Annotated[str | None, option("--search TEXT", "List only boards with TEXT in their name, core or title.")] = None,
    source: Annotated[
        Path | None,
        option("--from FILE", "aot boards new: draft a board from a linker script (.ld) or a devicetree (.dts)."),
    ] = None,
    folder: Annotated[
        Path | None,
        option("-o --output DIR", "Folder of the draft, which gives the board its name; default: FILE's name."),
    ] = None,
    cpu: Annotated[str | None, option("--cpu CORE", "The draft's core, such as cortex-m4.", completion.targets)] = None,
    out: Output,
) -> None:
    """List the boards for --board, show one of them, or draft a new one (aot boards new --from FILE)."""
    from aot.micro.board import board_names, load_board

    load_plugins()
    if source is not None:
        if name != "new" or search is not None:
            raise UsageError(Problem("E5017", "--from drafts a board: aot boards new --from FILE"))
        _draft(out, source, folder, cpu or "")
        return
    if folder is not None or cpu is not None:
        raise UsageError(Problem("E5017", "--output and --cpu are for drafts: aot boards new --from FILE"))
    if name is not None:
        board = load_board(name)
        _show_board(out, board, name)
        out.result(describe(board))
        return
    word = (search or "").lower()
    boards = [b for b in map(load_board, board_names()) if word in f"{b.name} {b.cpu} {b.title}".lower()]
    if not boards:
        raise UsageError(
            Problem("E5020", f"no board has {printable(word)!r} in its name, core or title; aot boards lists all boards")
        )
    out.table(
        ("board", "core", "runs on", "what"),
        [(b.name, b.cpu, b.kind if b.like is None else f"{b.kind}, qemu:", b.title) for b in boards],
    )
    out.result({"boards": [describe(b) for b in boards]})


def _draft(out: Output, source: Path, folder: Path | None, cpu: str) -> None:
    """Write a board.toml from `source` (E5385, E5386; E5003 for an invalid name, E5004 if the folder is not empty)."""
    from aot.driver.reading import read_limited
    from aot.micro.board import MAX_TEXT, parse_board
    from aot.micro.draft import draft, read_devicetree, read_linker_script

    place = folder or Path(source.stem.lower())
    name = place.resolve().name
    text = read_limited(source, limit=MAX_TEXT).decode("utf-8", "replace")
    chip = (read_devicetree if source.suffix in (".dts", ".dtsi", ".overlay") else read_linker_script)(text)
    if not chip.memory:
        hint = (
            "pass the complete devicetree, build/zephyr/zephyr.dts"
            if source.suffix.startswith(".dt")
            else "it has no MEMORY { } block"
        )
        raise UsageError(Problem("E5385", f"{printable(source.name)} defines no memory: {hint}"))
    text = draft(chip, name=name, source=printable(source.name), cpu=cpu)
    write_new_folder(place, {"board.toml": text})
    board = parse_board(text, f"{name}/board.toml")
    argument = str(place) if "/" in str(place) else f"./{place}"
    _show_board(out, board, argument)
    out.row("write", f"{place / 'board.toml'}; use it as --board {argument}")
    out.result({"ok": True, "output": str(place), **describe(board)})


# ---- `aot man [VERB]`: manual pages for man(1)


@verb(leave_out=VERBOSE)
def aot_man(
    ctx: typer.Context,
    page: Annotated[
        str | None,
        typer.Argument(
            metavar="VERB", autocompletion=completion.verbs, help="The verb; default: the page of aot itself.", show_default=False
        ),
    ] = None,
    *,
    folder: Annotated[
        Path | None,
        option("-o --output DIR", "Write all pages to this folder, such as ~/.local/share/man/man1."),
    ] = None,
    out: Output,
) -> None:
    """Print a manual page for man(1), or write all pages to a folder. To read one: aot man compile | man -l -"""
    program: Any = ctx.find_root().command
    every = pages(program)
    if folder is not None:
        if page is not None:
            raise UsageError(Problem("E5017", "-o writes all pages; leave out VERB"))
        check_usable(folder)
        for name, text in every.items():
            write_file(folder / name, text)
        out.row("write", f"{len(every)} pages to {folder}")
        out.result({"ok": True, "output": str(folder), "files": list(every)})
        return
    name = f"aot-{page}.{SECTION}" if page else f"aot.{SECTION}"
    if name not in every:
        near = did_you_mean(page or "", program.commands)
        raise UsageError(Problem("E5000", f"there is no verb {page!r}{near}; see aot --help"))
    out.line(every[name].rstrip("\n"))
    out.result({"page": name, "text": every[name]})


# ---- the pages (roff, man(7)), generated from the program: `aot.1` and one `aot-VERB.1` per verb


SECTION = "1"

_EXITS = (
    ("0", "ok"),
    ("1", "internal error: a bug in aot (E9xxx)"),
    ("2", "wrong usage, or a file problem (E5xxx)"),
    ("3", "the model is malformed or not supported (E1xxx)"),
    ("4", "the model does not fit the board or a budget (E2xxx)"),
    ("5", "an output differs from the reference, or the program crashed (E4xxx)"),
    ("6", "a compiler or the emulator is missing or failed (E3xxx)"),
    ("130", "interrupted"),
)
_VARIABLES = (
    ("AOT_CACHE", "the folder of compiled models; default: aot in $XDG_CACHE_HOME or ~/.cache"),
    ("AOT_NO_CACHE", "1: do not cache compiled models"),
    ("AOT_DEBUG", "1: print a traceback for every error"),
    ("NO_COLOR", "any value: no colours on a terminal"),
)


def pages(program: Any) -> dict[str, str]:
    """File name -> text of every page; `program` is the click group of all verbs."""
    verbs = dict(sorted(program.commands.items()))
    main_page = {f"aot.{SECTION}": _program_page(program, verbs)}
    return main_page | {f"aot-{name}.{SECTION}": _verb_page(name, verb, list(verbs)) for name, verb in verbs.items()}


def _program_page(program: Any, verbs: dict[str, Any]) -> str:
    lines = [*_page_head("aot", _summary(program)), ".SH SYNOPSIS", ".B aot", r"\fIVERB\fR [\fIOPTIONS\fR] ..."]
    lines += [".SH DESCRIPTION", _roff(program.help), ".SH VERBS"]
    for name, command in verbs.items():
        lines += [".TP", rf"\fBaot\-{_roff(name)}\fR(1)", _roff(_summary(command))]
    lines += [*_option_lines(program), *_definitions("EXIT STATUS", _EXITS), *_definitions("ENVIRONMENT", _VARIABLES)]
    return "\n".join([*lines, ".SH SEE ALSO", *_see([f"aot-{v}" for v in verbs])]) + "\n"


def _verb_page(name: str, command: Any, verbs: list[str]) -> str:
    synopsis = rf"\fBaot {_roff(name)}\fR [\fIOPTIONS\fR]{_argument_words(command)}"
    lines = [*_page_head(f"aot-{name}", _summary(command)), ".SH SYNOPSIS", synopsis]
    lines += [".SH DESCRIPTION", _roff(command.help), *_option_lines(command), *_definitions("EXIT STATUS", _EXITS)]
    return "\n".join([*lines, ".SH SEE ALSO", *_see(["aot", *(f"aot-{v}" for v in verbs if v != name)])]) + "\n"


def _page_head(title: str, summary: str) -> list[str]:
    """The header and NAME section; the date is empty so that the same version gives the same page."""
    name = _roff(title)
    return [f'.TH "{name.upper()}" "{SECTION}" "" "aot {__version__}" "aot"', ".SH NAME", rf"{name} \- {_roff(summary)}"]


def _see(names: list[str]) -> list[str]:
    return [f".BR {_roff(n)} ({SECTION}){',' if n != names[-1] else ''}" for n in names]


def _summary(command: Any) -> str:
    """The first sentence of the help, without its full stop."""
    return str(re.split(r"(?<=[a-z)])\. ", " ".join((command.help or "").split()), maxsplit=1)[0]).rstrip(".")


def _argument_words(verb: Any) -> str:
    arguments = [p for p in verb.params if p.param_type_name == "argument"]
    return "".join(rf" \fI{_roff(_metavar(p))}\fR" if p.required else rf" [\fI{_roff(_metavar(p))}\fR]" for p in arguments)


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper()).strip("[]")


def _option_lines(command: Any) -> Iterator[str]:
    """Arguments first, then options, each with its help and default."""
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    for title, kind in (("ARGUMENTS", "argument"), ("OPTIONS", "option")):
        chosen = [p for p in shown if p.param_type_name == kind]
        if chosen:
            yield f".SH {title}"
        for p in chosen:
            yield from (".TP", _term(p) if kind == "option" else rf"\fI{_roff(_metavar(p))}\fR", _roff(_option_help(p)))


def _term(option: Any) -> str:
    names = ", ".join(rf"\fB{_roff(o)}\fR" for o in (*option.opts, *option.secondary_opts))
    flag = option.is_flag or option.count
    return names if flag else rf"{names} \fI{_roff(option.metavar or option.name.upper())}\fR"


def _option_help(parameter: Any) -> str:
    text = " ".join((getattr(parameter, "help", "") or "").split()) or parameter.name
    default = parameter.default
    has_default = not (parameter.required or callable(default) or default in (None, False, True, (), ...))
    return f"{text} Default: {default}." if has_default and "efault" not in text else text


def _definitions(title: str, rows: tuple[tuple[str, str], ...]) -> Iterator[str]:
    yield f".SH {title}"
    for name, text in rows:
        yield from (".TP", rf"\fB{_roff(name)}\fR", _roff(text))


def _roff(text: str | None) -> str:
    """`text` as one line of roff: special characters escaped, and no leading dot, which would start a request."""
    line = " ".join((text or "").split()).replace("\\", r"\e").replace("-", r"\-")
    line = line.replace("'", r"\(aq").replace("^", r"\(ha").replace("~", r"\(ti").replace("`", r"\(ga")
    return rf"\&{line}" if line.startswith(".") else line
