"""Intrinsics that kernels of several instruction sets use."""
