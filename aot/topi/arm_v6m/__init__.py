"""Kernels for Armv6-M: 32-bit products and sums, nothing wider (Cortex-M0, M0+)."""
