"""Kernels for Helium, the vector extension (MVE) of Cortex-M55 and -M85: vectors of 16 bytes in eight registers."""
