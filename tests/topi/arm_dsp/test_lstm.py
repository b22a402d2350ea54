"""The LSTM kernels: random layers of all kinds in the interpreter, on the host and in QEMU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from aot.executor.candidates import group_of
from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.numerics.fixed_point import quantize_multiplier
from aot.op.recurrent import LSTM_INTEGER, LstmAttrs, Scale
from aot.relay.expr import Call, Function, Var, call, const
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from aot.topi.strategy import OpImplementation, implementations
from tests.topi.drawn import Case, pick
from tests.topi.groups import data_of
from tests.topi.runs import interpreted

KERNELS: dict[str, OpImplementation] = {i.name: i for i in implementations(LSTM_INTEGER) if i.name.startswith("arm_dsp.")}
TARGET = find_target("cortex-m4")
TOGETHER = 10
"""Cases of one program: the tables are in it for each."""

every_kernel = pytest.mark.parametrize("name", sorted(KERNELS))


def layer(rng: np.random.Generator) -> Function:
    """Sums from a few steps of a gate to far beyond its range, cells of any scale, LiteRT's and TFLM's arithmetic."""
    is_tflm, size = bool(rng.random() < 0.25), {"depth": pick(rng, 1, 3, 4, 9, 32), "cells": pick(rng, 1, 2, 5, 8)}
    plain = is_tflm or rng.random() < 0.6
    gates = 4 if is_tflm else pick(rng, 3, 4, 4)
    outputs = size["cells"] if plain else pick(rng, 1, size["cells"])
    major, steps, batch = bool(rng.random() < 0.5), pick(rng, 1, 2, 3), pick(rng, 1, 1, 2)
    attrs = _attrs(rng, gates, is_tflm=is_tflm, plain=plain, time_major=major)
    if outputs < size["cells"] and attrs.projection_scale is None:
        outputs = size["cells"]
    rows, cells = gates * size["cells"], size["cells"]
    most, bias = pick(rng, 20, 127), pick(rng, 0, 3000, 1 << 20)
    constants: list[Array] = [
        *(rng.integers(-most, most + 1, (rows, n)).astype(np.int8) for n in (size["depth"], outputs)),
        *(rng.integers(-bias, bias + 1, rows).astype(np.int32) for _ in range(2)),
    ]
    if attrs.peephole_scales:
        constants.append(rng.integers(-32767, 32768, (gates - 1) * cells).astype(np.int16))
    if attrs.norm:
        constants += [rng.integers(-32767, 32768, rows).astype(np.int16), rng.integers(-3000, 3000, rows).astype(np.int32)]
    if attrs.projection_scale is not None:
        constants += [
            rng.integers(-127, 128, (outputs, cells)).astype(np.int8),
            rng.integers(-3000, 3000, outputs).astype(np.int32),
        ]
    shape = (steps, batch) if major else (batch, steps)
    types = [
        TensorType((*shape, size["depth"]), "int8"),
        TensorType((batch, outputs), "int8"),
        TensorType((batch, cells), "int16"),
    ]
    params = [Var(f"x{i}", t) for i, t in enumerate(types)]
    return Function(tuple(params), call(LSTM_INTEGER, [*params, *map(const, constants)], attrs), {"Primitive": 1})


def _attrs(rng: np.random.Generator, gates: int, *, is_tflm: bool, plain: bool, time_major: bool) -> LstmAttrs:
    inputs, recurrent = (_scales(rng, gates, 2.0 ** pick(rng, -7, -2, 0, 1)) for _ in range(2))
    bits = pick(rng, *range(7))
    power = bits - 15 if gates == 3 or is_tflm or rng.random() < 0.9 else pick(rng, -20, -8)
    (hidden,) = _scales(rng, 1, 2.0 ** pick(rng, -22, -23, -24))
    attrs = LstmAttrs(time_major, inputs, recurrent, (0, 15), (0, 30 + power), 15 + power, hidden, pick(rng, -128, 0, 20, 127))
    if is_tflm:
        attrs = replace(attrs, forget_scale=quantize_multiplier(2.0**-15), update_scale=quantize_multiplier(2.0 ** (-30 - power)))
        return replace(attrs, activation="table")
    if rng.random() < 0.3:
        attrs = replace(attrs, cell_clip=pick(rng, 100, 20000))
    if plain:
        return attrs
    if rng.random() < 0.5:
        attrs = replace(attrs, peephole_scales=_scales(rng, gates - 1, 2.0**-12))
    if rng.random() < 0.5:
        attrs = replace(attrs, norm=tuple((*s, 1) for s in _scales(rng, gates, 2.0**-15)))
    if rng.random() < 0.5:
        attrs = replace(attrs, projection_scale=_scales(rng, 1, 2.0**-8)[0], output_zp=pick(rng, -5, 7))
    return attrs


def _scales(rng: np.random.Generator, count: int, size: float) -> tuple[Scale, ...]:
    return tuple(quantize_multiplier(float(size * rng.uniform(0.5, 1))) for _ in range(count))


def random_cases(name: str, seed: int) -> Iterator[Case]:
    """Endless random layers that the kernel takes."""
    rng = np.random.default_rng(seed)
    while True:
        func = layer(rng)
        group = group_of(func)
        if not KERNELS[name].accepts(group, TARGET):
            continue
        inputs = [data_of(v, int(rng.integers(1 << 30))) for v in func.params]
        assert isinstance(func.body, Call)
        text = f"{name}: {func.params[0].type} {func.params[2].type} {func.body.attrs}"
        yield Case(text, KERNELS[name].lower(group, TARGET, "kernel"), inputs, evaluate(func, inputs))


@every_kernel
def test_some_in_the_interpreter(name: str) -> None:
    interpreted(islice(random_cases(name, 1), 3))


def test_estimates_order_the_kernels() -> None:
    """Tables are the faster form, and both leave the generic kernel far behind."""
    group = group_of(layer(np.random.default_rng(5)))
    found = {
        i.name: i.lower(group, TARGET, "kernel").instructions for i in implementations(LSTM_INTEGER) if i.accepts(group, TARGET)
    }
    assert found["arm_dsp.lstm_w8_tables"] < found["arm_dsp.lstm_w8"] < found["generic.lstm"]
