"""C names: each different function once, and calls by these names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aot.executor.lowered import Callee, LoweredModule
from aot.support.names import NameSupply, c_identifier
from aot.target.codegen_c import canonical
from aot.target.source_module import NamedFunc
from aot.target.target import Target
from aot.tir.expr import Imm
from aot.tir.function import PrimFunc
from aot.tir.functor import has_calls
from aot.tir.stmt import CallPrim, For, If, Stmt


def named_functions(lowered: LoweredModule, target: Target) -> tuple[tuple[NamedFunc, ...], list[str]]:
    """Each different function once, and the name for each call: `<model>_<kernel>_<first layer>`."""
    supply = NameSupply()
    by_text: dict[tuple[str, str], str] = {}
    by_identity: dict[int, str] = {}
    functions: list[NamedFunc] = []
    users: dict[str, list[int]] = {}
    linked: list[PrimFunc] = []  # held, as functions are told apart by identity

    def enter(func: PrimFunc, i: int) -> str:
        name = by_identity.get(id(func))
        if name is None:
            key = (func.attrs.opt, canonical(func, target))
            name = by_text.get(key)
            if name is None:
                name = by_text[key] = supply.fresh(f"{lowered.name}_{kernel_word(func)}_{i}")
                functions.append(NamedFunc(name, func))
            by_identity[id(func)] = name
        users.setdefault(name, []).append(i)
        return name

    names = []
    for i, call in enumerate(lowered.calls):
        func = call.emitted
        if call.callees:
            table: dict[str, tuple[str, Callee]] = {}
            for key, callee in call.callees.items():  # those that are called come before their callers
                inner = callee.emitted
                if has_calls(inner):
                    inner = link(inner, table)
                    linked.append(inner)
                table[key] = enter(inner, i), callee
            func = link(func, table)
            linked.append(func)
        names.append(enter(func, i))
    return tuple(replace(f, note=_users(users[f.name])) for f in functions), names


def link(func: PrimFunc, table: Mapping[str, tuple[str, Callee]]) -> PrimFunc:
    """`func` with its calls by the callees' C names, each with the scalars that the callee wants."""

    def stmt(s: Stmt) -> Stmt:
        match s:
            case CallPrim(func=key, operands=operands):
                name, callee = table[key]
                added = callee.emitted.scalars[len(callee.func.scalars) :]  # its own are operands already
                scalars = zip(callee.scalars, added, strict=True)
                return replace(s, func=name, operands=(*operands, *(Imm(v, var.dtype) for v, var in scalars)))
            case For(body=body):
                return replace(s, body=tuple(map(stmt, body)))
            case If(then=then, orelse=orelse):
                return replace(s, then=tuple(map(stmt, then)), orelse=tuple(map(stmt, orelse)))
            case _:
                return s

    return func.with_body(tuple(map(stmt, func.body)))


def _users(calls: Sequence[int]) -> str:
    """Which layers call a function, where there are several."""
    layers = [str(i) for i in sorted(set(calls))]
    return f"shared by layers {', '.join(layers)}; the facts above are the first's" if len(layers) > 1 else ""


def kernel_word(func: PrimFunc) -> str:
    """`generic.conv2d(pixels=1)` -> `conv2d`."""
    word = func.attrs.kernel.partition("(")[0].rpartition(".")[2] or func.name
    return c_identifier(word)


def function_table(functions: Sequence[NamedFunc]) -> Mapping[str, PrimFunc]:
    """Kernels by their C names, as `run_module` wants them."""
    return {f.name: f.func for f in functions}
