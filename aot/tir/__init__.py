"""The loop-nest IR: expressions, statements, builder, text, verifier, interpreter; its passes are in `transform`."""

from __future__ import annotations

from typing import Any

from aot.errors.tvm_names import missing_in
from aot.ir.module import Dialect, IRModule, register_dialect
from aot.ir.op import Array
from aot.ir.structural import Structure, counting_fields, register_structure
from aot.tir.buffer import Buffer
from aot.tir.expr import Var
from aot.tir.function import PrimFunc
from aot.tir.intrin import Intrin, TensorIntrin
from aot.tir.printer import print_func
from aot.tir.stmt import Allocate, For, Let
from aot.tir.verify import verify


def _run(module: Any, name: str, seed: int) -> list[Array] | None:
    from aot.tir.interpreter import run_drawn  # few compilations run functions, print or read text

    return run_drawn(module, name, seed)


def _to_full_text(module: IRModule) -> str:
    from aot.tir.parser import print_module

    return print_module(module)


def _from_text(text: str, name: str) -> IRModule:
    from aot.tir.parser import parse_module

    return parse_module(text, name)


def _reads(text: str) -> bool:
    from aot.tir.parser import is_tir

    return is_tir(text)


register_dialect(
    Dialect(
        "tir",
        PrimFunc,
        to_text=lambda func, name: print_func(func, name),
        verify=lambda func, _name: verify(func),
        run=_run,
        to_full_text=_to_full_text,
        from_text=_from_text,
        reads=_reads,
    )
)


def _parts(func: PrimFunc) -> tuple[Any, ...]:
    """The parts of a function that structural equality compares; its attributes refer to buffers by position, not by name."""
    places = {b.name: i for i, b in enumerate(func.buffers)}
    attrs = {name: getattr(func.attrs, name) for name in counting_fields(type(func.attrs))}
    attrs["args"] = tuple(places.get(n, n) for n in func.attrs.args)
    if func.attrs.distances is not None:
        attrs["distances"] = {(places.get(a, a), places.get(b, b)): d for (a, b), d in func.attrs.distances.items()}
    kinds = (func.inputs, func.outputs, func.consts, func.scratch, func.state, func.scalars)
    return (func.name, *kinds, attrs, func.body)


register_structure(Var, Structure(parts=lambda v: (v.dtype,), variable=True))
register_structure(Buffer, Structure(parts=lambda b: (b.shape, b.dtype, b.scope, b.align, b.indexed), variable=True))
register_structure(PrimFunc, Structure(parts=_parts, defines=lambda f: f.params, closed=True))
register_structure(For, Structure(defines=lambda s: (s.var,)))
register_structure(Let, Structure(defines=lambda s: (s.var,)))
register_structure(Allocate, Structure(defines=lambda s: (s.buffer,)))
register_structure(Intrin, Structure(parts=lambda i: (i.name, i.args, i.dtype), same=True))
register_structure(
    TensorIntrin, Structure(parts=lambda i: (i.name, i.requires, i.header, i.ordered, i.desc), closed=True)
)  # by meaning, not by C text

__getattr__ = missing_in("tir")
