"""Pointwise convolution of few channels: pixels stay in registers."""
