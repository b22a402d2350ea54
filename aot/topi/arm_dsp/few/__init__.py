"""Convolution to one or two channels: windows by four, rows kept as halves of words."""
