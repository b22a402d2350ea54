"""The sets of inputs that a caller asks for: by rule, from a file, or his own arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError
from aot.ir.op import Array
from aot.report import DEFAULT_SETS
from aot.report.measure.samples import Conversion, load_samples
from aot.report.measure.sets import Sets, golden_sets, is_golden, open_npz, rule_sets
from aot.report.measure.windows import fill_count
from aot.support.dtype import numpy_dtype
from aot.support.near import did_you_mean

MAX_RANDOM = 10_000


def sets_for(metadata: Mapping[str, Any], inputs: Path | None, count: int | None, *, oracle: str) -> Sets:
    """`count` sets by rule (E5018 beyond 10,000), or those of a golden or sample file `inputs`; not both (E5017)."""
    if inputs is None:
        count = max(DEFAULT_SETS, 2 * fill_count(metadata)) if count is None else count
        if not 1 <= count <= MAX_RANDOM:
            raise UsageError(Problem("E5018", f"--random {count}: choose a number from 1 to {MAX_RANDOM}"))
        return rule_sets(metadata["inputs"], count)
    if count is not None:
        raise UsageError(Problem("E5017", "--inputs and --random are mutually exclusive"))
    if inputs.suffix.lower() == ".npz":
        arrays = open_npz(inputs)
        if is_golden(arrays):
            return golden_sets(arrays, inputs, inputs=metadata["inputs"], outputs=metadata["outputs"], oracle=oracle)
    return load_samples([inputs], metadata, Conversion()).sets


OwnSet = Sequence[Array] | Mapping[str, Array]
"""One set of the caller's: the inputs in their order, or by name."""


def _in_order(one: OwnSet | Array, rows: Sequence[Mapping[str, Any]], number: int) -> Sequence[Array]:
    """The arrays of a set in the order of the model's inputs, by their names or their names in C (E5022)."""
    if isinstance(one, np.ndarray):
        form = "a list of sets, each a list with an array for each input ([[array]]), or a dictionary by name"
        raise UsageError(Problem("E5022", f"set {number} is a single array; inputs is {form}"))
    if not isinstance(one, Mapping):
        return one
    names = [next((n for n in (row["name"], row["c_name"]) if n in one), None) for row in rows]
    strange = [str(n) for n in one if n not in names]
    if strange or None in names:
        known = ", ".join(row["name"] for row in rows)
        message = f"{strange[0]!r} is no input" if strange else f"{len(one)} of {len(rows)} inputs are given"
        near = did_you_mean(strange[0], [row["name"] for row in rows]) if strange else ""
        raise UsageError(Problem("E5022", f"set {number}: {message}{near}; the model has {known}"))
    return [one[n] for n in names if n is not None]


def own_sets(metadata: Mapping[str, Any], given: Sequence[OwnSet] | OwnSet) -> Sets:
    """`given[set][input]` as sets: arrays of the inputs' shapes and dtypes (E5022 otherwise); a dictionary by name is one set."""
    rows = metadata["inputs"]
    several = [given] if isinstance(given, Mapping) else given
    sets = tuple(tuple(map(np.ascontiguousarray, _in_order(one, rows, n))) for n, one in enumerate(several))
    for number, one in enumerate(sets):
        if len(one) != len(rows):
            raise UsageError(Problem("E5022", f"set {number} has {len(one)} inputs, the model {len(rows)}"))
        for row, array in zip(rows, one, strict=True):
            if list(array.shape) != list(row["shape"]) or array.dtype != numpy_dtype(row["dtype"]):
                wanted, got = f"{row['dtype']}{list(row['shape'])}", f"{array.dtype}{list(array.shape)}"
                raise UsageError(Problem("E5022", f'input {row["index"]} "{row["name"]}" of set {number} is {wanted}, not {got}'))
    return Sets(sets, origin=f"{len(sets)} sets of the caller")
