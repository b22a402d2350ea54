"""A file of a few KB must not make the compiler allocate gigabytes: a handle is one number, and histories have limits."""

from __future__ import annotations

import pytest

from aot.errors import AotError
from aot.frontend.tflite import from_tflite
from aot.testing import ModelBuilder
from aot.testing.builder import read
from tests.op._one_op import Spec
from tests.op.signal import _models as models


def codes(model: bytes) -> list[str]:
    with pytest.raises(AotError) as caught:
        from_tflite(model)
    return [p.code for p in caught.value.problems]


def counter(handle: tuple[int, ...]) -> bytes:
    b = ModelBuilder()
    v = b.tensor("v", handle, "resource")
    b.op("VAR_HANDLE", [], [v], container="", shared_name="v")
    x = b.tensor("x", (4,), "float32")
    y = b.tensor("y", (4,), "float32")
    b.op("ADD", [read(b.subgraphs[0], v, (4,), "float32"), x], [y], fused_activation_function="NONE")
    return b.build([x], [y])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_handle_of_one_element(shape: tuple[int, ...]) -> None:
    from_tflite(counter(shape))


@pytest.mark.parametrize("shape", [(65536, 65536), (1 << 27,), (2,), (0,)])
def test_a_handle_is_one_number(shape: tuple[int, ...]) -> None:
    assert "E1120" in codes(counter(shape))


def wide(name: str, samples: int, outputs: list[Spec], **options: object) -> bytes:
    return models.custom(name, [Spec((samples,), "int16")], outputs, **options)


def test_histories_have_the_limits_of_tensors() -> None:
    flag = Spec((), "bool")
    framer = wide("SignalFramer", 1 << 20, [Spec((1 << 20, 1), "int16"), flag], frame_size=1 << 20, frame_step=1, prefill=0)
    assert codes(framer) == ["E1216"]
    rows = models.custom("SignalDelay", [Spec((1 << 16, 1), "int16")], [Spec((1 << 16, 1), "int16")], delay_length=1 << 20)
    assert codes(rows) == ["E1216"]
    options = {"num_channels": 1 << 20, "stacker_left_context": 1024, "stacker_right_context": 1024, "stacker_step": 1}
    assert codes(wide("SignalStacker", 1 << 20, [Spec((1 << 20,), "int16"), flag], **options)) == ["E1216"]
