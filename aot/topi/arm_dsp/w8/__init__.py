"""Kernels whose weights stay one byte each in flash."""
