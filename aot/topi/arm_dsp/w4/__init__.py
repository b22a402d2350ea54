"""Kernels whose weights stay half a byte each in flash."""
