"""Kernels of operators that search tables."""
