"""Operators on quantised values, and those between quantised and real values."""
