"""disabled_pass=["UnrollLoop"] is seen in the C code; passes that the code generator needs cannot be disabled."""

from __future__ import annotations

import numpy as np
import pytest

import aot
from aot import te
from aot.errors import UsageError
from aot.ir.transform import PassContext


def _matmul() -> tuple[te.Schedule, list[te.Tensor]]:
    """A product with the loop over columns unrolled, its sums in registers."""
    a, b = te.placeholder((8, 16), "int8", name="a"), te.placeholder((4, 16), "int8", name="b")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((8, 4), lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k), name="c")
    s = te.create_schedule(c.op)
    local = s.cache_write(c, "local")
    i, j = s[c].op.axis
    s[local].compute_at(s[c], i)
    li, lj = s[local].op.axis
    s[local].reorder(s[local].op.reduce_axis[0], li, lj)
    s[local].unroll(lj)
    s[c].unroll(j)
    return s, [a, b, c]


def test_a_loop_stays_a_loop() -> None:
    a = te.placeholder((8,), "int32", name="a")
    b = te.compute((8,), lambda i: a[i] + 1, name="b")
    s = te.create_schedule(b.op)
    s[b].unroll(s[b].op.axis[0])
    assert "for (" not in aot.build(s, [a, b], target="host").get_source()
    with PassContext(disabled_pass=["UnrollLoop"]):
        module = aot.build(s, [a, b], target="host")
    assert "for (int32_t i = 0; i < 8; ++i)" in module.get_source()
    out = np.zeros(8, "int32")
    module(np.arange(8, dtype="int32"), out)
    assert out.tolist() == list(range(1, 9))


def test_registers_have_constant_indices_all_the_same() -> None:
    s, args = _matmul()
    with PassContext(disabled_pass=["UnrollLoop"]):
        module = aot.build(s, args, target="host")
    assert "c_local_3 += a[i * 16 + k] * b[k + 48];" in module.get_source()
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-128, 128, shape).astype("int8") for shape in ((8, 16), (4, 16)))
    out = np.zeros((8, 4), "int32")
    module(x, y, out)
    assert np.array_equal(out, x.astype("int32") @ y.astype("int32").T)


def test_what_the_code_generator_needs_is_required() -> None:
    with (
        pytest.raises(UsageError, match='E5031 the pass "flatten_buffer" is required'),
        PassContext(disabled_pass=["FlattenBuffer"]),
    ):
        pass
