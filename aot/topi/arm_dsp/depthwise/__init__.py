"""Depthwise convolution by channel planes."""
