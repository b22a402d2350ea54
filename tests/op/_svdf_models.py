"""SVDF models of all kinds, from a few numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.testing import ModelBuilder


@dataclass(frozen=True, slots=True)
class Svdf:
    """`kind`: int8 (with an int16 state), int8-state, float32 or hybrid."""

    kind: str
    batch: int = 1
    depth: int = 4
    units: int = 2
    rank: int = 2
    memory: int = 3
    bias: bool = True
    activation: str = "RELU"
    asymmetric: bool = False
    seed: int = 0


def svdf_model(svdf: Svdf) -> bytes:
    b = ModelBuilder()
    data, result = svdf_layer(b, svdf)
    return b.build([data], [result])


def svdf_layer(b: ModelBuilder, svdf: Svdf) -> tuple[int, int]:
    """Adds the operator; its data and its result."""
    tensors = _integers(b, svdf) if svdf.kind.startswith("int8") else _floats(b, svdf)
    data, result = tensors[0], tensors[-1]
    options = {"rank": svdf.rank, "asymmetric_quantize_inputs": svdf.asymmetric}
    version = 3 if svdf.kind.startswith("int8") else 2
    b.op("SVDF", tensors[:-1], [result], version=version, fused_activation_function=svdf.activation, **options)
    return data, result


def _integers(b: ModelBuilder, svdf: Svdf) -> list[int]:
    """Scales that let states and results use their range; TFLM wants the bias's scale to match."""
    rng = np.random.default_rng(svdf.seed)
    filters, narrow = svdf.units * svdf.rank, svdf.kind == "int8-state"
    state, largest = ("int8", 127) if narrow else ("int16", 3000)
    data, feature, result = (float(np.float32(s)) for s in rng.uniform(0.01, 0.08, 3))
    kept = float(np.float32(rng.uniform(1, 3) * data * feature * 60 * np.sqrt(svdf.depth) * (4 if narrow else 1 / 64)))
    time = float(np.float32(rng.uniform(0.3, 2) * result / (kept * (40 if narrow else 2000))))
    zp = int(rng.integers(-50, 50)) if narrow else 0
    weight = rng.integers(-127, 127, (filters, svdf.depth), endpoint=True).astype(np.int8)
    in_time = rng.integers(-largest, largest, (filters, svdf.memory), endpoint=True).astype(state)
    bias = rng.integers(-1000, 1000, svdf.units).astype(np.int32)
    return [
        b.tensor("x", (svdf.batch, svdf.depth), "int8", scale=data, zero_point=int(rng.integers(-128, 128))),
        b.tensor("w", weight.shape, "int8", scale=feature, zero_point=0, data=weight),
        b.tensor("t", in_time.shape, state, scale=time, zero_point=0, data=in_time),
        b.tensor("b", bias.shape, "int32", scale=float(np.float32(kept) * np.float32(time)), zero_point=0, data=bias)
        if svdf.bias
        else -1,
        b.tensor("s", (svdf.batch, in_time.size), state, scale=kept, zero_point=zp, is_variable=True),
        b.tensor("y", (svdf.batch, svdf.units), "int8", scale=result, zero_point=int(rng.integers(-128, 128))),
    ]


def _floats(b: ModelBuilder, svdf: Svdf) -> list[int]:
    rng = np.random.default_rng(svdf.seed)
    filters = svdf.units * svdf.rank

    def weight(name: str, shape: tuple[int, ...]) -> int:
        if svdf.kind == "float32":
            return b.tensor(name, shape, "float32", data=rng.normal(size=shape).astype(np.float32))
        codes = rng.integers(-127, 127, shape, endpoint=True).astype(np.int8)
        return b.tensor(name, shape, "int8", scale=float(np.float32(rng.uniform(0.001, 0.02))), zero_point=0, data=codes)

    weights = [weight("w", (filters, svdf.depth)), weight("t", (filters, svdf.memory))]
    bias = b.tensor("b", (svdf.units,), "float32", data=rng.normal(size=svdf.units).astype(np.float32)) if svdf.bias else -1
    state = b.tensor("s", (svdf.batch, filters * svdf.memory), "float32", is_variable=True)
    x, y = b.tensor("x", (svdf.batch, svdf.depth), "float32"), b.tensor("y", (svdf.batch, svdf.units), "float32")
    return [x, *weights, bias, state, y]
