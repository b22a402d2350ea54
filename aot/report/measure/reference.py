"""The engines that outputs are compared with: TensorFlow Lite's reference kernels, TFLM, and our own interpreter of the graph
IR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from aot.driver.oracles import engine_of
from aot.errors import Problem, ToolchainError
from aot.frontend.chain import Chain, unpack
from aot.frontend.problems import Problems
from aot.frontend.specialize import specialize
from aot.frontend.view import kernels_of, parse
from aot.ir.op import Array
from aot.report.measure.chains import run_chain
from aot.support.dataclass import dataclass

OWN = "the graph interpreter"
"""Begins the name of the compiler's own interpreter, which is not an independent reference."""

RunSets = Callable[[Sequence[Sequence[Array]]], list[list[Array]]]
RunTensors = Callable[[Sequence[Array]], dict[int, Array]]


_PACKAGES = {"litert": "ai-edge-litert", "litert-reference": "ai-edge-litert", "tflm": "tflite-micro"}


@dataclass(frozen=True, slots=True)
class Reference:
    """`outputs(sets)` gives the outputs of each set; `tensors(inputs)` all tensors that it can show after one run, by index."""

    name: str
    outputs: RunSets
    tensors: RunTensors | None = None

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


def _litert_interpreter(model: bytes, *, preserve: bool) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=model,
        experimental_op_resolver_type=getattr(OpResolverType, kernels_of(model)),
        experimental_preserve_all_tensors=preserve,
        num_threads=1,
    )
    interpreter.allocate_tensors()
    return interpreter


def _litert_run(interpreter: Any, inputs: Sequence[Array]) -> list[Array]:
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def harms_litert(model: bytes) -> bool:
    """Whether TensorFlow Lite would corrupt its memory: its SVDF takes every state for int16 (kernels/svdf.cc), TFLM has int8."""
    view = parse(model, Problems())
    graphs = () if view is None else view.subgraphs
    layers = ((g, op) for g in graphs for op in g.operators if op.opcode == "SVDF" and len(op.inputs) > 4)
    return any(g.tensors[op.inputs[4]].dtype == "int8" for g, op in layers)


def litert(model: bytes) -> Reference | None:
    """TensorFlow Lite's reference kernels; None if they are not installed, refuse the model or would not survive it."""
    have = installed("ai-edge-litert")
    if have is None or harms_litert(model):
        return None
    try:
        fresh = [_litert_interpreter(model, preserve=False)]
    except (ImportError, RuntimeError, ValueError):  # ImportError: half installed, or built for another machine
        return None

    def outputs(sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """All sets in one interpreter that has not run before: resource variables have no other reset."""
        interpreter = fresh.pop() if fresh else _litert_interpreter(model, preserve=False)
        return [_litert_run(interpreter, s) for s in sets]

    def tensors(inputs: Sequence[Array]) -> dict[int, Array]:
        keeping = _litert_interpreter(model, preserve=True)
        _litert_run(keeping, inputs)
        found = {}
        for detail in keeping.get_tensor_details():
            try:
                found[int(detail["index"])] = keeping.get_tensor(detail["index"])
            except ValueError:  # never computed, or a temporary tensor of a kernel
                continue
        return found

    return Reference(f"ai-edge-litert {have} reference kernels", outputs, tensors)


def tflm(model: bytes, output_count: int) -> Reference | None:
    """TFLM's interpreter; None if it is not installed or refuses the model."""
    have = installed("tflite-micro")
    if have is None:
        return None
    try:
        from tflite_micro.python.tflite_micro import runtime

        fresh = [runtime.Interpreter.from_bytes(model)]
    except (ImportError, RuntimeError, ValueError):  # ImportError: half installed, or built for another machine
        return None

    def run(interpreter: Any, inputs: Sequence[Array]) -> list[Array]:
        for i, value in enumerate(inputs):
            interpreter.set_input(value, i)
        interpreter.invoke()
        return [interpreter.get_output(i) for i in range(output_count)]

    def outputs(sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """All sets in one interpreter that has not run before."""
        interpreter = fresh.pop() if fresh else runtime.Interpreter.from_bytes(model)
        return [run(interpreter, s) for s in sets]

    return Reference(f"tflite-micro {have}", outputs)


def graph(model: bytes, oracle: str) -> Reference:
    """Our interpreter of the unoptimised graph: `evaluate` of every operator in numpy, no pass run before."""
    from aot.frontend.tflite import from_tflite
    from aot.relay.expr import Function

    chain = unpack(model)
    if chain is not None:
        engines = [graph(specialize(s.model), oracle).outputs for s in chain.stages]
        return Reference(OWN, lambda sets: run_chain(chain, engines, sets))
    from aot.relay.stateful import StatefulFunction

    main = from_tflite(model, oracle=oracle)["main"]
    assert isinstance(main, Function)

    def outputs(sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """From the start of the state on."""
        running = StatefulFunction(main)
        return [running.run(s) for s in sets]

    return Reference(OWN, outputs, lambda inputs: StatefulFunction(main).run_all(inputs)[1])


def find_reference(model: bytes, oracle: str, *, outputs: int) -> Reference:
    """The engine that the oracle names where it is installed and takes the model, else our interpreter, whose name says why."""
    chain = unpack(model)
    if chain is not None:
        return _of_chain(chain, oracle)
    own = plugged(model, oracle)
    if own is not None:
        return own
    engine = tflm(model, outputs) if oracle == "tflm" else litert(model)
    if engine is not None:
        return engine
    package = _PACKAGES[oracle]
    if installed(package) is None:
        why = f"{package} is not installed"
    elif oracle != "tflm" and harms_litert(model):
        why = f"{package} takes the int8 state of SVDF for int16 and crashes (--oracle tflm has it right)"
    else:
        why = f"{package} does not take the model"
    return replace(graph(model, oracle), name=f"{OWN}, as {why}")


def _of_chain(chain: Chain, oracle: str) -> Reference:
    """Each stage's reference on whole windows; its name is that of the first which is not independent, where there is one."""
    models = [specialize(s.model) for s in chain.stages]
    found = [find_reference(m, oracle, outputs=_output_count(m)) for m in models]
    weak = [f"{r.name} ({s.name})" for r, s in zip(found, chain.stages, strict=True) if not r.independent]
    name = weak[0] if weak else f"{', '.join(dict.fromkeys(r.name for r in found))}, stage by stage on whole windows"
    return Reference(name, lambda sets: run_chain(chain, [r.outputs for r in found], sets))


def _output_count(model: bytes) -> int:
    view = parse(model, Problems())
    return 0 if view is None else len(view.subgraphs[0].outputs)


def check_reference(model: bytes, oracle: str, *, outputs: int) -> None:
    """Raise ToolchainError E3031 if outputs could be compared with our own interpreter only."""
    found = find_reference(model, oracle, outputs=outputs)
    if not found.independent:
        message = f"there is no reference but {found.name}: pip install '{_PACKAGES[oracle]}', or give --no-require-reference"
        raise ToolchainError(Problem("E3031", message))


def plugged(model: bytes, oracle: str) -> Reference | None:
    """The engine of a plug-in's oracle; None of a builtin one."""
    engine = engine_of(oracle)
    if engine is None:
        return None
    run = engine(model)
    return Reference(f"oracle {oracle}", lambda sets: [list(run(s)) for s in sets])


def find_tracer(model: bytes, oracle: str) -> Reference:
    """The engine to search the first wrong operator with: one that shows every tensor (TFLM does not)."""
    engine = litert(model) if oracle in ("litert", "litert-reference") else None
    return engine or graph(model, oracle)
