"""Operators that reduce or scan axes."""
