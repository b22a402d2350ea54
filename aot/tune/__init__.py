"""Tuning: kernels of a model measured on a board, and the records by which a compilation chooses them (docs/tuning.md)."""

from aot.executor.config import ApplyHistoryBest, History
from aot.tune.database import load_history
from aot.tune.record import Record

__all__ = ["ApplyHistoryBest", "History", "Record", "load_history"]
