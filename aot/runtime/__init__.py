"""Compiled code in this process: functions, models, and the graph executor for debugging."""

from __future__ import annotations

from typing import Any

from aot.errors.tvm_names import missing
from aot.runtime.functions import Module, PackedFunc, load_module
from aot.runtime.graph import GraphModule, LayerTime

__all__ = ["GraphModule", "LayerTime", "Module", "PackedFunc", "load_module"]


def __getattr__(name: str) -> Any:
    """Explain TVM names that do not exist here (E5091)."""
    raise missing("runtime", name)
