"""A .tflite network: compiled for Cortex-M4, then run layer by layer on this machine.

python examples/python/network.py tests/models/net_kws_dscnn.tflite
"""

from __future__ import annotations

import sys

import numpy as np

import aot
from aot.runtime import GraphModule


def main(path: str) -> None:
    """Compile, run on random inputs, and print every layer."""
    artifact = aot.build(path, target="c -mcpu=cortex-m4", name="network")
    print(f"{len(artifact.metadata['layers'])} layers, {artifact.metadata['workspace']['size']} bytes of workspace")

    g = GraphModule(artifact)
    rng = np.random.default_rng(0)
    for i, row in enumerate(artifact.metadata["inputs"]):
        limits = np.iinfo(row["dtype"])
        g.set_input(i, rng.integers(limits.min, limits.max, row["shape"], endpoint=True).astype(row["dtype"]))
    g.run()
    for t in g.layer_times():
        values = g.debug_get_output(t.layer)
        print(f"{t.layer:3} {t.name[:50]:50} {values.dtype}{list(values.shape)} {1e6 * t.seconds:8.1f} us on this machine")
    for i in range(g.get_num_outputs()):
        print(f"output {i}: {g.get_output(i).reshape(-1)[:12]}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tests/models/net_kws_dscnn.tflite")
