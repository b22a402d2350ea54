"""Generic kernels of operators on boxes."""
