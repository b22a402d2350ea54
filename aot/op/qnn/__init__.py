"""Operators on quantised values, and between quantised and real values."""
