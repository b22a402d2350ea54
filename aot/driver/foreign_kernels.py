"""What became of plug-in kernels: which layers they were considered for, and why not for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from aot.executor.candidates import FusedModule, group_of, why_not
from aot.ir.module import IRModule
from aot.ir.op import Op
from aot.ir.transform import Pass, PassInstrument
from aot.relay.expr import Call, Function, all_functions, post_order
from aot.topi.strategy import Group, OpImplementation, foreign_implementations


class ForeignKernels(PassInstrument):
    """Watches a compilation; `lines` then reports what became of each plug-in kernel."""

    def __init__(self) -> None:
        self._seen = Counter[str]()
        self._rewritten: dict[str, Counter[str]] = {}
        self._fused: FusedModule | None = None

    def run_before_pass(self, module: IRModule, info: Pass) -> None:
        """Count the operators, starting at the first pass over the graph."""
        if info.name == "infer_type":
            self._rewritten = {}
        self._seen = _operators(module)

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        """Count the operators that a pass over graphs has removed."""
        if isinstance(module, FusedModule):
            self._fused = module
        elif any(isinstance(f, Function) for f in module.functions.values()):
            for name, count in (self._seen - _operators(module)).items():
                self._rewritten.setdefault(name, Counter())[info.name] += count

    def lines(self) -> list[str]:
        """One line per plug-in kernel; empty before a model was compiled."""
        fused = self._fused
        return [] if fused is None else [self._line(impl, fused) for impl in foreign_implementations()]

    def _line(self, impl: OpImplementation, fused: FusedModule) -> str:
        groups = [group_of(e.op) for e in _calls(fused) if isinstance(e.op, Function)]
        own = [g for g in groups if impl.anchor in ("*", _name(g.anchor))]
        reasons = Counter(why_not(impl, g, fused.target, fused.config, cache=fused.cache) for g in own)
        inside = Counter(_name(g.anchor) for g in groups for e in _others(g) if _name(e) == impl.anchor)
        rewritten = self._rewritten.get(impl.anchor, Counter())
        total = len(own) + inside.total() + rewritten.total()
        if not total:
            return f"{impl.name} for {impl.anchor}: the graph has no such operator (aot dump MODEL --after infer_type)"
        parts = [f"considered for {reasons.pop('', 0)} of {total}"]
        parts += [f"{step} rewrote {count}" for step, count in rewritten.items()]
        parts += [f"{count} {'is' if count == 1 else 'are'} fused into {anchor}" for anchor, count in inside.items()]
        parts += [f"not for {count}: {reason}" for reason, count in reasons.items()]
        return f"{impl.name} for {impl.anchor}: {'; '.join(parts)}"


def _name(call: Call) -> str:
    return call.op.name if isinstance(call.op, Op) else ""


def _others(group: Group) -> Iterator[Call]:
    """The calls of a group except its anchor."""
    return (e for e in post_order(group.result) if isinstance(e, Call) and e is not group.anchor)


def _calls(module: IRModule) -> Iterator[Call]:
    """The calls in a module's graphs; a call of a fused function counts as one."""
    for func in module.functions.values():
        if isinstance(func, Function):
            yield from (e for f in all_functions(func) for e in post_order(f.body) if isinstance(e, Call))


def _operators(module: IRModule) -> Counter[str]:
    """The number of calls of each operator, including calls inside fused functions."""
    inside = [post_order(c.op.body) if isinstance(c.op, Function) else [c] for c in _calls(module)]
    return Counter(_name(e) for nodes in inside for e in nodes if isinstance(e, Call))
