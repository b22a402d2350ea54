"""Shared by the kernels of layers: the normalised view of a layer, packed constants, requantisation, windows and planes."""
