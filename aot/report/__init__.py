"""What a run says: measured, compared with baselines and budgets, and shown.

The package can be called, `aot.report("kws.tflite")`: it is `aot.report.calls.report`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """One name for a package and its main function: both are `aot.report` to those who use them."""

    def __call__(self, model: Any, **keywords: Any) -> Any:
        """`aot.report.calls.report`, which is loaded only now: a run of another verb does not need it."""
        return import_module("aot.report.calls").report(model, **keywords)


sys.modules[__name__].__class__ = _Callable
