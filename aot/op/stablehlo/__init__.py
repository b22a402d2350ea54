"""Operators that stand in files under StableHLO's names and that TensorFlow Lite runs itself."""
