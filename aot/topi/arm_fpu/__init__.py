"""Kernels for the single-precision FPU of Armv7E-M and Armv8-M: float32 layers in the reference's order of accumulation."""
