"""Converters of random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.frontend.tflite.convert import Operator, converter
from aot.numerics.random import WORDS
from aot.op.math.unary import BitcastAttrs
from aot.op.random import LARGEST, AdvanceAttrs, BitsAttrs, MultinomialAttrs, NormalAttrs, UniformAttrs
from aot.op.tensor import ConcatenateAttrs
from aot.relay.expr import Expr, const

_WORDS_OF = {"int32": 1, "uint32": 1, "int64": 2, "uint64": 2}


@converter(
    "STABLEHLO_RNG_BIT_GENERATOR", "uint64", "bitcast concatenate random.advance random.bits strided_slice", oracles=("litert",)
)
def _rng_bits(op: Operator) -> Sequence[Expr]:
    """(the next state, bits in the declared shape); the state is a key, a counter and, with three numbers, two more words."""
    state, out, shape = op.type(0, ("uint64",), what="a state"), op.result_type(1, tuple(_WORDS_OF)), op.result_shape(1)
    algorithm = "threefry" if op.option("algorithm") == "THREEFRY" else "philox"
    sizes = ((2,),) if algorithm == "threefry" else ((2,), (3,))
    if state.shape not in sizes or shape is None or not 1 <= prod(shape) <= LARGEST // 2:
        op.refuse(f"{algorithm} by a state of {state} for {out.dtype}{list(shape or ())} is not supported", code="E1207")
    number = 2 * state.size
    flat = op.reshaped(op.call("bitcast", [op.operand(0)], BitcastAttrs((state.size, 2), "uint32")), (number,))
    key, low, upper = (op.slice_of(flat, [range(a, z)]) for a, z in ((0, 2), (2, 4), (4, 6) if number == 6 else (0, 2)))
    counter = low if algorithm == "threefry" else op.call("concatenate", (low, upper), ConcatenateAttrs(0))
    per_element = _WORDS_OF[out.dtype]
    count = prod(shape) * per_element
    bits: Expr = op.call("random.bits", [counter, key], BitsAttrs(algorithm, count, 2))
    if per_element == 2:
        bits = op.reshaped(bits, (*shape, 2))
    if out.dtype != "uint32":
        bits = op.call("bitcast", [bits], BitcastAttrs(shape if per_element == 2 else (count,), out.dtype))
    blocks = -(-count // WORDS[algorithm])
    after = op.call("random.advance", [low], AdvanceAttrs(blocks, 2))
    parts = (key, after, upper) if number == 6 else (key, after)
    whole = op.reshaped(op.call("concatenate", parts, ConcatenateAttrs(0)), (state.size, 2))
    return [op.call("bitcast", [whole], BitcastAttrs(state.shape, "uint64")), op.reshaped(bits, shape)]


SKIPPED_BLOCKS = 512
"""Samples that MULTINOMIAL skips per sample, rounded up to four per row: TensorFlow's kernel may need as many."""


def _drawn(op: Operator, count: int, *, blocks: int) -> Expr:
    """`count` words of the operator's generator, which advances by `blocks`; the reference reads 32 bits of a seed."""
    seeds = [((int(op.option(name)) & 0xFFFFFFFF) ^ 1 << 31) - (1 << 31) & 0xFFFFFFFFFFFFFFFF for name in ("seed", "seed2")]
    if not any(seeds):
        op.refuse("its seeds are 0, so the reference chooses random ones and no two runs are equal", code="E1260")
    if not 1 <= count <= LARGEST:
        op.refuse(f"{count} random words at a time are not supported", code="E1122")
    key, start = ([s & 0xFFFFFFFF, s >> 32] for s in seeds)
    state = op.own_variable("counter", np.array([0, 0, *start], np.uint32))
    counter, span, words = state.read(), op.span, WORDS["philox"]
    state.assign(op.call("random.advance", [counter], AdvanceAttrs(blocks, words)))
    return op.call("random.bits", [counter, const(np.array(key, np.uint32), span=span)], BitsAttrs("philox", count, words))


@converter("RANDOM_UNIFORM", "int32", "random.advance random.bits random.uniform", oracles=("litert",))
@converter("RANDOM_STANDARD_NORMAL", "int32", "random.advance random.bits random.normal", oracles=("litert",))
def _random(op: Operator) -> Expr:
    """Numbers in the shape given by the operand, a constant."""
    op.require_dtype(op.type(0), ("int32",), what="a shape")
    op.require_dtype(op.result_type(), ("float32",), what="a result")
    shape = tuple(op.ints(0))
    if any(n < 1 for n in shape):
        op.refuse(f"random numbers in the shape {list(shape)} are not supported", code="E1122")
    count = prod(shape)
    blocks = -(-count // WORDS["philox"])
    words = blocks * WORDS["philox"]
    kind, attrs_type = ("uniform", UniformAttrs) if op.opcode == "RANDOM_UNIFORM" else ("normal", NormalAttrs)
    numbers = op.call(f"random.{kind}", [_drawn(op, words, blocks=blocks)], attrs_type(count))
    return op.reshaped(numbers, shape)


@converter("MULTINOMIAL", "float32", "random.advance random.bits random.multinomial", oracles=("litert",))
def _multinomial(op: Operator) -> Expr:
    """random.multinomial; the number of draws is a constant."""
    logits, out = op.type(0, ("float32",)), op.result_type(0, ("int32", "int64"))
    samples = op.one_int(1)
    if len(logits.shape) != 2 or not logits.size or samples < 1:
        op.refuse(f"{samples} draws from {logits} are not supported", code="E1207")
    rows = logits.shape[0]
    skipped = rows * -(-samples // 4) * 4 * SKIPPED_BLOCKS
    bits = _drawn(op, 2 * rows * samples, blocks=skipped)
    return op.call("random.multinomial", [op.operand(0), bits], MultinomialAttrs(samples, out.dtype))
