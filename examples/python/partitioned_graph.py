"""Give parts of a network to another code generator: CMSIS-NN's functions, called from our main function.

python examples/python/partitioned_graph.py
"""

from __future__ import annotations

import numpy as np

import aot
from aot import relay
from aot.driver.options import Options
from aot.ir import IRModule


def network() -> IRModule:
    """A convolution, a residual addition, pooling."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 16, 16, 8), dtype="int8")
    w = rng.integers(-127, 128, (8, 3, 3, 8)).astype("int8")
    y = relay.qnn.requantize(relay.nn.conv2d(x, w, np.arange(8, dtype="int32"), padding=1), scale=0.002)
    return IRModule.from_expr(relay.nn.avg_pool2d(relay.qnn.add(x, y, scales=(0.1, 0.1, 0.2)), 4), name="residual")


def main() -> None:
    """Compile with and without, and print which kernel each layer has."""
    for chosen in ((), ("cmsis-nn",), ("cmsis-nn=conv2d",)):
        artifact = aot.build(network(), target="cortex-m4", name="residual", options=Options(byoc=chosen))
        kernels = ", ".join(layer["kernel"] for layer in artifact.metadata["layers"])
        print(f"{' '.join(chosen) or 'ours':16} workspace {artifact.metadata['workspace']['size']:5} B: {kernels}")


if __name__ == "__main__":
    main()
