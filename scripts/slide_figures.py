"""Moving windows, for scripts/doc_figures.py: bounds by the layers, and networks with a result per row despite strides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

BOUNDED = ("arm_kws_cnn_s_int8", "micro_kws_m_int8", "micro_speech_quantized", "mlperf_sww_int8")
STRIDES = ("mlperf_kws_dscnn_int8", "arm_kws_cnn_s_int8", "micro_kws_m_int8", "micro_speech_quantized")


def rows_of(path: Path, hop: int) -> tuple[str, int, int]:
    """The first input's name, its elements along time for `hop` rows of features, and the number of rows of a window.

    Keyword networks have 49 rows of features, in some files flattened.
    """
    import aot
    from aot.driver.front import outline

    entry = outline(path.read_bytes(), target="cortex-m4", name=path.stem, options=aot.Options()).inputs[0]
    shape = entry["shape"]
    return (entry["name"], hop * shape[1] // 49, 49) if len(shape) == 2 else (entry["name"], hop, shape[1])


def bounds(folder: Path, board: str) -> Iterator[tuple[object, ...]]:
    """A network; new rows; instructions of the window, each layer scaled by the share of rows that a push computes; a push."""
    import aot

    for name in BOUNDED:
        hop = 1 if name == "mlperf_sww_int8" else 2
        path = folder / f"{name}.tflite"
        key, step, window = rows_of(path, hop)
        shares = _shares(path, key, step)
        whole = aot.verify(path, board=board, random=1, profile=True)
        pushed = aot.verify(path, board=board, random=4, slide={key: step})
        assert whole.exact, name
        assert pushed.exact, name
        assert pushed.pushes is not None
        bound = whole.instructions - sum(layer["instructions"] for layer in whole.layers)
        for layer in whole.layers:
            bound += layer["instructions"] * max((shares[op] for op in layer["ops"] if op in shares), default=1.0)
        average = pushed.pushes["average"]
        yield name, f"{hop} of {window}", round(bound), round(average), f"{average / bound:.2f}"


def _shares(path: Path, key: str, step: int) -> dict[int, float]:
    """For each operator of the file that computes rows: the share that a push computes."""
    from aot.driver.options import Options
    from aot.driver.slide import slid
    from aot.frontend.tflite import from_tflite

    plan = slid(from_tflite(path.read_bytes()), Options(slide=((key, step),)), opt_level=2).plan
    shares: dict[int, float] = {}
    for node in plan.nodes:
        if node.span.op_index >= 0:
            shares[node.span.op_index] = max(shares.get(node.span.op_index, 0.0), plan.share(node))
    return shares


def phases(folder: Path) -> Iterator[tuple[object, ...]]:
    """A network; MAC of a run with one new row, and with two phases of two new rows each; workspace and both states."""
    import aot
    from aot.errors import AotError

    for name in STRIDES:
        path = folder / f"{name}.tflite"
        whole = aot.build(path, target="cortex-m4").metadata
        try:
            key, step, _ = rows_of(path, 1)
            one = f"{_macs(aot.build(path, target='cortex-m4', slide={key: step}).metadata):,} MAC"
        except AotError:
            one = f"{_macs(whole):,} MAC (refused)"
        two = aot.build(path, target="cortex-m4", slide={key: 2 * step}, io="user").metadata
        cost = f"{_macs(two):,} MAC ({_macs(two) / _macs(whole):.2f})"
        yield name, one, cost, f"{two['workspace']['size']:,} + 2 × {two['state']['size']:,} B"


def _macs(metadata: Any) -> int:
    return int(metadata["macs"])
