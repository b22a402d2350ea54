"""Random numbers that a seed determines."""
