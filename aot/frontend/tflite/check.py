"""Structural checks of a model: contradictions in the file, and content that no version of this compiler could support.

All problems are reported, not only the first.  Whether each operator is supported is decided by the operators' converters
(`aot.frontend.tflite.check_model` asks them); the checks here need no knowledge of our operators.
"""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from aot.errors import Problem
from aot.frontend.problems import Problems
from aot.frontend.tflite import view as views
from aot.frontend.tflite.schema import SCHEMA_VERSION
from aot.frontend.tflite.tensor_lists import has_lists, is_on_lists, open_batch, without_lists
from aot.support.text import printable

_MANY = 1 << 30

_ARITY = """
CONV_2D 2-3 1 / DEPTHWISE_CONV_2D 2-3 1 / CONV_3D 2-3 1 / TRANSPOSE_CONV 3-4 1 / FULLY_CONNECTED 2-4 1-2
AVERAGE_POOL_2D 1 1 / MAX_POOL_2D 1 1 / L2_POOL_2D 1 1 / SOFTMAX 1 1 / LOG_SOFTMAX 1 1 / CONCATENATION 1-* 1
ADD 2 1 / SUB 2 1 / MUL 2 1 / DIV 2 1 / MAXIMUM 2 1 / MINIMUM 2 1 / SQUARED_DIFFERENCE 2 1 / POW 2 1 / FLOOR_DIV 2 1
FLOOR_MOD 2 1 / ATAN2 2 1 / EQUAL 2 1 / NOT_EQUAL 2 1 / LESS 2 1 / LESS_EQUAL 2 1 / GREATER 2 1 / GREATER_EQUAL 2 1
LOGICAL_AND 2 1 / LOGICAL_OR 2 1 / LOGICAL_NOT 1 1 / PRELU 2 1 / BATCH_MATMUL 2 1 / EMBEDDING_LOOKUP 2 1
RELU 1 1 / RELU6 1 1 / RELU_N1_TO_1 1 1 / RELU_0_TO_1 1 1 / LEAKY_RELU 1 1 / ELU 1 1 / HARD_SWISH 1 1 / GELU 1 1
LOGISTIC 1 1 / TANH 1 1 / EXP 1 1 / LOG 1 1 / SQRT 1 1 / RSQRT 1 1 / SIN 1 1 / COS 1 1 / ABS 1 1 / NEG 1 1 / SIGN 1 1
SQUARE 1 1 / CEIL 1 1 / FLOOR 1 1 / ROUND 1 1 / CAST 1 1 / QUANTIZE 1 1 / DEQUANTIZE 1 1 / DENSIFY 1 1 / ZEROS_LIKE 1 1
MEAN 2 1 / SUM 2 1 / REDUCE_PROD 2 1 / REDUCE_MAX 2 1 / REDUCE_MIN 2 1 / REDUCE_ANY 2 1 / REDUCE_ALL 2 1
ARG_MAX 2 1 / ARG_MIN 2 1 / RESHAPE 1-2 1 / SQUEEZE 1 1 / EXPAND_DIMS 2 1 / TRANSPOSE 2 1 / SHAPE 1 1 / RANK 1 1
PAD 2 1 / PADV2 3 1 / MIRROR_PAD 2 1 / SLICE 3 1 / STRIDED_SLICE 4 1 / TILE 2 1 / FILL 2 1 / BROADCAST_TO 2 1
SPLIT 2 1-* / SPLIT_V 3 1-* / PACK 1-* 1 / UNPACK 1 1-* / GATHER 2 1 / GATHER_ND 2 1 / SCATTER_ND 3 1 / ONE_HOT 4 1
TOPK_V2 2 2 / WHERE 1 1 / SELECT 3 1 / SELECT_V2 3 1 / REVERSE_V2 2 1 / REVERSE_SEQUENCE 2 1 / CUMSUM 2 1 / RANGE 3 1
SPACE_TO_DEPTH 1 1 / DEPTH_TO_SPACE 1 1 / SPACE_TO_BATCH_ND 3 1 / BATCH_TO_SPACE_ND 3 1 / DYNAMIC_UPDATE_SLICE 3 1
RESIZE_BILINEAR 2 1 / RESIZE_NEAREST_NEIGHBOR 2 1 / L2_NORMALIZATION 1 1 / LOCAL_RESPONSE_NORMALIZATION 1 1
ADD_N 1-* 1 / BITCAST 1 1 / BITWISE_XOR 2 1 / RIGHT_SHIFT 2 1 / STABLEHLO_COMPOSITE 0-* 1-*
SVDF 5 1 / UNIDIRECTIONAL_SEQUENCE_LSTM 20-24 1 / UNIDIRECTIONAL_SEQUENCE_RNN 5 1 / RNN 5 1
VAR_HANDLE 0 1 / READ_VARIABLE 1 1 / ASSIGN_VARIABLE 2 0 / CALL_ONCE 0 0 / SEGMENT_SUM 2 1 / IF 1-* 0-* / WHILE 0-* 0-*
"""

_MAY_LACK = {
    "CONV_2D": {2}, "DEPTHWISE_CONV_2D": {2}, "CONV_3D": {2}, "TRANSPOSE_CONV": {3}, "FULLY_CONNECTED": {2, 3}, "SVDF": {3},
    "UNIDIRECTIONAL_SEQUENCE_LSTM": {1, 5, 9, 10, 11, 12, 16, 17, 20, 21, 22, 23},
}  # fmt: skip
"""Operators -> positions that may hold -1."""


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), _MANY if high == "*" else int(high or low)


def _entries(text: str) -> list[list[str]]:
    """The words of each entry of a table."""
    return [entry.split() for line in text.strip().splitlines() for entry in line.split("/")]


_COUNTS = {name: (_range(inputs), _range(outputs)) for name, inputs, outputs in _entries(_ARITY)}


_STEPS = ("stride_d", "stride_h", "stride_w", "dilation_d_factor", "dilation_h_factor", "dilation_w_factor")
_WINDOW = ("filter_height", "filter_width")
_MAX_STEP = 1 << 16
_MAX_TAPS = 1 << 20
"""Larger windows than a whole image of a million pixels are refused, so that offsets fit 32 bits."""


def _check_window(op: views.OperatorView, problems: Problems) -> None:
    """Strides, dilations and window sizes are positive and not absurd."""
    taps = 1
    for name in (*_STEPS, *_WINDOW):
        value = op.options.get(name, 1)
        if not 1 <= value <= _MAX_STEP:
            problems.add("E1123", f"{name} is {value}, which is not in 1 to {_MAX_STEP}", op.where)
        elif name in _WINDOW:
            taps *= value
    if taps > _MAX_TAPS:
        problems.add("E1123", f"the window has {taps} elements, more than {_MAX_TAPS}", op.where)


_NEEDS_ELEMENTS = frozenset(
    {"CONV_2D", "DEPTHWISE_CONV_2D", "CONV_3D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "AVERAGE_POOL_2D", "MAX_POOL_2D",
     "L2_POOL_2D", "SOFTMAX", "LOG_SOFTMAX", "MEAN", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "SVDF"}
)  # fmt: skip


def needs_elements(op: views.OperatorView) -> bool:
    """Whether the operator is meaningless if its data or its result have no elements."""
    return op.opcode in _NEEDS_ELEMENTS


def _named(graph: views.SubgraphView, index: int) -> str:
    return f'tensor {index} "{printable(graph.tensors[index].name)}"'


def _check_elements(op: views.OperatorView, graph: views.SubgraphView, problems: Problems) -> None:
    """Data, weights and results of layers have at least one element."""
    if not needs_elements(op):
        return
    data = [i for i in (*op.inputs[:1], *op.outputs) if not graph.tensors[i].is_open]
    for index in (*data, *(i for i in op.inputs[1:] if i != views.ABSENT and op.opcode != "MEAN")):
        if 0 in graph.tensors[index].shape:
            problems.add("E1121", f"{_named(graph, index)} has no elements", op.where)


def check_operator(op: views.OperatorView, graph: views.SubgraphView, problems: Problems) -> None:
    """Note contradictions of the operator's definition (E1114, E1115, E1117).  All tensor indices must be valid."""
    if op.opcode not in _COUNTS:
        if op.opcode == "LSTM" and len(op.inputs) >= 20:
            _check_lstm_state(op, graph, problems)
        return
    inputs, outputs = _COUNTS[op.opcode]
    sound = True
    for count, (low, high), what in ((len(op.inputs), inputs, "inputs"), (len(op.outputs), outputs, "outputs")):
        if not low <= count <= high:
            expected = str(low) if low == high else f"at least {low}" if high == _MANY else f"{low} to {high}"
            problems.add("E1117", f"{count} {what}, expected {expected}", op.where)
            sound = False
    for position, index in enumerate(op.inputs):
        if index == views.ABSENT and position not in _MAY_LACK.get(op.opcode, ()):
            problems.add("E1117", f"input {position} is left out, but it is not optional", op.where)
            sound = False
    _check_window(op, problems)
    if not sound:
        return
    _check_elements(op, graph, problems)
    if op.opcode in _MORE:
        _MORE[op.opcode](op, graph, problems)


def _shape(op: views.OperatorView, graph: views.SubgraphView, position: int) -> tuple[int, ...]:
    return graph.tensors[op.inputs[position]].shape


def _check_squeeze(op: views.OperatorView, graph: views.SubgraphView, problems: Problems) -> None:
    if graph.tensors[op.inputs[0]].is_open:
        return
    shape = _shape(op, graph, 0)
    for dim in op.option("squeeze_dims"):
        exists = -len(shape) <= dim < len(shape)
        if not exists or shape[dim] != 1:
            fault = "is not 1" if exists else "does not exist"
            problems.add("E1115", f"dimension {dim} of shape {list(shape)} is named in squeeze_dims, but {fault}", op.where)


def _check_svdf_state(op: views.OperatorView, graph: views.SubgraphView, problems: Problems) -> None:
    """State [batch, filters * memory] for time weights [filters, memory]."""
    if graph.tensors[op.inputs[0]].is_open:
        return
    data, time, state = (_shape(op, graph, i) for i in (0, 2, 4))
    if len(data) != 2 or len(time) != 2:
        problems.add("E1114", f"data {list(data)} and time weights {list(time)} must have 2 dimensions", op.where)
    elif state != (needed := (data[0], time[0] * time[1])):
        problems.add("E1114", f"the state is {list(state)}, the weights need {list(needed)}", op.where)


def _check_lstm_state(op: views.OperatorView, graph: views.SubgraphView, problems: Problems) -> None:
    """Output state [batch, outputs] and cell state [batch, cells]; recurrent weights of the output gate are [cells, outputs]."""
    if any(op.inputs[i] == views.ABSENT for i in (0, 8, 18, 19)) or graph.tensors[op.inputs[0]].is_open:
        return
    data, weights = _shape(op, graph, 0), _shape(op, graph, 8)
    if len(data) not in (2, 3) or len(weights) != 2:
        problems.add("E1114", f"data {list(data)} or recurrent weights {list(weights)} have a wrong rank", op.where)
        return
    batch = data[1] if len(data) == 3 and op.options.get("time_major") else data[0]
    for position, extent, what in ((18, weights[1], "output state"), (19, weights[0], "cell state")):
        state = _shape(op, graph, position)
        if prod(state) != batch * extent:
            problems.add("E1114", f"the {what} is {list(state)}, the weights need {[batch, extent]}", op.where)


_MORE = {"SQUEEZE": _check_squeeze, "SVDF": _check_svdf_state, "UNIDIRECTIONAL_SEQUENCE_LSTM": _check_lstm_state}


MAX_TOTAL_BYTES = 1 << 30
"""All tensors of one subgraph together (1 GiB)."""

_NO_FIXED_SIZE = frozenset({"string", "resource", "variant"})

_RANGES = {"int4": 4, "int8": 8, "uint8": 8, "int16": 16, "int32": 32, "int64": 64}

_UNSUPPORTED_TYPES = frozenset({"variant", "complex128", "bfloat16", "int2", "uint4", "float8_e4m3fn", "float8_e5m2"})

_KNOWN_CUSTOM = ("Signal", "TFLite_Detection_PostProcess")
"""Custom operators with a public definition; the registry decides whether one is supported."""

_COMPILED = "the model was compiled for {}; use the model from before that step"
_RUN_BY = "the model needs {}, which provides this operator; no other interpreter has it"
_MADE_FOR = {
    "ethos-u": _COMPILED.format("Arm Ethos-U (Vela)"),
    "edgetpu-custom-op": _COMPILED.format("the Edge TPU"),
    "NPU_OP": _COMPILED.format("an NPU"),
    "NeutronGraph": _COMPILED.format("NXP's eIQ Neutron NPU"),
    "XC_": _COMPILED.format("XMOS xcore"),
    "Lce": _RUN_BY.format("Larq Compute Engine (binary networks)"),
    "Landmarks2TransformMatrix": _RUN_BY.format("MediaPipe"),
    "TransformLandmarks": _RUN_BY.format("MediaPipe"),
    "TransformTensorBilinear": _RUN_BY.format("MediaPipe"),
}
"""The tool a file was made for, by the prefix of its custom operators' names."""


def load(data: bytes) -> views.ModelView:
    """The checked view of a file.  Raises ModelError or UnsupportedError with all structural problems."""
    problems = Problems()
    view = check_bytes(data, problems)
    error = problems.error()
    if error is not None:
        raise error
    assert view is not None, "a file without a view has at least one problem"
    return view


def check_structure(data: bytes) -> list[Problem]:
    """All structural problems of a file, in a stable order."""
    problems = Problems()
    check_bytes(data, problems)
    return problems.report()


def check_bytes(data: bytes, problems: Problems) -> views.ModelView | None:
    """Parse and check; the view is None if nothing can be read.  Stops after E10xx, when little of the content is meaningful."""
    view = views.parse(data, problems)
    if view is None or any(p.code.startswith("E10") for p in problems.found):
        return view
    if has_lists(view):
        plain = without_lists(data, view, problems, batch=open_batch(view))
        view = view if plain is None else views.parse(plain, problems)
    if view is not None:
        check_view(view, problems)
    return view


def check_view(view: views.ModelView, problems: Problems) -> None:
    """Note what is inconsistent or can never be supported in a parsed model."""
    if view.version != SCHEMA_VERSION:
        problems.add("E1007", f"schema version {view.version}, expected {SCHEMA_VERSION}")
    if not view.subgraphs:
        problems.add("E1101", "the model has no subgraph")
    of_flex = any(_is_flex(op) for graph in view.subgraphs for op in graph.operators)
    for graph in view.subgraphs:
        _check_subgraph(graph, problems, of_flex=of_flex)
    _check_calls(view, problems)
    _check_signatures(view, problems)
    if not any(p.code.startswith(("E10", "E11")) for p in problems.found):
        entries = {0, *(s.subgraph for s in view.signatures)}
        for graph in view.subgraphs:
            if graph.index in entries:
                check_shapes(graph, problems)


def _check_subgraph(graph: views.SubgraphView, problems: Problems, *, of_flex: bool) -> None:
    if graph.index == 0:
        _check_open_inputs(graph, problems)
    if graph.index == 0 and not graph.outputs:
        what = "no outputs" if graph.operators else "no operators and no outputs: there is nothing to compute"
        problems.add("E1102", f"the subgraph has {what}", _place(graph))
    layers_only = _operands_of_layers(graph)
    for tensor in graph.tensors:
        if tensor.dtype != "variant" or not of_flex:  # the operator that makes it is refused
            _check_tensor(tensor, problems, of_layers=tensor.index in layers_only)
        _check_block_quant(graph, tensor, problems)
    total = sum(views.stored_bytes(t.dtype, t.extent) for t in graph.tensors if all(d >= 0 for d in t.shape))
    if total > MAX_TOTAL_BYTES:
        problems.add("E1217", f"the tensors need {total} bytes in total, more than {MAX_TOTAL_BYTES}", _place(graph))
    sound = True
    for op in graph.operators:
        sound = _check_indices(op, graph, problems) and sound
    sound = _check_interface(graph, problems) and sound
    if sound:
        _check_order(graph, problems)
        _check_flex(graph, problems)
        for op in graph.operators:
            _check_kind(op, problems)
            check_operator(op, graph, problems)
        _check_sparse_use(graph, problems)


OPEN_EXTENT = 96
"""Example in messages, for --shape, of a dimension that only the user knows."""


def open_axes(tensor: views.TensorView) -> list[int]:
    """Dimensions of an input, other than the first, that the file leaves open and stores as 1.

    The first one is the batch, for which 1 is intended.  A larger extent is the one that the model was made with.
    """
    named = enumerate(zip(tensor.shape, tensor.shape_signature, strict=False))
    return [axis for axis, (extent, written) in named if axis and written == -1 and extent == 1]


def _check_open_inputs(graph: views.SubgraphView, problems: Problems) -> None:
    """Note E1214, with the options to use, if the user must choose the size of the inputs."""
    inputs = [graph.tensors[i] for i in graph.inputs if 0 <= i < len(graph.tensors)]
    options = []
    for tensor in inputs:
        axes = open_axes(tensor)
        if axes:
            shape = ",".join(str(OPEN_EXTENT if i in axes else n) for i, n in enumerate(tensor.shape))
            options.append(f"--shape {printable(tensor.name)}={shape}")
    for tensor in inputs:
        axes = open_axes(tensor)
        if axes:
            which = f"dimension{'s' if len(axes) > 1 else ''} {', '.join(map(str, axes))} of {list(tensor.shape_signature)}"
            problems.add("E1214", f"{which} can have any size: choose one, such as {' '.join(options)}", f"input {tensor.where}")


def _place(graph: views.SubgraphView) -> str:
    name = f' "{printable(graph.name)}"' if graph.name else ""
    return f"subgraph {graph.index}{name}"


def _check_tensor(tensor: views.TensorView, problems: Problems, *, of_layers: bool) -> None:
    where = tensor.where
    if tensor.external:
        problems.add("E1219", "its data is stored in an external file", where)
    if tensor.dtype == "string":
        problems.add("E1212", "string tensors are not supported", where)
    elif tensor.dtype in _UNSUPPORTED_TYPES:
        problems.add("E1218", f"tensors of type {tensor.dtype} are not supported", where)
    if any(d < 0 for d in tensor.shape):
        problems.add("E1109", f"shape {list(tensor.shape)} has a negative dimension", where)
    elif len(tensor.shape) > views.MAX_RANK:
        problems.add("E1221", f"{len(tensor.shape)} dimensions; at most {views.MAX_RANK} are supported", where)
    elif views.stored_bytes(tensor.dtype, tensor.extent) > views.MAX_TENSOR_BYTES:
        size = views.stored_bytes(tensor.dtype, tensor.extent)
        problems.add("E1216", f"shape {list(tensor.shape)} needs {size} bytes, more than {views.MAX_TENSOR_BYTES}", where)
    else:
        _check_data(tensor, problems)
    if tensor.quant is not None:
        _check_quant(tensor, tensor.quant, problems, of_layers=of_layers)


def _check_data(tensor: views.TensorView, problems: Problems) -> None:
    if not tensor.raw or tensor.data is not None or tensor.dtype in _NO_FIXED_SIZE | _UNSUPPORTED_TYPES:
        return
    shape = list(tensor.shape)
    problems.add("E1108", f"its buffer holds {len(tensor.raw)} bytes, {tensor.dtype}{shape} needs {tensor.nbytes}", tensor.where)


def _check_quant(tensor: views.TensorView, quant: views.QuantView, problems: Problems, *, of_layers: bool) -> None:
    where, scales, zeros = tensor.where, quant.scales, quant.zero_points
    if quant.custom:
        problems.add("E1220", "it has a custom quantisation", where)
    if zeros.size != scales.size:
        problems.add("E1110", f"{scales.size} scales but {zeros.size} zero points", where)
    if quant.axis is not None and not 0 <= quant.axis < len(tensor.shape):
        problems.add("E1113", f"quantised dimension {quant.axis} of a {len(tensor.shape)}-dimensional tensor", where)
    elif quant.axis is not None and tensor.shape[quant.axis] != scales.size:
        extent = tensor.shape[quant.axis]
        problems.add("E1110", f"{scales.size} scales for {extent} slices of dimension {quant.axis}", where)
    _check_scales(tensor, quant, problems, of_layers=of_layers)
    bits = _RANGES[tensor.dtype]
    low, high = (0, 255) if tensor.dtype == "uint8" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    outside = zeros[(zeros < low) | (zeros > high)]
    if outside.size:
        problems.add("E1112", f"zero point {int(outside[0])} is outside {tensor.dtype}", where)


def _check_scales(tensor: views.TensorView, quant: views.QuantView, problems: Problems, *, of_layers: bool) -> None:
    """Scales are finite and positive.

    Exceptions: weights may have negative scales (as in MCUNet), which the reference multiplies as they are.  A constant of zeros
    may have scale 0, which converters give the initial states of recurrent networks; so may values computed from it, which the
    graph walk checks, and biases, whose scale carries no information.  If such a state is multiplied by weights, these become
    zeros with a scale of infinity, and their bias becomes NaN; aot.numerics.ties says what that means for the layers."""
    scales = quant.scales
    bad = ~np.isfinite(scales)
    if tensor.data is None or scales.size <= 1:
        bad |= scales < 0 if _may_be_zero(tensor) else scales <= 0
    else:
        bad |= scales == 0
    if bad.any() and not (of_layers and (scales.size > 1 or not (scales < 0).any()) and _is_lost(tensor, quant, bad)):
        value = float(scales[int(np.argmax(bad))])
        problems.add("E1111", f"scale {value:g} is not a finite, positive number", tensor.where)


def _is_lost(tensor: views.TensorView, quant: views.QuantView, bad: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> bool:
    """Whether these scales carry no information: those of a bias, and of weights that are zero."""
    if tensor.data is None or tensor.dtype in ("int32", "int64"):
        return tensor.data is not None
    axis, shape = quant.axis, tensor.data.shape
    is_sliced = axis is not None and 0 <= axis < len(shape) and shape[axis] == bad.size  # otherwise a separate problem
    values = np.compress(bad, tensor.data, axis=axis) if is_sliced else tensor.data
    zero_point = quant.zero_points[0] if quant.zero_points.size else 0
    return bool((values == zero_point).all() and (quant.zero_points == zero_point).all())


_LAYERS = {"FULLY_CONNECTED": (1, 2), "CONV_2D": (1, 2), "DEPTHWISE_CONV_2D": (1, 2), "TRANSPOSE_CONV": (1, 3)}
"""Operand positions of weights and bias of quantised layers."""


def _operands_of_layers(graph: views.SubgraphView) -> set[int]:
    """Tensors that are used only as weights or biases of integer layers."""
    uses = [(op, i, index) for op in graph.operators for i, index in enumerate(op.inputs)]
    operands = {index for op, i, index in uses if i in _LAYERS.get(op.opcode, ())}
    for op, i, index in uses:
        data = op.inputs[2 if op.opcode == "TRANSPOSE_CONV" and len(op.inputs) > 2 else 0]
        floats = 0 <= data < len(graph.tensors) and graph.tensors[data].dtype == "float32"
        if floats or i not in _LAYERS.get(op.opcode, ()):
            operands.discard(index)
    return operands - {*graph.inputs, *graph.outputs}


def _may_be_zero(tensor: views.TensorView) -> bool:
    """Whether a scale of 0 may be harmless: for a bias, a constant of zeros, or a computed value."""
    if tensor.data is None or tensor.quant is None or tensor.quant.zero_points.size != 1:
        return tensor.data is None
    return tensor.dtype in ("int32", "int64") or bool((tensor.data == tensor.quant.zero_points[0]).all())


def _check_block_quant(graph: views.SubgraphView, tensor: views.TensorView, problems: Problems) -> None:
    block = tensor.quant.block if tensor.quant is not None else None
    if block is None:
        return
    for index, what in ((block.scales, "scales"), (block.zero_points, "zero points")):
        if not views.ABSENT <= index < len(graph.tensors):
            problems.add("E1103", f"its {what} are tensor {index}, which does not exist", tensor.where)
    if block.block_size < 0 or any(d < 0 for d in block.dims):
        problems.add("E1110", f"blocks of {block.block_size} elements", tensor.where)


def _check_indices(op: views.OperatorView, graph: views.SubgraphView, problems: Problems) -> bool:
    """Whether all tensors of an operator exist; -1 means "left out" and is allowed for inputs and intermediates only."""
    sound = True
    for indices, what, lowest in (
        (op.inputs, "input", views.ABSENT),
        (op.outputs, "output", 0),
        (op.intermediates, "intermediate", views.ABSENT),
    ):
        for position, index in enumerate(indices):
            if not lowest <= index < len(graph.tensors):
                problems.add("E1103", f"{what} {position} is tensor {index}, which does not exist", op.where)
                sound = False
    return sound


def _check_interface(graph: views.SubgraphView, problems: Problems) -> bool:
    sound = True
    for indices, what in ((graph.inputs, "input"), (graph.outputs, "output")):
        for position, index in enumerate(indices):
            if not 0 <= index < len(graph.tensors):
                problems.add("E1103", f"graph {what} {position} is tensor {index}, which does not exist", _place(graph))
                sound = False
            elif (quant := graph.tensors[index].quant) is not None and (quant.scales == 0).any():
                problems.add("E1111", f"scale 0 of a graph {what} is not a positive number", graph.tensors[index].where)
    for index, count in Counter(graph.inputs).items():
        if count > 1 and 0 <= index < len(graph.tensors):
            problems.add("E1119", "it appears more than once in the graph's inputs", graph.tensors[index].where)
    return sound


def _check_order(graph: views.SubgraphView, problems: Problems) -> None:
    """Each tensor is written once, by an operator before its first reader; tensors without a writer have data."""
    tensors = graph.tensors
    writer = _writers(graph, problems)
    inputs = set(graph.inputs)
    for op in graph.operators:
        if op.opcode == "CUSTOM":  # may list its scratch memory among the inputs
            continue
        for position, index in enumerate(op.inputs):
            if index == views.ABSENT or index in inputs or _has_value(tensors[index]):
                continue
            by, name = writer.get(index), _named(graph, index)
            if by is None:
                problems.add("E1106", f"input {position}, {name}, has no data and nothing produces it", op.where)
            elif by >= op.index:
                problems.add("E1105", f"input {position}, {name}, is used before op {by} produces it", op.where)
    for index in graph.outputs:
        if index not in inputs and index not in writer and not _has_value(tensors[index]):
            problems.add("E1107", "this graph output is never produced", tensors[index].where)


def _has_value(tensor: views.TensorView) -> bool:
    """Whether a tensor has a value before the first operator runs.  Wrong data (E1108) count: they are already reported."""
    return tensor.is_variable or bool(tensor.raw) or tensor.data is not None or tensor.external


def _writers(graph: views.SubgraphView, problems: Problems) -> dict[int, int]:
    """Tensor -> operator that writes it."""
    writer: dict[int, int] = {}
    inputs = set(graph.inputs)
    for op in graph.operators:
        for index in op.outputs:
            where = graph.tensors[index].where
            if index in writer:
                problems.add("E1104", f"it is written by op {writer[index]} and by op {op.index}", where)
            elif index in inputs:
                problems.add("E1104", f"it is a graph input, but op {op.index} writes it", where)
            elif graph.tensors[index].raw:
                problems.add("E1104", f"it has constant data, but op {op.index} writes it", where)
            writer.setdefault(index, op.index)
    return writer


CONVERTED_CUSTOM: set[str] = set()
"""Names of custom operators with a converter, registered with the converter (aot.frontend.tflite.convert)."""


def is_known_custom(op: views.OperatorView) -> bool:
    """Whether a custom operator has a converter, or a public definition that we could implement."""
    return op.custom_name.startswith(_KNOWN_CUSTOM) or op.custom_name in CONVERTED_CUSTOM


def _is_flex(op: views.OperatorView) -> bool:
    return op.opcode == "CUSTOM" and op.custom_name.startswith("Flex")


def _check_flex(graph: views.SubgraphView, problems: Problems) -> None:
    """One problem for all of TensorFlow's own operators: they have one remedy."""
    flex = [op for op in graph.operators if _is_flex(op) and not is_on_lists(op)]  # E1262 and E1263 cover lists
    if not flex:
        return
    counts = Counter(printable(op.custom_name) for op in flex)
    names = ", ".join(name if n == 1 else f"{name} ({n} times)" for name, n in counts.items())
    what = "is a TensorFlow (Flex) operator" if len(flex) == 1 else "are TensorFlow (Flex) operators"
    needs = "needs TensorFlow itself" if len(flex) == 1 else "need TensorFlow itself"
    problems.add("E1211", f"{names} {what}, which {needs} to run", flex[0].where)


def _check_kind(op: views.OperatorView, problems: Problems) -> None:
    if op.opcode != "CUSTOM":
        return
    name = printable(op.custom_name)
    if is_known_custom(op) or _is_flex(op):
        return
    made_for = next((words for begin, words in _MADE_FOR.items() if op.custom_name.startswith(begin)), None)
    words = f'custom operator "{name}" is not known' if made_for is None else f"custom operator {name}: {made_for}"
    problems.add("E1210", words, op.where)


def _check_sparse_use(graph: views.SubgraphView, problems: Problems) -> None:
    """Sparse constants are used by DENSIFY only."""
    sparse = {t.index for t in graph.tensors if t.sparsity is not None}
    if not sparse:
        return
    for op in graph.operators:
        for index in op.inputs:
            if index in sparse and op.opcode != "DENSIFY":
                problems.add("E1215", f"input {graph.tensors[index].where} is sparse", op.where)


def called_subgraphs(op: views.OperatorView) -> tuple[int, ...]:
    """Indices of the subgraphs that an operator runs (WHILE, IF, CALL_ONCE ...), as stored in the file."""
    single = [
        v for name, v in op.options.items() if name.endswith("subgraph_index") or (name == "subgraph" and op.opcode == "CALL")
    ]
    return (*single, *op.options.get("branch_subgraph_indices", ()), *op.options.get("called_computations", ()))


def _check_calls(view: views.ModelView, problems: Problems) -> None:
    """Called subgraphs exist and do not call themselves, directly or through others."""
    calls: dict[int, set[int]] = {}
    for graph in view.subgraphs:
        callees = calls.setdefault(graph.index, set())
        for op in graph.operators:
            for index in called_subgraphs(op):
                if 0 <= index < len(view.subgraphs):
                    callees.add(index)
                else:
                    problems.add("E1103", f"it runs subgraph {index}, which does not exist", op.where)
    for index in _on_a_cycle(calls):
        problems.add("E1118", "it calls itself", _place(view.subgraphs[index]))


def _on_a_cycle(calls: dict[int, set[int]]) -> list[int]:
    """Nodes that remain after nodes without callees are removed repeatedly."""
    waiting = {node: len(callees) for node, callees in calls.items()}
    callers: dict[int, list[int]] = {node: [] for node in calls}
    for node, callees in calls.items():
        for callee in callees:
            callers[callee].append(node)
    ready = [node for node, count in waiting.items() if not count]
    while ready:
        for caller in callers[ready.pop()]:
            waiting[caller] -= 1
            if not waiting[caller]:
                ready.append(caller)
    return [node for node, count in waiting.items() if count]


def _check_signatures(view: views.ModelView, problems: Problems) -> None:
    for signature in view.signatures:
        where = f'signature "{printable(signature.key)}"'
        if not 0 <= signature.subgraph < len(view.subgraphs):
            problems.add("E1103", f"it runs subgraph {signature.subgraph}, which does not exist", where)
            continue
        count = len(view.subgraphs[signature.subgraph].tensors)
        for name, index in (*signature.inputs, *signature.outputs):
            if index >= count:
                problems.add("E1103", f'"{printable(name)}" is tensor {index}, which does not exist', where)


# Shapes that depend on values known only at run time.
#
# Converters compute shapes in the graph itself (SHAPE, STRIDED_SLICE, PACK, RESHAPE); that is fine provided that the computation
# starts with constants or shapes.  A value is static if all operators that lead to it have static operands.


_SHAPE_OPERANDS = """
RESHAPE 1 / SLICE 1 2 / STRIDED_SLICE 1 2 3 / TILE 1 / TOPK_V2 1 / PAD 1 / PADV2 1 / MIRROR_PAD 1 / FILL 0
BROADCAST_TO 1 / TRANSPOSE 1 / MEAN 1 / SUM 1 / REDUCE_PROD 1 / REDUCE_MAX 1 / REDUCE_MIN 1 / REDUCE_ANY 1 / REDUCE_ALL 1
RESIZE_BILINEAR 1 / RESIZE_NEAREST_NEIGHBOR 1 / SPLIT 0 / SPLIT_V 1 2 / EXPAND_DIMS 1 / ONE_HOT 1 / SCATTER_ND 2
RANGE 0 1 2 / SPACE_TO_BATCH_ND 1 2 / BATCH_TO_SPACE_ND 1 2 / ARG_MAX 1 / ARG_MIN 1 / RFFT2D 1 / SPARSE_TO_DENSE 1
SEGMENT_SUM 1 / UNSORTED_SEGMENT_SUM 2 / UNSORTED_SEGMENT_PROD 2 / UNSORTED_SEGMENT_MAX 2 / UNSORTED_SEGMENT_MIN 2
RANDOM_STANDARD_NORMAL 0 / RANDOM_UNIFORM 0 / MULTINOMIAL 1 / NON_MAX_SUPPRESSION_V4 2 / NON_MAX_SUPPRESSION_V5 2
WHERE 0 / UNIQUE 0 / DILATE 1 / REDUCE_WINDOW 2 3 4
"""
# TRANSPOSE_CONV is missing on purpose: data, weights and strides determine its output shape up to less than one stride,
# and published models compute it at run time.

_DATA_DEPENDENT = frozenset({"WHERE", "UNIQUE", "SEGMENT_SUM"})
"""Operators whose result's shape depends on the data."""

_NEVER_STATIC = frozenset(
    {"WHILE", "IF", "CALL", "CALL_ONCE", "READ_VARIABLE", "VAR_HANDLE", "ASSIGN_VARIABLE", "RANDOM_UNIFORM",
     "RANDOM_STANDARD_NORMAL", "MULTINOMIAL", "CUSTOM", "HASHTABLE_FIND", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE"}
)  # fmt: skip


_OPERANDS = {name: tuple(map(int, positions)) for name, *positions in _entries(_SHAPE_OPERANDS)}


def check_shapes(graph: views.SubgraphView, problems: Problems) -> None:
    """Note E1213 for each operator with a result shape unknown at compile time (root causes only, not what follows)."""
    static = {t.index for t in graph.tensors if t.data is not None and not t.is_variable}
    unknown: set[int] = set()  # tensors whose shape is not known
    for op in graph.operators:
        _check_integers(op, graph, problems)
        if op.opcode in ("SHAPE", "RANK"):
            if not unknown.intersection(op.inputs):
                static.update(op.outputs)
            continue
        present = [i for i in op.inputs if i != views.ABSENT]
        culprits = [] if _picks(op, graph) else [i for i in _shape_operands(op) if i not in static]
        if culprits:
            reason = "data" if op.opcode in _DATA_DEPENDENT else "value"
            culprit = _named(graph, culprits[0])
            problems.add("E1213", f"the shape of its result depends on the {reason} of {culprit} at run time", op.where)
        if culprits or unknown.intersection(present):
            unknown.update(op.outputs)
        if op.opcode not in _NEVER_STATIC and present and static.issuperset(present):
            static.update(op.outputs)


def _picks(op: views.OperatorView, graph: views.SubgraphView) -> bool:
    """Whether a STRIDED_SLICE selects one position of each listed dimension (`x[t]`), whatever the position."""
    if op.opcode != "STRIDED_SLICE" or op.input(1) == views.ABSENT:
        return False
    others = any(op.option(m) for m in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask"))
    return not others and op.option("shrink_axis_mask") == (1 << min(graph.tensors[op.input(1)].extent, views.MAX_RANK)) - 1


_MAY_BE_REAL = frozenset({"WHERE", "UNIQUE", "RANGE", "REDUCE_WINDOW"})


def _check_integers(op: views.OperatorView, graph: views.SubgraphView, problems: Problems) -> None:
    """Axes, sizes, paddings and permutations are integers."""
    if op.opcode in _MAY_BE_REAL:
        return
    for index in _shape_operands(op):
        dtype = graph.tensors[index].dtype
        if not dtype.startswith(("int", "uint")):
            problems.add("E1121", f"{_named(graph, index)} must hold integers, not {dtype}", op.where)


def _shape_operands(op: views.OperatorView) -> list[int]:
    """Tensors whose values determine the shape of the result."""
    operands = (op.input(position) for position in _OPERANDS.get(op.opcode, ()))
    return [index for index in operands if index != views.ABSENT]
