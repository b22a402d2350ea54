"""Layers of float32 by vectors, in the reference's order of accumulation; numbers below 2^-126 count as zero (--fast-float)."""
