"""gelu_uneven: one loop over vectors of four, and one over the remaining one to three elements."""

from __future__ import annotations

from aot.op.math.unary import LEFT_OVER, VECTOR, gelu_rule
from aot.topi.generic.flat import FlatKernel, register_flat


@register_flat("gelu_uneven")
def lower(kernel: FlatKernel) -> None:
    b, (data,), out = kernel.b, kernel.args, kernel.out
    whole = out.size - out.size % VECTOR
    for start, stop, library in ((0, whole, "eigen_"), (whole, out.size, LEFT_OVER)):
        if start == stop:
            continue
        with b.for_("i", stop, start=start) as i:
            x = b.let("x", data[i])
            b.store(out, i, gelu_rule(x, approximate=False, library=library))
