"""Relay text: a graph printed by `aot dump MODEL --metadata` or `IRModule.astext(show_meta_data=True)`, or written by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from aot.errors import AotError, Problem, UsageError
from aot.frontend.formats import Choice, Format
from aot.ir.module import IRModule
from aot.ir.span import Span
from aot.relay.analysis import cost
from aot.relay.expr import Call, Expr, Function, Tuple, make_tuple, post_order, result_types
from aot.relay.state import result_exprs

MARK = b"def @"


def reads(model: bytes) -> bool:
    """Whether the first line that is not a comment defines a function."""
    lines = (line.strip() for line in model[:4096].splitlines())
    return next((line for line in lines if line and not line.startswith(b"//")), b"").startswith(MARK)


@lru_cache(2)
def module(model: bytes, oracle: str, name: str) -> IRModule:
    """The module of a text; its function main is compiled (UsageError E5130, E5131; E5105 without a main).

    The text says exactly what is computed, so `oracle` does not matter.
    """
    from aot.relay.parser import parse_module  # rarely needed

    parsed = parse_module(decoded(model), name)
    main = parsed["main"]
    if not isinstance(main, Function) or "outputs" in main.attrs:
        return parsed
    return parsed.with_function("main", _with_named_outputs(main))


def _with_named_outputs(main: Function) -> Function:
    """The function of a text without metadata, with names for its results."""
    outputs, states = result_exprs(main)
    results = [_named(e, f"output_{i}" if len(outputs) > 1 else "output") for i, e in enumerate(outputs)]
    body = make_tuple([*results, *states]) if isinstance(main.body, Tuple) else (*results, *states)[0]
    attrs = {"outputs": tuple(r.span for r in results), "output_types": result_types(main)[: len(results)]}
    return Function(main.params, body, {**main.attrs, **attrs})


def _named(result: Expr, name: str) -> Expr:
    return replace(result, span=Span(name=name)) if isinstance(result, Call) and not result.span.name else result


def decoded(model: bytes) -> str:
    """The text as a string (E5130 if it is not UTF-8)."""
    try:
        return model.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(Problem("E5130", f"the text is not UTF-8: byte {error.start} is 0x{model[error.start]:02x}")) from None


def macs(model: bytes) -> int:
    """Multiply-accumulates in main; 0 if the text cannot be parsed."""
    main = _main(model)
    return 0 if main is None else cost(main).macs


def operators(model: bytes) -> int:
    """The number of calls in main, without calls in branches and loops; 0 if the text cannot be parsed."""
    main = _main(model)
    return 0 if main is None else sum(isinstance(e, Call) for e in post_order(main.body))


def _main(model: bytes) -> Function | None:
    try:
        main = module(model, "", "model")["main"]
    except AotError:
        return None
    return main if isinstance(main, Function) else None


def problems(model: bytes, oracle: str) -> list[Problem]:
    """The first fault of a text, if there is one."""
    try:
        module(model, oracle, "model")
    except AotError as error:
        return list(error.problems)
    return []


def specialize(model: bytes, choice: Choice) -> bytes:
    """The text unchanged: it has one graph of known shapes (E5027 if there is a choice)."""
    if choice:
        raise UsageError(Problem("E5027", "relay text has one graph, whose shapes are in the text; edit them there"))
    return model


FORMAT = Format("relay text", ".relay", reads, module, problems, specialize, macs, operators)
