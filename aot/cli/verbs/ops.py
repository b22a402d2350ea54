"""`aot ops`: the operators that this version supports, read from the registries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from aot.cli.options import JsonFlag, QuietFlag, load_plugins
from aot.cli.output import Output

NAME = "ops"

_HEAD = """# Operators

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
    from aot.frontend.schema import enums
    from aot.frontend.tflite.convert import CONVERTERS, load_all

    load_all()
    return sorted({*enums()["BuiltinOperator"], *CONVERTERS} - _NO_OPERATORS)


def operator_rows() -> list[dict[str, Any]]:
    """One entry per supported operator: name, types, classes of kernels, oracles, file and doc."""
    import sys

    from aot import topi
    from aot.frontend.tflite.convert import CONVERTERS, SUPPORT, load_all

    load_all()
    topi.load_all()
    rows = []
    for name in sorted(CONVERTERS):
        module = CONVERTERS[name].__module__
        doc = (CONVERTERS[name].__doc__ or sys.modules[module].__doc__ or "").strip()
        rows.append(
            {
                "operator": name,
                "types": list(SUPPORT[name].types),
                "kernels": _kernel_classes(SUPPORT[name].through),
                "oracles": list(SUPPORT[name].oracles),
                "oracle": SUPPORT[name].oracle,
                "file": module.replace(".", "/") + ".py",
                "doc": doc.splitlines()[0] if doc else "",
            }
        )
    return rows


def missing_rows() -> list[dict[str, str]]:
    """One entry per unsupported builtin operator of TensorFlow Lite: name, class of the reason, reason."""
    from aot.frontend.schema import enums
    from aot.frontend.tflite.convert import CONVERTERS, load_all
    from aot.frontend.tflite.missing import needs_of

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
    return _HEAD + table + _MISSING_HEAD + without + "\n" + _RELAY_HEAD + "\n".join(relay_lines()) + "\n"


def relay_lines() -> list[str]:
    """The table of the graph IR's operators: operands with their types, attributes, and purpose."""
    from dataclasses import fields

    from aot.ir.op import Op, op_info

    lines = ["| relay operator | operands | attributes | for |", "|---|---|---|---|"]
    for info in (op_info(name) for name in Op.list_op_names()):
        operands = "; ".join(f"`{a.name}`: {a.type}" for a in info.arguments)
        attrs = ", ".join(f.name for f in fields(info.attrs_type)) if info.attrs_type is not None else ""
        lines.append(f"| {info.name} | {operands} | {attrs} | {info.doc} |")
    return lines


def command(
    *,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page docs/operators.md.")] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """List the supported TensorFlow Lite operators, with their types."""
    load_plugins()
    out = Output(json=as_json, quiet=quiet)
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
