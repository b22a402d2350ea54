"""flatten_buffer: one index for every access."""

from __future__ import annotations

from aot.tir.expr import Load
from aot.tir.functor import accesses, walk
from aot.tir.stmt import Store
from aot.tir.transform import flatten
from tests.tir.kernels import conv


def test_flatten_leaves_one_index() -> None:
    func = flatten(conv())
    counts = {len(a.indices) for s in walk(func.body) for a in accesses(s) if isinstance(a, (Load, Store))}
    assert counts == {1}
