"""Results of a run: measured, compared with baselines and budgets, and rendered.

The package is callable, `aot.report("kws.tflite")`: it forwards to `aot.report.calls.report`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A module that is both a package and its main function, so that `aot.report` can be imported and called."""

    def __call__(self, model: Any, **keywords: Any) -> Any:
        """Call `aot.report.calls.report`, which is imported only now: other commands do not need it."""
        return import_module("aot.report.calls").report(model, **keywords)


sys.modules[__name__].__class__ = _Callable
