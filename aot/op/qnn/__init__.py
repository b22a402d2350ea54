"""Operators on quantised codes, and those between codes and real values."""
