"""Convolution by the SMLAL chain."""
