"""Compiled code in this process: functions, models, and the graph executor for debugging."""

from __future__ import annotations

from aot.errors.tvm_names import missing_in
from aot.runtime.functions import Module, PackedFunc, load_module
from aot.runtime.graph import GraphModule, LayerTime

__all__ = ["GraphModule", "LayerTime", "Module", "PackedFunc", "load_module"]

__getattr__ = missing_in("runtime")
