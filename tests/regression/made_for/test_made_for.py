"""Custom operators of other tool chains: the refusal says what the file was made for."""

from __future__ import annotations

import pytest

from aot.frontend.tflite.check import check_structure
from aot.testing.text_model import text_model

NAMES = [
    ("NeutronGraph", "NXP"),
    ("XC_conv2d_v2", "XMOS"),
    ("LceBconv2d", "Larq"),
    ("TransformTensorBilinear", "MediaPipe"),
    ("Landmarks2TransformMatrixV2", "MediaPipe"),
    ("edgetpu-custom-op", "Edge TPU"),
    ("ethos-u", "Vela"),
    ("Unheard", "is not known"),
]


@pytest.mark.parametrize(("name", "maker"), NAMES)
def test_the_maker_is_named(name: str, maker: str) -> None:
    (problem,) = check_structure(text_model(f"in x int8[1,4]\nout y int8[1,4]\nCUSTOM:{name} x -> y"))
    assert problem.code == "E1210"
    assert maker in problem.message
