"""A constant without elements is a constant."""
