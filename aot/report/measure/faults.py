"""Where the reference is not what to compare with: kernels known to be wrong, and places that an operator leaves unwritten.

A model whose outputs differ because of a known fault is not taken for exact: the first layer that differs must have an operator
of the table, every output must be what the graph interpreter makes of the model, which has that operator right, and the operator
alone must be what the other engine makes of it, where it has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aot.frontend.extract import NotAloneError, extract
from aot.frontend.flexbuffer import read_map
from aot.frontend.problems import Problems
from aot.frontend.view import ABSENT, ModelView, OperatorView, parse
from aot.ir.op import Array
from aot.report.measure.compare import compare_sets, difference
from aot.report.measure.reference import graph, tflm
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class KnownFault:
    """`opcode` on data of one of `dtypes` is wrong in the reference kernels of `engine`, in these `versions`.

    `what` is wrong, `example` shows it in one line, `source` says where it comes from.  `blockwise`: with a scale a block only.
    """

    opcode: str
    dtypes: tuple[str, ...]
    engine: str
    versions: str
    what: str
    example: str
    source: str
    blockwise: bool = False


KNOWN_FAULTS: tuple[KnownFault, ...] = (
    KnownFault(
        "SUM",
        ("int8", "int16"),
        "litert",
        "ai-edge-litert 2.1 to 2.3",
        "the reference kernel reads and writes the codes as uint8",
        "eight times -128 of scale 1 are -1, not -128",
        "tflite/kernels/reduce.cc, QuantizedMeanOrSum of kReference: GetTensorData<uint8_t> for every type",
    ),
    KnownFault(
        "FULLY_CONNECTED",
        ("float32",),
        "litert",
        "ai-edge-litert 2.1 to 2.3",
        "the reference kernel takes one scale for weights that have one a block, and finds 0",
        "every result is 0, or the bias; LiteRT's own kernels without delegates give what is meant",
        "tflite/kernels/fully_connected.cc, Prepare: op_data_4bit, and with it EvalBlockwise4Bit, is not for kReference;"
        " EvalHybridDense multiplies by filter->params.scale, which is 0 for a tensor with blocks",
        blockwise=True,
    ),
)


def known_fault(opcode: str, dtype: str, *, oracle: str, blockwise: bool = False) -> KnownFault | None:
    """The entry of an operator on data of `dtype`; `blockwise`: one of its operands has a scale a block."""
    here = (f for f in KNOWN_FAULTS if f.opcode == opcode and dtype in f.dtypes and f.engine == oracle)
    return next((f for f in here if blockwise or not f.blockwise), None)


def explain_difference(
    model: bytes,
    *,
    oracle: str,
    first: Mapping[str, Any],
    inputs: Sequence[Sequence[Array]],
    actual: Sequence[Sequence[Array]],
) -> dict[str, Any] | None:
    """Why outputs differ, if a known fault of the reference is all of it, else None.

    `first` is the first divergence, `actual[set][output]` what the compiled model gave for `inputs[set][input]`.
    """
    view = parse(model, Problems())
    found = None if view is None else _first_fault(view, first.get("ops", ()), oracle)
    if found is None:
        return None
    index, result, fault = found
    own = graph(model, oracle)
    if not compare_sets(own.outputs(inputs), actual).exact:
        return None
    assert own.tensors is not None
    engine, agrees = _other_engine(model, index, result, own.tensors(inputs[first["set"]]))
    if agrees is False:
        return None
    words = {"operator": fault.opcode, "what": fault.what, "example": fault.example, "versions": fault.versions}
    return {**words, "layer": first["layer"], "compared_with": engine}


def fault_text(fault: Mapping[str, Any]) -> str:
    """A known fault of the reference in one sentence."""
    other = f"; {fault['compared_with']} agrees with the compiled model" if fault["compared_with"] else ""
    here = f"layer {fault['layer']}, {fault['operator']}, {fault['versions']}"
    return f"differs from the reference, which is wrong here ({here}): {fault['what']}; {fault['example']}{other}"


def _first_fault(view: ModelView, ops: Sequence[int], oracle: str) -> tuple[int, int, KnownFault] | None:
    """The first of a layer's operators that the table has, with its result's tensor."""
    graph_view = view.subgraphs[0]
    for index in ops:
        op = graph_view.operators[index]
        operands = [graph_view.tensors[t] for t in op.inputs if t != ABSENT]
        blockwise = any(t.quant is not None and t.quant.block is not None for t in operands)
        fault = known_fault(op.opcode, operands[0].dtype, oracle=oracle, blockwise=blockwise) if operands else None
        if fault is not None:
            return index, op.outputs[0], fault
    return None


def _other_engine(model: bytes, index: int, result: int, tensors: Mapping[int, Array]) -> tuple[str | None, bool | None]:
    """TFLM's name and whether it gives the operator's result for the same operands; (None, None) where it cannot be asked."""
    try:
        alone = extract(model, (index,), result)
    except NotAloneError:
        return None, None
    engine = tflm(alone.data, 1)
    if engine is None or any(t not in tensors for t in (*alone.inputs, result)):
        return None, None
    wanted = tensors[result]
    ((found,),) = engine.outputs([[tensors[t] for t in alone.inputs]])
    return engine.name, difference(found.reshape(wanted.shape), wanted) is None


# --- places that an operator leaves as they are

DETECTION = "TFLite_Detection_PostProcess"


def with_zeros(model: bytes, sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Reference outputs with zeros in the places that are not defined: detections after the last one.

    The reference leaves there what an earlier run had written; the compiled model writes zeros.
    """
    view = parse(model, Problems())
    slots = [] if view is None else [s for op in view.subgraphs[0].operators if (s := _detection(view, op)) is not None]
    return [_zeroed(outputs, slots) for outputs in sets]


@dataclass(frozen=True, slots=True)
class _Slots:
    """Positions among the graph's outputs: the number of detections, and what has `rows` rows, `each` for every one of them."""

    number: int
    filled: tuple[int, ...]
    rows: int
    each: int


def _detection(view: ModelView, op: OperatorView) -> _Slots | None:
    outputs = list(view.subgraphs[0].outputs)
    if op.opcode != "CUSTOM" or op.custom_name != DETECTION or len(op.outputs) != 4 or op.outputs[3] not in outputs:
        return None
    rows = view.subgraphs[0].tensors[op.outputs[1]].shape[-1]
    most = int(read_map(op.custom_options)["max_detections"])  # the converter has read them before
    filled = tuple(outputs.index(t) for t in op.outputs[:3] if t in outputs)
    return _Slots(outputs.index(op.outputs[3]), filled, rows, rows // most)


def _zeroed(outputs: Sequence[Array], slots: Sequence[_Slots]) -> list[Array]:
    found = list(outputs)
    for s in slots:
        used = int(found[s.number].reshape(-1)[0]) * s.each
        for position in s.filled:
            found[position] = np.array(found[position])
            found[position].reshape(s.rows, -1)[used:] = 0
    return found
