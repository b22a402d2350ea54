"""Generic kernels of signal processing."""
