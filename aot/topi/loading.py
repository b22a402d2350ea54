"""Kernels are imported, and so entered into the op strategy, when a group that they may run is asked for."""

from __future__ import annotations

import importlib
from functools import cache

from aot.topi.kernel_index import FILES

NEEDS = {"arm_mve": "mve", "arm_v6m": "v6m", "arm_fpu": "vfp"}
"""What a core must have for any kernel of a folder to accept a group."""


@cache
def load_kernels(anchor: str, lacking: frozenset[str] = frozenset()) -> None:
    """Import the files that have kernels for groups anchored at an operator, but not those that need what is `lacking`."""
    for file in FILES.get(anchor, ()):
        if NEEDS.get(file.partition(".")[0]) not in lacking:
            importlib.import_module(f"aot.topi.{file}")
