#!/usr/bin/env python3
"""The templates of generated C as Python, so that a compilation needs neither Jinja nor its translation time.

python scripts/c_templates.py            compare with aot/executor/templates.py; exit 1 if it is out of date
python scripts/c_templates.py --write    write it

Supports the parts of Jinja that our templates use: names, attributes, subscripts, operators, `length`, if, for, include.  Missing
names are errors, as with StrictUndefined; attributes are keys of mappings.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import jinja2
from jinja2 import nodes

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "aot" / "template"
TARGET = ROOT / "aot" / "executor" / "templates.py"
NAMES = ("model.h", "model.c", "model_steps.c", "aot_workspace.h", "aot_workspace.c")
ENVIRONMENT = jinja2.Environment(keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True, autoescape=False)

HEAD = '''"""The templates of aot/template as Python; written by scripts/c_templates.py."""
# ruff: noqa
# fmt: off

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
'''

FUNCTION = '''

def {name}(v: Mapping[str, Any]) -> Iterator[str]:
    """The pieces of {template}; `v` are the values that it names."""
'''

_COMPARED = {"eq": "==", "ne": "!=", "gt": ">", "lt": "<", "gteq": ">=", "lteq": "<=", "in": "in", "notin": "not in"}


def expression(node: nodes.Node, local: frozenset[str]) -> str:
    """A Jinja expression in Python; `local` are the names that loops bind."""

    def of(part: nodes.Node) -> str:
        return expression(part, local)

    match node:
        case nodes.Const(value=value):
            return repr(value)
        case nodes.Name(name=name):
            return name if name in local else f"v[{name!r}]"
        case nodes.Getattr(node=owner, attr=attr):
            return f"{of(owner)}[{attr!r}]"
        case nodes.Getitem(node=owner, arg=nodes.Slice(start=None, stop=stop, step=None)) if stop is not None:
            return f"{of(owner)}[:{of(stop)}]"
        case nodes.Getitem(node=owner, arg=arg):
            return f"{of(owner)}[{of(arg)}]"
        case nodes.Filter(node=value, name="length") if value is not None:
            return f"len({of(value)})"
        case nodes.CondExpr(test=test, expr1=yes, expr2=no):
            return f"({of(yes)} if {of(test)} else {of(no) if no is not None else repr('')})"
        case nodes.Compare(expr=left, ops=[nodes.Operand(op=op, expr=right)]):
            return f"({of(left)} {_COMPARED[op]} {of(right)})"
        case nodes.Not(node=value):
            return f"(not {of(value)})"
        case nodes.Neg(node=value):
            return f"(-{of(value)})"
        case nodes.BinExpr(left=left, right=right, operator=operator):
            return f"({of(left)} {operator} {of(right)})"
        case nodes.List(items=items):
            return f"[{', '.join(map(of, items))}]"
        case nodes.Tuple(items=items):
            return f"({', '.join(map(of, items))},)"
    raise NotImplementedError(f"line {node.lineno}: {type(node).__name__}")


def _targets(target: nodes.Node) -> list[str]:
    return [str(n.name) for n in ([target] if isinstance(target, nodes.Name) else target.items)]  # type: ignore[attr-defined]


def statements(body: Iterable[nodes.Node], local: frozenset[str], indent: str) -> list[str]:
    """Lines of Python that yield the output of the nodes."""
    lines: list[str] = []
    for node in body:
        match node:
            case nodes.Output(nodes=parts):
                texts = (repr(p.data) if isinstance(p, nodes.TemplateData) else f"str({expression(p, local)})" for p in parts)
                lines.append(f"{indent}yield from ({', '.join(texts)},)")
            case nodes.If():
                lines += _if(node, local, indent)
            case nodes.For(target=target, iter=items, body=inside, else_=other):
                names = _targets(target)
                within = local | set(names)
                lines.append(f"{indent}for {', '.join(names)} in {expression(items, local)}:")
                lines += statements(inside, within, indent + "    ")
                if other:
                    lines.append(f"{indent}if not {expression(items, local)}:")
                    lines += statements(other, local, indent + "    ")
            case nodes.Include(template=nodes.Const(value=name)):
                assert not local, "a template that is included sees no names that loops bind"
                lines.append(f"{indent}yield from {_function(name)}(v)")
            case _:
                raise NotImplementedError(f"line {node.lineno}: {type(node).__name__}")
    return lines


def _if(node: nodes.If, local: frozenset[str], indent: str) -> list[str]:
    lines = []
    for word, branch in (("if", node), *(("elif", b) for b in node.elif_)):
        lines.append(f"{indent}{word} {expression(branch.test, local)}:")
        lines += statements(branch.body, local, indent + "    ")
    if node.else_:
        lines += [f"{indent}else:", *statements(node.else_, local, indent + "    ")]
    return lines


def _function(template: str) -> str:
    return template.removesuffix(".j2").replace(".", "_")


def _parsed(name: str) -> list[nodes.Node]:
    return ENVIRONMENT.parse((SOURCES / name).read_text(encoding="utf-8")).body


def texts() -> dict[Path, str]:
    """The file as it should be."""
    text = HEAD
    for name in NAMES:
        text += FUNCTION.format(name=_function(name), template=f"{name}.j2")
        text += "\n".join(statements(_parsed(f"{name}.j2"), frozenset(), "    ")) + "\n"
    return {TARGET: text}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from scripts.written import main

    sys.exit(main(__file__, texts))
