"""Kernels in portable C, for every core; kernels of instruction sets compete with them."""
