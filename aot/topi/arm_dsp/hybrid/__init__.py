"""Kernels of hybrid layers: float32 data quantised at run time, integer weights, float32 results."""
