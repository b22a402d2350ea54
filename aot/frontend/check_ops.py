"""Checks of single operators against their definition: number of operands, operands left out, sizes of states.

Only what holds for every implementation of the operator; what we support is judged by the operators' converters.
"""

from __future__ import annotations

from math import prod

from aot.frontend.problems import Problems
from aot.frontend.view import ABSENT, OperatorView, SubgraphView
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


def _table(text: str) -> dict[str, tuple[tuple[int, int], tuple[int, int]]]:
    entries = [e.split() for line in text.strip().splitlines() for e in line.split("/")]
    return {words[0]: (_range(words[1]), _range(words[2])) for words in entries if words}


_COUNTS = _table(_ARITY)


_STEPS = ("stride_d", "stride_h", "stride_w", "dilation_d_factor", "dilation_h_factor", "dilation_w_factor")
_WINDOW = ("filter_height", "filter_width")
_MAX_STEP = 1 << 16
_MAX_TAPS = 1 << 20
"""Larger windows than a whole image of a million pixels are refused: offsets then stay within 32 bits."""


def _check_window(op: OperatorView, problems: Problems) -> None:
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


def needs_elements(op: OperatorView) -> bool:
    """Whether the operator has no meaning where its data or its result have no elements."""
    return op.opcode in _NEEDS_ELEMENTS


def _check_elements(op: OperatorView, graph: SubgraphView, problems: Problems) -> None:
    """Data, weights and results of layers have at least one element."""
    if not needs_elements(op):
        return
    for index in (*op.inputs[:1], *op.outputs):
        tensor = graph.tensors[index]
        if 0 in tensor.shape and not tensor.is_open:
            problems.add("E1121", f'tensor {index} "{printable(tensor.name)}" has no elements', op.where)
    for index in op.inputs[1:]:
        if index != ABSENT and 0 in graph.tensors[index].shape and op.opcode != "MEAN":
            problems.add("E1121", f'tensor {index} "{printable(graph.tensors[index].name)}" has no elements', op.where)


def check_operator(op: OperatorView, graph: SubgraphView, problems: Problems) -> None:
    """Note what contradicts the operator's definition (E1114, E1115, E1117).  All tensor indices must be valid."""
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
        if index == ABSENT and position not in _MAY_LACK.get(op.opcode, ()):
            problems.add("E1117", f"input {position} is left out, but it is not optional", op.where)
            sound = False
    _check_window(op, problems)
    if not sound:
        return
    _check_elements(op, graph, problems)
    match op.opcode:
        case "SQUEEZE":
            _check_squeeze(op, graph, problems)
        case "SVDF":
            _check_svdf_state(op, graph, problems)
        case "UNIDIRECTIONAL_SEQUENCE_LSTM":
            _check_lstm_state(op, graph, problems)


def _shape(op: OperatorView, graph: SubgraphView, position: int) -> tuple[int, ...]:
    return graph.tensors[op.inputs[position]].shape


def _is_open(op: OperatorView, graph: SubgraphView, position: int) -> bool:
    return graph.tensors[op.inputs[position]].is_open


def _check_squeeze(op: OperatorView, graph: SubgraphView, problems: Problems) -> None:
    if _is_open(op, graph, 0):
        return
    shape = _shape(op, graph, 0)
    for dim in op.option("squeeze_dims"):
        if not -len(shape) <= dim < len(shape):
            problems.add(
                "E1115", f"dimension {dim} of shape {list(shape)} is named in squeeze_dims, but does not exist", op.where
            )
        elif shape[dim] != 1:
            problems.add("E1115", f"dimension {dim} of shape {list(shape)} is named in squeeze_dims, but is not 1", op.where)


def _check_svdf_state(op: OperatorView, graph: SubgraphView, problems: Problems) -> None:
    """State [batch, filters * memory] for time weights [filters, memory]."""
    if _is_open(op, graph, 0):
        return
    data, time, state = (_shape(op, graph, i) for i in (0, 2, 4))
    if len(data) != 2 or len(time) != 2:
        problems.add("E1114", f"data {list(data)} and time weights {list(time)} must have 2 dimensions", op.where)
    elif state != (data[0], time[0] * time[1]):
        needed = [data[0], time[0] * time[1]]
        problems.add("E1114", f"the state is {list(state)}, the weights need {needed}", op.where)


def _check_lstm_state(op: OperatorView, graph: SubgraphView, problems: Problems) -> None:
    """Output state [batch, outputs] and cell state [batch, cells]; recurrent weights of the output gate are [cells, outputs]."""
    if any(op.inputs[i] == ABSENT for i in (0, 8, 18, 19)) or _is_open(op, graph, 0):
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
