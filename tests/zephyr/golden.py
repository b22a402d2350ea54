"""golden.h of the Zephyr test: inputs, and the outputs that TensorFlow Lite's reference kernels give for them.

python -m tests.zephyr.golden        writes tests/zephyr/models/src/golden.h
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aot.report.measure.reference import find_reference

ROOT = Path(__file__).resolve().parent.parent.parent
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
PAIR = ROOT / "tests" / "models" / "graph_two_inputs_two_outputs.golden.npz"
HEADER = ROOT / "tests" / "zephyr" / "models" / "src" / "golden.h"
IMAGES = 3


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    """Name in C -> its int8 elements; the digits' ones have a row for each image."""
    pixels = np.load(DIGITS.parent / "test_images.npz")["x"][:IMAGES].astype(np.int16)
    inputs = (pixels - 128).astype(np.int8).reshape(IMAGES, 1, 8, 8, 1)
    outputs = find_reference(DIGITS.read_bytes(), "litert", outputs=1).outputs([[i] for i in inputs])
    found = {"digits_in": inputs.reshape(IMAGES, -1), "digits_out": np.stack([o[0].reshape(-1) for o in outputs])}
    golden = np.load(PAIR)
    return {**found, **{f"pair_{key[:-2]}": golden[key].reshape(-1) for key in ("in0_0", "in1_0", "out0_0", "out1_0")}}


def header(values: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """The text of golden.h."""
    parts = ["/* Written by tests/zephyr/golden.py. */\n#ifndef GOLDEN_H\n#define GOLDEN_H\n\n#include <stdint.h>\n"]
    for name, array in values.items():
        rows = array if array.ndim == 2 else array[None]
        shape = "".join(f"[{n}]" for n in array.shape)
        lines = [", ".join(map(str, row.tolist())) for row in rows]
        body = ",\n".join(f"    {{{line}}}" if array.ndim == 2 else f"    {line}" for line in lines)
        parts.append(f"static const int8_t {name}{shape} = {{\n{body},\n}};\n")
    return "\n".join([*parts, "#endif\n"])


if __name__ == "__main__":
    HEADER.write_text(header(arrays()), encoding="utf-8")
