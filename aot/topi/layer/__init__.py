"""What kernels of one layer share: its normalised view, parameters, constants, requantisation."""
