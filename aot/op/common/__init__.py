"""Code shared by several operator files: windows, axes, checks, quantisation."""
