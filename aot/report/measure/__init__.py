"""What a model computes, against what it should: inputs, references, comparison, the first operator that differs."""

DEFAULT_SETS = 4
"""Sets of made-up inputs if nobody says how many."""
