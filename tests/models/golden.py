"""Inputs and reference outputs of the models, and the files that hold them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time stamp of every member of a golden file: the same arrays give the same bytes."""


def _lcg(n: int) -> np.ndarray:
    """Set 0: bits 16 to 23 of a linear congruence in the index, as int8."""
    i = np.arange(n, dtype=np.uint32)
    return ((i * np.uint32(1103515245) + np.uint32(12345)) >> np.uint32(16)).astype(np.uint8).view(np.int8)


def make_input(shape: Sequence[int], dtype: str, *, index: int, number: int) -> np.ndarray:
    """Input `index` of set `number`.

    Set 0: a congruence (float: byte / 128; int16: byte * 256; bool: lowest bit).  Other sets, with
    numpy.random.default_rng(1000 * set + input): float standard normal, 8- and 16-bit integers over the whole range,
    wider ones within -128..127.
    """
    n, kind = int(np.prod(shape)), np.dtype(dtype)
    if number == 0:
        low = _lcg(n)
        if kind.kind == "f":
            return np.asarray(low.astype(kind) / kind.type(128)).reshape(shape)
        if kind == np.bool_:
            return (low & 1).astype(np.bool_).reshape(shape)
        if kind == np.uint8:
            return low.view(np.uint8).reshape(shape)
        return np.asarray(low.astype(kind) * kind.type(256 if kind == np.int16 else 1)).reshape(shape)
    rng = np.random.default_rng(1000 * number + index)
    if kind.kind == "f":
        return rng.standard_normal(n).astype(kind).reshape(shape)
    if kind == np.bool_:
        return rng.integers(0, 2, n).astype(np.bool_).reshape(shape)
    low_limit, high_limit = (np.iinfo(kind).min, np.iinfo(kind).max) if kind.itemsize <= 2 else (-128, 127)
    return rng.integers(low_limit, high_limit, n, dtype=kind, endpoint=True).reshape(shape)


def npz_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """A compressed .npz with fixed time stamps."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, value in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(value, order="C"), allow_pickle=False)
            info = zipfile.ZipInfo(f"{key}.npy", EPOCH)
            archive.writestr(info, member.getvalue(), zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def manifest(expected: str = "runs") -> list[dict[str, Any]]:
    """Entries of MANIFEST.json whose `expected` begins with `expected` ("runs" or "rejected")."""
    entries: list[dict[str, Any]] = json.loads((FOLDER / "MANIFEST.json").read_text())["models"]
    return [entry for entry in entries if entry["expected"].startswith(expected)]


def load_golden(name: str) -> dict[str, np.ndarray]:
    """The arrays of `<name>.golden.npz`: in{i}_{set}, out{i}_{set} and, where TFLM differs, tflm{i}_{set}."""
    with np.load(FOLDER / f"{name}.golden.npz") as archive:
        return {key: archive[key] for key in archive.files}


def sets_of(arrays: dict[str, np.ndarray], prefix: str) -> list[list[np.ndarray]]:
    """The arrays "in", "out" or "tflm" of a golden file, grouped: element [set][index]."""
    numbers = sorted({int(key.split("_")[1]) for key in arrays})
    width = len([key for key in arrays if key.startswith(prefix) and key.endswith("_0")])
    return [[arrays[f"{prefix}{i}_{n}"] for i in range(width)] for n in numbers]
