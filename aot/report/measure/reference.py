"""The engines that outputs are compared with: TensorFlow Lite's reference kernels, TFLM, and our own graph interpreter."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from math import prod
from typing import Any

import numpy as np

from aot.driver.oracles import engine_of
from aot.errors import Problem, ToolchainError
from aot.frontend.chain import Chain, Stage, unpack
from aot.frontend.formats import format_of, from_model, specialize
from aot.frontend.problems import Problems
from aot.frontend.view import TensorView, parse
from aot.ir.op import Array
from aot.report.measure.litert import Litert, RefusedError
from aot.report.measure.sets import moved_windows
from aot.support.dataclass import dataclass
from aot.system.process import heard

OWN = "the graph interpreter"
"""Prefix of the name of the compiler's own interpreter, which is not an independent reference."""

RunSets = Callable[[Sequence[Sequence[Array]]], list[list[Array]]]
RunTensors = Callable[[Sequence[Array]], dict[int, Array]]


def no_tensors(inputs: Sequence[Array]) -> dict[int, Array]:
    """`tensors` of an engine that shows outputs only."""
    return {}


_PACKAGES = {"litert": "ai-edge-litert", "litert-reference": "ai-edge-litert", "tflm": "tflite-micro"}


@dataclass(frozen=True, slots=True)
class Reference:
    """`outputs(sets)` gives the outputs of each set; `tensors(inputs)` all tensors that it can show after one run, by index.

    Both raise RuntimeError if a kernel fails, with a phrase that continues `engine`.
    """

    name: str
    outputs: RunSets
    tensors: RunTensors = no_tensors
    engine: str = OWN

    @property
    def independent(self) -> bool:
        """Whether the reference is independent of this compiler."""
        return not self.name.startswith(f"{OWN}, as ")


def installed(package: str) -> str | None:
    """The version of an installed Python package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def harms_litert(model: bytes) -> bool:
    """Whether TensorFlow Lite would corrupt memory: its SVDF treats any state as int16 (kernels/svdf.cc), TFLM supports int8."""
    view = parse(model, Problems())
    graphs = () if view is None else view.subgraphs
    layers = ((g, op) for g in graphs for op in g.operators if op.opcode == "SVDF" and len(op.inputs) > 4)
    return any(g.tensors[op.inputs[4]].dtype == "int8" for g, op in layers)


def litert(model: bytes) -> Reference:
    """TensorFlow Lite's reference kernels; operators that the reference set lacks run with the full set.

    Raises RefusedError if LiteRT refuses the model, ImportError if it is not installed.
    """
    have = installed("ai-edge-litert")
    if have is None:
        raise ImportError("ai-edge-litert is not installed")
    if harms_litert(model):
        raise RefusedError("treats the int8 state of SVDF as int16 and crashes (--oracle tflm handles it)")
    engine = Litert(model)
    others = f", {' '.join(engine.full)} of its full set" if engine.full else ""
    return Reference(f"ai-edge-litert {have} reference kernels{others}", engine.outputs, engine.tensors, "ai-edge-litert")


def tflm(model: bytes, output_count: int) -> Reference:
    """TFLM's interpreter.  Raises RefusedError if TFLM refuses the model, ImportError if it is not installed."""
    have = installed("tflite-micro")
    if have is None:
        raise ImportError("tflite-micro is not installed")
    from tflite_micro.python.tflite_micro import runtime

    with heard() as said:
        try:
            fresh = [runtime.Interpreter.from_bytes(model)]
        except (RuntimeError, ValueError):
            fresh = []
    if not fresh:
        raise RefusedError(_refusal(model, said.text))

    def run(interpreter: Any, inputs: Sequence[Array]) -> list[Array]:
        for i, value in enumerate(inputs):
            interpreter.set_input(value, i)
        interpreter.invoke()
        return [interpreter.get_output(i) for i in range(output_count)]

    def outputs(sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Run all sets in one fresh interpreter."""
        with heard() as said:
            try:
                interpreter = fresh.pop() if fresh else runtime.Interpreter.from_bytes(model)
                return [run(interpreter, s) for s in sets]
            except RuntimeError:
                pass
        raise RefusedError(_refusal(model, said.text), at_run=True)

    return Reference(f"tflite-micro {have}", outputs, engine="tflite-micro")


def _refusal(model: bytes, said: str) -> str:
    """TFLM's reason for refusing a model, as a phrase."""
    lacks = re.search(r"Failed to get registration from op code (\w+)", said)
    if lacks is None:
        return f"does not run the model: {said}" if said else "does not run the model and gives no reason"
    if lacks[1] != "CUSTOM":
        return f"has no kernel for {lacks[1]}"
    view = parse(model, Problems())
    kinds = {op.kind for g in view.subgraphs for op in g.operators if op.opcode == "CUSTOM"} if view else set()
    return f"has no kernel for {' or '.join(sorted(kinds))}"


def graph(model: bytes, oracle: str) -> Reference:
    """Our interpreter of the unoptimised graph: `evaluate` of every operator in numpy, without any pass."""
    from aot.relay.expr import Function

    chain = unpack(model)
    if chain is not None:
        engines = [graph(specialize(s.model), oracle).outputs for s in chain.stages]
        return Reference(OWN, lambda sets: run_chain(chain, engines, sets))
    from aot.relay.interpreter import StatefulFunction

    main = from_model(model, oracle=oracle)["main"]
    assert isinstance(main, Function)

    def outputs(sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Run all sets, starting with the initial state."""
        running = StatefulFunction(main)
        return [running.run(s) for s in sets]

    return Reference(OWN, outputs, lambda inputs: StatefulFunction(main).run_all(inputs)[1])


def find_reference(model: bytes, oracle: str, *, outputs: int) -> Reference:
    """The oracle's engine if it is installed and accepts the model, else our interpreter, whose name says why."""
    chain = unpack(model)
    if chain is not None:
        return _of_chain(chain, oracle)
    plugin = plugged(model, oracle)
    if plugin is not None:
        return plugin
    package, form = _PACKAGES[oracle], format_of(model)
    if not form.has_references:
        return own_interpreter(model, oracle, f"{package} does not read {form.name}")
    try:
        return tflm(model, outputs) if oracle == "tflm" else litert(model)
    except RefusedError as error:
        why = f"{package} {error}"
    except ImportError:  # incompletely installed, or built for another machine
        why = f"{package} cannot be imported" if installed(package) else f"{package} is not installed"
    return own_interpreter(model, oracle, why)


def own_interpreter(model: bytes, oracle: str, why: str) -> Reference:
    """Our interpreter instead of a reference; its name says why."""
    return replace(graph(model, oracle), name=f"{OWN}, as {why}")


def never_runs(reference: Reference, inputs: Sequence[Array]) -> bool:
    """Whether a reference that failed for `inputs` fails for all: tried with 0, 1 and 2 in all elements."""
    for value in (0, 1, 2):
        try:
            reference.outputs([[np.full_like(x, value) for x in inputs]])
        except RuntimeError:
            continue
        return False
    return True


def _of_chain(chain: Chain, oracle: str) -> Reference:
    """Each stage's reference on whole windows; named after the first stage whose reference is not independent, if any."""
    models = [specialize(s.model) for s in chain.stages]
    references = [find_reference(m, oracle, outputs=_output_count(m)) for m in models]
    weak = [f"{r.name} ({s.name})" for r, s in zip(references, chain.stages, strict=True) if not r.independent]
    name = weak[0] if weak else f"{', '.join(dict.fromkeys(r.name for r in references))}, stage by stage on whole windows"
    return Reference(name, lambda sets: run_chain(chain, [r.outputs for r in references], sets), engine="a stage's reference")


def _output_count(model: bytes) -> int:
    view = parse(model, Problems())
    return 0 if view is None else len(view.subgraphs[0].outputs)


def check_reference(model: bytes, oracle: str, *, outputs: int, inputs: Sequence[Array]) -> None:
    """Raise ToolchainError if only our own interpreter could be the reference.

    E3031: no reference accepts the model; E3032: one accepts it but fails with any inputs, including `inputs`.
    """
    reference = find_reference(model, oracle, outputs=outputs)
    if not reference.independent:
        message = f"the only reference is {reference.name}; pip install '{_PACKAGES[oracle]}' or use --no-require-reference"
        raise ToolchainError(Problem("E3031", message))
    try:
        reference.outputs([inputs])
    except RuntimeError as error:
        if never_runs(reference, inputs):
            message = f"{reference.engine} {error}; change the model or use --no-require-reference"
            raise ToolchainError(Problem("E3032", message)) from None


def plugged(model: bytes, oracle: str) -> Reference | None:
    """The engine of a plug-in's oracle; None for a builtin oracle."""
    engine = engine_of(oracle)
    if engine is None:
        return None
    run = engine(model)
    return Reference(f"oracle {oracle}", lambda sets: [list(run(s)) for s in sets], engine=f"oracle {oracle}")


def trace(model: bytes, oracle: str, inputs: Sequence[Array]) -> tuple[Reference, dict[int, Array]]:
    """An engine that shows every tensor (TFLM does not), to find the first wrong operator; and the tensors of one run."""
    if oracle in ("litert", "litert-reference"):
        with suppress(RefusedError, ImportError):
            return (engine := litert(model)), engine.tensors(inputs)
    interpreter = graph(model, oracle)
    return interpreter, interpreter.tensors(inputs)


# ---- chains: each stage's own engine on whole windows
# It does not know how the compiler joins the stages: rows from one engine are collected for the next.


RunStage = Callable[[Sequence[Sequence[Array]]], Sequence[Sequence[Array]]]
"""Outputs of each set of inputs, starting with the initial state."""


def run_chain(chain: Chain, engines: Sequence[RunStage], sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The outputs of the last stage for each push; `engines[stage]` runs a stage on whole inputs."""
    stream = np.concatenate([np.ravel(s[0]) for s in sets])
    results: list[list[Array]] = []
    for stage, engine in zip(chain.stages, engines, strict=True):
        tensor, names = _tensors(stage)
        results = [list(outputs) for outputs in engine([[x] for x in _inputs(stage, tensor, stream)])]
        number = names.index(stage.output) if stage.output in names else 0
        stream = np.concatenate([np.ravel(outputs[number]) for outputs in results])
    return results


def _tensors(stage: Stage) -> tuple[TensorView, list[str]]:
    """The input of a stage, and the names of its outputs."""
    view = parse(specialize(stage.model), Problems())
    assert view is not None, "a compiled chain can be read"
    graph = view.subgraphs[0]
    return graph.tensors[graph.inputs[0]], [graph.tensors[i].name for i in graph.outputs]


def _inputs(stage: Stage, tensor: TensorView, stream: Array) -> list[Array]:
    """The whole inputs of a stage, one per run, from all elements that it gets."""
    shape = tuple(tensor.shape)
    if stage.slide is None:
        return list(stream.reshape(-1, *shape))
    axis = stage.axis % len(shape)
    rows = stream.reshape(-1, *shape[:axis], stage.slide, *shape[axis + 1 :])
    zero: Any = 0 if tensor.quant is None or not len(tensor.quant.zero_points) else tensor.quant.zero_points[0]
    assert prod(shape[:axis]) == 1
    return moved_windows(list(rows), shape, axis=axis, zero=zero)
