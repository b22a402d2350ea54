"""Streaming cascades: a chain of row-local layers runs row by row through rolling windows, so that its inner tensors never exist.

rows: what rows a fused group reads, and the group over a few rows; nest: the static order and the windows; emit: the
PrimFunc; search: which layers become cascades.
"""
