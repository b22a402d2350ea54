"""Portable kernels of recurrent operators."""
