"""`aot.build`, `aot.load` and `aot.lower`: one function each for models, relay networks, schedules and loop nests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, overload

from aot import te
from aot.driver.build import build as build_model
from aot.driver.build import lower as lower_group
from aot.driver.build import lower_model
from aot.driver.options import Options
from aot.errors import Problem, UsageError
from aot.executor.artifact import Artifact
from aot.ir.module import IRModule
from aot.ir.op import get_global_func
from aot.relay.expr import Function, bind_params_by_name
from aot.runtime.functions import Module
from aot.runtime.module import HostModel
from aot.runtime.module import load as load_artifact
from aot.support.names import model_identifier
from aot.support.text import nearest
from aot.target.source_module import signature_of
from aot.target.target import C_KIND, Target
from aot.tir.function import PrimFunc
from aot.tir.verify import verify

Model = str | Path | bytes | IRModule

DEFAULT_NAME = "default_function"
"""Default name of a function."""


@overload
def build(
    inputs: str | Path | bytes,
    *,
    target: str | Target = ...,
    name: str | None = ...,
    options: Options | None = ...,
    **keywords: Any,
) -> Artifact: ...
@overload
def build(
    inputs: te.Schedule | PrimFunc, args: Sequence[te.Tensor], *, target: str | Target = ..., name: str | None = ...
) -> Module: ...  # fmt: skip
@overload
def build(inputs: PrimFunc, *, target: str | Target = ..., name: str | None = ...) -> Module: ...
@overload
def build(
    inputs: IRModule,
    args: Sequence[te.Tensor] | None = ...,
    *,
    target: str | Target = ...,
    name: str | None = ...,
    options: Options | None = ...,
    params: Mapping[str, Any] | None = ...,
    **keywords: Any,
) -> Artifact | Module: ...
def build(
    inputs: Any,
    args: Sequence[te.Tensor] | None = None,
    *,
    target: str | Target | Mapping[str, Any] = "cortex-m4",
    name: str | None = None,
    options: Options | None = None,
    params: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Artifact | Module:
    """Compile to C.

    * a .tflite model (its path as str or Path, or its bytes), or an IRModule of relay functions: returns an Artifact;
    * a te.Schedule with the list of its arguments, a PrimFunc, or an IRModule of PrimFuncs: returns a runtime.Module;
    * either, for a target of another kind than c: returns what that kind's code generator returns for the PrimFuncs.

    `name` becomes the prefix of the C symbols (default: the file's name, the function's, or `default_function`).  Options of a
    model are the keywords of `aot.Options` (`opt="ram"`, `ram_budget=20_000` bytes), or one such record.  Passes run in the
    current PassContext.  Raises UsageError E5073 for arguments that are not the schedule's, E5074 for inputs that cannot be built
    or unknown options, E5009 for an option's wrong value, E5001 for a missing file, and the errors of the compiler.

    `inputs`: what to compile; `args`: the tensors of a schedule in the order of the parameters, which must also match an already
    lowered function; `target`: a core's name, a Target or its attributes; `options`: all options as one record; `params`:
    arrays for parameters of a relay module, by name.
    """
    options = options_of(options, keywords)
    cpu = Target(target)
    if name is not None and (not isinstance(name, str) or not name.strip() or not name.isprintable()):
        raise UsageError(Problem("E5074", f"{name!r} is not a name"))
    if options is not None and not isinstance(options, Options):
        raise UsageError(Problem("E5074", f"options must be aot.Options, not {type(options).__name__}"))
    if isinstance(inputs, te.Schedule):
        inputs, args = lower(inputs, args, name=name or DEFAULT_NAME), None
    elif args is not None:
        _check_args(inputs, args)
    if params is not None:
        inputs = _bound(inputs, params)
    if isinstance(inputs, PrimFunc):
        inputs = IRModule({name or inputs.name: inputs}, name or inputs.name)
    if isinstance(inputs, IRModule) and _holds(inputs, PrimFunc):
        if options is not None:
            raise UsageError(Problem("E5074", "options apply to models only, not to functions"))
        return _build_functions(inputs, cpu, name)
    if isinstance(inputs, IRModule):
        _check_calls(inputs)
    if isinstance(inputs, IRModule) and options is not None and options.choice != Options().choice:
        raise UsageError(
            Problem("E5074", "choice selects a graph and shapes of a file; a module has one graph with fixed shapes")
        )
    if cpu.kind is not C_KIND:
        return _generated(lower_model(model_source(inputs), target=cpu, name=name, options=options), cpu, of_model=True)
    return build_model(model_source(inputs), target=cpu, name=name, options=options)


def _check_args(inputs: Any, args: Sequence[te.Tensor]) -> None:
    """Check that the arguments are those of the lowered function (E5073), which must be the only one (E5074)."""
    functions = tuple(inputs.functions.values()) if isinstance(inputs, IRModule) else (inputs,)
    if not isinstance(args, Sequence):
        raise UsageError(Problem("E5074", f"args must be a list of tensors, not {type(args).__name__}"))
    if len(functions) != 1 or not isinstance(functions[0], PrimFunc):
        kind = type(inputs).__name__
        raise UsageError(Problem("E5074", f"args is only for a te.Schedule or one PrimFunc, not for this {kind}"))
    expected = [(p.dtype, tuple(p.shape)) for p in signature_of(functions[0], functions[0].name).params]
    actual = [(getattr(a, "dtype", ""), tuple(getattr(a, "shape", ()))) for a in args]
    if actual != expected:
        shown = [", ".join(f"{dtype}{list(shape)}" for dtype, shape in rows) for rows in (expected, actual)]
        raise UsageError(Problem("E5073", f"the function has the parameters {shown[0]}, not {shown[1] or 'none'}"))


def _bound(inputs: Any, params: Mapping[str, Any]) -> IRModule:
    """A relay module with constants for parameters of main (E5074 for other inputs, E5104 for wrong names or values)."""
    main = inputs.functions.get("main") if isinstance(inputs, IRModule) else None
    if not isinstance(main, Function) or not isinstance(params, Mapping):
        raise UsageError(
            Problem("E5074", "params must be a dictionary of arrays by name, for an IRModule with a relay function main")
        )
    assert isinstance(inputs, IRModule)
    return inputs.with_function("main", bind_params_by_name(main, params))


def _check_calls(module: IRModule) -> None:
    """Raise E5074 if a function would be left out silently: only main is compiled."""
    extra = [name for name in module.functions if name != "main"]
    if extra:
        message = f"nothing calls {', '.join(extra)}: a graph calls a relay.Function itself, f(x), not by its name in the module"
        raise UsageError(Problem("E5074", message, f"module {module.name}"))


def options_of(options: Options | None, keywords: Mapping[str, Any]) -> Options | None:
    """The options from a record or from keywords (E5074: both are given, or a keyword is unknown; E5009: wrong value).

    `slide` may be a mapping, `byoc_path` a string.
    """
    if not keywords:
        return options
    if options is not None:
        raise UsageError(Problem("E5074", f"use either options or keywords such as {next(iter(keywords))}, not both"))
    names = {f.name for f in fields(Options)}
    for name in keywords:
        if name not in names:
            near = nearest(name, names, limit=1)
            hint = f"; did you mean {near[0]}?" if near else f"; options: {', '.join(sorted(names))}"
            raise UsageError(Problem("E5074", f"there is no option {name}{hint}"))
    values = dict(keywords)
    if isinstance(values.get("slide"), Mapping):
        values["slide"] = tuple(values["slide"].items())
    if isinstance(values.get("byoc_path"), str):
        values["byoc_path"] = Path(values["byoc_path"])
    return Options(**values)


def load(model: str | Path | bytes | Artifact, **keywords: Any) -> HostModel:
    """A model compiled to C and loaded into this process: call it with numpy arrays of the inputs' shapes and dtypes.

    `model` is a .tflite (path or bytes), compiled with the options `keywords` of `aot.build`, or an Artifact.  The outputs
    are the bytes that firmware computes, whatever the target.  Raises what `aot.build` raises, and
    ToolchainError E3001 without gcc.
    """
    if isinstance(model, Artifact):
        if keywords:
            raise UsageError(Problem("E5074", f"an Artifact is already compiled; {next(iter(keywords))} has no effect"))
        return load_artifact(model)
    built = build(model, **keywords)
    if not isinstance(built, Artifact):
        raise UsageError(Problem("E5074", "load needs a model; functions of a runtime.Module can be called directly"))
    return load_artifact(built)


@overload
def lower(inputs: te.Schedule, args: Sequence[te.Tensor] | None, *, name: str = ...) -> IRModule: ...
@overload
def lower(inputs: Function, args: None = None, *, target: str | Target = ..., name: str = ...) -> PrimFunc: ...
def lower(
    inputs: te.Schedule | Function,
    args: Sequence[te.Tensor] | None = None,
    *,
    target: str | Target = "cortex-m4",
    name: str = "main",
) -> IRModule | PrimFunc:
    """A schedule and its arguments as an IRModule with one PrimFunc `name`; a fused relay function as a PrimFunc.

    Raises UsageError E5073 for arguments that are not the schedule's, E5040 for a schedule that cannot be lowered, and E5074 for
    anything else.

    `inputs`: the schedule or function; `args`: its tensors in the order of the parameters; `target`: a core's name or a Target.
    """
    if isinstance(inputs, te.Schedule):
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise UsageError(Problem("E5074", f"{name!r} is not a name"))
        return te.lower(inputs, args if args is not None else [], name)
    if isinstance(inputs, Function) and args is None:
        return lower_group(inputs, Target(target), name=name)
    raise UsageError(Problem("E5074", f"lower needs a te.Schedule and its arguments, not {type(inputs).__name__}"))


def _holds(module: IRModule, kind: type) -> bool:
    """Whether all functions of a module are of one IR (E5074 if they are mixed or there are none)."""
    matches = [isinstance(f, kind) for f in module.functions.values()]
    if not matches or any(matches) != all(matches):
        raise UsageError(
            Problem("E5074", "a module to build must have at least one function, all of one kind", f"module {module.name}")
        )
    return all(matches)


def _build_functions(module: IRModule, target: Target, name: str | None) -> Artifact | Module:
    for key, func in module.functions.items():
        assert isinstance(func, PrimFunc)
        verify(func)
        if not isinstance(key, str):
            raise UsageError(Problem("E5074", f"{key!r} is not a function's name"))
    return _generated(IRModule(module.functions, model_identifier(name or module.name)), target, of_model=False)


def _generated(module: IRModule, target: Target, *, of_model: bool) -> Artifact | Module:
    """The result of the target kind's code generator for PrimFuncs; for a model it may also be files."""
    result = get_global_func(target.kind.codegen)(module, target)
    if not isinstance(result, Module) and not (of_model and isinstance(result, Artifact)):
        expected = "a runtime.Module or an aot.Artifact" if of_model else "a runtime.Module"
        raise UsageError(Problem("E5074", f"{target.kind.codegen} returned {type(result).__name__}, not {expected}"))
    return result


def model_source(inputs: Any) -> bytes | Path | IRModule:
    """A model in the form that the driver accepts: a path must exist (E5001)."""
    if isinstance(inputs, str):
        if not inputs or "\0" in inputs:
            raise UsageError(Problem("E5074", f"{inputs!r} is not a path"))
        inputs = Path(inputs)
    if isinstance(inputs, (bytearray, memoryview)):
        inputs = bytes(inputs)
    if isinstance(inputs, Path):
        if not inputs.is_file():
            raise UsageError(Problem("E5001", "there is no such file", str(inputs)))
        return inputs
    if isinstance(inputs, (bytes, IRModule)):
        return inputs
    kinds = "a .tflite path or its bytes, an IRModule, a te.Schedule with its arguments, or a PrimFunc"
    raise UsageError(Problem("E5074", f"build needs {kinds}, not {type(inputs).__name__}"))
