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
    return load_samples([inputs], metadata["inputs"], Conversion()).sets


def own_sets(metadata: Mapping[str, Any], given: Sequence[Sequence[Array]]) -> Sets:
    """`given[set][input]` as sets: arrays of the inputs' shapes and dtypes (E5022 otherwise)."""
    sets = tuple(tuple(np.ascontiguousarray(array) for array in one) for one in given)
    rows = metadata["inputs"]
    for number, one in enumerate(sets):
        if len(one) != len(rows):
            raise UsageError(Problem("E5022", f"set {number} has {len(one)} inputs, the model {len(rows)}"))
        for row, array in zip(rows, one, strict=True):
            if list(array.shape) != list(row["shape"]) or array.dtype != numpy_dtype(row["dtype"]):
                wanted, got = f"{row['dtype']}{list(row['shape'])}", f"{array.dtype}{list(array.shape)}"
                raise UsageError(Problem("E5022", f'input {row["index"]} "{row["name"]}" of set {number} is {wanted}, not {got}'))
    return Sets(sets, origin=f"{len(sets)} sets of the caller")
