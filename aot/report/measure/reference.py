"""The engines that outputs are compared with: TensorFlow Lite's reference kernels, TFLM, and our own graph interpreter."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from math import prod
from typing import Any, TypeVar

import numpy as np

from aot.driver.oracles import engine_of
from aot.errors import Problem, ToolchainError
from aot.frontend.chain import Chain, Stage, unpack
from aot.frontend.formats import format_of, from_model, specialize
from aot.frontend.problems import Problems
from aot.frontend.tflite.flatbuffer import Reader
from aot.frontend.tflite.records import Record, decode_model, encode_model
from aot.frontend.tflite.specialize import STATEFUL, buffer_of
from aot.frontend.tflite.view import ABSENT, OperatorView, SubgraphView, TensorView, parse
from aot.ir.op import Array
from aot.report.measure.inputs import moved_windows
from aot.support.dataclass import dataclass
from aot.system.process import heard

OWN = "the graph interpreter"
"""Prefix of the name of the compiler's own interpreter, which is not an independent reference."""

RunSets = Callable[[Sequence[Sequence[Array]]], list[list[Array]]]
RunTensors = Callable[[Sequence[Array]], dict[int, Array]]


_PACKAGES = {"litert": "ai-edge-litert", "litert-reference": "ai-edge-litert", "tflm": "tflite-micro"}


@dataclass(frozen=True, slots=True)
class Reference:
    """`outputs(sets)` gives the outputs of each set; `tensors(inputs)` all tensors that it can show after one run, by index.

    Both raise RuntimeError if a kernel fails, with a phrase that continues `engine`.
    """

    name: str
    outputs: RunSets
    tensors: RunTensors = lambda _inputs: {}
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


def litert(model: bytes) -> Reference:
    """TensorFlow Lite's reference kernels; operators that the reference set lacks run with the full set.

    Raises RefusedError if LiteRT refuses the model, ImportError if it is not installed.
    """
    have = installed("ai-edge-litert")
    if have is None:
        raise ImportError("ai-edge-litert is not installed")
    view = parse(model, Problems())
    svdf = [(g, op) for g in (view.subgraphs if view else ()) for op in g.operators if op.opcode == "SVDF" and len(op.inputs) > 4]
    if any(g.tensors[op.inputs[4]].dtype == "int8" for g, op in svdf):  # it would corrupt memory (kernels/svdf.cc)
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

    def outputs(sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Run all sets in one fresh interpreter."""
        results: list[list[Array]] = []
        with heard() as said:
            try:
                interpreter = fresh.pop() if fresh else runtime.Interpreter.from_bytes(model)
                for inputs in sets:
                    for i, value in enumerate(inputs):
                        interpreter.set_input(value, i)
                    interpreter.invoke()
                    results.append([interpreter.get_output(i) for i in range(output_count)])
                return results
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
    views = [parse(m, Problems()) for m in models]
    counts = [0 if v is None else len(v.subgraphs[0].outputs) for v in views]
    references = [find_reference(m, oracle, outputs=n) for m, n in zip(models, counts, strict=True)]
    weak = [f"{r.name} ({s.name})" for r, s in zip(references, chain.stages, strict=True) if not r.independent]
    name = weak[0] if weak else f"{', '.join(dict.fromkeys(r.name for r in references))}, stage by stage on whole windows"
    return Reference(name, lambda sets: run_chain(chain, [r.outputs for r in references], sets), engine="a stage's reference")


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


# ---- LiteRT: its reference kernels, and its full set for operators that the reference set lacks
# The full set has faster kernels for most operators, whose floats differ, so it runs only the missing operators: such a model is
# split into pieces, each in its own interpreter with the tensors of the file.  The whole model runs with the full set if a piece
# would need the state of another; a branch or a loop does if anything inside is missing.  Which operators are missing depends on
# version and data type, and follows from LiteRT's own error messages.


REFERENCE, FULL = "BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
"""Kernel sets, as `OpResolverType` names them."""

T = TypeVar("T")

_LACKS = re.compile(r"Didn't find op for builtin opcode '(\w+)' version '(\d+)'")
_UNKNOWN = re.compile(r"Encountered unresolved custom op: ([^\s.]+)")
_FAILED = re.compile(r"\s*Node number (\d+) \((\w+)\) failed to (?:prepare|invoke)\.?\s*")


class RefusedError(RuntimeError):
    """No kernel set of LiteRT runs the model; the message says why, and names the operators if they are known.

    `at_run`: LiteRT accepts the model, but a kernel fails at run time, perhaps only with these inputs.
    """

    def __init__(self, message: str, *, at_run: bool = False) -> None:
        super().__init__(message)
        self.at_run = at_run


@dataclass(frozen=True, slots=True)
class _Piece:
    """Operators `first` to `end` - 1 of the first graph as a file; all tensors keep their indices."""

    data: bytes
    kernels: str
    first: int
    end: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    made: frozenset[int]


class _PieceError(Exception):
    """LiteRT refuses a piece."""

    def __init__(self, piece: _Piece, error: Exception, *, at_run: bool) -> None:
        super().__init__(str(error))
        self.piece = piece
        self.at_run = at_run


def interpreter_of(data: bytes, kernels: str, *, preserve: bool = False) -> Any:
    """LiteRT's interpreter for a file; ImportError, ValueError or RuntimeError as LiteRT raises them."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=data,
        experimental_op_resolver_type=getattr(OpResolverType, kernels),
        experimental_preserve_all_tensors=preserve,
        num_threads=1,
    )
    interpreter.allocate_tensors()
    return interpreter


class Litert:
    """A model in LiteRT.  Raises RefusedError if no kernel set runs it, ImportError if LiteRT cannot be imported."""

    def __init__(self, model: bytes) -> None:
        view = parse(model, Problems())
        if view is None or not view.subgraphs:
            raise RefusedError("the model cannot be read")
        self._model = model
        self._graphs = view.subgraphs
        self._full: frozenset[int] = frozenset()
        self._pieces = self._divided()
        self._idle: list[_Running] = []
        self._idle = [self._until_it_runs(lambda running: running)]

    @property
    def full(self) -> tuple[str, ...]:
        """The operators that run with kernels of the full set, by name, each once."""
        operators = self._graphs[0].operators
        return tuple(dict.fromkeys(operators[i].kind for p in self._pieces if p.kernels == FULL for i in range(p.first, p.end)))

    def outputs(self, sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """The outputs for each set of inputs, starting with the initial state and without a reset in between."""
        return self._until_it_runs(lambda running: [running.outputs(s) for s in sets])

    def tensors(self, inputs: Sequence[Array]) -> dict[int, Array]:
        """All tensors of the file that can be read after one run, by index."""

        return self._until_it_runs(lambda running: running.tensors(inputs), preserve=True)

    def _until_it_runs(self, work: Callable[[_Running], T], *, preserve: bool = False) -> T:
        """`work` on fresh interpreters; each time one fails, more operators run with the full set."""
        while True:
            try:
                idle = self._idle and not preserve
                return work(self._idle.pop() if idle else _Running(self._graphs[0], self._pieces, preserve=preserve))
            except _PieceError as error:
                self._widen(error)

    def _widen(self, error: _PieceError) -> None:
        """Move the operators that made the reference set fail to the full set.  RefusedError if the full set failed."""
        piece = error.piece
        if piece.kernels == FULL:
            raise RefusedError(self._reason(piece, str(error)), at_run=error.at_run) from None
        self._full |= frozenset(self._blamed(piece, str(error)))
        self._pieces = self._divided()
        self._idle = []

    def _blamed(self, piece: _Piece, message: str) -> set[int]:
        """The operators of a piece that a message is about; all of them if it does not say."""
        inside = range(piece.first, piece.end)
        operators = self._graphs[0].operators
        lacks = _LACKS.search(message)
        failed = _FAILED.search(message)
        if lacks is not None:
            named = {i for i in inside if (operators[i].opcode, str(operators[i].version)) == lacks.groups()}
            return named or {i for i in inside if _calls(operators[i])} or set(inside)
        if failed is not None:
            index = piece.first + int(failed[1])
            if index in inside and failed[2] in (operators[index].opcode, operators[index].custom_name):
                return {index}
        return set(inside)

    def _reason(self, piece: _Piece, message: str) -> str:
        """Why no kernel set runs a piece: the operator without a kernel, or the one that fails with LiteRT's message."""
        lacks = _LACKS.search(message) or _UNKNOWN.search(message)
        if lacks is not None:
            return f"has no kernel for {lacks[1]}"
        text = " ".join(_FAILED.sub(" ", message).split()).rstrip(".")
        blamed = self._blamed(piece, message)
        if len(blamed) == 1:
            return f"does not run {self._graphs[0].operators[min(blamed)].where}: {text}"
        return f"does not run the model: {text}"

    def _divided(self) -> tuple[_Piece, ...]:
        """The pieces, in the order in which they run."""
        operators = self._graphs[0].operators
        chosen = [i in self._full for i in range(len(operators))]
        if not any(chosen):
            return (self._whole(REFERENCE),)
        if all(chosen) or self._has_resources():
            return (self._whole(FULL),)
        cuts = [0, *(i for i in range(1, len(chosen)) if chosen[i] != chosen[i - 1]), len(chosen)]
        ranges = list(pairwise(cuts))
        if self._shares_state(ranges):
            return (self._whole(FULL),)
        return _cut(self._model, self._graphs[0], [(a, b, FULL if chosen[a] else REFERENCE) for a, b in ranges])

    def _whole(self, kernels: str) -> _Piece:
        graph = self._graphs[0]
        return _Piece(self._model, kernels, 0, len(graph.operators), graph.inputs, (), frozenset())

    def _has_resources(self) -> bool:
        """Whether the model has variables or other resources, which interpreters cannot share."""
        kinds = {op.opcode for g in self._graphs for op in g.operators}
        return bool(kinds & STATEFUL) or any(k.startswith("HASHTABLE") for k in kinds)

    def _shares_state(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Whether two pieces would use the same state tensor."""
        graph = self._graphs[0]
        users = [
            {t for op in graph.operators[a:b] for t in op.inputs if t >= 0 and graph.tensors[t].is_variable} for a, b in ranges
        ]
        return sum(map(len, users)) != len(set().union(*users))


def _calls(operator: OperatorView) -> bool:
    return any("subgraph" in key for key in operator.options)


def _cut(model: bytes, graph: SubgraphView, ranges: Sequence[tuple[int, int, str]]) -> tuple[_Piece, ...]:
    """The ranges of operators (first, end, kernels) as files; ranges without calls of graphs contain one graph only."""
    reader = Reader(model)
    record = decode_model(reader, Problems())
    assert record is not None, "it has been parsed"
    record = {**record, "buffers": tuple(_near(reader, b) for b in record["buffers"] or ())}
    asked = [dict.fromkeys(t for op in graph.operators[a:b] for t in op.inputs if t != ABSENT) for a, b, _ in ranges]
    known = {i for i, tensor in enumerate(graph.tensors) if tensor.raw or tensor.external or tensor.is_variable}
    pieces = []
    for i, (first, end, kernels) in enumerate(ranges):
        made = {t for op in graph.operators[first:end] for t in op.outputs}
        inputs = tuple(t for t in asked[i] if t not in made | known)
        outputs = tuple(sorted(made & set().union(graph.outputs, *asked[i + 1 :])))
        data = encode_model(_part(record, graph.operators[first:end], inputs=inputs, outputs=outputs))
        pieces.append(_Piece(data, kernels, first, end, inputs, outputs, frozenset(made)))
    return tuple(pieces)


def _near(reader: Reader, buffer: Record) -> Record:
    """A buffer with its bytes inline; one without bytes stays so: LiteRT treats an empty vector as a constant."""
    return buffer_of(reader, buffer) if buffer["offset"] > 1 else buffer


def _part(record: Record, operators: Sequence[OperatorView], *, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Record:
    """The model's record with only these operators in the first graph; tensors keep their indices."""
    graphs = record["subgraphs"]
    main = {**graphs[0], "operators": tuple(graphs[0]["operators"][op.index] for op in operators)}
    main |= {"inputs": list(inputs), "outputs": list(outputs), "debug_metadata_index": -1}
    kept = (main, *graphs[1:]) if any(_calls(op) for op in operators) else (main,)
    used = sorted({op["opcode_index"] for g in kept for op in g["operators"] or ()})  # LiteRT needs kernels for all listed codes
    renumbered = tuple(
        {**g, "operators": tuple({**op, "opcode_index": used.index(op["opcode_index"])} for op in g["operators"] or ())}
        for g in kept
    )
    nothing = dict.fromkeys(("metadata_buffer", "metadata", "signature_defs"))
    return {**record, **nothing, "operator_codes": tuple(record["operator_codes"][c] for c in used), "subgraphs": renumbered}


class _Running:
    """The pieces of a model, each in its own interpreter.  Raises _PieceError if LiteRT refuses one."""

    def __init__(self, graph: SubgraphView, pieces: Sequence[_Piece], *, preserve: bool) -> None:
        self._graph = graph
        self._steps = [(piece, self._load(piece, preserve=preserve)) for piece in pieces]

    @staticmethod
    def _load(piece: _Piece, *, preserve: bool) -> Any:
        try:
            return interpreter_of(piece.data, piece.kernels, preserve=preserve)
        except (ValueError, RuntimeError) as error:
            raise _PieceError(piece, error, at_run=False) from None

    def outputs(self, inputs: Sequence[Array]) -> list[Array]:
        """One run."""
        values = dict(zip(self._graph.inputs, inputs, strict=True))
        for piece, interpreter in self._steps:
            self._feed(interpreter, {t: values[t] for t in piece.inputs})
            try:
                interpreter.invoke()
            except RuntimeError as error:  # what LiteRT raises when a kernel fails, such as DIV for a divisor of 0
                raise _PieceError(piece, error, at_run=True) from None
            values |= {t: interpreter.get_tensor(t) for t in piece.outputs}
        return [values[t] if t in values else interpreter.get_tensor(t) for t in self._graph.outputs]

    def _feed(self, interpreter: Any, values: Mapping[int, Array]) -> None:
        """Set the inputs; the outputs of an earlier piece may differ in shape from the file."""
        shapes = {d["index"]: tuple(d["shape"]) for d in interpreter.get_input_details()}
        changed = [t for t in values if t not in self._graph.inputs and values[t].shape != shapes[t]]
        for t in changed:
            interpreter.resize_tensor_input(t, values[t].shape)
        if changed:
            interpreter.allocate_tensors()
        for t, value in values.items():
            interpreter.set_tensor(t, value)

    def tensors(self, inputs: Sequence[Array]) -> dict[int, Array]:
        """After one run, each piece's own tensors; inputs and constants from the first piece that has them."""
        self.outputs(inputs)
        tensors: dict[int, Array] = {}
        for piece, interpreter in self._steps:
            for index in range(len(self._graph.tensors)):
                if index in piece.made or index not in tensors:
                    try:
                        tensors[index] = interpreter.get_tensor(index)
                    except ValueError:  # never computed
                        continue
        return tensors
