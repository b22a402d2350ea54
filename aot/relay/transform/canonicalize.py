"""Rewrite operators into a normal form, rule by rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from aot.ir.op import Array
from aot.ir.transform import PassContext, function_pass
from aot.relay import expr as ex
from aot.relay.dataflow_pattern import CallPattern, is_constant, wildcard
from aot.relay.interpreter import call_op
from aot.relay.verify import same_type
from aot.support.dtype import bits, int_range, is_int, lowest


class Uses:
    """The readers of every node; a use as the function's result counts as the reader `None`.

    Readers are nodes of the graph before the rewrite.  There may be too many of them, never too few: `count(x) == 1` is reliable.
    """

    def __init__(self, func: ex.Function) -> None:
        self._readers: dict[int, list[ex.Expr | None]] = {key: list(nodes) for key, nodes in ex.users(func).items()}
        self._readers.setdefault(id(func.body), []).append(None)
        self._alive: list[ex.Expr] = []

    def readers(self, expr: ex.Expr) -> list[ex.Expr | None]:
        """The readers of `expr`, once per use; None stands for the function's caller."""
        return self._readers.get(id(expr), [])

    def count(self, expr: ex.Expr) -> int:
        """How often `expr` is read; a node that a rule has just created inside its result has one reader."""
        return len(self._readers.get(id(expr), [None]))

    def replace(self, old: ex.Expr, new: ex.Expr) -> None:
        """Make all readers of `old` read `new`; `new` may already have readers of its own."""
        if old is not new:
            self._alive.append(new)  # keeps its id unique
            self._readers[id(new)] = self._readers.get(id(new), []) + self.readers(old)


Rule = Callable[[ex.Call, Uses], ex.Expr | None]
"""A rule returns an equal expression by its law, which is never worse, or None if it does not apply."""


@function_pass(opt_level=1)
def canonicalize(func: ex.Function, _context: PassContext) -> ex.Function:
    """Apply `RULES` bottom-up until none applies.

    In and out: operator calls with bit-identical results.  Afterwards, no convolution or fully connected layer has an input zero
    point (unless removing it could overflow a 32-bit sum), paddings are in the windows that read them, clamps are in operators
    that clamp anyway, and operators that change nothing are gone.
    """
    while True:
        new = _sweep(func)
        if new.body is func.body:
            return new
        func = new


def _sweep(func: ex.Function) -> ex.Function:
    uses = Uses(func)

    def normal_form(old: ex.Expr, new: ex.Expr) -> ex.Expr:
        uses.replace(old, new)
        while isinstance(new, ex.Call):
            better = next((b for rule in RULES.get(new.name, ()) if (b := rule(new, uses)) is not None), None)
            if better is None:
                break
            uses.replace(new, better)
            new = better
        return new

    return replace(func, body=ex.rebuild(func.body, normal_form))


# Convolutions and fully connected layers.


def zero_point_into_bias(expr: ex.Call, _uses: Uses) -> ex.Expr | None:
    """sum w*(x - zp) = sum w*x - zp * sum w; the last term is a constant per output channel.

    Padding is unaffected: outside the image x is `pad_value`, which stays.  Weights must be constant, and no sum on the right
    side may overflow; then neither does the result on the left side.
    """
    weight, zp = effective_weight(expr), expr.attrs.input_zp
    if zp == 0 or weight is None:
        return None
    bias = -zp * weight.sum(axis=_reduction_axes(expr))
    layer = ex.again(expr, expr.args, replace(expr.attrs, input_zp=0))
    return with_bias(layer, bias) if _cannot_overflow(layer, bias) else None


def with_bias(layer: ex.Call, bias: Array) -> ex.Call:
    """`layer` + bias per output channel; no new node if the bias is zero."""
    if not bias.any():
        return layer
    data = bias.astype(np.dtype(ex.tensor_type(layer).dtype))
    return ex.call("nn.bias_add", [layer, ex.const(data, span=layer.span)], span=layer.span)


def merge_biases(expr: ex.Call, _uses: Uses) -> ex.Expr | None:
    """(x + a) + b = x + (a + b) for constants a and b, if x + (a + b) cannot overflow in any order of summation."""
    match = _TWO_BIASES.find(expr)
    if match is None:
        return None
    x, a, b = match[_LAYER], match[_FIRST_BIAS], match[_SECOND_BIAS]
    assert isinstance(x, ex.Call)
    assert isinstance(a, ex.Constant)
    assert isinstance(b, ex.Constant)
    total = a.data.astype(np.int64) + b.data
    if not _cannot_overflow(x, total):
        return None
    return ex.call("nn.bias_add", [x, ex.const(total.astype(a.data.dtype), span=b.span)], span=expr.span)


def _drop_if(does_nothing: Callable[[ex.Call], bool], law: str) -> Rule:
    """The rule that an operator which changes nothing is its first operand."""

    def rule(expr: ex.Call, _uses: Uses) -> ex.Expr | None:
        return expr.args[0] if does_nothing(expr) else None

    rule.__doc__ = law
    return rule


def _adds_zero(expr: ex.Call) -> bool:
    bias = expr.args[1]
    return isinstance(bias, ex.Constant) and not bias.data.any()


def _is(*names: str) -> CallPattern:
    """Like is_op, but for integers only, and without importing the operators' files along with this one."""
    return CallPattern(names)


_LAYER = _is("nn.conv2d", "nn.depthwise_conv2d", "nn.dense")(wildcard(), is_constant())
_FIRST_BIAS, _SECOND_BIAS = is_constant(), is_constant()
_TWO_BIASES = _is("nn.bias_add")(_is("nn.bias_add")(_LAYER, _FIRST_BIAS), _SECOND_BIAS)


def effective_weight(layer: ex.Call) -> Array | None:
    """A layer's constant integer weights less their zero point, int64, in their own order; None for other weights."""
    weight = layer.args[1]
    if not isinstance(weight, ex.Constant) or not is_int(weight.type.dtype):
        return None
    return np.asarray(weight.data).astype(np.int64) - getattr(layer.attrs, "weight_zp", 0)


def _reduction_axes(layer: ex.Call) -> tuple[int, ...]:
    """All axes of the weights except the output channels': the last one in a depthwise convolution, else the first."""
    rank = len(ex.tensor_type(layer.args[1]).shape)
    return tuple(range(rank - 1)) if ex.is_call(layer, "nn.depthwise_conv2d") else tuple(range(1, rank))


def _cannot_overflow(layer: ex.Call, bias: Array) -> bool:
    """Whether bias plus any partial sum of w*(x - input_zp) fits the accumulator's type, for every x of the data's type."""
    weight = effective_weight(layer)
    assert weight is not None
    low, high = int_range(ex.tensor_type(layer.args[0]).dtype)
    widest = max(abs(low - layer.attrs.input_zp), abs(high - layer.attrs.input_zp))
    bound = np.abs(weight).sum(axis=_reduction_axes(layer)) * widest + np.abs(bias)
    return bool((bound <= int_range(ex.tensor_type(layer).dtype)[1]).all())


# Padding.


def pad_into_window(expr: ex.Call, uses: Uses) -> ex.Expr | None:
    """A window over an image with a border equals the window over the image that reads the border's value outside.

    Applies only if all readers of the bordered image can absorb the border, so that it is never stored.
    """
    pad = expr.args[0]
    if not ex.is_call(pad, "nn.pad"):
        return None
    padding = _padding_with(pad, expr)
    if padding is None or any(_padding_with(pad, r) is None for r in uses.readers(pad)):
        return None
    attrs = replace(expr.attrs, padding=padding)
    if hasattr(attrs, "pad_value"):
        attrs = replace(attrs, pad_value=pad.attrs.pad_value)
    return ex.again(expr, [pad.args[0], *expr.args[1:]], attrs)


def _padding_with(pad: ex.Call, reader: ex.Expr | None) -> tuple[int, ...] | None:
    """The padding of a windowed operator that absorbs the border of `pad`; None if it cannot.

    The border may only be in height and width, and must be smaller than the window, so that no window misses the image.
    """
    if not isinstance(reader, ex.Call) or not reader.name or len(pad.attrs.pad_width) != 4:
        return None
    batch, height, width, channel = (tuple(w) for w in pad.attrs.pad_width)
    window = _window_reading(reader, pad.attrs.pad_value)
    if window is None or batch != (0, 0) or channel != (0, 0):
        return None
    border = (height[0], width[0], height[1], width[1])
    top, left, bottom, right = padding = tuple(a + b for a, b in zip(reader.attrs.padding, border, strict=True))
    return padding if max(top, bottom) < window[0] and max(left, right) < window[1] else None


def _window_reading(reader: ex.Call, value: int | float) -> Sequence[int] | None:
    """Height and width of the window of an operator that can read `value` outside the image; None for other operators.

    A convolution reads its `pad_value` there, which may be changed if it has no padding so far.  A maximum ignores what is
    outside: it starts with the lowest value of the type, such as -infinity for floats, so padding with that value changes
    nothing.
    """
    attrs, data = reader.attrs, ex.tensor_type(reader.args[0])
    if ex.is_call(reader, "nn.conv2d", "nn.depthwise_conv2d") and (attrs.pad_value == value or not any(attrs.padding)):
        kernel = ex.tensor_type(reader.args[1]).shape[1:3]
        return [(k - 1) * d + 1 for k, d in zip(kernel, attrs.dilation, strict=True)]
    if ex.is_call(reader, "nn.max_pool2d") and value <= lowest(data.dtype):
        return [int(k) for k in attrs.pool_size]
    return None


# Clamps.


def clip_of_clip(expr: ex.Call, _uses: Uses) -> ex.Expr | None:
    """clip(clip(x, a, b), c, d) = clip(x, a', b') where a' and b' are a and b clamped to [c, d]."""
    inner = expr.args[0]
    if not ex.is_call(inner, "clip"):
        return None
    lo, hi = (min(max(v, expr.attrs.lo), expr.attrs.hi) for v in (inner.attrs.lo, inner.attrs.hi))
    return ex.call("clip", inner.args, replace(expr.attrs, lo=lo, hi=hi), span=expr.span)


def clip_into_producer(expr: ex.Call, uses: Uses) -> ex.Expr | None:
    """An operator that clamps its result absorbs a further clamp (its `attrs.clipped`), if only the clip reads it."""
    inner = expr.args[0]
    if not isinstance(inner, ex.Call) or not hasattr(inner.attrs, "clipped") or uses.count(inner) != 1:
        return None
    return replace(ex.again(inner, inner.args, inner.attrs.clipped(expr.attrs.lo, expr.attrs.hi)), span=expr.span)


def drop_wide_clip(expr: ex.Call, _uses: Uses) -> ex.Expr | None:
    """A clamp to a range that includes every value of x is x: the range of the type, or of an operator that clamps."""
    x = expr.args[0]
    low, high = int_range(ex.tensor_type(x).dtype)
    if isinstance(x, ex.Call) and hasattr(x.attrs, "clipped"):
        low, high = getattr(x.attrs, "lo", low), getattr(x.attrs, "hi", high)
    return x if expr.attrs.lo <= low and high <= expr.attrs.hi else None


# Operators that change nothing.

_X = wildcard()
_TWO_RESHAPES = _is("reshape")(_is("reshape")(_X))
_TRANSPOSE = _is("transpose")(_X)
_TWO_TRANSPOSES = _is("transpose")(_TRANSPOSE)


def reshape_of_reshape(expr: ex.Call, _uses: Uses) -> ex.Expr | None:
    """Only the second of two shapes counts."""
    match = _TWO_RESHAPES.find(expr)
    return None if match is None else ex.again(expr, [match[_X]], expr.attrs)


def transpose_of_transpose(expr: ex.Call, _uses: Uses) -> ex.Expr | None:
    """Axis i of the result is axis p[q[i]] of x, if x is transposed by p and then by q."""
    match = _TWO_TRANSPOSES.find(expr)
    if match is None:
        return None
    inner = match[_TRANSPOSE]
    assert isinstance(inner, ex.Call)
    axes = tuple(inner.attrs.axes[i] for i in expr.attrs.axes)
    return ex.again(expr, inner.args, replace(expr.attrs, axes=axes))


def drop_requantize8(expr: ex.Call, _uses: Uses) -> ex.Expr | None:
    """A map, or two in turn, that leaves every 8-bit value unchanged (all are tried) is x, also with a reshape in between."""
    if _is_identity([expr]):
        return expr.args[0]
    inner = expr.args[0]
    if ex.is_call(inner, "reshape") and ex.is_call(inner.args[0], "qnn.requantize8"):
        inverse = drop_requantize8(ex.again(expr, inner.args), _uses)
        return None if inverse is None else ex.again(inner, [inverse])
    return inner.args[0] if ex.is_call(inner, "qnn.requantize8") and _is_identity([inner, expr]) else None


def _is_identity(maps: Sequence[ex.Call]) -> bool:
    dtype = ex.tensor_type(maps[0].args[0]).dtype
    if dtype != ex.tensor_type(maps[-1]).dtype or any(bits(t.dtype) != 8 for t in map(ex.tensor_type, (maps[0].args[0], *maps))):
        return False
    low, high = int_range(dtype)
    codes = every = np.arange(low, high + 1).astype(dtype)
    for step in maps:
        codes = _mapped(step, codes)
    return np.array_equal(codes, every)


def map_of_lut(expr: ex.Call, uses: Uses) -> ex.Expr | None:
    """f(T[x]) = (f . T)[x] for a map f from int8 to int8, if nothing else reads T[x]."""
    inner = expr.args[0]
    if not ex.is_call(inner, "qnn.lut") or uses.count(inner) != 1 or ex.tensor_type(expr).dtype != "int8":
        return None
    table = _mapped(expr, np.asarray(inner.attrs.table, np.int8))
    attrs = replace(inner.attrs, table=tuple(table.tolist()), quant=ex.tensor_type(expr).quant)
    return replace(ex.again(inner, inner.args, attrs), span=expr.span)


def lut_of_map(expr: ex.Call, uses: Uses) -> ex.Expr | None:
    """T[f(x)] = (T . f)[x] for a map f from int8 to int8, if nothing else reads f(x)."""
    inner = expr.args[0]
    if not ex.is_call(inner, "qnn.requantize8") or uses.count(inner) != 1:
        return None
    if (ex.tensor_type(inner.args[0]).dtype, ex.tensor_type(inner).dtype) != ("int8", "int8"):
        return None
    table = _mapped(expr, _mapped(inner, np.arange(-128, 128).astype(np.int8)))
    return ex.again(expr, inner.args, replace(expr.attrs, table=tuple(table.tolist())))


def _mapped(expr: ex.Call, codes: Array) -> Array:
    """The result of a one-operand operator for these values."""
    alone = ex.again(expr, [ex.const(codes)], expr.attrs)
    return np.asarray(call_op(alone, [codes]))


def _keeps_type(expr: ex.Call) -> bool:
    return same_type(expr.type, expr.args[0].type)


def _keeps_axes(expr: ex.Call) -> bool:
    return tuple(expr.attrs.axes) == tuple(range(len(expr.attrs.axes)))


_LAYER_RULES: tuple[Rule, ...] = (pad_into_window, zero_point_into_bias)

RULES: dict[str, tuple[Rule, ...]] = {
    "nn.conv2d": _LAYER_RULES,
    "nn.depthwise_conv2d": _LAYER_RULES,
    "nn.dense": (zero_point_into_bias,),
    "nn.bias_add": (merge_biases, _drop_if(_adds_zero, "x + 0 = x.")),
    "nn.max_pool2d": (pad_into_window,),
    "clip": (drop_wide_clip, clip_of_clip, clip_into_producer),
    "reshape": (reshape_of_reshape, _drop_if(_keeps_type, "A reshape to the shape of x is x.")),
    "transpose": (transpose_of_transpose, _drop_if(_keeps_axes, "A transpose that keeps the order of the axes is x.")),
    "nn.pad": (_drop_if(lambda expr: not any(map(any, expr.attrs.pad_width)), "A border of width 0 changes nothing."),),
    "concatenate": (_drop_if(lambda expr: len(expr.args) == 1, "The concatenation of a single tensor is that tensor."),),
    "qnn.requantize8": (drop_requantize8, map_of_lut),
    "qnn.lut": (map_of_lut, lut_of_map),
}
"""Rules per operator, tried in this order."""
