"""The loop-nest IR."""
