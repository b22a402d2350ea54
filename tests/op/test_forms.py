"""Every operator with every element type that it says it takes, on its smallest model."""

from __future__ import annotations

import pytest

from aot.frontend.tflite.convert import SUPPORT, load_all
from tests.op._differential import check
from tests.op._forms import FORMS, LAYERS

load_all()

PLAIN = [("ADD_N", "int32"), ("SIGN", "float32"), ("SIGN", "int32"), ("PAD", "int64"), ("TRANSPOSE", "bool")]
PLAIN += [("PAD", "bool"), ("SLICE", "uint32"), ("RESIZE_NEAREST_NEIGHBOR", "uint16"), ("CONCATENATION", "uint32")]


@pytest.mark.parametrize(("name", "dtype"), PLAIN)
def test_some(name: str, dtype: str) -> None:
    check(FORMS[name](dtype))


def test_pool_of_floats() -> None:
    check(FORMS["AVERAGE_POOL_2D"]("float32"), host=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*FORMS, *LAYERS}))
def test_every_type(name: str) -> None:
    """Kernels against `evaluate`. Not against the reference, which crashes on some types that its kernels do not have."""
    for types in SUPPORT[name].types:
        model = FORMS[name](types) if name in FORMS else LAYERS[name](*types.split("*"))
        if (name, types) != ("QUANTIZE", "int32"):  # random int32 leave what the reference defines
            check(model, oracle="tflm")
