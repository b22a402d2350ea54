"""Kernels of float32 for every core with an FPU, and some for all."""
