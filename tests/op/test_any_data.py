"""No data may make a kernel read or write outside its tensors, or do what C leaves undefined: indices, lengths, divisors, shifts.

The reference reports an error for an index outside; what happens here instead stands in the operator's docstring.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.errors import AotError
from aot.ir.op import F_DOMAIN
from aot.relay.expr import Call, Function, Op, post_order
from aot.relay.interpreter import evaluate
from tests.op._differential import GCC, main_of
from tests.op._forms import DTYPES, FORMS, LAYERS
from tests.op._one_op import Spec, const, one_op, same_quant
from tests.sanitized import Playback

Array = np.ndarray[Any, Any]
needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed")
ROWS = (3, 4)
CODES = same_quant("int8")


def extreme_sets(func: Function, count: int = 4) -> list[list[Array]]:
    """Operands of the ends of their types, of what lies beside 0 and the extents, and of anything."""
    return [[extreme_array(np.random.default_rng([i, j]), v.type.shape, v.type.dtype) for j, v in enumerate(func.params)]
            for i in range(count)]  # fmt: skip


def extreme_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype == "float16":
        return rng.integers(0, 1 << 16, shape, np.uint16).view(np.float16)
    if dtype == "float32":
        odd = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, 0, -0.0, 2**31, -(2**31), 2**63, 1, 0.5], np.float32)
        return np.where(rng.random(shape) < 0.6, rng.choice(odd, shape), rng.normal(size=shape)).astype(np.float32)
    ends = np.iinfo(dtype)
    odd = np.array([ends.min, ends.max, ends.min + 1, ends.max - 1, 0, 1, *([-1, -2] if ends.min else []), 2, 3, 4, 5], dtype)
    anything = rng.integers(ends.min, ends.max, shape, np.dtype(dtype), endpoint=True)
    return np.asarray(np.where(rng.random(shape) < 0.7, rng.choice(odd, shape), anything), dtype)


def by_index(kind: str) -> dict[str, bytes]:
    """Operators whose positions come at run time as `kind`."""
    x, y = Spec(ROWS, "int8", CODES), Spec((5, 4), "int8", CODES)
    found = {
        "REVERSE_SEQUENCE": one_op("REVERSE_SEQUENCE", [x, Spec((3,), kind)], [x], seq_dim=1, batch_dim=0),
        "GATHER": one_op("GATHER", [x, Spec((5,), kind)], [y], axis=0),
        "GATHER of columns": one_op("GATHER", [x, Spec((2,), kind)], [Spec((3, 2), "int8", CODES)], axis=1),
        "GATHER_ND": one_op("GATHER_ND", [x, Spec((5, 2), kind)], [Spec((5,), "int8", CODES)]),
        "GATHER_ND of rows": one_op("GATHER_ND", [x, Spec((5, 1), kind)], [y]),
        "SCATTER_ND": one_op("SCATTER_ND", [Spec((5, 1), kind), y, const(ROWS)], [x]),
        "SCATTER_ND of elements": one_op("SCATTER_ND", [Spec((5, 2), kind), Spec((5,), "int8", CODES), const(ROWS)], [x]),
        "ONE_HOT": one_op(
            "ONE_HOT", [Spec((3,), kind), const(4), Spec((), "int8"), Spec((), "int8")], [Spec(ROWS, "int8")], axis=-1
        ),
        "DYNAMIC_UPDATE_SLICE": one_op("DYNAMIC_UPDATE_SLICE", [x, Spec((2, 2), "int8", CODES), Spec((2,), kind)], [x]),
    }
    if kind == "int32":
        found["EMBEDDING_LOOKUP"] = one_op("EMBEDDING_LOOKUP", [Spec((5,), kind), x], [y])
        found |= {n: FORMS[n]("float32") for n in ("EMBEDDING_LOOKUP_SPARSE", "STABLEHLO_GATHER", "STABLEHLO_SCATTER")}
    return found


def test_every_operator_with_positions_is_here() -> None:
    """Those that say what they take (F_DOMAIN), but for divisors and exponents, which are numbers."""
    found = set()
    for model in by_index("int32").values():
        found |= {e.op.name for e in post_order(main_of(model).body) if isinstance(e, Call) and isinstance(e.op, Op)}
    numbers = {"divide", "floor_divide", "floor_mod", "power", "qnn.divide", "trunc_divide"}
    assert set(F_DOMAIN) - numbers <= found


@needs_gcc
def test_positions(tmp_path: Path) -> None:
    play = Playback()
    for kind in ("int32", "int64"):
        for name, model in by_index(kind).items():
            func = main_of(model)
            play.add(f"{name} by {kind}", func, extreme_sets(func))
    assert play.run(tmp_path) == ""


def test_lengths_of_sequences() -> None:
    """Below 0 count as 0, beyond the dimension as its extent."""
    model = by_index("int32")["REVERSE_SEQUENCE"]
    x = np.arange(12, dtype=np.int8).reshape(ROWS)
    (found,) = evaluate(main_of(model), [x, np.array([-5, 1 << 30, 3], np.int32)])
    assert found.tolist() == [[0, 1, 2, 3], [7, 6, 5, 4], [10, 9, 8, 11]]


def every_form() -> dict[str, bytes]:
    """Each operator on each type that it takes."""
    models = {f"{name} {d}": (lambda form=form, d=d: form(d)) for name, form in FORMS.items() for d in DTYPES}  # type: ignore[misc]
    pairs = [
        ("int8", "int8"),
        ("int16", "int8"),
        ("uint8", "uint8"),
        ("float32", "float32"),
        ("float32", "int8"),
        ("int8", "int4"),
    ]
    models |= {f"{n} {d}*{w}": (lambda f=f, d=d, w=w: f(d, w)) for n, f in LAYERS.items() for d, w in pairs}  # type: ignore[misc]
    found = {}
    for name, make in models.items():
        try:
            model = make()
            main_of(model)
        except (AotError, KeyError, ValueError, TypeError, OverflowError):
            continue
        found[name] = model
    return found


@pytest.mark.slow
@needs_gcc
def test_every_operator(tmp_path: Path) -> None:
    """Under both sanitizers, on the extremes of its operands."""
    play = Playback()
    for name, model in every_form().items():
        func = main_of(model)
        with np.errstate(all="ignore"):
            play.add(name, func, extreme_sets(func))
    assert len(play.kernels) > 300
    assert play.run(tmp_path) == ""
