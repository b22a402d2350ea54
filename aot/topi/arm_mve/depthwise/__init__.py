"""Depthwise convolution by VMLADAV: the taps of an output lie side by side."""
