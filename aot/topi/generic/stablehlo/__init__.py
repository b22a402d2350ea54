"""Kernels of StableHLO's operators."""
