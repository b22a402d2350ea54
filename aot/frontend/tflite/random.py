"""Converters of random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.frontend.tflite.convert import (
    ConvertContext,
    constant_ints,
    from_tflite,
    one_int,
    operand,
    require_dtype,
    reshaped,
    slice_of,
    unsupported,
)
from aot.frontend.view import OperatorView
from aot.numerics.random import WORDS
from aot.op.math.cast import BitcastAttrs
from aot.op.random import LARGEST, AdvanceAttrs, BitsAttrs, DistributionAttrs, MultinomialAttrs
from aot.op.tensor.shape import ConcatenateAttrs
from aot.relay.expr import Expr, call, const

_WORDS_OF = {"int32": 1, "uint32": 1, "int64": 2, "uint64": 2}


@from_tflite(
    "STABLEHLO_RNG_BIT_GENERATOR", "uint64", "bitcast concatenate random.advance random.bits strided_slice", oracles=("litert",)
)
def convert_rng_bits(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """(the next state, bits in the declared shape); the state is a key, a counter and, with three numbers, two more words."""
    state, out, shape, span = ctx.input_type(op, 0), ctx.output_type(op, 1), ctx.output_shape(op, 1), ctx.span(op)
    require_dtype(ctx, op, state, ("uint64",), what="a state")
    require_dtype(ctx, op, out, tuple(_WORDS_OF), what="a result")
    algorithm = "threefry" if op.option("algorithm") == "THREEFRY" else "philox"
    sizes = ((2,),) if algorithm == "threefry" else ((2,), (3,))
    if state.shape not in sizes or shape is None or not 1 <= prod(shape) <= LARGEST // 2:
        unsupported(
            ctx, op, f"{algorithm} by a state of {state} for {out.dtype}{list(shape or ())} is not supported", code="E1207"
        )
    number = 2 * state.size
    flat = reshaped(call("bitcast", [operand(ctx, op, 0)], BitcastAttrs((state.size, 2), "uint32"), span=span), (number,), span)
    key, low, upper = (slice_of(ctx, op, flat, [range(a, z)]) for a, z in ((0, 2), (2, 4), (4, 6) if number == 6 else (0, 2)))
    counter = low if algorithm == "threefry" else call("concatenate", (low, upper), ConcatenateAttrs(0), span=span)
    per_element = _WORDS_OF[out.dtype]
    count = prod(shape) * per_element
    bits: Expr = call("random.bits", [counter, key], BitsAttrs(algorithm, count, 2), span=span)
    if per_element == 2:
        bits = reshaped(bits, (*shape, 2), span)
    if out.dtype != "uint32":
        bits = call("bitcast", [bits], BitcastAttrs(shape if per_element == 2 else (count,), out.dtype), span=span)
    blocks = -(-count // WORDS[algorithm])
    after = call("random.advance", [low], AdvanceAttrs(blocks, 2), span=span)
    parts = (key, after, upper) if number == 6 else (key, after)
    whole = reshaped(call("concatenate", parts, ConcatenateAttrs(0), span=span), (state.size, 2), span)
    return [call("bitcast", [whole], BitcastAttrs(state.shape, "uint64"), span=span), reshaped(bits, shape, span)]


SKIPPED_BLOCKS = 512
"""Samples that MULTINOMIAL skips per sample, rounded up to four per row: TensorFlow's kernel may need as many."""


def _drawn(ctx: ConvertContext, op: OperatorView, count: int, *, blocks: int) -> Expr:
    """`count` words of the operator's generator, which advances by `blocks`; the reference reads 32 bits of a seed."""
    seeds = [((int(op.option(name)) & 0xFFFFFFFF) ^ 1 << 31) - (1 << 31) & 0xFFFFFFFFFFFFFFFF for name in ("seed", "seed2")]
    if not any(seeds):
        unsupported(ctx, op, "its seeds are 0, so the reference chooses random ones and no two runs are equal", code="E1260")
    if not 1 <= count <= LARGEST:
        unsupported(ctx, op, f"{count} random words at a time are not supported", code="E1122")
    key, start = ([s & 0xFFFFFFFF, s >> 32] for s in seeds)
    state = ctx.own_variable(op, "counter", np.array([0, 0, *start], np.uint32))
    counter, span, words = state.read(), ctx.span(op), WORDS["philox"]
    state.assign(call("random.advance", [counter], AdvanceAttrs(blocks, words), span=span))
    args = [counter, const(np.array(key, np.uint32), span=span)]
    return call("random.bits", args, BitsAttrs("philox", count, words), span=span)


@from_tflite("RANDOM_UNIFORM", "int32", "random.advance random.bits random.uniform", oracles=("litert",))
@from_tflite("RANDOM_STANDARD_NORMAL", "int32", "random.advance random.bits random.normal", oracles=("litert",))
def convert_random(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Numbers in the shape given by the operand, a constant."""
    require_dtype(ctx, op, ctx.input_type(op, 0), ("int32",), what="a shape")
    require_dtype(ctx, op, ctx.output_type(op), ("float32",), what="a result")
    shape = tuple(constant_ints(ctx, op, 0))
    if any(n < 1 for n in shape):
        unsupported(ctx, op, f"random numbers in the shape {list(shape)} are not supported", code="E1122")
    count = prod(shape)
    blocks = -(-count // WORDS["philox"])
    words = blocks * WORDS["philox"]
    kind = "random.uniform" if op.opcode == "RANDOM_UNIFORM" else "random.normal"
    numbers = call(kind, [_drawn(ctx, op, words, blocks=blocks)], DistributionAttrs(count), span=ctx.span(op))
    return reshaped(numbers, shape, ctx.span(op))


@from_tflite("MULTINOMIAL", "float32", "random.advance random.bits random.multinomial", oracles=("litert",))
def convert_multinomial(ctx: ConvertContext, op: OperatorView) -> Expr:
    """random.multinomial; the number of draws is a constant."""
    logits, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, logits, ("float32",))
    require_dtype(ctx, op, out, ("int32", "int64"), what="a result")
    samples = one_int(ctx, op, 1)
    if len(logits.shape) != 2 or not logits.size or samples < 1:
        unsupported(ctx, op, f"{samples} draws from {logits} are not supported", code="E1207")
    rows = logits.shape[0]
    skipped = rows * -(-samples // 4) * 4 * SKIPPED_BLOCKS
    bits = _drawn(ctx, op, 2 * rows * samples, blocks=skipped)
    return call("random.multinomial", [operand(ctx, op, 0), bits], MultinomialAttrs(samples, out.dtype), span=ctx.span(op))
