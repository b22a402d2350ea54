"""Keys of functions: equal for equal structure whatever the names, else different."""

from __future__ import annotations

from aot.tir.transform import structural_key
from tests.tir.kernels import conv
from tests.tir.transform.scaled import scale


def test_structural_key() -> None:
    assert structural_key(scale(8, 3, 5)) == structural_key(scale(8, 3, 5, name="other"))
    different = [scale(8, 3, 5), scale(8, 4, 5), scale(6, 3, 5), scale(8, 3, 5, lo=-7), conv()]
    assert len({structural_key(f) for f in different}) == len(different)
