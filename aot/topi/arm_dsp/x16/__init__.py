"""Kernels of layers with 16-bit data and 8-bit weights."""
