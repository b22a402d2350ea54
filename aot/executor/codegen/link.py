"""C names: each different function once, and calls by these names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from aot.executor.lowered import LoweredModule
from aot.support.names import SIGNIFICANT, NameSupply, c_identifier, shortened
from aot.target.codegen_c import canonical
from aot.target.source_module import NamedFunc
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.function import PrimFunc
from aot.tir.functor import Callees, Cloner, has_calls, with_callees


def named_functions(lowered: LoweredModule, target: Target) -> tuple[tuple[NamedFunc, ...], list[str]]:
    """Each different function once, and the name for each call: `<model>_<kernel>_<first layer>`."""
    supply = NameSupply()
    by_text: dict[tuple[str, str], str] = {}
    by_identity: dict[int, str] = {}
    functions: list[NamedFunc] = []
    users: dict[str, list[int]] = {}
    same: dict[str, list[PrimFunc]] = {}
    linked: list[PrimFunc] = []  # held, as functions are told apart by identity

    def enter(func: PrimFunc, i: int) -> str:
        name = by_identity.get(id(func))
        if name is None:
            key = (func.attrs.opt, canonical(func, target))
            name = by_text.get(key)
            if name is None:
                name = by_text[key] = supply.first(_c_names(lowered.name, kernel_word(func), i))
                functions.append(NamedFunc(name, func))
            by_identity[id(func)] = name
            same.setdefault(name, []).append(func)
        users.setdefault(name, []).append(i)
        return name

    names = []
    c_names: Callees = {}
    for i, call in enumerate(lowered.calls):
        for name in (*call.callees, call.emitted):
            func = lowered.prim_func(name)
            if has_calls(func):
                func = with_callees(func, c_names)
                linked.append(func)
            c_names[name] = enter(func, i), ()
        names.append(c_names[call.emitted][0])
    return tuple(NamedFunc(f.name, without_extents(same[f.name]), _users(users[f.name])) for f in functions), names


def _c_names(model: str, word: str, layer: int) -> Iterator[str]:
    """`<model>_<word>_<layer>`, then with a further number; the word shortened so that the name fits where it can."""
    for n in count():
        end = f"_{layer}_{n}" if n else f"_{layer}"
        yield f"{model}_{shortened(word, SIGNIFICANT - len(model) - 1 - len(end))}{end}"


def without_extents(funcs: Sequence[PrimFunc]) -> PrimFunc:
    """The first of some functions of one text, whose parameters have no sizes where those of the others differ.

    A slice of 3 numbers reads them from 9 as from 12; the first's 12 would reach beyond the memory of the second.  So would the
    constants and the scratch memory of a kernel that reads its geometry from those.
    """
    first = funcs[0]
    open_ = {
        b: replace(b, shape=(UNKNOWN_EXTENT,))
        for i, b in enumerate(first.buffers)
        if b.scope in ("param", "const", "arena") and len({f.buffers[i].nbytes for f in funcs}) > 1
    }
    if not open_:
        return first
    parts = (first.inputs, first.outputs, first.consts, first.scratch)
    inputs, outputs, consts, scratch = (tuple(open_.get(b, b) for b in part) for part in parts)
    return replace(
        first, inputs=inputs, outputs=outputs, consts=consts, scratch=scratch, body=Cloner(buffers=open_).body(first.body)
    )


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
