"""--ram-budget and --flash-budget: what is over them is not written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aot.errors import TargetError

FORCE = "--force-over-budget writes the files anyway"


def check_budgets(
    models: Sequence[Mapping[str, Any]], *, force: bool, code_bytes: int = 0, constant_bytes: int | None = None
) -> None:
    """Raise TargetError (exit 4) for everything that is over a budget, unless `force`."""
    from aot.report.figures.limits import over_budget

    problems = [p for m in models for p in over_budget(m, code_bytes=code_bytes, constant_bytes=constant_bytes)]
    if problems and not force:
        raise TargetError(*(replace(p, message=f"{p.message}; {FORCE}") for p in problems))
