"""What of a compiled model is over the budgets that were given for its choice of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aot.errors import Problem
from aot.micro.advice import peak_of


def over_budget(metadata: Mapping[str, Any], *, code_bytes: int = 0, constant_bytes: int | None = None) -> list[Problem]:
    """What of a compiled model is over its budgets (E2021, E2022).

    `code_bytes` where the code is known; `constant_bytes` where they were measured.
    """
    options, name = metadata["options"], str(metadata["name"])
    problems = []
    state = int(metadata.get("state", {}).get("size", 0))
    size, most = int(metadata["workspace"]["size"]) + state, options.get("ram_budget")
    if most is not None and size > most:
        what = f"workspace and state ({state:,} B) take" if state else "the workspace takes"
        text = f"{what} {size:,} B, --ram-budget is {most:,} B: nothing smaller was found"
        problems.append(Problem("E2021", "; ".join([text, *peak_of(metadata)]), name))
    constants, most = metadata["constants"]["size"] if constant_bytes is None else constant_bytes, options.get("flash_budget")
    if most is not None and constants + code_bytes > most:
        parts = f"constants take {constants:,} B" + (f" and code {code_bytes:,} B" if code_bytes else "")
        problems.append(Problem("E2022", f"{parts}, --flash-budget is {most:,} B: nothing smaller was found", name))
    return problems
