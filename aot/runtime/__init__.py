"""Compiled code in this process: functions, models, and the graph executor for debugging."""

from __future__ import annotations

from aot.runtime.functions import Module, load_module
from aot.runtime.graph import GraphModule, LayerTime
from aot.runtime.packed import PackedFunc

__all__ = ["GraphModule", "LayerTime", "Module", "PackedFunc", "load_module"]
