"""Bring your own code generator: let a library or another compiler implement parts of a graph, in TVM's four steps.

    MergeComposite(table)      a match of a pattern becomes a call of a function; attrs["Composite"] is the pattern's name
    AnnotateTarget(compiler)   functions made from the compiler's patterns get attrs["Compiler"]
    MergeCompilerRegions()     a function read only by one other function of the same compiler is merged into its reader
    PartitionGraph()           each remaining function becomes primitive and gets its own symbol, attrs["global_symbol"]

A pattern table is a list of (name, pattern) or (name, pattern, check); the names begin with the compiler's (`cmsis-nn.conv2d`).
`check(call)`, called with the outermost call, may reject a match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from aot.errors import Problem, UsageError, call_place
from aot.ir.module import IRModule
from aot.ir.transform import Pass, PassContext, Sequential, module_pass
from aot.relay.dataflow_pattern import CallPattern, Match, Pattern
from aot.relay.expr import Call, Expr, Function, inlined, operands, post_order, rebuild, rewrite, users, with_operands
from aot.relay.transform.fuse_ops import call_group
from aot.support.dataclass import dataclass
from aot.support.entry_points import reach
from aot.support.suggestions import did_you_mean

Check = Callable[[Call], bool]
Entry = tuple[str, Pattern] | tuple[str, Pattern, Check]


@dataclass(frozen=True, slots=True)
class Composite:
    """A pattern that an external code generator accepts."""

    name: str
    pattern: Pattern
    check: Check | None = None


_TABLES: dict[str, tuple[Composite, ...]] = {}


def register_pattern_table(compiler: str) -> Callable[[Callable[[], Sequence[Entry]]], Callable[[], Sequence[Entry]]]:
    """Register the pattern table that the decorated function returns, for `compiler`; UsageError E5120 if it is invalid."""

    def register(table: Callable[[], Sequence[Entry]]) -> Callable[[], Sequence[Entry]]:
        if not isinstance(compiler, str) or not compiler or not callable(table):
            raise _wrong("register_pattern_table takes the name of a compiler and decorates a function without arguments")
        if compiler in _TABLES:
            raise UsageError(Problem("E5102", f"the pattern table of {compiler} is registered twice", call_place()))
        entries = table_of(table())
        for entry in entries:
            if not entry.name.startswith(f"{compiler}."):
                raise _wrong(f"the pattern {entry.name!r} of {compiler} has a name that does not begin with {compiler}.")
        _TABLES[compiler] = entries
        return table

    return register


def get_pattern_table(compiler: str) -> tuple[Composite, ...]:
    """The registered table of `compiler`; UsageError E5121 if there is none."""
    if compiler not in _TABLES:
        reach("pattern tables")
    if compiler not in _TABLES:
        known = ", ".join(sorted(_TABLES)) or "none"
        raise UsageError(Problem("E5121", f"there is no pattern table of {compiler!r}; there are {known}", call_place()))
    return _TABLES[compiler]


def table_of(given: Any) -> tuple[Composite, ...]:
    """A table's entries, validated (E5120)."""
    if not isinstance(given, list | tuple):
        raise _wrong(f"a pattern table is a list of (name, pattern) or (name, pattern, check), not {given!r}")
    found = []
    for entry in given:
        if isinstance(entry, Composite):
            found.append(entry)
            continue
        if not isinstance(entry, tuple) or len(entry) not in (2, 3) or not isinstance(entry[0], str):
            raise _wrong(f"an entry of a pattern table is (name, pattern) or (name, pattern, check), not {entry!r}")
        if not isinstance(entry[1], Pattern) or (len(entry) == 3 and not callable(entry[2])):
            raise _wrong(f"the entry {entry[0]!r} needs a pattern, and a check that is a function")
        found.append(Composite(*entry))
    return tuple(found)


def _wrong(message: str) -> UsageError:
    return UsageError(Problem("E5120", message, call_place()))


@module_pass(required=True)
def merge_composite(module: IRModule, _context: PassContext, *, table: Sequence[Composite] = ()) -> IRModule:
    """Replace each match of a pattern in the table by a call of a composite function."""
    return _mapped(module, lambda func: _merge_composites(func, table))


@module_pass(required=True)
def annotate_target(module: IRModule, _context: PassContext, *, compilers: Sequence[str] = ()) -> IRModule:
    """Mark the composite functions of these compilers' patterns."""
    return _mapped(module, lambda func: rewrite(func, lambda expr: _annotated(expr, compilers)))


@module_pass(required=True)
def merge_compiler_regions(module: IRModule, _context: PassContext) -> IRModule:
    """Join neighbouring functions of the same compiler."""
    return _mapped(module, _merge_regions)


@module_pass(required=True)
def partition_graph(module: IRModule, _context: PassContext) -> IRModule:
    """Turn marked composites into primitive functions, and unmarked ones back into operator calls."""
    return _mapped(module, _partition)


def _mapped(module: IRModule, rule: Callable[[Function], Function]) -> IRModule:
    return replace(module, functions={k: rule(f) if isinstance(f, Function) else f for k, f in module.functions.items()})


def MergeComposite(pattern_table: Sequence[Entry | Composite]) -> Pass:  # noqa: N802 - TVM's name
    """The pass `merge_composite` for a table.

    Entries are tried in order, starting with the calls latest in the graph.  A match counts if nothing outside reads its inner
    values.

    `pattern_table`: (name of the composite, pattern) in order of preference.
    """
    return merge_composite.configured(table=table_of(pattern_table))


def AnnotateTarget(compilers: str | Sequence[str]) -> Pass:  # noqa: N802
    """The pass `annotate_target` for these compilers (UsageError if one is not a name)."""
    names = (compilers,) if isinstance(compilers, str) else tuple(compilers)
    if not names or not all(isinstance(n, str) for n in names):
        raise _wrong(f"AnnotateTarget takes names of compilers, not {compilers!r}")
    return annotate_target.configured(compilers=names)


def MergeCompilerRegions() -> Pass:  # noqa: N802
    """The pass `merge_compiler_regions`, under TVM's name."""
    return merge_compiler_regions


def PartitionGraph() -> Pass:  # noqa: N802
    """The pass `partition_graph`, under TVM's name."""
    return partition_graph


def partition_for(compiler: str, *, only: Sequence[str] | None = None) -> Sequential:
    """The passes that give each match of a compiler's patterns a function; `only`: names of some patterns, without the prefix."""
    table = get_pattern_table(compiler)
    names = [c.name.removeprefix(f"{compiler}.") for c in table]
    unknown = [n for n in only or () if n not in names]
    if unknown:
        near = did_you_mean(unknown[0], names)
        raise UsageError(
            Problem("E5121", f"{compiler} has no {', '.join(unknown)}{near}; it has {', '.join(dict.fromkeys(names))}")
        )
    chosen = [c for c, n in zip(table, names, strict=True) if only is None or n in only]
    return Sequential((MergeComposite(chosen), AnnotateTarget(compiler), PartitionGraph()), f"partition for {compiler}")


def _merge_composites(func: Function, table: Sequence[Composite]) -> Function:
    readers = users(func)
    taken: set[int] = set()
    found: dict[int, tuple[Composite, list[Expr]]] = {}
    order = post_order(func.body)
    for expr in reversed(order):
        for composite in table:
            calls = _composite_calls(composite, expr, taken, readers) if isinstance(expr, Call) else None
            if calls is not None:
                taken.update(map(id, calls))
                found[id(expr)] = composite, calls
                break
    position = {id(e): i for i, e in enumerate(order)}
    done: dict[int, Expr] = {}
    for expr in order:
        if id(expr) in found:
            composite, calls = found[id(expr)]
            group = call_group(sorted(calls, key=lambda e: position[id(e)]), done)
            assert isinstance(group.op, Function)
            attrs = {"Composite": composite.name, "name": composite.name}
            done[id(expr)] = replace(group, op=Function(group.op.params, group.op.body, attrs))
        elif id(expr) not in taken:
            done[id(expr)] = with_operands(expr, [done[id(o)] for o in operands(expr)])
    return Function(func.params, done[id(func.body)], func.attrs)


def _composite_calls(
    composite: Composite, root: Call, taken: set[int], readers: dict[int, list[Expr]]
) -> list[Expr] | None:  # fmt: skip
    """The operator calls of a match at `root`; None if it does not match, or if others read values inside it."""
    match = composite.pattern.find(root)
    if match is None:
        return None
    calls = list({id(e): e for e in _described(composite.pattern, match)}.values())
    inside = {id(e) for e in calls}
    if inside & taken or id(root) not in inside:
        return None
    for e in calls:
        if e is not root and any(id(r) not in inside for r in readers.get(id(e), [])):
            return None
    return calls if composite.check is None or composite.check(root) else None


def _described(pattern: Pattern, match: Match) -> Iterator[Expr]:
    """The calls that match the operators of a pattern."""
    if isinstance(pattern, CallPattern) and pattern in match:
        yield match[pattern]
    for part in pattern.parts():
        if part in match:
            yield from _described(part, match)


def _composite_of(expr: Expr) -> Function | None:
    """The function that a call of a composite runs."""
    is_composite = isinstance(expr, Call) and isinstance(expr.op, Function) and "Composite" in expr.op.attrs
    return expr.op if is_composite else None  # type: ignore[return-value,union-attr]


def _annotated(expr: Expr, compilers: Sequence[str]) -> Expr:
    func = _composite_of(expr)
    compiler = next((c for c in compilers if func is not None and func.attrs["Composite"].startswith(f"{c}.")), None)
    if func is None or compiler is None:
        return expr
    assert isinstance(expr, Call)
    return replace(expr, op=replace(func, attrs={**func.attrs, "Compiler": compiler}))


def _merge_regions(func: Function) -> Function:
    """Merge functions into their reader if nothing else reads them; repeat until nothing changes."""
    while True:
        readers = users(func)
        calls = [e for e in post_order(func.body) if isinstance(e, Call)]
        pair = next(((c, o) for c in calls for o in c.args if _may_join(c, o, readers)), None)
        if pair is None:
            return func
        func = _with_joined(func, *pair)


def _with_joined(func: Function, reader: Call, operand: Expr) -> Function:
    done: dict[int, Expr] = {}
    body = rebuild(func.body, lambda old, new: _joined(new, done[id(operand)]) if old is reader else new, done)
    return replace(func, body=body)


def _may_join(reader: Call, operand: Expr, readers: dict[int, list[Expr]]) -> bool:
    if not isinstance(reader.op, Function) or not isinstance(operand, Call) or not isinstance(operand.op, Function):
        return False
    compiler = reader.op.attrs.get("Compiler")
    return compiler is not None and operand.op.attrs.get("Compiler") == compiler and len(readers[id(operand)]) == 1


def _joined(reader: Expr, inner: Expr) -> Call:
    """Both functions as one."""
    assert isinstance(reader, Call)
    assert isinstance(inner, Call)
    assert isinstance(reader.op, Function)
    assert isinstance(inner.op, Function)
    params = [(p, a) for p, a in zip(reader.op.params, reader.args, strict=True) if a is not inner]
    (joint,) = [p for p, a in zip(reader.op.params, reader.args, strict=True) if a is inner]
    body = rebuild(reader.op.body, lambda _old, new: new, {id(joint): inner.op.body})
    both = (*zip(inner.op.params, inner.args, strict=True), *params)
    names = f"{inner.op.attrs['Composite']}+{reader.op.attrs['Composite']}"
    attrs = {**reader.op.attrs, "Composite": names, "name": names}
    return replace(reader, op=Function(tuple(p for p, _ in both), body, attrs), args=tuple(a for _, a in both))


def _partition(func: Function) -> Function:
    count: dict[str, int] = {}

    def rule(expr: Expr) -> Expr:
        composite = _composite_of(expr)
        if composite is None:
            return expr
        assert isinstance(expr, Call)
        compiler = composite.attrs.get("Compiler")
        if compiler is None:
            return inlined(composite, expr.args)
        number = count[compiler] = count.get(compiler, -1) + 1
        word = re.sub(r"\W", "_", str(composite.attrs["Composite"]).removeprefix(f"{compiler}."))
        symbol = re.sub(r"\W", "_", compiler) + f"_main_{number}"
        attrs = {**composite.attrs, "Primitive": 1, "global_symbol": symbol, "name": word}
        return replace(expr, op=replace(composite, attrs=attrs))

    return rewrite(func, rule)
