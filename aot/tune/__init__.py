"""Tuning: kernels of a model measured on a board, and the records by which a compilation chooses them (docs/tuning.md)."""

from aot.executor.config import ApplyHistoryBest, History
from aot.tune.record import Record, load_history

__all__ = ["ApplyHistoryBest", "History", "Record", "load_history"]
